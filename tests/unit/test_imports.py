"""What import-linter (the contracts in pyproject.toml, `make check`) cannot say of imports, and how long files are."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("torch", "hydra", "mlflow", "pandas", "transformers", "matplotlib", "scipy")
LONGEST = 400


SOURCES = sorted(path for name in ("mcpo_cli", "analysis", "experiments") for path in (ROOT / name).rglob("*.py"))


def test_the_contracts_see_the_study_and_imports_inside_functions(tmp_path: Path) -> None:
    for name in ("mcpo_cli", "analysis", "experiments"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / "analysis/tables/rollouts.py").open("a", encoding="utf-8") as file:
        file.write("\ndef late() -> None:\n    import mcpo_cli.commands.console\n")
    lint = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(lint, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert "analysis.tables.rollouts -> mcpo_cli.commands.console" in done.stdout
    assert "6 kept, 1 broken" in done.stdout


def test_methods_leave_torch_to_whoever_calls_them() -> None:
    """Their annotations name tensors, which the contracts cannot tell from an import at run time."""
    code = "import sys; from mcpo_cli.methods import registry; registry(); print('loaded:', 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "loaded: False"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_files_stay_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST


@pytest.mark.parametrize("argv", [[], ["train", "--help"]], ids=" ".join)
def test_light_verbs_load_nothing_heavy(argv: list[str], tmp_path: Path) -> None:
    """Others are in `tests/cli/test_main.py`."""
    code = (
        "import sys, mcpo_cli.main as m\n"
        f"sys.argv = ['mcpo', *{argv!r}]\n"
        "try: m.main()\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        f"print('loaded:', *sorted(set({HEAVY!r}) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded:"
