"""Ten steps of the warm-up of both models, one probe included."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks import rows, steps
from mcpo_cli.backends.local import initial_policy, policy, tokenizer
from mcpo_cli.config.load import load
from mcpo_cli.runs.attempts import Attempt
from mcpo_cli.tasks import closed

STEPS = 10


def seconds_of_ten() -> Iterator[rows.Measurement]:
    """Seconds by model."""
    for model in steps.MODELS:
        # The warm-up ends long before it reaches its target.
        (spec,) = load([f"model={model}", f"warmup.max_steps={STEPS}", f"warmup.probe_every={STEPS}"])
        words = tokenizer.build(closed(spec.task).vocabulary)
        fresh = policy.Policy(policy.build(spec.model, words, spec.seed), torch.device("cpu"))
        with tempfile.TemporaryDirectory() as folder:
            attempt = Attempt(Path(folder), spec, 0)
            began = time.perf_counter()
            initial_policy._train(spec, fresh, words, attempt, lambda: False)
            yield "ten steps of warm-up", {"model": model}, {"seconds": time.perf_counter() - began}
