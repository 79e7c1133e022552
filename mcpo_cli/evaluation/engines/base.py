"""What an engine is to the rest: prompts as token ids in, samples out, each drawn by its own seed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from mcpo_cli.errors import ConfigError


@dataclass(frozen=True)
class Sampling:
    """How every sample is drawn. What is not named here is off: top-k, penalties, a minimum length.

    temperature: 0 is greedy. top_p: in (0, 1], 1 is off. max_tokens: of a response, its stop token
    included. stop_ids: tokens that end a response; no other does.
    """

    temperature: float
    top_p: float
    max_tokens: int
    stop_ids: tuple[int, ...]


@dataclass(frozen=True)
class Request:
    """One prompt, and a seed for each sample of it. key: names the request among the others."""

    key: str
    prompt_ids: tuple[int, ...]
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Sample:
    """One response. text: without its stop token. tokens: their number, the stop token included.

    finish: `stop` where a stop token ended it, `length` where it was cut, `no_room` where the prompt fills the
    model's window (no engine is asked then).
    """

    text: str
    tokens: int
    finish: Literal["stop", "length", "no_room"]
    seed: int


class Engine(Protocol):
    """Draws samples. `version` names the software that does, for the records."""

    version: str

    def generate(self, requests: Sequence[Request]) -> Iterator[tuple[str, list[Sample]]]:
        """A request's key with its samples, in the order of its seeds, as soon as all of them are there.

        Raises:
            ConfigError: a prompt is empty or fills the model's window. RunFailed: the engine broke.
        """
        ...


def room(request: Request, sampling: Sampling, window: int) -> int:
    """Tokens that a response to `request` may have: `max_tokens`, or what the window leaves.

    Raises:
        ConfigError: the prompt is empty, or leaves nothing.
    """
    length = len(request.prompt_ids)
    if length == 0:
        raise ConfigError(f"{request.key}: the prompt has no tokens")
    if length >= window:
        raise ConfigError(f"{request.key}: the prompt's {length} tokens fill the {window} that the model can hold")
    return min(sampling.max_tokens, window - length)


def finish(tokenizer: Any, ids: Sequence[int], stop_ids: Sequence[int], seed: int) -> Sample:
    """The sample that the sampled `ids` make; whatever stands after the first stop token is padding."""
    end = next((i for i, token in enumerate(ids) if token in stop_ids), None)
    text = tokenizer.decode(ids[:end], skip_special_tokens=True, clean_up_tokenization_spaces=False)
    if end is None:
        return Sample(text, len(ids), "length", seed)
    return Sample(text, end + 1, "stop", seed)
