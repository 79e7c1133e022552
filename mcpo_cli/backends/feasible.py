"""Checks of a plan's runs before the first starts. A dry run makes the checks without a download, a start makes all."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

from mcpo_cli import backends, pretrained, tokenization
from mcpo_cli.config.cost import Estimate
from mcpo_cli.config.schema import Model, RunSpec
from mcpo_cli.runs import origins
from mcpo_cli.tasks.base import Messages, Tokens
from mcpo_cli.tokenization import TEXT, prompt_ids

ADDED_TOKENS = 8
"""More than a tokenizer adds to a text without a chat template, such as one for its beginning."""


def check(runs: Sequence[Estimate], *, to_start: bool = False) -> Mapping[Model, Path | None]:
    """The folder of each model of `runs`; None for a model that is not here or is built from scratch.

    By default nothing is written or downloaded: missing problems and models are checked when they are fetched.

    to_start: fetch problems and models, too, and raise ConfigError for what is missing on this machine.

    Raises:
        ConfigError: one of `runs` could not do its first step on any machine.
    """
    specs = [run.spec for run in runs]
    for run, spec in zip(runs, specs, strict=True):
        backend = backends.get(spec.backend)
        backend.check_spec(spec)
        if spec.fork:
            origins.check_origin(spec)
        if to_start:
            backend.check_machine(run)
    # Runs that differ only in seed or method share model and problems.
    spec_of = {repr((spec.backend, spec.task, spec.train, spec.eval.problems, spec.model)): spec for spec in specs}
    folders: dict[Model, Path | None] = {}
    for spec in spec_of.values():
        if spec.model not in folders:
            folders[spec.model] = pretrained.find(spec.model)
        if to_start and spec.model.path and not folders[spec.model] and not backends.get(spec.backend).fetches:
            folders[spec.model] = pretrained.folder(spec.model)
        if folder := folders[spec.model]:
            backends.get(spec.backend).check_model(spec, folder)
        if spec.task.is_here:
            # A batch of problems must fit, and enough problems must be held out.
            problems = spec.task.problems(spec.train, _tokens(folder, spec))
            problems.training(0, 0, spec.train.prompts)
            problems.tiers(spec.eval.problems)
    return folders


def _tokens(folder: Path | None, spec: RunSpec) -> Tokens:
    """A function that counts a prompt's tokens, or bounds them if the bound fits; 0 if the model is not here.

    A text has at most as many tokens as bytes, so most tasks need no tokenizer, whose import takes seconds.
    """
    if not folder:
        return lambda messages: 0

    def count(messages: Messages) -> int:
        bound = ADDED_TOKENS + sum(len(message["content"].encode()) for message in messages)
        is_text = all(message["role"] == TEXT for message in messages)
        fits = is_text and bound <= spec.train.max_prompt
        return bound if fits else len(prompt_ids(_tokenizer(folder), messages, spec.task.template_variables))

    return count


_tokenizer = functools.lru_cache(maxsize=1)(tokenization.load)
