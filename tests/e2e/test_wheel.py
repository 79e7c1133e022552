"""The wheel works without the repository, in a separate environment and folder."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from mcpo_cli import __version__
from tests.e2e.conftest import ROOT, Archives

pytestmark = pytest.mark.slow


def test_wheel_drops_two_packages_into_site_packages(archives: Archives) -> None:
    names = zipfile.ZipFile(archives[1]).namelist()
    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"mcpo_cli", "mcpo_study"}
    assert len(top) == 3


def test_wheel_ships_the_suites_of_the_paper_and_what_they_draw(archives: Archives) -> None:
    names = set(zipfile.ZipFile(archives[1]).namelist())
    expected = {
        "analysis/__init__.py",
        "experiments/__init__.py",
        *shipped("analysis/paper", "experiments/paper/suites"),
    }
    found = {name.removeprefix("mcpo_study/") for name in names if name.startswith("mcpo_study/")}
    assert found == expected
    bases = {
        f"mcpo_cli/base_policies/{path.parent.name}/{path.name}"
        for path in (ROOT / "mcpo_cli/base_policies").glob("*/*")
    }
    assert bases
    assert bases - names == set()
    assert "mcpo_cli/py.typed" in names  # type checkers read the annotations of no package without it


def test_sdist_holds_all_studies_and_no_links(archives: Archives) -> None:
    with tarfile.open(archives[0]) as archive:
        members = {member.name.split("/", 1)[-1]: member for member in archive.getmembers()}
    assert [name for name, member in members.items() if member.issym() or member.islnk()] == []
    assert shipped("analysis", "experiments") - set(members) == set()
    # It comes with the code that checks it.
    assert {"tests/e2e/test_wheel.py", "docs/results.md", "Makefile", "constraints.txt"} <= set(members)


def test_a_registry_gets_absolute_links(tmp_path: Path) -> None:
    """When a release is built, setup.py knows the address of the repository."""
    code = "import setuptools; setuptools.setup = lambda **about: print(about['long_description']); import setup"
    environment = os.environ | {"REPOSITORY_URL": "https://code.example/mcpo/", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    targets = re.findall(r"\]\(([^)\s]+)\)", done.stdout)
    assert "https://code.example/mcpo/blob/HEAD/docs/tutorial.md" in targets
    assert "https://code.example/mcpo/raw/HEAD/docs/lm.png" in targets
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []


def test_the_program_has_names_that_no_other_package_takes(installed: Path, tmp_path: Path) -> None:
    for command in ([installed / "mcpo-lab"], [installed / "python", "-m", "mcpo_cli"]):
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(
            [*command, "--version"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == __version__


def shipped(*folders: str) -> set[str]:
    """Modules and declarations in the folders, as the repository tracks them."""
    command = ["git", "ls-files", *folders]
    tracked = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    return {name for name in tracked if name.endswith((".py", ".yaml"))}
