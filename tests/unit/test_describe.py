"""What `mcpo method list` and `show` say: every option has a meaning, every method a source, and curves are W(p)."""

import json
import re

import pytest
from typer.testing import CliRunner

from mcpo_cli.commands.about import app
from mcpo_cli.methods import describe, get, query_weight, registry
from mcpo_cli.settings import options

NAMES = sorted(registry())


@pytest.mark.parametrize("name", NAMES)
def test_every_option_says_what_it_means(name: str) -> None:
    lacking = [option.name for option in options(registry()[name]) if not option.meaning]
    assert lacking == []


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"reweighted"}))
def test_every_method_names_its_source_in_the_first_line(name: str) -> None:
    first = describe.summary(registry()[name])
    assert re.search(r"\(arXiv \d{4}\.\d{5}\)", first)
    assert first.endswith(".")


def test_options_with_one_value_are_none_and_bounds_are_shown() -> None:
    found = {option.name: option for option in options(registry()["gmpo"])}
    assert "aggregation" not in found
    assert found["clip_low"].default == 0.4
    assert found["clip_low"].allowed == ">= 0"
    assert found["degenerate"].allowed == "zero, shaped"
    # Said where the field is declared, not by the method itself.
    assert found["ddof"].meaning.startswith("Of the standard deviation")


def test_backends_and_curves() -> None:
    assert describe.backends(get("grpo")) == {"local": "", "verl": ""}
    assert describe.backends(get("grpo_kl"))["verl"].startswith("refused: ")
    assert "train.mini_batch=train.prompts" in describe.backends(get("disco"))["verl"]
    assert describe.curve(get("spo"), 4) == []
    assert describe.curve(get("rloo"), 4) == [(k / 4, float(query_weight("rloo", k / 4, 4))) for k in range(5)]


def test_list_names_every_method() -> None:
    result = CliRunner().invoke(app, ["list", "--json"])
    assert result.exit_code == 0
    rows = {row["method"]: row for row in json.loads(result.output)["methods"]}
    assert sorted(rows) == NAMES
    assert rows["rl_zvp"]["needs"] == ["entropy"]
    assert "arXiv 2509.21880" in rows["rl_zvp"]["about"]


@pytest.mark.parametrize("name", NAMES)
def test_show_says_everything_of_each_method(name: str) -> None:
    """Also of one that contradicts a run at its defaults, as passk does."""
    result = CliRunner().invoke(app, ["show", name])
    assert result.exit_code == 0
    for option in options(registry()[name]):
        assert f"method.{option.name}" in result.output
    assert "backends: local" in result.output
    bars = re.findall(r"^ *[01]\.\d{4} +\d+\.\d{4}", result.output, re.MULTILINE)
    assert len(bars) == (17 if describe.curve(get(name), 16) else 0)


def test_show_takes_options() -> None:
    result = CliRunner().invoke(app, ["show", "psr_nsr", "method.positive=1", "--rollouts", "4", "--json"])
    document = json.loads(result.output)
    assert {option["name"]: option["value"] for option in document["options"]}["positive"] == 1
    assert document["weight"]["curve"][2] == [0.5, 2 * 0.25]
