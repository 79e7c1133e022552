"""Methods as `mcpo components` shows them: every option has a meaning, every method a source."""

import math
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mcpo_cli.commands.components import app
from mcpo_cli.methods import describe, get, registry
from mcpo_cli.settings import options

NAMES = sorted(registry())


@pytest.mark.parametrize("name", NAMES)
def test_every_option_says_what_it_means(name: str) -> None:
    lacking = [option.name for option in options(registry()[name]) if not option.meaning]
    assert lacking == []


WITHOUT_PAPER = {"ipo": "prime-rl"}
"""Methods that no paper describes, with the software that they come from."""


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"reweighted"}))
def test_every_method_names_its_source_in_the_first_line(name: str) -> None:
    first = describe.summary(registry()[name])
    if name in WITHOUT_PAPER:
        assert f"({WITHOUT_PAPER[name]}, no arXiv paper)" in first
    else:
        assert re.search(r"\(arXiv \d{4}\.\d{5}\)", first)
    assert first.endswith(".")


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
"""


def test_the_curve_of_a_method_that_changes_advantages_is_theirs(plugin_folder: Path) -> None:
    (plugin_folder / "own.py").write_text(TWICE)
    expected = [2 * math.sqrt(p * (1 - p)) for p in (0, 0.25, 0.5, 0.75, 1)]
    assert [weight for _, weight in describe.curve(get("twice"), 4)] == pytest.approx(expected)
    # That of GRPO would be wrong, and there is no other.
    assert describe.curve(get("batch"), 4) == []
    assert [describe.summary(registry()[name]) for name in ("twice", "batch")] == [
        "",
        "Advantages over the largest of the batch.",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_show_says_everything_of_each_method(name: str) -> None:
    """Also of one that contradicts a run at its defaults, as passk does."""
    result = CliRunner().invoke(app, ["show", "method", name])
    assert result.exit_code == 0
    for option in options(registry()[name]):
        assert f"method.{option.name}" in result.output
    assert "backends: local" in result.output
    bars = re.findall(r"^ *[01]\.\d{4} +\d+\.\d{4}", result.output, re.MULTILINE)
    assert len(bars) == (17 if describe.curve(get(name), 16) else 0)
