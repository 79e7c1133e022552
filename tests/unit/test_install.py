"""What people are told to install: the same steps everywhere, names that exist, a lock that has what is asked for."""

import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from mcpo_cli.backends.verl import pins
from mcpo_cli.commands import machine_checks

ROOT = Path(__file__).resolve().parents[2]
LOCK, KERNELS = ROOT / "constraints-gpu.txt", ROOT / "constraints-flash-attn.txt"
PROJECT: Any = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def installs(lines: list[str]) -> list[list[str]]:
    """The arguments of each `pip install` that installs from files here, in order."""
    found = [line.partition(" install ")[2] for line in lines if re.search(r"\bpip\b.* install ", line)]
    return [shlex.split(arguments) for arguments in found]


def steps() -> dict[str, list[list[str]]]:
    """What `make setup-gpu`, the page for people without make and the image install."""
    recipe = subprocess.run(
        ["make", "--dry-run", "--always-make", "setup-gpu"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    page = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8").splitlines()
    image = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    return {
        "make": installs(recipe),
        "page": installs([line for line in page if line.startswith("$ pip ")]),
        "image": installs([line for line in image if line.startswith("RUN pip ")]),
    }


def locked(path: Path) -> dict[str, str]:
    """The version of each package in a lock."""
    pinned = re.findall(r"^([\w.-]+)==(\S+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {canonicalize_name(name): version for name, version in pinned}


def test_make_the_page_and_the_image_install_the_same() -> None:
    found = steps()
    assert found["make"] == found["page"] == found["image"]
    files = [
        arguments[arguments.index("--requirement") + 1] for arguments in found["make"] if "--requirement" in arguments
    ]
    assert files == [LOCK.name, KERNELS.name]
    assert found["make"][-1][-2:] == ["--editable", "."]


def test_flash_attn_is_built_after_torch_with_the_torch_that_is_there() -> None:
    first, second, _ = steps()["make"]
    assert "torch" in locked(LOCK)
    assert list(locked(KERNELS)) == ["flash-attn"]
    assert "--no-build-isolation" in second, "an isolated build has no torch"
    assert "--no-cache-dir" in second, "pip would take one that it built with another torch"
    assert {"--no-deps", "--require-hashes"} <= {*first} & {*second}
    imported = PROJECT["dependency-groups"]["flash-attn-build"]
    assert {canonicalize_name(Requirement(line).name) for line in imported} <= locked(LOCK).keys()


def test_doctor_rebuilds_flash_attn_as_it_is_installed() -> None:
    rebuild = shlex.split(machine_checks.REBUILD_KERNELS.partition("  (")[0])
    rebuild.remove("--force-reinstall")
    assert rebuild == ["pip", "install", *steps()["make"][1]]


@pytest.mark.parametrize("path", [LOCK, KERNELS], ids=lambda path: path.name)
def test_every_package_of_the_lock_has_hashes(path: Path) -> None:
    blocks = re.split(r"^(?=\w)", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert len(blocks) == len(locked(path))
    assert [block for block in blocks if not re.search(r"^    --hash=sha256:[0-9a-f]{64}\b", block, re.MULTILINE)] == []


def test_the_lock_has_what_the_project_and_verl_ask_for() -> None:
    """`make check-lock-gpu` asks the same of everything that these packages need in turn; it needs PyPI."""
    versions = locked(LOCK) | locked(KERNELS)
    project, groups = PROJECT["project"], PROJECT["dependency-groups"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["verl"], *groups["flash-attn"]]
    asked += [name + wanted for name, wanted in {**pins.CORE, **pins.GPU}.items()]
    unmet = [
        line
        for line in asked
        if (wanted := Requirement(line))
        and not pins.fits(versions[canonicalize_name(wanted.name)], str(wanted.specifier))
    ]
    assert unmet == []


def test_what_people_are_told_to_install_exists() -> None:
    """Extras of this project, and no distribution of it, which is not published."""
    told = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "mcpo_cli").rglob("*.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in told)
    extras = {extra for named in re.findall(r"install [^\n]*\.\[([\w,-]+)\]", text) for extra in named.split(",")}
    assert extras
    assert extras <= PROJECT["project"]["optional-dependencies"].keys()
    assert re.findall(r"pip install[^\n]*\bmcpo[-_]cli\b[^\n]*", text) == []


def test_the_image_has_cuda_and_python_of_the_lock_and_leaves_out_what_git_ignores() -> None:
    image = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert locked(LOCK)["cuda-toolkit"].startswith("13.0.")
    assert re.findall(r"^FROM (\S+)$", image, re.MULTILINE) == ["nvidia/cuda:13.0.3-devel-ubuntu24.04"]
    assert "RUN python3.12 -m venv /opt/venv\n" in image
    copied = [word for line in re.findall(r"^COPY (.+)$", image, re.MULTILINE) for word in line.split()[:-1]]
    assert all((ROOT / name).exists() for name in copied)
    assert (ROOT / ".dockerignore").read_text() == (ROOT / ".gitignore").read_text()
