"""Every row of the table in errors.py holds for the class, for the documentation, and for a command that ends so."""

import json
import re
import subprocess
import sys

import pytest

from mcpo_cli import errors
from mcpo_cli.config import plan
from mcpo_cli.config.load import load
from mcpo_cli.errors import UNEXPECTED, McpoError
from mcpo_cli.home import run_dir
from mcpo_cli.runs.journal import write_json
from tests.cli.conftest import InProcess
from tests.fakes import write_run
from tests.web import Answers, serving

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


def test_config_error(here: InProcess) -> None:
    ends(here("train", "seed=abc"), "ConfigError", "seed=abc: must be an integer")


@pytest.mark.slow
def test_run_failed(here: InProcess) -> None:
    words = ("train", "scale=smoke", "warmup.target_accuracy=1", "warmup.max_steps=1", OFFLINE)
    result = here(*words, "--json")
    ends(result, "RunFailed", "warmup.target_accuracy=1.0")
    assert json.loads(result.stdout)["error"]["type"] == "RunFailed"
    # A second run of that base policy does not train it again.
    again = here(*words, "base_seed=0", "seed=1")
    ends(again, "RunFailed", "it was tried before, as ")


class Dying(Answers):
    """An MLflow server that answers the first check and fails at every other request."""

    def do_POST(self) -> None:
        self.answer(200 if self.path.endswith("/experiments/search") else 500, b"{}")


@pytest.mark.slow
def test_store_error(here: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    (spec,) = load(["scale=smoke"])
    write_run(spec)
    write_json(run_dir(spec.run_id) / "spec.json", spec.to_dict())
    with serving(Dying) as uri:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        ends(here("runs", "sync"), "StoreError", f"the MLflow store {uri} failed")


def test_anything_else(here: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(_overrides: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(plan, "from_overrides", bug)
    ends(here("train"), "anything else", "ZeroDivisionError: division by zero\n  this is a bug in mcpo")
    shown = here("train", "--debug")
    assert shown.returncode == UNEXPECTED
    assert "Traceback" in shown.stderr
    assert sys.argv == ["mcpo", "train", "--debug"]
