"""Saved states of a run without another gradient step: prompts are sampled and probed under each of them."""

import dataclasses
from pathlib import Path

from mcpo_cli.backends.local.precision import product_precision
from mcpo_cli.backends.local.train import begin
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.runs import folders
from mcpo_cli.runs.attempts import Attempt


def observe(spec: RunSpec, attempt: Attempt, run_dir: Path, steps: list[int], prompts: int) -> None:
    """Sample the first `prompts` training problems under the checkpoints of `steps`, and record the result.

    The rows are as in training, at the step after which the checkpoint was written. Prompts mastered under a checkpoint
    are resampled under it, as the control, and under the later ones.
    """
    trainer = begin(_looking(spec, steps, prompts), attempt, stop=lambda: False)
    for step, folder in folders.checkpoints(run_dir).items():
        if step in steps:
            attempt.phase(f"sampling {prompts} prompts under the policy after step {step}")
            trainer.restore(folder)
            with product_precision(trainer.policy):
                trainer.observe()


def _looking(spec: RunSpec, steps: list[int], prompts: int) -> RunSpec:
    """The settings of a run whose batch has all prompts that are sampled."""
    lags = sorted({later_step - step for step in steps for later_step in steps if later_step >= step})
    probe = dataclasses.replace(
        spec.probe, every=1, prompts=prompts, lags=tuple(lags), panel_every=0, gradients_every=1
    )
    train = dataclasses.replace(spec.train, prompts=prompts)
    return dataclasses.replace(spec, train=train, probe=probe)
