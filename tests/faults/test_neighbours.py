"""Others on the same machine: users without rights, a planted temporary folder, several commands over one home."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from mcpo_cli.backends.verl import launch
from mcpo_cli.backends.verl.overrides import Paths
from mcpo_cli.config.load import load
from tests.cli.conftest import MCPO
from tests.faults.conftest import Faults
from tests.store_runs import complete, plan, points, spec


def command(words: list[str], home: Path) -> "subprocess.Popen[str]":
    env = {key: value for key, value in os.environ.items() if key != "MLFLOW_TRACKING_URI"}
    env |= {"MCPO_HOME": str(home), "HOME": "/nonexistent"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([*MCPO, *words], env=env, text=True, **pipes)


def test_a_planted_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faults: Faults) -> None:
    """Its name can be guessed, and the temporary folder is everybody's: a link there must empty no other folder."""
    monkeypatch.setattr(launch.tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    precious = tmp_path / "precious"
    (tmp_path / "tmp").mkdir()
    precious.mkdir()
    (precious / "file").write_text("x")
    (found,) = load(["scale=verl-cpu"])
    paths = Paths(tmp_path / "run", tmp_path / "run" / "attempt_1", "model")
    with launch._ray(found, paths) as variables:
        name = Path(variables["RAY_TMPDIR"])
    name.symlink_to(precious)
    with pytest.raises(OSError, match="File exists"), launch._ray(found, paths):
        pass
    faults("a link in the place of Ray's temporary folder", lost=int(not (precious / "file").exists()))


@pytest.mark.slow
def test_commands_at_once_over_one_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faults: Faults) -> None:
    """Three syncs and a list beside them: each point is once in the store."""
    monkeypatch.setenv("MCPO_HOME", str(tmp_path))
    for seed in range(3):
        complete(spec(seed))
    running = [command(words, tmp_path) for words in (["runs", "sync"],) * 3 + (["runs", "list", "--json"],)]
    ended = [(one.communicate(timeout=600), one.returncode) for one in running]
    assert [code for _, code in ended] == [0] * 4, ended
    stored = points(tmp_path / "mlflow.db")
    steps = plan(*(spec(seed) for seed in range(3))).cells
    expected = {(cell.spec.run_id, "train/accuracy", step) for cell in steps for step in range(1, 5)}
    listed = [run["run_id"] for run in json.loads(ended[3][0][0])["runs"]]
    faults(
        "three syncs and a list at once over one home",
        times=4,
        lost=len(expected - set(stored)),
        wrong=sum(count - 1 for count in stored.values()) + 3 - len(listed),
    )
