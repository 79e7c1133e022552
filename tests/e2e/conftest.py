"""A home, the shipped archives, and an environment with only the wheel."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
Archives = tuple[Path, Path]


@pytest.fixture(scope="module")
def home(module_home: Path) -> Path:
    """One home for all tests of a file, so that base policies are made once."""
    return module_home


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Archives:
    """The source distribution and the wheel built from it, as `python -m build` makes both."""
    out = tmp_path_factory.mktemp("dist")
    # --no-isolation: the build backend of this environment, so that nothing is downloaded.
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return sdist, wheel


def environment(folder: Path, wheel: Path) -> tuple[Path, Path]:
    """The folders `bin` and `site-packages` of a new environment in `folder` with the wheel alone."""
    venv.create(folder, with_pip=False)
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)}))
    python = folder / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    # With it, pip would take the repository for an installation.
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([*install, str(wheel)], env=outside, check=True, capture_output=True)
    return python.parent, site


@pytest.fixture(scope="session")
def installed(archives: Archives, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of a new environment into which only the wheel was installed.

    The dependencies come from the environment of the tests by a .pth file: installing torch once more would take
    minutes. .pth files found in a folder that a .pth file adds are not read, so the editable install of the
    repository stays out of sight.
    """
    programs, site = environment(tmp_path_factory.mktemp("venv"), archives[1])
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return programs
