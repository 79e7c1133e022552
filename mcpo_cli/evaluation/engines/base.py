"""The interface of an engine: it takes prompts as token ids and draws each sample with its own seed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from mcpo_cli.errors import ConfigError


@dataclass(frozen=True)
class Sampling:
    """The sampling parameters of all samples. All others, such as top-k, penalties and a minimum length, are off."""

    temperature: float
    """0 is greedy."""
    top_p: float
    """In (0, 1]; 1 turns it off."""
    max_tokens: int
    """Most tokens of a response, stop token included."""
    stop_ids: tuple[int, ...]
    """The tokens that end a response; no other token does."""


@dataclass(frozen=True)
class Request:
    """One prompt to sample."""

    key: str
    """A name that is unique among the requests."""
    prompt_ids: tuple[int, ...]
    seeds: tuple[int, ...]
    """One seed per sample."""


@dataclass(frozen=True)
class Sample:
    """One response."""

    text: str
    """The text without the stop token."""
    tokens: int
    """Number of tokens, stop token included."""
    finish: Literal["stop", "length", "no_room"]
    """`stop`: a stop token ended it; `length`: it was cut; `no_room`: the prompt fills the model's window."""
    seed: int


class Engine(Protocol):
    """Draws samples. `version` names the sampling software for the records."""

    version: str

    def generate(self, requests: Sequence[Request]) -> Iterator[tuple[str, list[Sample]]]:
        """Yields a request's key and its samples, in the order of its seeds, once all are drawn.

        Raises:
            ConfigError: a prompt is empty or fills the model's window. RunFailed: the engine broke.
        """
        ...


def room(request: Request, sampling: Sampling, window: int) -> int:
    """Most tokens of a response to `request`: `max_tokens`, or what the window leaves if that is less.

    Raises:
        ConfigError: the prompt is empty or fills the window.
    """
    length = len(request.prompt_ids)
    if length == 0:
        raise ConfigError(f"{request.key}: the prompt has no tokens")
    if length >= window:
        raise ConfigError(f"{request.key}: the prompt's {length} tokens fill the model's window of {window}")
    return min(sampling.max_tokens, window - length)


def finish(tokenizer: Any, ids: Sequence[int], stop_ids: Sequence[int], seed: int) -> Sample:
    """The sample made of the drawn `ids`; tokens after the first stop token are padding."""
    end = next((i for i, token in enumerate(ids) if token in stop_ids), None)
    text = tokenizer.decode(ids[:end], skip_special_tokens=True, clean_up_tokenization_spaces=False)
    if end is None:
        return Sample(text, len(ids), "length", seed)
    return Sample(text, end + 1, "stop", seed)
