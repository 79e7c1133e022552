"""The shipped archives, and an environment with only the wheel."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
Archives = tuple[Path, Path]


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Archives:
    """The source distribution and the wheel built from it, as `python -m build` makes both."""
    out = tmp_path_factory.mktemp("dist")
    # --no-isolation: the build backend of this environment, so that nothing is downloaded.
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="session")
def installed(archives: Archives, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of a new environment into which only the wheel was installed.

    The dependencies come from the environment of the tests by a .pth file: installing torch once more would take
    minutes. .pth files found in a folder that a .pth file adds are not read, so the editable install of the
    repository stays out of sight.
    """
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=False)
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)}))
    python = folder / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    # With it, pip would take the repository for an installation.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([*install, str(archives[1])], env=environment, check=True, capture_output=True)
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return python.parent
