"""TRL's GRPOTrainer on the same work, as fast as its documented options make it on a CPU.

Each of these options was measured not to be slower here: micro-batches of 256 sequences (of 128, 256, 512 and 1024),
fused AdamW, no gradient checkpointing, no reference model (beta 0), no logging, reporting or saving. A static
cache for generation was not faster; vLLM and Liger kernels need an accelerator; attention is PyTorch's fused one.
"""

import copy
import random
import tempfile
import time
from collections.abc import Callable
from typing import Any

from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from benchmarks import workload
from benchmarks.engine import RealRun
from mcpo_cli.config.schema import RunSpec

MICRO_BATCH = 256


class Clock(TrainerCallback):
    """Times whole global steps with everything the trainer does between them, and calls `between` after each."""

    def __init__(self, gradient_steps: int, between: Callable[[], None]) -> None:
        self.gradient_steps, self.between = gradient_steps, between
        self.seconds: list[float] = []
        self._start: float | None = None

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step % self.gradient_steps:
            return
        if self._start is not None:  # the first global step warms up
            self.seconds.append(time.perf_counter() - self._start)
        self.between()
        self._start = time.perf_counter()


def seconds(repeats: int, between: Callable[[], None], start: RealRun | None = None) -> list[float]:
    """Wall times of `repeats` global steps of TRL; `between` runs before each of them and is not timed.

    It trains an untrained policy on coin flips, or continues from the run `start`, with its problems and grades.
    """
    settings = start.spec if start else workload.spec("method=grpo")
    model, tokenizer = workload.fresh_model(settings)
    if start:
        model = copy.deepcopy(start.policy.model)
    flips, first = random.Random(settings.seed), start.step if start else 0
    problems = [problem for step in range(repeats + 1) for problem in workload.prompts(settings, first + step)]

    def flipped(completions: list[str], **_: Any) -> list[float]:
        return [float(flips.random() < 0.5) for _ in completions]

    def graded(completions: list[str], gold: list[str], **_: Any) -> list[float]:
        return [float(said.split() == right.split()) for said, right in zip(completions, gold, strict=True)]

    rows = {"prompt": [problem.text for problem in problems], "gold": [problem.gold for problem in problems]}
    fixed = {} if start else {"min_new_tokens": settings.train.max_response}
    clock = Clock(settings.train.prompts // settings.train.mini_batch, between)
    train(settings, model, tokenizer, rows, graded if start else flipped, clock, repeats, MICRO_BATCH, fixed)
    return clock.seconds


def train(
    settings: RunSpec,
    model: Any,
    tokenizer: Any,
    rows: dict[str, list[str]],
    reward: Callable[..., list[float]],
    clock: Clock,
    repeats: int,
    micro_batch: int,
    generation: dict[str, Any],
) -> None:
    """Train `repeats` global steps after one to warm up. micro_batch: sequences. generation: options of `generate`."""
    work = settings.train
    tokenizer.padding_side = "left"
    accumulation = work.mini_batch * work.rollouts // micro_batch
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            max_steps=clock.gradient_steps * (repeats + 1),
            per_device_train_batch_size=micro_batch,
            gradient_accumulation_steps=accumulation,
            steps_per_generation=accumulation * clock.gradient_steps,
            num_generations=work.rollouts,
            max_completion_length=work.max_response,
            generation_kwargs=generation,
            temperature=work.temperature,
            beta=0.0,
            loss_type="grpo",
            epsilon=0.2,
            epsilon_high=0.28,
            learning_rate=work.lr,
            lr_scheduler_type="constant",
            optim="adamw_torch_fused",
            gradient_checkpointing=False,
            use_cpu=True,
            bf16=False,
            logging_strategy="no",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            dataloader_pin_memory=False,
        )
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=reward,
            args=config,
            train_dataset=Dataset.from_dict(rows),
            processing_class=tokenizer,
            callbacks=[clock],
        )
        trainer.train()
