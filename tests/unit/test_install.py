"""Instructions to install: the same steps everywhere, locks with all requirements, hashes of all pins."""

import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from mcpo_cli import doctor as machine_checks
from mcpo_cli.backends.verl import checks

ROOT = Path(__file__).resolve().parents[2]
LOCK, KERNELS = ROOT / "constraints-gpu.txt", ROOT / "constraints-flash-attn.txt"
PROJECT: Any = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}\b", re.MULTILINE)


def installs(lines: list[str]) -> list[list[str]]:
    """The arguments of each `pip install` that installs from files here, in order."""
    found = [line.partition(" install ")[2] for line in lines if re.search(r"\bpip\b.* install ", line)]
    return [shlex.split(arguments) for arguments in found]


def locked(path: Path) -> dict[str, str]:
    """The version of each package in a file of pins."""
    pinned = re.findall(r"^([\w.-]+)==(\S+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {canonicalize_name(name): version for name, version in pinned}


def test_make_the_page_the_image_and_doctor_install_the_same() -> None:
    """flash-attn last, built with the torch that the lock has installed."""
    dry = ["make", "--dry-run", "--always-make", "setup-gpu"]
    recipe = subprocess.run(dry, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    page = (ROOT / "docs" / "gpu-reference.md").read_text(encoding="utf-8").splitlines()
    image = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    made = installs(recipe)
    assert made == installs([line for line in page if line.startswith("$ pip ")])
    assert made == installs([line for line in image if line.startswith("RUN pip ")])
    first, second, project = made
    assert (LOCK.name in first, KERNELS.name in second, project[-2:]) == (True, True, ["--editable", "."])
    assert {"--no-build-isolation", "--no-cache-dir"} <= {*second}
    rebuild = shlex.split(machine_checks.REBUILD_KERNELS.partition("  (")[0])
    assert [word for word in rebuild if word != "--force-reinstall"] == ["pip", "install", *second]
    copied = [word for line in image if line.startswith("COPY ") for word in line.split()[1:-1]]
    assert all((ROOT / name).exists() for name in copied)


@pytest.mark.parametrize("name", ["constraints.txt", "constraints-verl.txt", LOCK.name, KERNELS.name])
def test_every_pin_has_hashes_but_torch(name: str) -> None:
    """Each index has its own builds of torch."""
    own = name in (LOCK.name, KERNELS.name)
    hashes, pinned = ROOT / ("" if own else ".ci/hashes") / name, locked(ROOT / name)
    expected = pinned if own else {package: version for package, version in pinned.items() if package != "torch"}
    assert locked(hashes) == expected
    blocks = re.split(r"^(?=\w)", hashes.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert len(blocks) == len(expected)
    assert [block for block in blocks if not HASH.search(block)] == []


def test_the_lock_has_what_the_project_and_verl_ask_for() -> None:
    """`make check-lock-gpu` asks the same of everything that these packages need in turn; it needs PyPI."""
    versions = locked(LOCK) | locked(KERNELS)
    project, groups = PROJECT["project"], PROJECT["dependency-groups"]
    extras = project["optional-dependencies"]
    asked = [line for extra in ("train", "mlflow", "slurm", "verl") for line in extras[extra]]
    asked = [line for line in asked if not line.startswith("mcpo-cli[")]
    asked += [*project["dependencies"], *groups["flash-attn"]]
    asked += [name + wanted for name, wanted in {**checks.CORE, **checks.GPU}.items()]
    wanted = [Requirement(line) for line in asked]
    assert [
        str(one) for one in wanted if not checks.fits(versions[canonicalize_name(one.name)], str(one.specifier))
    ] == []
