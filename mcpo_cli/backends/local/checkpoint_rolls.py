"""Rolls training problems under the checkpoints that a finished run kept; nothing is trained."""

import dataclasses
from pathlib import Path

import torch
import transformers

from mcpo_cli.backends.local import checkpoint
from mcpo_cli.backends.local.precision import product_precision
from mcpo_cli.backends.local.start import start_policy
from mcpo_cli.backends.local.train import Trainer
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.runs.attempts import Attempt


def observe(spec: RunSpec, attempt: Attempt, run_dir: Path, steps: list[int], prompts: int) -> None:
    """Roll the first `prompts` training problems under the checkpoints of `steps`, and record what came of it.

    The rows are those of training, at the step that the checkpoint was written after. Prompts mastered under one
    checkpoint are rolled again under the same one, the control, and under the later ones.
    """
    torch.set_num_threads(spec.compute.threads)
    transformers.utils.logging.disable_progress_bar()  # it is somebody's terminal that this runs in
    policy, tokenizer = start_policy(spec, attempt, stop=lambda: False)
    trainer = Trainer(_looking(spec, steps, prompts), attempt, policy, tokenizer)
    for folder in checkpoint.kept(run_dir):
        if checkpoint.step_of(folder) in steps:
            attempt.phase(f"rolling {prompts} prompts under the policy after step {checkpoint.step_of(folder)}")
            trainer.restore(folder)
            trainer.cursor = 0
            with product_precision(policy):
                trainer.look()


def _looking(spec: RunSpec, steps: list[int], prompts: int) -> RunSpec:
    """The settings of a run whose batch is everything that is looked at."""
    lags = sorted({later - step for step in steps for later in steps if later >= step})
    probe = dataclasses.replace(
        spec.probe, every=1, prompts=prompts, lags=tuple(lags), panel_every=0, gradients_every=1
    )
    train = dataclasses.replace(spec.train, prompts=prompts)
    return dataclasses.replace(spec, train=train, probe=probe)
