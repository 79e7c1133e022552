"""Others on the same machine: users without rights, a planted temporary folder, several commands over one home."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from mcpo_cli.backends.verl import launch
from mcpo_cli.backends.verl.overrides import Paths
from mcpo_cli.config.load import load
from tests.cli.conftest import MCPO
from tests.faults.conftest import Faults
from tests.store_runs import complete, plan, points, spec

ROOT = [True] if os.geteuid() == 0 else []
NOBODY = 65534


def command(words: list[str], home: Path, **more: int) -> "subprocess.Popen[str]":
    env = {key: value for key, value in os.environ.items() if key != "MLFLOW_TRACKING_URI"}
    env |= {"MCPO_HOME": str(home), "HOME": "/nonexistent"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([*MCPO, *words], env=env, text=True, **pipes, **more)


HIDDEN: dict[str, Callable[[Path], object]] = {
    "a home that is closed to others": lambda home: home.chmod(0o700),
    "runs that are closed to others": lambda home: (home / "runs").chmod(0o700),
    "a run that is closed to others": lambda home: next((home / "runs").iterdir()).chmod(0o700),
    "settings that are closed to others": lambda home: next((home / "runs").glob("*/spec.json")).chmod(0o600),
    "a status that is closed to others": lambda home: next((home / "runs").glob("*/*/status.json")).chmod(0o600),
    "a home that others may only read": lambda home: home.chmod(0o755),
}


@pytest.mark.slow
@pytest.mark.parametrize("_root", ROOT)
@pytest.mark.parametrize("hide", HIDDEN.values(), ids=HIDDEN)
def test_another_user(
    hide: Callable[[Path], object],
    _root: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    faults: Faults,
) -> None:
    """Sees what the rights of the files say, and changes nothing."""
    home = tmp_path / "home"
    monkeypatch.setenv("MCPO_HOME", str(home))
    complete(spec())
    for folder in (*tmp_path.parents, tmp_path):
        if "pytest" in folder.name:
            folder.chmod(0o755)
    hide(home)
    before = sorted(home.rglob("*"))
    for words in (["runs", "list", "--json"], ["train", "scale=smoke"], ["runs", "sync"]):
        running = command(words, home, user=NOBODY, group=NOBODY, extra_groups=[])
        out, err = running.communicate(timeout=300)
        assert running.returncode in (0, 1, 2), err
        assert "Traceback" not in err
        assert "bug in mcpo" not in err
    taken = "done" in out
    faults(
        f"another user and {request.node.callspec.id.removeprefix('True-')}",
        times=3,
        wrong=int(taken) + int(sorted(home.rglob("*")) != before),
    )


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
    ended = [(one.communicate(timeout=300), one.returncode) for one in running]
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
