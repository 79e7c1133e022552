"""`mcpo reproduce all --built` and `mcpo reproduce all` as users meet them."""

from pathlib import Path

import pytest

from mcpo_cli.config.plan import from_suite
from mcpo_cli.report import artifacts, builder
from tests.cli.conftest import InProcess
from tests.fakes import ThisProcess, write_runs

SMALL = ("scale=smoke", "model=toy-s", "seed=0")
FILES = ("report.html", "report.md", "report.json")


@pytest.mark.slow
@pytest.mark.usefixtures("warm_home")
def test_reproduce_all_trains_builds_and_reports_and_does_so_once(
    here: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder, "helpers", ThisProcess)
    for suite in ("table1", "table2"):
        write_runs(from_suite(suite, SMALL, ""), probed=True)
    first = here("reproduce", "all", *SMALL)
    assert first.returncode == 0, first.stderr
    (trained,) = from_suite("mastery", SMALL, "").runs
    assert [path.parent.name for path in here.home.glob("runs/*/worker.log")] == [trained.spec.run_id]
    folder = here.home / "reports" / "smoke"
    assert all(f"written: {folder / name}\n" in first.stderr for name in FILES)
    for name in artifacts.names("all"):
        assert f"\n{name}: " in f"\n{first.stdout}"
    assert "runs of several commits" in (folder / "report.md").read_text(encoding="utf-8")
    before = {path: path.read_bytes() for path in folder.iterdir() if path.name not in FILES}
    attempts = sorted(here.home.glob("runs/*/attempt_*"))
    again = here.json("reproduce", "all", *SMALL)
    assert again["report"]["not_built"] == {}
    assert {run["state"] for suite in again["suites"] for run in suite["runs"]} == {"done"}
    assert sorted(here.home.glob("runs/*/attempt_*")) == attempts
    assert {path: path.read_bytes() for path in before} == before
    document = here.json("reproduce", "all", "--built", *SMALL)
    assert [Path(path).name for path in document["report"]["files"]] == list(FILES)
