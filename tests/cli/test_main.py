"""Help, plans and completion: the command line without training."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from mcpo_cli.commands.verbs import PANELS
from mcpo_cli.config import plan, presets
from mcpo_cli.main import app
from mcpo_cli.report import artifacts
from tests.cli.conftest import MCPO, Cli, InProcess


def test_without_arguments_it_says_how_to_begin(here: InProcess) -> None:
    result = here()
    assert result.returncode == 0
    commands = [line.split("  ")[1] for line in result.stdout.splitlines() if line.startswith("  mcpo ")]
    assert len(commands) >= 4
    assert here.untouched()


def test_help_of_train_names_presets_examples_and_where_settings_are_explained(here: InProcess) -> None:
    out = here("train", "--help").stdout
    text = " ".join(out.partition("Presets, group=name:")[2].partition("Settings,")[0].split())
    for group, names in presets.groups().items():
        listed = re.search(rf"\b{group}=(.+?)(?= \w+=|$)", text)
        assert listed
        default, *others = listed[1].split(", ")
        assert default == f"{presets.default(group)} (default)"
        assert sorted([default.removesuffix(" (default)"), *others]) == names
    assert "mcpo help" in out
    assert "mcpo train method=mcpo model=toy-m seed=0,1,2" in out


def test_every_verb_is_under_a_heading_of_the_help() -> None:
    command: Any = typer.main.get_command(app)
    assert sorted(verb for verbs in PANELS.values() for verb in verbs) == sorted(command.commands)


@pytest.mark.parametrize("suite", ["table1", pytest.param("headline", marks=pytest.mark.slow)])
def test_plan_of_a_suite(here: InProcess, suite: str) -> None:
    document = here.json("plan", suite, "seed=0")
    expected = plan.from_suite(suite, ["seed=0"], "")
    assert [run["run_id"] for run in document["runs"]] == [cell.spec.run_id for cell in expected.cells]
    assert {run["state"] for run in document["runs"]} == {"planned"}
    assert document["command"] == f"mcpo train {suite} seed=0"
    assert document["estimate"]["seconds_left"] > 0
    assert document["estimate"]["basis"] == "from the cost model"


def test_a_dry_run_says_what_memory_and_disk_an_existing_model_needs(here: InProcess) -> None:
    words = ("train", "model=smollm2-135m", "method=grpo", "--dry-run")
    (run,) = here.json(*words)["runs"]
    weights = 4 * 134_515_008
    # Memory: weights, gradients and two moments. Disk: two checkpoints of weights and moments, and the policy.
    assert 4 * weights < run["memory_bytes"] < 4.5e9
    assert run["disk_bytes"] == pytest.approx((2 * 3 + 1) * weights, rel=0.001)
    text = " ".join(here(*words).stdout.split())
    assert re.search(
        r"a run needs about \d\.\d GiB of memory \(\d+\.\d GiB are free\) and about 3\.5 GiB of disk", text
    )
    assert "GiB of memory" not in here("train", "--dry-run").stdout


def test_dry_run_is_the_plan(here: InProcess) -> None:
    assert here.json("train", "seed=0,1", "--dry-run") == here.json("plan", "seed=0,1")
    table2 = here.json("ablate", "--dry-run")
    assert table2["runs"] == here.json("plan", "table2")["runs"]
    assert table2["command"] == "mcpo ablate"
    why = here.json("ablate", "why-reweight", "seed=0", "--dry-run")
    assert why["runs"] == here.json("plan", "why-reweight", "seed=0")["runs"]
    assert why["command"] == "mcpo ablate why-reweight seed=0"
    mastery = here.json("ablate", "mastery", "seed=0", "--dry-run")
    assert mastery["runs"] == here.json("plan", "mastery", "seed=0")["runs"]
    text = here("plan", "seed=3").stdout
    assert "mcpo train seed=3" in text
    assert here.untouched()


def test_a_continuing_command_survives_the_shell(here: InProcess) -> None:
    command = here.json("plan", "seed=choice(0, 1)")["command"]
    typed = subprocess.check_output(["bash", "-c", f"printf '%s\\0' {command}"], text=True).split("\0")[1:-1]
    assert [run["seed"] for run in here.json(*typed, "--dry-run")["runs"]] == [0, 1]


@pytest.mark.parametrize(
    ("words", "cword", "offered"),
    [
        ("mcpo train method", 2, [f"method={name}" for name in presets.groups()["method"]]),
        # bash splits words at "="
        ("mcpo train method = mc", 4, ["mc_grpo", "mcpo", "mcpo_extended", "mcpo_placebo"]),
        ("mcpo runs show mcpo-", 3, ["mcpo-toy-s-s0-000000000000"]),
        ("mcpo tr", 1, ["train"]),
        ("mcpo train train.ov", 2, ["train.overlong_cache=", "train.overlong_penalty="]),
        ("mcpo train seed=1 regime = ", 5, presets.groups()["regime"]),
        ("mcpo train table", 2, ["table1", "table2"]),
        ("mcpo ablate why", 2, ["why-reweight"]),
        ("mcpo reproduce table", 2, ["table1", "table2"]),
        ("mcpo reproduce a", 2, ["all", *(name for name in artifacts.registry() if name.startswith("a"))]),
    ],
)
def test_completion(
    home: Path,
    words: str,
    cword: int,
    offered: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = home / "runs" / "mcpo-toy-s-s0-000000000000"
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text("{}")
    for name, value in {"_MCPO_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(cword)}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        app(prog_name="mcpo")
    shown = capsys.readouterr().out.split()
    got = [word for word in shown if not words.endswith("method") or word.startswith("method=")]
    assert got == offered


def test_the_shell_asks_the_installed_command(cli: Cli) -> None:
    asked = {"_MCPO_COMPLETE": "complete_bash", "COMP_WORDS": "mcpo tr", "COMP_CWORD": "1"}
    command = Path(sys.executable).with_name("mcpo")
    assert subprocess.check_output([command], env=cli.env | asked, text=True).split() == ["train"]


@pytest.mark.slow
def test_a_closed_pipe_is_no_error(cli: Cli) -> None:
    command = f"{' '.join(MCPO)} plan table1 --json | head -n 1; exit ${{PIPESTATUS[0]}}"
    result = subprocess.run(["bash", "-c", command], env=cli.env, capture_output=True, text=True, check=False)
    assert result.stderr == ""
    assert os.linesep in result.stdout
