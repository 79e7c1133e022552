"""`mcpo compare --as-step-size` from its words to its files."""

from pathlib import Path

import pytest

from mcpo_cli.config import plan
from tests import fakes
from tests.cli.conftest import InProcess

SUITE = ["method=dapo,mcpo", "train.lr=1e-4,2e-4,4e-4", "scale=smoke", "seed=0,1,2"]


@pytest.mark.slow
def test_the_command_writes_a_table_and_says_what_it_shows(here: InProcess, home: Path) -> None:
    fakes.write_runs(plan.from_overrides(SUITE))
    document = here.json("compare", *SUITE, "--as-step-size")
    (one,) = document["comparisons"]
    assert {row["arm"] for row in one["rows"]} == {f"mcpo lr={rate}" for rate in ("0.0001", "0.0002", "0.0004")}
    (table,) = (home / "reports").rglob("step-size-*.csv")
    assert {path.suffix for path in table.parent.glob(f"{table.stem}.*")} >= {".csv", ".md", ".tex", ".png"}
    result = here("compare", *SUITE, "--as-step-size", "--baseline", "mcpo lr=0.0001")
    assert result.returncode == 0, result.stderr
    assert "dapo lr=0.0002 on toy-s" in " ".join(result.stdout.split())


def test_it_needs_runs(here: InProcess) -> None:
    here.refused("contradiction", "compare", *SUITE, "--as-step-size", "--plan")
    here.refused("contradiction", "compare", "base.jsonl", "new.jsonl", "--as-step-size")
