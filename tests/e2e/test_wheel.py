"""What is shipped works where no repository is: the wheel, in an environment and a folder of its own."""

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow

Archives = tuple[Path, Path]


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Archives:
    """The source distribution and the wheel that is built from it, as `python -m build` makes both."""
    out = tmp_path_factory.mktemp("dist")
    # --no-isolation: the build backend of this environment, so that nothing is downloaded.
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def installed(archives: Archives, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of a new environment that holds the wheel, and nothing else of its own.

    The dependencies come from the environment of the tests by a .pth file: installing torch once more would take
    minutes. .pth files found in a folder that a .pth file adds are not read, so the editable install of the
    repository stays out of sight.
    """
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=False)
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)}))
    python = folder / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, str(archives[1])], check=True, capture_output=True)
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return python.parent


def test_wheel_drops_one_package_into_site_packages(archives: Archives) -> None:
    names = zipfile.ZipFile(archives[1]).namelist()
    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"mcpo_cli"}
    assert len(top) == 2


def test_wheel_ships_the_study_inside_of_mcpo(archives: Archives) -> None:
    names = set(zipfile.ZipFile(archives[1]).namelist())
    assert {f"mcpo_cli/study/{name}" for name in shipped()} - names == set()
    assert "mcpo_cli/py.typed" in names  # type checkers read the annotations of no package without it


def test_sdist_holds_the_study_and_no_links(archives: Archives) -> None:
    with tarfile.open(archives[0]) as archive:
        members = {member.name.split("/", 1)[-1]: member for member in archive.getmembers()}
    assert [name for name, member in members.items() if member.issym() or member.islnk()] == []
    assert shipped() - set(members) == set()


def test_installed_wheel_trains_outside_the_repository(installed: Path, tmp_path: Path) -> None:
    empty, home = tmp_path / "empty", tmp_path / "home"
    empty.mkdir()
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "MLFLOW_TRACKING_URI")}
    environment["MCPO_HOME"] = str(home)

    def run(*command: str | Path) -> str:
        done = subprocess.run(command, cwd=empty, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = run(installed / "python", "-c", "import mcpo_cli; print(mcpo_cli.__file__)")
    assert Path(where.strip()).is_relative_to(installed.parent)
    (trained,) = json.loads(run(installed / "mcpo", "train", "scale=smoke", "warmup.target_accuracy=0", "--json"))[
        "runs"
    ]
    assert trained["state"] == "done"
    assert (home / "runs" / trained["run_id"] / "attempt_1" / "metrics.jsonl").is_file()
    (listed,) = json.loads(run(installed / "mcpo", "runs", "list", "--json"))["runs"]
    assert (listed["run_id"], listed["state"]) == (trained["run_id"], "done")
    assert list(empty.iterdir()) == []


def shipped() -> set[str]:
    """Modules and declarations of the study, as the repository tracks them."""
    command = ["git", "ls-files", "analysis", "experiments"]
    tracked = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    return {name for name in tracked if name.endswith((".py", ".yaml"))}
