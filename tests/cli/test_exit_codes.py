"""Every row of the table in errors.py holds for the class, and most for a command that ends so."""

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mcpo_cli import errors
from mcpo_cli.config import plan
from mcpo_cli.errors import UNEXPECTED, McpoError
from tests.cli.conftest import InProcess

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
