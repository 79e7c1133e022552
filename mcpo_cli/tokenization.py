"""Prompts as token ids and responses as text: the only code for both, in training, evaluation and both backends."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from mcpo_cli import chat_template, thinking
from mcpo_cli.errors import bad_model, first_line

_TAG_TOKENS = 16
"""More tokens than a tag of reasoning and the space after it can have."""
TEXT = "text"
"""The role of a message that is given to the model as it is, without a chat template."""


def load(folder: Path) -> Any:
    """The tokenizer in a Hugging Face folder, without running the model's code. Imports transformers: seconds.

    Raises:
        ConfigError: the library cannot load it.
    """
    from transformers import AutoTokenizer

    with _library(folder.name, "cannot be loaded"):
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


@contextmanager
def _library(name: str, failure: str) -> Iterator[None]:
    """Turn the errors of the tokenizer's libraries into ConfigError: they have no common class."""
    try:
        yield
    except BaseException as error:
        # A panic of Rust code is no Exception.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise bad_model(f"{name}: its tokenizer {failure}: {first_line(error)}") from error


def prompt_ids(
    tokenizer: Any, messages: Sequence[Mapping[str, str]], variables: Mapping[str, Any] | None = None
) -> list[int]:
    """Token ids of a prompt: its turns in the tokenizer's chat template, up to where the assistant begins to answer.

    A message of the role TEXT is tokenized as it is. Without a chat template so are all messages, joined as paragraphs.

    variables: the chat template's variables, besides the special tokens.

    Raises:
        ConfigError: the template cannot write the prompt, or leaves out a turn.
    """
    if tokenizer.chat_template is None or messages[0]["role"] == TEXT:
        return _plain_ids(tokenizer, "\n\n".join(message["content"] for message in messages))
    name = Path(tokenizer.name_or_path).name
    turns = [{"role": str(message["role"]), "content": str(message["content"])} for message in messages]
    # As in transformers, with its names; a template may test the last two.
    context = {**tokenizer.special_tokens_map, **(variables or {}), "messages": turns}
    context |= {"add_generation_prompt": True, "tools": None, "documents": None}
    text = chat_template.rendered(name, _template(name, tokenizer.chat_template), context)
    return _encoded(tokenizer, text, special=False)


def _template(name: str, template: Any) -> str:
    """The template for answers: the one called `default` if there are several."""
    if isinstance(template, str):
        return template
    if not isinstance(template, Mapping) or not isinstance(template.get("default"), str):
        listing = ", ".join(map(str, template)) if isinstance(template, Mapping) else str(template)[:40]
        raise bad_model(
            f"{name}: none of its chat templates is the default one: {listing}",
            fix="task.style=plain, or chat=off with mcpo evaluate",
        )
    return str(template["default"])


def _plain_ids(tokenizer: Any, text: str) -> list[int]:
    """What the tokenizer puts before a text (a token for its beginning), the tokens of `text`, and nothing after it."""
    ids, text_ids = (_encoded(tokenizer, text, special=special) for special in (True, False))
    starts = (start for start in range(len(ids) - len(text_ids) + 1) if ids[start : start + len(text_ids)] == text_ids)
    return ids[: next(starts, 0)] + text_ids


def _encoded(tokenizer: Any, text: str, *, special: bool) -> list[int]:
    """The tokens of `text`, with what the tokenizer puts around it if `special`."""
    with _library(Path(tokenizer.name_or_path).name, f"cannot read {text[:40]!r}"):
        return list(tokenizer(text, add_special_tokens=special)["input_ids"])


def opened(tokenizer: Any, prompt: Sequence[int]) -> str:
    """The tag of reasoning with which a prompt ends, such as `<think>` and a line break; empty if it ends otherwise.

    A response to such a prompt begins within its reasoning. Its own tokens do not say so; its text begins with the tag.
    """
    return thinking.opened(decoded(tokenizer, prompt[-_TAG_TOKENS:]))


def decoded(tokenizer: Any, tokens: Sequence[int], ends: Collection[int] = ()) -> str:
    """The text of tokens, special ones included; without the last one if it is one of `ends`."""
    content_tokens = tokens[:-1] if len(tokens) and tokens[-1] in ends else tokens
    return str(tokenizer.decode(content_tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False))


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
    return text[: min((position for string in strings if (position := text.find(string)) >= 0), default=len(text))]
