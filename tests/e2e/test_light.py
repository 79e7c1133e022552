"""The wheel without an extra: what reads results works, what trains names the command that it lacks."""

import os
import subprocess
import sys
import sysconfig
import venv
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.e2e.conftest import Archives

pytestmark = pytest.mark.slow
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
    folder = tmp_path_factory.mktemp("light")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)}))
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([*install, str(archives[1])], env=environment, check=True, capture_output=True)
    for source in needed("mcpo-cli"):
        if source.exists() and "mcpo_cli" not in source.name:
            (site / source.name).symlink_to(source)
    return python.parent


def run(light: Path, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MLFLOW_TRACKING_URI")
    }
    environment["MCPO_HOME"] = str(home / "home")
    command = [light / "mcpo", *words]
    return subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, check=False)


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


@pytest.mark.parametrize("words", ["train table1 --dry-run", "reproduce table1"])
def test_what_needs_an_extra_says_the_one_command(light: Path, tmp_path: Path, words: str) -> None:
    done = run(light, tmp_path, *words.split())
    assert done.returncode == 2
    assert done.stderr.count("pip install 'mcpo-cli[train]'") == 1
    assert not (tmp_path / "home" / "runs").exists()


def test_doctor_names_the_extra(light: Path, tmp_path: Path) -> None:
    assert "pip install 'mcpo-cli[train]'" in run(light, tmp_path, "doctor").stdout
