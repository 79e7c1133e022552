"""Checks for runs that no machine can train, made before a start and by a dry run, with the same messages."""

import functools
from collections.abc import Iterable

from mcpo_cli import backends, pretrained, tokenization
from mcpo_cli.config import forking
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.home import location
from mcpo_cli.runs import begin
from mcpo_cli.tasks.base import Messages, Tokens
from mcpo_cli.tokenization import TEXT, prompt_ids

ADDED_TOKENS = 8
"""More than a tokenizer adds to a text without a chat template, such as one for its beginning."""


def check(specs: Iterable[RunSpec]) -> None:
    """Raise ConfigError for the first of `specs` that could not do its first step on any machine.

    It does not write or download: missing problems and models are checked when they are fetched.
    """
    seen = set[str]()
    for spec in specs:
        backends.get(spec.backend).check_spec(spec)
        if spec.fork:
            _check_fork(spec)
        # Runs that differ only in seed or method share their problems.
        if (key := repr((spec.task, spec.train, spec.eval.problems, spec.model))) not in seen:
            seen.add(key)
            _check_problems(spec)


def _check_fork(spec: RunSpec) -> None:
    """Raise ConfigError unless a fork has a state to begin from: its own, or one that the other run kept."""
    if max(begin.kept(location() / "runs" / spec.run_id), default=0) < forking.parse(spec.fork)[1]:
        begin.origin(spec)


def _check_problems(spec: RunSpec) -> None:
    """Raise ConfigError unless a batch of training problems fits and the held-out ones are as many as asked for."""
    if spec.task.is_here:
        problems = spec.task.problems(spec.train, _tokens(spec))
        problems.training(spec.seed, 0, spec.train.prompts)
        problems.tiers(spec.eval.problems)


def _tokens(spec: RunSpec) -> Tokens:
    """A counter of the tokens of a prompt, or of a bound on them where that fits; 0 where the model is not here.

    A text has at most as many tokens as bytes, so most tasks need no tokenizer, whose import takes seconds.
    """
    if not spec.model.path or not pretrained.is_here(spec.model):
        return lambda messages: 0
    folder, limit = pretrained.folder(spec.model), spec.train.max_prompt

    def count(messages: Messages) -> int:
        most = ADDED_TOKENS + sum(len(message["content"].encode()) for message in messages)
        is_text = all(message["role"] == TEXT for message in messages)
        return most if is_text and most <= limit else len(prompt_ids(_tokenizer(folder), messages))

    return count


_tokenizer = functools.lru_cache(maxsize=1)(tokenization.load)
