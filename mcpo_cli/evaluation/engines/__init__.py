"""The interface of an engine: it takes prompts as token ids and draws each sample with its own seed."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from mcpo_cli.errors import bad_data, no_room
from mcpo_cli.model_facts import ModelFacts
from mcpo_cli.tokenization import cut, decoded, opened


@dataclass(frozen=True)
class Sampling:
    """The sampling parameters of all samples. Others, such as top-k, penalties and a minimum length, are off."""

    temperature: float
    """0 is greedy."""
    top_p: float
    """In (0, 1]; 1 turns it off."""
    max_tokens: int
    """Most tokens of a response, stop token included."""
    stop_ids: tuple[int, ...]
    """The tokens that end a response; no other token does. A request may add strings."""


@dataclass(frozen=True)
class SampleRequest:
    """One prompt to sample."""

    key: str
    """A name that is unique among the requests."""
    prompt_ids: tuple[int, ...]
    seeds: tuple[int, ...]
    """One seed per sample."""
    stops: tuple[str, ...] = ()
    """Strings that end a response in addition to the stop tokens."""
    max_tokens: int | None = None
    """Most tokens of a response if fewer than in `Sampling`."""


@dataclass(frozen=True)
class Sample:
    """One response."""

    text: str
    """The text without the stop token, up to the first stop string; it begins with the tag that the prompt `opened`."""
    tokens: int
    """Number of tokens, including the stop token or the token that completes a stop string."""
    finish: Literal["stop", "length", "no_room"]
    """`stop`: a stop token or string ended it; `length`: it was cut; `no_room`: the prompt fills the model's window."""
    seed: int


class Engine(Protocol):
    """Draws samples. `version` names the sampling software for the records."""

    version: str

    def generate(self, requests: Sequence[SampleRequest]) -> Iterator[tuple[str, list[Sample]]]:
        """Yields a request's key and its samples, in the order of its seeds, once all are drawn.

        Raises:
            ConfigError: a prompt is empty or fills the model's window. RunFailed: the engine broke.
        """


def room(request: SampleRequest, sampling: Sampling, window: int) -> int:
    """Maximum tokens of a response to `request`: the minimum of both `max_tokens` and the rest of the window.

    Raises:
        ConfigError: the prompt is empty or fills the window.
    """
    length = len(request.prompt_ids)
    if length == 0:
        raise bad_data(f"{request.key}: the prompt has no tokens")
    if length >= window:
        raise no_room(f"{request.key}: the prompt's {length} tokens fill the model's window of {window}")
    return min(sampling.max_tokens, window - length, request.max_tokens or window)


def finish(tokenizer: Any, request: SampleRequest, ids: Sequence[int], stop_ids: Sequence[int], seed: int) -> Sample:
    """The sample made of the drawn `ids`; tokens after the first stop token or stop string are padding."""

    def text(count: int | None) -> str:
        return decoded(tokenizer, ids[:count])

    def stopped(count: int | None) -> bool:
        return any(string in text(count) for string in request.stops)

    tag = opened(tokenizer, request.prompt_ids)
    end = next((i for i, token in enumerate(ids) if token in stop_ids), None)
    if request.stops and stopped(end):
        tokens = bisect_left(range(len(ids) if end is None else end), True, key=stopped)
        return Sample(tag + cut(text(tokens), request.stops), tokens, "stop", seed)
    if end is None:
        return Sample(tag + text(end), len(ids), "length", seed)
    return Sample(tag + text(end), end + 1, "stop", seed)


def open_engine(
    name: Literal["hf", "local", "vllm"],
    model: ModelFacts,
    sampling: Sampling,
    *,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    threads: int = 1,
) -> Engine:
    """Opens the engine `name` with `model`.

    threads: number of CPU threads.

    Raises:
        ConfigError: the engine's libraries or the device are not available, or it does not compute this model.
    """
    if name == "hf":
        from mcpo_cli.evaluation.engines.hf import Transformers

        return Transformers(model, sampling, device, threads)
    if name == "local":
        from mcpo_cli.evaluation.engines.local import Local

        return Local(model, sampling, device, threads)
    from mcpo_cli.evaluation.engines.vllm import Vllm

    return Vllm(model, sampling, device, threads)
