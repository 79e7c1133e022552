"""Samples with transformers' `generate`, one request at a time, so that requests do not affect each other.

A resumed evaluation therefore equals an uninterrupted one, token by token. `engine=local` and `engine=vllm` are faster.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
import transformers
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList, TopPLogitsWarper

from mcpo_cli.backends.local.generate import draw
from mcpo_cli.backends.local.initial_policy import load
from mcpo_cli.backends.local.policy import device as torch_device
from mcpo_cli.backends.local.tokenizer import Stops
from mcpo_cli.errors import ConfigError, RunFailed
from mcpo_cli.evaluation.engines import Sample, SampleRequest, Sampling, finish, room
from mcpo_cli.model_facts import ModelFacts


class Seeded:
    """Makes greedy search sample: it keeps one token per row, drawn with the row's own random numbers.

    transformers itself draws a whole batch from the global generator and has no seed per sample.
    """

    def __init__(self, request: SampleRequest, sampling: Sampling, longest: int, device: torch.device) -> None:
        uniform_BT = np.stack([np.random.default_rng(seed).random(longest) for seed in request.seeds])
        self.uniform_BT = torch.from_numpy(uniform_BT).to(device)
        self.prompt, self.temperature = len(request.prompt_ids), sampling.temperature
        self.top_p = sampling.top_p

    def __call__(self, ids_BS: Tensor, logits_BV: Tensor) -> Tensor:
        """Logits of 0 for the token drawn from softmax(logits / temperature) in the nucleus, -inf for all others."""
        logits_BV = warped(logits_BV, self.temperature, self.top_p)
        token_B = draw(logits_BV, 1.0, self.uniform_BT[:, ids_BS.shape[1] - self.prompt])
        return torch.full_like(logits_BV, float("-inf")).scatter_(-1, token_B[:, None], 0.0)


def warped(logits_BV: Tensor, temperature: float, top_p: float) -> Tensor:
    """logits_BV / temperature in float64, with -inf outside the nucleus.

    A cumulative sum over 150 000 tokens is too inexact in float32 for a quantile.
    """
    logits_BV = finite(logits_BV).double() / temperature
    if top_p == 1:
        return logits_BV
    inside_BV: Tensor = TopPLogitsWarper(top_p)(None, logits_BV)
    return inside_BV


def finite(logits_BV: Tensor) -> Tensor:
    """`logits_BV`.

    Raises:
        RunFailed: a row has NaN or infinity, so a token drawn from it would not be the model's.
    """
    if not logits_BV.amax(-1).isfinite().all():
        raise RunFailed(
            "the model computes NaN or infinity: its weights are damaged, or overflow in this number format",
            fix="another copy of the model, or another dtype in its config.json",
            code="bad_model",
        )
    return logits_BV


def available(device: str) -> torch.device:
    """The device that `compute.device` names. Raises ConfigError if it is CUDA and there is none."""
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "device=cuda: torch finds no CUDA device on this machine", fix="device=auto", code="needs_gpu"
        )
    return torch_device(device)


class Transformers:
    """See `Engine`. One model on one device; the global random numbers are not used."""

    version = f"transformers {transformers.__version__}"

    def __init__(self, model: ModelFacts, sampling: Sampling, device: str, threads: int) -> None:
        self.facts, self.sampling, self.device = model, sampling, available(device)
        torch.set_num_threads(threads)
        self.tokenizer = model.tokenizer
        self.model = load(model.folder, model.name, model.dtype).to(self.device).eval()
        # Otherwise the model's own defaults (top-k, penalties, ...) would fill omitted settings.
        self.model.generation_config = GenerationConfig()

    def generate(self, requests: Sequence[SampleRequest]) -> Iterator[tuple[str, list[Sample]]]:
        """See `Engine`; in the order of `requests`."""
        longest = [room(request, self.sampling, self.facts.window) for request in requests]
        for request, tokens in zip(requests, longest, strict=True):
            try:
                yield request.key, self._samples(request, tokens)
            except torch.OutOfMemoryError as error:
                raise RunFailed(
                    f"{request.key}: {len(request.seeds)} samples of up to {tokens} tokens do not fit into the "
                    "memory of the GPU",
                    fix="a smaller max_tokens, or engine=vllm, which pages its memory",
                    code="needs_gpu",
                ) from error

    def _samples(self, request: SampleRequest, longest: int) -> list[Sample]:
        prompt_BS = torch.tensor([request.prompt_ids], device=self.device).repeat(len(request.seeds), 1)
        stop_ids = self.sampling.stop_ids
        sampled = self.sampling.temperature > 0
        draws = (
            Seeded(request, self.sampling, longest, self.device) if sampled else lambda _, logits_BV: finite(logits_BV)
        )
        criteria, strings = StoppingCriteriaList(), Stops(self.tokenizer, (), request.stops)
        if request.stops:
            criteria.append(lambda ids_BS, *_, **__: strings.reached(ids_BS[:, len(request.prompt_ids) :]))
        settings = GenerationConfig(
            do_sample=False, max_new_tokens=longest, eos_token_id=list(stop_ids), pad_token_id=stop_ids[0]
        )
        ids_BS = self.model.generate(
            prompt_BS,
            attention_mask=torch.ones_like(prompt_BS),
            generation_config=settings,
            logits_processor=LogitsProcessorList([draws]),
            stopping_criteria=criteria,
        )
        responses = ids_BS[:, len(request.prompt_ids) :].tolist()
        return [
            finish(self.tokenizer, request, ids, stop_ids, seed)
            for ids, seed in zip(responses, request.seeds, strict=True)
        ]
