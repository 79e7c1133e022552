"""Engines: what draws the samples of an evaluation. Each loads its libraries only when it is opened."""

from typing import Literal

from mcpo_cli.evaluation.engines.base import Engine, Request, Sample, Sampling
from mcpo_cli.model_facts import ModelFacts

__all__ = ["Engine", "Request", "Sample", "Sampling", "open_engine"]


def open_engine(
    name: Literal["hf", "vllm"],
    model: ModelFacts,
    sampling: Sampling,
    *,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    threads: int = 1,
) -> Engine:
    """The engine `name` with `model` in it.

    threads: of a processor; a GPU has its own.

    Raises:
        ConfigError: its libraries or the device are not here.
    """
    if name == "hf":
        from mcpo_cli.evaluation.engines.hf import Transformers

        return Transformers(model, sampling, device, threads)
    from mcpo_cli.evaluation.engines.vllm import Vllm

    return Vllm(model, sampling, device, threads)
