"""The engines that draw the samples of an evaluation. Each loads its libraries only when opened."""

from typing import Literal

from mcpo_cli.evaluation.engines.base import Engine, Request, Sample, Sampling
from mcpo_cli.model_facts import ModelFacts

__all__ = ["Engine", "Request", "Sample", "Sampling", "open_engine"]


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
