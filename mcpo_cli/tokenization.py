"""Prompts as token ids and responses as text: the only code for both, in training, evaluation and both backends."""

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from mcpo_cli import thinking

_TAG_TOKENS = 16
"""More tokens than a tag of reasoning and the space after it can have."""
TEXT = "text"
"""The role of a message that is given to the model as it is, without a chat template."""


def load(folder: Path) -> Any:
    """The tokenizer in a Hugging Face folder, without running the model's code. Imports transformers: seconds."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def prompt_ids(tokenizer: Any, messages: Sequence[Mapping[str, str]]) -> list[int]:
    """Token ids of a prompt: its turns in the tokenizer's chat template, up to where the assistant begins to answer.

    A message of the role TEXT is tokenized as it is. Without a chat template all messages are, joined as paragraphs.
    """
    if tokenizer.chat_template is None or messages[0]["role"] == TEXT:
        return list(tokenizer("\n\n".join(message["content"] for message in messages))["input_ids"])
    turns = [dict(message) for message in messages]
    return list(tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=False))


def opened(tokenizer: Any, prompt: Sequence[int]) -> str:
    """The tag of reasoning with which a prompt ends, such as `<think>` and a line break; empty if it ends otherwise.

    A response to this prompt begins within its reasoning, which its own tokens do not say: its text begins with this.
    """
    return thinking.opened(decoded(tokenizer, prompt[-_TAG_TOKENS:]))


def decoded(tokenizer: Any, tokens: Sequence[int], ends: Collection[int] = ()) -> str:
    """The text of tokens, special ones included; without the last one if it is one of `ends`."""
    whole = tokens[:-1] if len(tokens) and tokens[-1] in ends else tokens
    return str(tokenizer.decode(whole, skip_special_tokens=False, clean_up_tokenization_spaces=False))


@lru_cache(maxsize=1)
def token_texts(tokenizer: Any) -> tuple[str, ...]:
    """The text of each token alone."""
    return tuple(tokenizer.batch_decode([[token] for token in range(len(tokenizer))]))


@lru_cache(maxsize=4)
def stop_ids(tokenizer: Any, strings: tuple[str, ...]) -> tuple[int, ...]:
    """The tokens whose text contains a stop string: if it is a single character, all tokens that can complete it."""
    texts = token_texts(tokenizer) if strings else ()
    return tuple(token for token, text in enumerate(texts) if any(string in text for string in strings))


def cut(text: str, strings: Sequence[str]) -> str:
    """`text` up to the first stop string."""
    return text[: min((at for string in strings if (at := text.find(string)) >= 0), default=len(text))]
