"""The tokenizer of a task with a closed vocabulary, in Hugging Face format."""

from collections.abc import Container, Sequence

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from mcpo_cli.tasks.base import BLANK, EOS


def separator(vocabulary: Container[str]) -> str:
    """The separator of two words of a text: a space, or nothing where each character is a word."""
    return "" if " " in vocabulary else " "


def split(text: str, vocabulary: Container[str]) -> list[str]:
    """The words of `text`."""
    return text.split() if separator(vocabulary) else list(text)


def build(vocabulary: Sequence[str]) -> PreTrainedTokenizerFast:
    """One token a word (see `separator`). `len()` of it is the model's vocabulary size.

    Padding is the end token, never a token of a prompt: the stock model gives padding's embedding no gradient.
    """
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token=BLANK))
    if separator(vocabulary):
        core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    else:
        core.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
        core.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token=EOS, pad_token=EOS, unk_token=BLANK)
