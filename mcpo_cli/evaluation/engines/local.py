"""Samples with the local training engine: many requests at once, and no beginning of a response computed twice.

Each sample has its own random numbers, as with `engine=hf`, but the rounding of matrix products depends on the rows
that are computed together. Where two tokens are almost equally likely, or a random number falls on the boundary of two
tokens, another token may be drawn, so a few samples may differ from samples of another batch and of `engine=hf`.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
import transformers
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from mcpo_cli import architecture
from mcpo_cli.backends.local import tree as trees
from mcpo_cli.backends.local.generate import at_quantile, drawn_by
from mcpo_cli.backends.local.initial_policy import load
from mcpo_cli.backends.local.policy import Policy
from mcpo_cli.backends.local.tokenizer import Stops
from mcpo_cli.errors import ConfigError, RunFailed, no_room
from mcpo_cli.evaluation.engines import Sample, SampleRequest, Sampling, finish, room
from mcpo_cli.evaluation.engines.hf import available, finite, warped
from mcpo_cli.model_facts import ModelFacts

ROWS = 256
"""Most samples of a batch. Samples of finished batches survive a kill."""
TOGETHER = 2048
"""Maximum tokens of all responses to a prompt for which they share rows. Attention sees the rows of a group as one
sequence, so long responses, which soon differ, are faster as separate sequences."""


class Local:
    """See `Engine`. One model on one device; weights in float32, products on CUDA in bfloat16."""

    version = f"mcpo local, torch {torch.__version__.partition('+')[0]}, transformers {transformers.__version__}"

    def __init__(self, model: ModelFacts, sampling: Sampling, device: str, threads: int) -> None:
        target = available(device)
        self.sliding_window = _check(model)
        torch.set_num_threads(threads)
        self.facts, self.sampling = model, sampling
        self.tokenizer = model.tokenizer
        dtype = torch.bfloat16 if target.type == "cuda" else None
        self.policy = Policy(load(model.folder, model.name, "float32").eval(), target, dtype=dtype)

    def generate(self, requests: Sequence[SampleRequest]) -> Iterator[tuple[str, list[Sample]]]:
        """See `Engine`; in batches of similar requests."""
        for request in requests:
            self._fits(request)
        for batch, apart in _batches(requests, self.sampling, self.facts.window):
            try:
                samples = self._samples(batch, apart=apart)
            except torch.OutOfMemoryError as error:
                raise RunFailed(
                    f"{batch[0].key}: a batch of {sum(len(request.seeds) for request in batch)} samples does not fit "
                    "into the memory of the GPU",
                    fix="a smaller max_tokens, or engine=vllm, which pages its memory",
                    code="needs_gpu",
                ) from error
            yield from zip([request.key for request in batch], samples, strict=True)

    def _fits(self, request: SampleRequest) -> None:
        """Raise ConfigError if prompt and response do not fit into the window, or not into a sliding window."""
        longest = len(request.prompt_ids) + room(request, self.sampling, self.facts.window)
        if self.sliding_window and longest > self.sliding_window:
            raise no_room(
                f"{self.facts.name} attends to the last {self.sliding_window} tokens only (sliding_window), which "
                f"engine=local does not compute; {request.key} needs {longest} tokens",
                fix="engine=hf, or a smaller max_tokens",
            )

    def _samples(self, batch: Sequence[SampleRequest], *, apart: bool) -> list[list[Sample]]:
        """The samples of each request of `batch`. apart: each sample is a separate group."""
        limits = [room(request, self.sampling, self.facts.window) for request in batch]
        groups = [
            (request.prompt_ids, seeds, limit)
            for request, limit in zip(batch, limits, strict=True)
            for seeds in ([(seed,) for seed in request.seeds] if apart else [request.seeds])
        ]
        cap, device = max(limits), self.policy.device
        prompts = [torch.tensor(prompt) for prompt, _, _ in groups]
        # The first quantiles of a seed do not depend on the length.
        uniform_PGT = np.stack([[np.random.default_rng(seed).random(cap) for seed in seeds] for _, seeds, _ in groups])
        stop_ids = [token for token in self.sampling.stop_ids if token < len(self.tokenizer)]
        draws = drawn_by(
            self._draw,
            self.policy,
            pad_sequence(prompts, batch_first=True, padding_value=trees.NO_TOKEN).to(device),
            torch.from_numpy(uniform_PGT.transpose(2, 0, 1).copy()).to(device),
            self.sampling.stop_ids[0],
            Stops(self.tokenizer, stop_ids, batch[0].stops),
            torch.tensor([limit for _, _, limit in groups], device=device),
        )
        rows = zip(draws.token_PGT.flatten(0, 1).tolist(), draws.length_PG.flatten().tolist(), strict=True)
        return [[self._sample(request, seed, *next(rows)) for seed in request.seeds] for request in batch]

    def _sample(self, request: SampleRequest, seed: int, ids: Sequence[int], length: int) -> Sample:
        return finish(self.tokenizer, request, ids[:length], self.sampling.stop_ids, seed)

    def _draw(self, logits_NV: Tensor, row_M: Tensor, uniform_M: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """See `generate.Draw`; the tokens of `engine=hf`, without log-probabilities and entropies."""
        nothing_M = logits_NV.new_zeros(len(row_M))
        if self.sampling.temperature == 0:
            return finite(logits_NV).argmax(-1)[row_M], nothing_M, nothing_M
        probability_NV = warped(logits_NV, self.sampling.temperature, self.sampling.top_p).softmax(-1)
        return at_quantile(probability_NV, uniform_M, row_M), nothing_M, nothing_M


def _batches(
    requests: Sequence[SampleRequest], sampling: Sampling, window: int
) -> Iterator[tuple[list[SampleRequest], bool]]:
    """Requests of one form and of similar lengths, and whether each of their samples is a group."""
    limits = {request.key: room(request, sampling, window) for request in requests}

    def form(request: SampleRequest) -> tuple[tuple[str, ...], int, bool]:
        return request.stops, len(request.seeds), limits[request.key] * len(request.seeds) > TOGETHER

    batch: list[SampleRequest] = []
    for request in sorted(requests, key=lambda request: (form(request), len(request.prompt_ids))):
        if batch and (form(request) != form(batch[0]) or (len(batch) + 1) * len(request.seeds) > ROWS):
            yield batch, form(batch[0])[-1]
            batch = []
        batch.append(request)
    if batch:
        yield batch, form(batch[0])[-1]


def _check(model: ModelFacts) -> int:
    """The sliding window of a model that the engine computes; 0 if it has none.

    Raises:
        ConfigError: the engine does not compute this architecture.
    """
    try:
        architecture.check(model.name, model.architecture)
    except ConfigError as error:
        raise ConfigError(error.message, fix="engine=hf", code=error.code) from error
    return model.architecture.sliding_window
