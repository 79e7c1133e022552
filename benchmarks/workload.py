"""The work that steps are timed on: 128 prompts x 16 rollouts x 16 tokens, 2 gradient steps.

Every response has all 16 tokens, and against TRL the rewards are coin flips: so the work of a step does not depend
on the policy, and no sequence can be skipped (which favours the opponent).
"""

from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from mcpo_cli import pretrained, tasks
from mcpo_cli.backends.local import initial_policy, policy, tokenizer
from mcpo_cli.config import load
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.data.base import Problem

THREADS = 2
NEVER = -1
"""An end token that no vocabulary has."""


def spec(*settings: str) -> RunSpec:
    """toy-s in the paper's shape with 16 tokens per response and no probes; `settings` choose the rest.

    Embeddings start small: with toy-s' own init_std of 0.5 an untrained policy is certain of its next token, and
    gradients are so small that the CPU's slow path for denormal numbers would be timed.
    """
    work = ["model=toy-s", "model.init_std=0.02", "regime=paper-shaped", "train.max_response=16"]
    work += [f"compute.threads={THREADS}", "probe.every=0", "probe.panel_every=0", "probe.gradients_every=0"]
    (found,) = load.load([*settings, *work])
    return found


def fresh_model(settings: RunSpec) -> tuple[Any, PreTrainedTokenizerBase]:
    """The model at its initial weights, the same at every call, with its tokenizer."""
    if settings.model.path:
        folder = pretrained.folder(settings.model)
        return initial_policy.load(folder, settings.model.name, "float32"), AutoTokenizer.from_pretrained(folder)
    words = tokenizer.build(tasks.closed(settings.task).vocabulary)
    return policy.build(settings.model, words, settings.seed), words


def prompts(settings: RunSpec, step: int) -> list[Problem]:
    """The problems of global step `step`."""
    count = settings.train.prompts
    problems = settings.task.problems(settings.train, tokens=lambda messages: 0)
    return problems.training(settings.seed, step * count, count)
