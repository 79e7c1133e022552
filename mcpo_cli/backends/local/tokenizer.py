"""The tokenizer of a task with a closed vocabulary, in Hugging Face format; where responses end."""

from collections.abc import Container, Sequence

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from mcpo_cli.tasks.base import BLANK, EOS
from mcpo_cli.tokenization import cut, token_texts
from mcpo_cli.tokenization import stop_ids as tokens_with


def separator(vocabulary: Container[str]) -> str:
    """The separator of two words of a text: a space, or an empty string if each character is a word."""
    return "" if " " in vocabulary else " "


def split(text: str, vocabulary: Container[str]) -> list[str]:
    """The words of `text`."""
    return text.split() if separator(vocabulary) else list(text)


def build(vocabulary: Sequence[str]) -> PreTrainedTokenizerFast:
    """One token per word (see `separator`). `len()` of it is the model's vocabulary size.

    Padding is the end token, never a token of a prompt: the stock model gives padding's embedding no gradient.
    """
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token=BLANK))
    if separator(vocabulary):
        core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    else:
        core.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
        core.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token=EOS, pad_token=EOS, unk_token=BLANK)


class Stops:
    """The ends of responses of one model.

    ends_V: tokens that always end a response. A stop string ends the response with the token that completes it; as a
    string of several characters may be spread over several tokens, the text of the last tokens is searched whenever a
    token contains the string's last character.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, stop_ids: Sequence[int], strings: Sequence[str]) -> None:
        self.tokenizer, self.strings, self.ids = tokenizer, tuple(strings), frozenset(stop_ids)
        # Numbers of tokens may have gaps.
        self.ends_V = torch.zeros(max([len(tokenizer) - 1, *stop_ids]) + 1, dtype=torch.bool)
        self.ends_V[[*stop_ids, *tokens_with(tokenizer, self.strings)]] = True
        texts = token_texts(tokenizer) if strings else ()
        endings = {string[-1] for string in strings if len(string) > 1}
        self.may_end_V = torch.tensor([bool(endings & set(text)) for text in texts] or [False], dtype=torch.bool)

    def reached(self, token_MT: Tensor) -> Tensor:
        """True for each of M responses that ends with the last of its tokens so far."""
        token_M = token_MT[:, -1].cpu()
        # A model may have more tokens than its tokenizer; these are in no text.
        ends_M = _at(self.ends_V, token_M)
        index_C = (_at(self.may_end_V, token_M) & ~ends_M).nonzero().squeeze(-1)
        if len(index_C):
            # Each token has at least one character, except for tokens that are parts of one.
            last_CT = token_MT[index_C.to(token_MT.device), -4 * max(map(len, self.strings)) :]
            texts = self.tokenizer.batch_decode(last_CT.tolist())
            ends_M[index_C] = torch.tensor([any(string in text for string in self.strings) for text in texts])
        return ends_M.to(token_MT.device)

    def cut(self, text: str) -> str:
        """The text before the first stop string."""
        return cut(text, self.strings)


def _at(flags_V: Tensor, token_M: Tensor) -> Tensor:
    return flags_V[token_M.clamp(max=len(flags_V) - 1)] & (token_M < len(flags_V))
