"""Rules on imports beyond import-linter's (the contracts in pyproject.toml, `make check`), and lengths of files."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 400


SOURCES = sorted(path for name in ("mcpo_cli", "analysis", "experiments") for path in (ROOT / name).rglob("*.py"))


@pytest.mark.slow
def test_the_contracts_see_the_study_and_imports_inside_functions(tmp_path: Path) -> None:
    for name in ("mcpo_cli", "analysis", "experiments"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / "analysis/paper/rollouts.py").open("a", encoding="utf-8") as file:
        file.write("\ndef late() -> None:\n    import mcpo_cli.commands.console\n")
    lint = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(lint, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert "analysis.paper.rollouts -> mcpo_cli.commands.console" in done.stdout
    assert " 1 broken" in done.stdout


def test_files_stay_short() -> None:
    assert SOURCES
    assert [path for path in SOURCES if len(path.read_text(encoding="utf-8").splitlines()) > LONGEST] == []


ENGINES = {"verl", "ray", "vllm", "torch", "transformers"}
HEAVY = {"torch", "transformers", "mlflow", "pandas"}
HEAVIER = HEAVY | {"hydra", "matplotlib", "scipy"}
CHECK = """
from contextlib import suppress
from mcpo_cli import backends, errors
from mcpo_cli.config.cost import estimate
from mcpo_cli.config.load import load
with suppress(errors.ConfigError): backends.get("verl").check_machine(estimate(load(["scale=paper"])[0]))
"""
VERL = "train backend=verl scale=paper method=mcpo model=qwen3-8b --dry-run"


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        *((f"mcpo {words}", HEAVIER | {"yaml"}) for words in ("", "--help", "runs --help")),
        ("mcpo train --help", HEAVIER),
        *((f"mcpo {words}", HEAVY) for words in ("train table1 --dry-run", "runs list")),
        (f"mcpo {VERL}", ENGINES),
        (CHECK, ENGINES),
        ("from mcpo_cli.methods import registry\nregistry()", {"torch"}),
        ("import mcpo_cli.grading", {"sympy", "math_verify", "psutil"}),
    ],
)
def test_what_loads_nothing_heavy(code: str, heavy: set[str], tmp_path: Path) -> None:
    """In a separate process; verbs that only read also write no files."""
    if code.startswith("mcpo "):
        end = "except SystemExit as end: assert not end.code, end.code"
        code = f"import sys, mcpo_cli.main as m\nsys.argv = {code.split()}\ntry: m.main()\n{end}"
    env = {**os.environ, "MCPO_HOME": str(tmp_path / "home")}
    program = f"import sys\n{code}\nprint('loaded:', *sorted({heavy} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[-1:] == ["loaded:"], done.stderr
    assert not (tmp_path / "home").exists()
