"""The effective protocol of an evaluation, whose hash names the result."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mcpo_cli.config.evaluation import Evaluation
from mcpo_cli.config.schema import digest
from mcpo_cli.data.base import render
from mcpo_cli.errors import ConfigError
from mcpo_cli.evaluation import asking
from mcpo_cli.evaluation.asking import Asking
from mcpo_cli.model_facts import ModelFacts
from mcpo_cli.settings import plain

COMPARED = ("n", "temperature", "top_p", "max_tokens", "prompt", "chat", "chat_variables")
"""Settings that decide what is asked and how samples are drawn."""


@dataclass(frozen=True)
class Protocol:
    """The settings as they take effect on one model."""

    settings: Evaluation
    model: ModelFacts
    limit: int | None = None
    """Maximum problems of each benchmark; None means all."""
    tasks: Mapping[str, Asking] = field(default_factory=dict)
    """The prompts of tasks, by name, if these do not follow from the settings; see `asking.of_tasks`."""

    @property
    def chat(self) -> bool:
        """True if the model's chat template wraps the prompt."""
        return asking.in_chat(self.settings, self.model)

    @property
    def eval_id(self) -> str:
        """`<model>-<hash>`, the name of the evaluation's folder."""
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", self.model.name).strip(".-") or "model"
        return f"{name[-60:].strip('.-')}-{digest(self._identity())}"

    @property
    def label(self) -> str:
        """The name of the metric and its conditions, for tables."""
        settings = self.settings
        sampled = "greedy" if settings.temperature == 0 else f"T={settings.temperature:g}"
        limits = "".join(f", {name} at most {self._longest(way)}" for name, way in self.tasks.items())
        return f"mean@{settings.n}, {sampled}, at most {settings.max_tokens} tokens{limits}"

    def _longest(self, way: Asking) -> int:
        """Most tokens of a response to a task."""
        return min(self.settings.max_tokens, way.max_tokens or self.settings.max_tokens)

    def deviations(self) -> list[str]:
        """The differences from the default protocol, which asks and samples as the defaults of `Evaluation` say."""
        default = Evaluation()
        changed = [key for key in COMPARED if getattr(self.settings, key) != getattr(default, key)]
        differences = [
            f"{key}={_text(getattr(self.settings, key))} instead of {_text(getattr(default, key))}" for key in changed
        ]
        differences += [f"{name} is asked as task={name} asks" for name in self.tasks]
        if self.limit is not None:
            differences.append(f"at most {self.limit} problems of each benchmark")
        if self.model.window < default.max_tokens:
            differences.append(f"the model holds {self.model.window} tokens, prompt and response together")
        return differences

    def lines(self) -> dict[str, str]:
        """The protocol as headings and text, for people."""
        settings, model = self.settings, self.model
        sampled = "greedy" if settings.temperature == 0 else f"temperature {settings.temperature:g}"
        revision = f", revision {model.revision}" if model.revision else ""
        stops = zip(model.stop_tokens, model.stop_ids, strict=True)
        chat = "the model's own, around the prompt" if self.chat else "none"
        lines = {
            "model": f"{model.name}, {model.parameters:,} parameters in {model.dtype}, files {model.digest}{revision}",
            "engine": settings.engine,
            "samples": f"{settings.n} a problem, {sampled}, top_p {settings.top_p:g}, seed {settings.seed}; "
            "no top_k, no penalties",
            "length": f"at most {settings.max_tokens} tokens; the model holds {model.window} with the prompt",
            "stop tokens": ", ".join(f"{text} ({number})" for text, number in stops),
            "prompt": f"{settings.prompt}: {render(settings.prompt, '{problem}')!r}",
            "chat template": chat if self.chat or not model.chat_template else "not used (chat=off)",
        }
        for name, way in self.tasks.items():
            lines[f"task={name}"] = self._asked(way)
        return {**lines, "deviations": "; ".join(self.deviations()) or "none: this is the default protocol"}

    def _asked(self, way: Asking) -> str:
        """The prompt of a task, for people."""
        *before, last = way.messages(asking.PLACEHOLDER)
        turns = f" after {len(before)} other turns" if before else ""
        stops = ", ".join(map(repr, way.stops))
        ends = f"; responses end at {stops}" if stops else ""
        return f"asks {last['content']!r}{turns}{ends}; at most {self._longest(way)} tokens"

    def document(self) -> dict[str, Any]:
        """All settings in effect, as plain data."""
        model = self.model
        facts = {"model_name": model.name, "revision": model.revision, "parameters": model.parameters}
        return {**self._identity(), **facts, "dtype": model.dtype, "stop_tokens": list(model.stop_tokens)}

    def _identity(self) -> dict[str, Any]:
        """Everything that determines the samples of a problem."""
        settings = plain(self.settings, runtime_too=False, later_too=False)
        effective = {"chat": self.chat, "stop_ids": list(self.model.stop_ids), "window": self.model.window}
        # The settings decide the prompts of published benchmarks; tasks with their own vocabulary have one prompt.
        tasks = {"tasks": {name: asking.document(way) for name, way in sorted(self.tasks.items())}}
        return {"model": self.model.digest, **settings, **effective, **(tasks if self.tasks else {})}


def _text(value: Any) -> str:
    """A setting's value as it is typed."""
    return f"{value:g}" if isinstance(value, float) else "null" if value is None else str(value)


def check(protocol: Protocol) -> None:
    """Checks that the settings are consistent.

    Raises:
        ConfigError: they are not.
    """
    settings = protocol.settings
    if settings.temperature == 0 and settings.n > 1:
        fix = f"n=1 temperature=0  (or temperature=0.7 n={settings.n})"
        raise ConfigError(
            f"temperature=0 makes all n={settings.n} samples of a problem the same", fix=fix, code="contradiction"
        )
