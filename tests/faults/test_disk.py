"""A full disk: the run fails, reports it in one line, and continues with the same result once there is room.

The disk is a limit on the size of files, which every system can set, and a real one (tmpfs) if it can be mounted.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from mcpo_cli.config.schema import RunSpec
from mcpo_cli.runs import bases
from mcpo_cli.runs.attempts import missing, state
from mcpo_cli.runs.journal import Journal, read_json
from tests.engine import differences, records, torn, work
from tests.faults.suites import Suite, spec_of

pytestmark = pytest.mark.slow
KIB = 1024
LIMITS = [30 * KIB, 500 * KIB]
"""Limits below the room that an attempt reserves, and below a checkpoint's moments."""
ROOMS = [20 * KIB, 700 * KIB, 3200 * KIB]
"""Room on the disk besides the base policy: for nothing, one checkpoint, or all but the policy."""


def mount(*words: str) -> bool:
    return subprocess.run(["mount", *words], capture_output=True, check=False).returncode == 0


@contextmanager
def mounted(folder: Path, *words: str) -> Iterator[None]:
    """A disk at `folder`, by these words of `mount`."""
    folder.mkdir(exist_ok=True)
    assert mount(*words, str(folder))
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def tmpfs(folder: Path, size: int) -> AbstractContextManager[None]:
    """A disk of `size` bytes at `folder`."""
    return mounted(folder, "-t", "tmpfs", "-o", f"size={size}", "tmpfs")


def mountable() -> bool:
    """True if disks can be mounted here."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return False
    with TemporaryDirectory() as folder, suppress(AssertionError), tmpfs(Path(folder), 64 * KIB):
        return True
    return False


REAL = [True] if mountable() else []
"""Parameters of tests that need a real disk; empty if none can be mounted."""


def said(home: Path, spec: RunSpec) -> str:
    """The reason that a failed run left: in its status, or in the log if it opened no attempt."""
    folder = home / "runs" / spec.run_id
    for attempt in Journal(folder).attempts()[-1:]:
        return str(read_json(attempt / "status.json").get("error", ""))
    return (folder / "worker.log").read_text()


def check(home: Path, spec: RunSpec) -> None:
    """Check that the run failed because of a full disk, and that its records are those of a shorter run."""
    folder = home / "runs" / spec.run_id
    assert "cannot be written: " in said(home, spec)
    assert "make room on that disk" in said(home, spec)
    assert "Traceback" not in (folder / "worker.log").read_text()
    assert state(folder, spec) == ("failed" if Journal(folder).attempts() else "planned")
    assert torn(folder) == 0


@pytest.mark.parametrize("largest", LIMITS)
def test_files_cannot_grow(largest: int, undisturbed: Path, tmp_path: Path) -> None:
    spec = spec_of()
    shutil.copytree(undisturbed / "cache", tmp_path / "cache")
    assert work(tmp_path, spec, largest=largest) == 1
    check(tmp_path, spec)
    assert work(tmp_path, spec) == 0
    assert differences(records(undisturbed, spec), records(tmp_path, spec)) == (0, 0)


@pytest.mark.parametrize("room", ROOMS if REAL else [])
def test_the_disk_is_full(room: int, undisturbed: Path, tmp_path: Path) -> None:
    spec = spec_of()
    disk = tmp_path / "disk"
    base = bases.cached_base(undisturbed, spec)
    with tmpfs(disk, sum(path.stat().st_size for path in base.iterdir()) + 72 * KIB + room):
        shutil.copytree(base, bases.cached_base(disk, spec))
        assert work(disk, spec) == 1
        check(disk, spec)
        assert mount("-o", f"remount,size={64 << 20}", str(disk))
        assert work(disk, spec) == 0
        assert differences(records(undisturbed, spec), records(disk, spec)) == (0, 0)


@pytest.mark.parametrize("_real", REAL)
def test_a_suite_on_a_full_disk(_real: bool, tmp_path: Path) -> None:
    """Nothing starts on a disk that has no room for a run, and both runs are completed once there is."""
    disk = tmp_path / "disk"
    with tmpfs(disk, 900 * KIB):
        suite = Suite(disk)
        _, err = (process := suite.begin()).communicate(timeout=600)
        assert process.returncode == 4
        assert "Traceback" not in err
        assert f"on the disk of {disk}" in err
        assert not [*disk.rglob("attempt_*")]
        assert mount("-o", f"remount,size={64 << 20}", str(disk))
        _, err = (process := suite.begin()).communicate(timeout=600)
        assert process.returncode == 0, err
        lost = sum(len(missing(suite.folder(spec), spec)) for spec in suite.specs)
    assert lost == 0


@pytest.mark.parametrize("_real", REAL)
def test_a_home_that_is_read_only(_real: bool, undisturbed: Path, tmp_path: Path) -> None:
    """No run starts there, and its records can be read."""
    spec = spec_of()
    disk = tmp_path / "disk"
    with tmpfs(disk, 64 << 20):
        shutil.copytree(undisturbed / "runs", disk / "runs")
        before = records(disk, spec)
        assert mount("-o", "remount,ro", str(disk))
        suite = Suite(disk)
        _, err = (process := suite.begin()).communicate(timeout=600)
        assert process.returncode == 2
        assert f"MCPO_HOME={disk} cannot be written (Read-only file system)" in err
        listed = subprocess.run(
            [sys.executable, "-m", "mcpo_cli.main", "runs", "list"],
            env=suite.env,
            capture_output=True,
            text=True,
            check=True,
        )
        assert "done" in listed.stdout
        assert differences(before, records(disk, spec)) == (0, 0)
