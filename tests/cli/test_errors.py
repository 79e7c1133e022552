"""Exit codes by the table in errors.py; one message for each error, also as JSON and for paths that cannot be."""

import errno
import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from mcpo_cli import errors, paths, plugin_files, plugins
from mcpo_cli.compare import regrade
from mcpo_cli.config import plan
from mcpo_cli.errors import UNEXPECTED, McpoError
from tests.cli.conftest import InProcess
from tests.errors import refused

ROW = re.compile(r"^\| (`\w+`|anything else) +\| (\d+) ", re.MULTILINE)
OFFLINE = "compute.tracking_uri=offline"


def table() -> dict[str, int]:
    """The table of errors.py: exit code by class."""
    return {name.strip("`"): int(code) for name, code in ROW.findall(errors.__doc__ or "")}


def test_the_table_is_that_of_the_classes() -> None:
    classes = {kind.__name__: kind.exit_code for kind in McpoError.__subclasses__()}
    assert table() == {**classes, "anything else": UNEXPECTED}


def ends(result: "subprocess.CompletedProcess[str]", kind: str, said: str) -> None:
    """The exit code of `kind`, one message with `said` in it, and no traceback."""
    assert result.returncode == table()[kind], result.stderr
    assert said in result.stderr
    assert len(re.findall(r"^error: ", result.stderr, re.MULTILINE)) == 1
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_run_failed(here: InProcess) -> None:
    words = ("train", "scale=smoke", "warmup.target_accuracy=1", "warmup.max_steps=1", OFFLINE)
    result = here(*words, "--json")
    ends(result, "RunFailed", "warmup.target_accuracy=1.0")
    assert json.loads(result.stdout)["error"]["type"] == "RunFailed"
    # A second run of that base policy does not train it again.
    again = here(*words, "base_seed=0", "seed=1")
    ends(again, "RunFailed", "it was tried before, as ")


def test_a_gate(here: InProcess, tmp_path: Path) -> None:
    """Of 100 problems `new` loses 10: p is .0015, the interval reaches from -.160 to -.040."""
    for name, solved in (("base", 60), ("new", 50)):
        rows = [f"p{problem},{int(problem < solved)}" for problem in range(100)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["problem,correct", *rows]))
    words = ("compare", str(tmp_path / "base.csv"), str(tmp_path / "new.csv"), "--out", str(tmp_path / "out"))
    broken = here(*words, "--gate", "no-worse:0.03", "--json")
    ends(broken, "GateBroken", "gate broken: results no-worse:0.03 (new -.100 [-.160, -.040])")
    document = json.loads(broken.stdout)
    assert document["error"]["code"] == "gate_broken"
    assert document["comparisons"][0]["gate"]["outcome"] == "broken"
    assert "| results | new | no-worse:0.03 | broken | .600 | .500 | -.100 |" in (tmp_path / "out/gate.md").read_text()
    undecided = here(*words, "--gate", "no-worse:0.05")
    ends(undecided, "GateUndecided", "gate undecided: results no-worse:0.05")
    assert undecided.stdout.startswith("gate undecided: ")
    holds = here(*words, "--gate", "no-worse:0.2")
    assert (holds.returncode, holds.stdout.splitlines()[0][:11]) == (0, "gate holds:")


def test_anything_else(here: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(_overrides: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(plan, "from_overrides", bug)
    ends(here("train"), "anything else", "ZeroDivisionError: division by zero\n  this is a bug in mcpo")
    shown = here("train", "--debug")
    assert shown.returncode == UNEXPECTED
    assert "Traceback" in shown.stderr
    assert sys.argv == ["mcpo", "train", "--debug"]


def test_an_error_inside_a_plug_in_is_not_called_a_bug(
    here: InProcess, plugin_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = plugin_folder / "failing.py"
    file.write_text("def measure(_):\n    return {}['key']\n", encoding="utf-8")
    failing = importlib.import_module("mcpo_cli.plugin_files.failing")
    monkeypatch.setattr(plan, "from_overrides", failing.measure)
    ends(here("train"), "RunFailed", f"a plug-in failed: {file}:2: KeyError: 'key'")


@pytest.mark.parametrize("preset", [[], ["scale=smoke"]], ids=["alone", "in a preset's formula"])
def test_json_holds_the_error_too(here: InProcess, preset: list[str]) -> None:
    result = here("train", *preset, "seed=abc", "--json")
    assert result.returncode == 2
    assert json.loads(result.stdout)["error"] == {
        "code": "bad_input",
        "type": "ConfigError",
        "message": "seed=abc: must be an integer, not str",
        "fix": "seed=0  (the default)",
        "exit_code": 2,
    }


@pytest.mark.parametrize(
    "error", [MemoryError("Unable to allocate 7.45 GiB for an array"), RuntimeError("can't start new thread")]
)
def test_memory_that_runs_out_is_no_bug(
    here: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """NumPy's message for a file that is too large, or under `ulimit -v`, and Python's where a stack has no room."""
    ends: list[int] = []

    def read(_path: Path) -> None:
        raise error

    monkeypatch.setattr(regrade, "read", read)
    monkeypatch.setattr(os, "_exit", ends.append)
    (tmp_path / "answers.jsonl").write_text("{}\n")
    said = here.refused("no_memory", "grade", str(tmp_path / "answers.jsonl"))
    assert str(error) in said
    assert "bug" not in said
    assert ends == [1]


def test_a_path_that_may_not_be_read_is_no_bug(
    here: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text("{}\n")
    monkeypatch.setattr(regrade, "read", Mock(side_effect=PermissionError(errno.EACCES, "Permission denied", path)))
    assert f"{path} cannot be used: Permission denied" in here.refused("bad_input", "grade", str(path))


def test_words_that_are_no_options_ask_for_nothing(here: InProcess) -> None:
    """Such words are values of options, or follow `--`."""
    for arguments in (["grade", "x", "--compare", "--json"], ["train", "--", "seed=abc", "--json", "--debug"]):
        result = here(*arguments)
        assert (result.returncode, result.stdout) == (2, "")
        assert "Traceback" not in result.stderr


def test_json_is_one_document_where_answers_could_not_be_graded(here: InProcess, tmp_path: Path) -> None:
    """The document has both the results and the error."""
    path = tmp_path / "answers.jsonl"
    path.write_text((json.dumps({"gold": "$$", "response": "1"}) + "\n") * 5)
    result = here("grade", str(path), "--json", "--workers", "1")
    document = json.loads(result.stdout)
    assert (result.returncode, document["answers"], len(document["lines"])) == (1, 5, 5)
    assert document["error"]["type"] == "RunFailed"


LONG = "x" * 300
WRONG = {
    "an unknown user": "~nosuchuser/x",
    "a name that is too long": f"./{LONG}",
    "a null byte": "a\0b",
}


@pytest.mark.parametrize("given", WRONG.values(), ids=WRONG)
def test_what_no_file_can_be_called_is_refused(given: str) -> None:
    with refused("not_found", ascii(given)[1:40].rstrip("'")) as raised:
        paths.named(given)
    assert raised.value.fix
    assert "\0" not in raised.value.message
    assert len(raised.value.message) < 200


VERBS = {
    "train": ["train", "--dry-run", "{}.yaml"],
    "a preset": ["train", "--dry-run", "scale={}.yaml"],
    "train a model": ["train", "--dry-run", "scale=laptop", "model.path={}"],
    "fork": ["fork", "{}.yaml"],
    "compare": ["compare", "{}.yaml"],
    "compare logs": ["compare", "{}/*.jsonl", "ours.jsonl"],
    "compare into": ["compare", "a.jsonl", "b.jsonl", "--out", "{}"],
    "claim": ["claim", "{}.yaml"],
    "claim into": ["claim", "54.2 vs 51.7, n=30, 32 samples", "--csv", "{}"],
    "model fetch": ["components", "fetch", "model", "smollm2-135m", "--from", "{}"],
    "evaluate": ["evaluate", "{}"],
    "grade": ["grade", "{}"],
    "grade a file": ["grade", "{}.jsonl"],
    "data audit": ["components", "check", "data", "{}/x.jsonl"],
    "data audit of a set": ["components", "check", "data", "math500={}"],
    "probe": ["probe", "sanity", "{}"],
    "runs unbundle": ["runs", "unbundle", "{}"],
    "runs bundle": ["runs", "bundle", "{}", "{}"],
}


@pytest.mark.parametrize("words", VERBS.values(), ids=VERBS)
def test_no_verb_calls_it_a_bug(here: InProcess, words: list[str]) -> None:
    done = here(*(word.replace("{}", f"./{LONG}") for word in words))
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr


def test_a_plug_in_folder_that_can_be_none_is_a_message(
    plugin_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(plugin_files, "__path__", ["~nosuchuser/plug-ins", os.fspath(plugin_folder)])
    assert plugins.folders() == [plugin_folder]
    assert "MCPO_PLUGINS: '~nosuchuser/plug-ins' cannot be a file or folder" in capsys.readouterr().err


def test_nor_is_a_home_that_can_be_none(here: InProcess) -> None:
    assert "MCPO_HOME: " in here.refused("not_found", "runs", "list", MCPO_HOME=LONG)
