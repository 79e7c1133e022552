"""The wheel works without the repository and without an extra, in separate environments and folders."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from mcpo_cli import __version__
from tests.e2e.conftest import ROOT, Archives, environment

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


ABSENT = ("torch", "transformers", "hydra", "mlflow", "huggingface_hub", "safetensors")


def needed(name: str, extra: str = "", seen: dict[tuple[str, str], metadata.Distribution] | None = None) -> set[Path]:
    """What is installed here of a distribution with an extra and of all that it needs: files and folders at the top."""
    known = {} if seen is None else seen
    known[name, extra] = distribution = metadata.distribution(name)
    for line in distribution.requires or []:
        wanted = Requirement(line)
        if wanted.marker is None or wanted.marker.evaluate({"extra": extra}):
            for of_it in wanted.extras or {""}:
                if (wanted.name, of_it) not in known:
                    needed(wanted.name, of_it, known)
    return {
        Path(str(each.locate_file(file.parts[0])))
        for each in known.values()
        for file in each.files or []
        if file.parts[0] not in ("..", "__pycache__")
    }


@pytest.fixture(scope="module")
def light(archives: Archives, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of an environment with the wheel and what it requires, by links to what is installed here."""
    programs, site = environment(tmp_path_factory.mktemp("light"), archives[1])
    for source in needed("mcpo-cli"):
        if source.exists() and "mcpo_cli" not in source.name:
            (site / source.name).symlink_to(source)
    return programs


def run(light: Path, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MLFLOW_TRACKING_URI")}
    env["MCPO_HOME"] = str(home / "home")
    return subprocess.run([light / "mcpo", *words], cwd=home, env=env, capture_output=True, text=True, check=False)


def test_nothing_heavy_is_there(light: Path, tmp_path: Path) -> None:
    code = f"from importlib.util import find_spec; print([name for name in {ABSENT} if find_spec(name)])"
    done = subprocess.run([light / "python", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_two_tables_are_compared_and_an_answer_is_graded(light: Path, tmp_path: Path) -> None:
    for name, shift in (("a", 0), ("b", 1)):
        rows = "".join(f"p{at},{int(at % 4 > shift)}\n" for at in range(40))
        (tmp_path / f"{name}.csv").write_text(f"problem,correct\n{rows}")
    (tmp_path / "answers.jsonl").write_text('{"problem": "1+1", "gold": "2", "response": "so \\\\boxed{2}"}\n')
    (tmp_path / "problems.jsonl").write_text('{"problem": "What is 1+1?", "answer": "2"}\n')
    compared = run(light, tmp_path, "compare", "a.csv", "b.csv", "--full")
    assert compared.returncode == 0
    assert compared.stdout.startswith("b against a: worse")
    assert "(-.250)" in compared.stdout.splitlines()[0]
    assert (tmp_path / "home" / "reports" / "compare").is_dir()
    for words in (
        ["grade", "answers.jsonl"],
        ["runs", "list"],
        ["components", "check", "data", "problems.jsonl"],
        ["components", "list"],
        ["help", "train.lr"],
    ):
        done = run(light, tmp_path, *words)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), (words, done.stderr)


def test_what_needs_an_extra_says_the_one_command(light: Path, tmp_path: Path) -> None:
    for words in ("train table1 --dry-run", "reproduce table1"):
        done = run(light, tmp_path, *words.split())
        assert done.returncode == 2
        assert done.stderr.count("pip install 'mcpo-cli[train]'") == 1
    assert not (tmp_path / "home" / "runs").exists()
    assert "pip install 'mcpo-cli[train]'" in run(light, tmp_path, "doctor").stdout
