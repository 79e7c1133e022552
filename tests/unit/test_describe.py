"""Methods as `mcpo components` shows them: also those of one's own, and those that need other settings."""

import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mcpo_cli.commands.components import app
from mcpo_cli.methods import describe, get, registry
from mcpo_cli.settings import options

TWICE = """\
from dataclasses import dataclass

from mcpo_cli.methods import Clipped, Normalized


@dataclass(frozen=True)
class Twice(Clipped, Normalized):
    name = "twice"

    def advantages(self, reward_PG, correct_PG):
        return 2 * super().advantages(reward_PG, correct_PG)


@dataclass(frozen=True)
class Batch(Clipped, Normalized):
    \"\"\"Advantages over the largest of the batch.\"\"\"

    name = "batch"

    def advantages(self, reward_PG, correct_PG):
        found = super().advantages(reward_PG, correct_PG)
        return found / found.abs().max().clamp(min=1)


@dataclass(frozen=True)
class Greedy(Clipped, Normalized):
    name = "greedy"
    needs = frozenset({"greedy_reward"})

    def signals(self, step, state):
        signals, state = super().signals(step, state)
        return signals.map(lambda tensor: tensor * (step.greedy_reward_P[:, None] > 0)), state
"""


def test_the_curve_of_a_method_that_changes_advantages_is_theirs(plugin_folder: Path) -> None:
    (plugin_folder / "own.py").write_text(TWICE)
    expected = [2 * math.sqrt(p * (1 - p)) for p in (0, 0.25, 0.5, 0.75, 1)]
    assert [weight for _, weight in describe.curve(get("twice"), 4)] == pytest.approx(expected)
    # That of GRPO would be wrong, and there is no other.
    assert describe.curve(get("batch"), 4) == []
    assert describe.curve(get("greedy"), 4) == []
    assert [describe.summary(registry()[name]) for name in ("twice", "batch")] == [
        "",
        "Advantages over the largest of the batch.",
    ]


def test_a_method_that_contradicts_a_run_at_its_defaults_is_shown() -> None:
    result = CliRunner().invoke(app, ["show", "method", "passk"])
    assert result.exit_code == 0
    for option in options(registry()["passk"]):
        assert f"method.{option.name}" in result.output
    assert "backends: local" in result.output
