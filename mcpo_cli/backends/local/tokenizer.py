"""The tokenizer of a task with a closed vocabulary, in Hugging Face format."""

from collections.abc import Sequence

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from mcpo_cli.tasks.base import BLANK, EOS


def build(vocabulary: Sequence[str]) -> PreTrainedTokenizerFast:
    """One token a word, words split at white space. `len()` of it is the model's vocabulary size.

    Padding is the end token, never a token of a prompt: the stock model gives padding's embedding no gradient.
    """
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token=BLANK))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token=EOS, pad_token=EOS, unk_token=BLANK)
