"""Rules on imports beyond import-linter's (the contracts in pyproject.toml, `make check`), and lengths of files."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 400


SOURCES = sorted(path for name in ("mcpo_cli", "analysis", "experiments") for path in (ROOT / name).rglob("*.py"))


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
        *((f"mcpo {words}", HEAVIER | {"yaml"}) for words in ("--help", "runs --help")),
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
