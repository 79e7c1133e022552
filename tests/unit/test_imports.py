"""Rules on imports beyond import-linter's (`make check`), on lengths of files, and on the way of a plan."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

import pytest

from mcpo_cli.commands import training
from mcpo_cli.config import plan
from mcpo_cli.errors import RunFailed
from mcpo_cli.scheduling import scheduler

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


CARRIERS = {"Plan", "PlannedRun", "RunSpec", "Estimate", "Expected", "Forecast"}
WORDS = ["scale=smoke", "compute.tracking_uri=offline"]


@pytest.mark.usefixtures("mcpo_home")
def test_a_plan_passes_at_most_35_functions_none_of_them_more_than_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    visits, held = Counter[tuple[CodeType, int]](), list[object]()

    def visit(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and frame.f_lasti <= 2 and "/mcpo_cli/" in code.co_filename and code.co_name[0] != "<":
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            given = [value for name, value in frame.f_locals.items() if name in names and name != "self"]
            firsts = [value[0] if isinstance(value, list | tuple) and value else value for value in given]
            carriers = [value for value in firsts if type(value).__name__ in CARRIERS]
            # A run is the same in its settings, its estimate and its forecast. Objects that are held keep their ids.
            held.extend(getattr(getattr(value, "cell", value), "spec", value) for value in carriers)
            visits.update((code, id(value)) for value in held[len(held) - len(carriers) :])

    monkeypatch.setattr(scheduler._Scheduler, "loop", lambda _: sys.setprofile(None))
    sys.setprofile(visit)
    try:
        with pytest.raises(RunFailed):
            training.execute(plan.from_suite("table1", WORDS, "mcpo train table1"), dry=False, verbose=False)
    finally:
        sys.setprofile(None)
    assert 20 < len({code for code, _ in visits}) <= 35
    assert max(visits.values()) <= 2
