"""`mcpo report` and `mcpo reproduce all` as users meet them."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from mcpo_cli.analysis import artifacts
from mcpo_cli.config.plan import from_suite
from tests.cli.conftest import Cli, InProcess
from tests.fakes import write_runs

SMALL = ("scale=smoke", "model=toy-s", "seed=0")
FILES = ("report.html", "report.md", "report.json")


@pytest.mark.slow
def test_a_report_without_runs_says_what_is_missing_and_how_to_fill_it(here: InProcess) -> None:
    result = here("report", *SMALL)
    assert result.returncode == 3
    command = " ".join(SMALL)
    for name, artifact in artifacts.registry().items():
        if artifact.section == "diagnostic":
            assert f"{name}:" not in result.stdout + result.stderr
        elif artifact.needs:
            runs = [len(from_suite(suite, SMALL, "").cells) for suite in artifact.needs]
            gaps = [f"{suite}: {n} of {n} runs are not done" for suite, n in zip(artifact.needs, runs, strict=True)]
            assert f"{name}: not built: {'; '.join(gaps)}; mcpo reproduce {name} {command}\n" in result.stderr
        else:
            assert f"\n{name}: " in f"\n{result.stdout}"
    assert result.stderr.endswith(f"fix: mcpo reproduce all {command}\n")
    assert not (here.home / "runs").exists()
    text = (here.home / "reports/smoke/report.html").read_text(encoding="utf-8")
    assert text.count("<strong>not built:</strong>") == result.stderr.count(": not built: ")
    # As one document, too.
    result = here("report", *SMALL, "--json")
    assert result.returncode == 3
    document = json.loads(result.stdout)
    assert document["error"]["type"] == "MissingCells"
    assert document["error"]["fix"] == f"mcpo reproduce all {' '.join(SMALL)}"
    assert [Path(path).name for path in document["report"]["files"]] == list(FILES)
    done = document["report"]["artifacts"].keys() | document["report"]["not_built"].keys()
    assert done == set(artifacts.names("all"))


@pytest.mark.parametrize(("overrides", "message"), [(["train.lr=1,2"], "can be swept"), (["lr=1"], "lr")])
def test_bad_input_writes_nothing(here: InProcess, overrides: list[str], message: str) -> None:
    result = here("report", *SMALL, *overrides)
    assert result.returncode == 2
    assert message in result.stderr
    assert not (here.home / "reports").exists()


@pytest.mark.slow
def test_what_moved_since_another_report(here: InProcess, tmp_path: Path) -> None:
    write_runs(from_suite("table1", ["scale=smoke", "model=toy-s", "seed=0,1,2"], ""))
    settings = ("scale=smoke", "model=toy-s", "seed=0,1,2")
    here("report", *settings)
    reports, old = here.home / "reports" / "smoke", tmp_path / "old"
    itself = here("report", *settings, "--against", str(reports))
    assert itself.returncode == 2
    assert "that is the report that is about to be written" in itself.stderr

    shutil.copytree(reports, old)
    same = json.loads(here("report", *settings, "--against", str(old), "--json").stdout)["report"]["against"]
    assert (same["moves"], same["single"]) == ([], 0)
    table = pd.read_csv(old / "table1.csv")
    measured = table[table["block"] == "measured"].index
    assert same["compared"] >= len(measured) > 2
    table.loc[measured[0], ["mean", "low", "high"]] += [0.0001, 0.0001, 0.0001]
    table.loc[measured[1], ["mean", "low", "high"]] = [0.98, 0.97, 0.99]
    table.drop(index=measured[2]).to_csv(old / "table1.csv", index=False)
    moved = json.loads(here("report", *settings, "--against", str(old), "--json").stdout)["report"]["against"]
    assert (moved["compared"], moved["single"]) == (same["compared"] - 1, 1)
    assert [one["beyond"] for one in moved["moves"]] == [True, False]
    assert moved["software"] == {}
    assert [one["row"].split(", ")[3] for one in moved["moves"]] == list(table.loc[measured[[1, 0]], "tier"])
    shown = here("report", *settings, "--against", str(old))
    assert "2 moved, 1 by more than the intervals; 0 verdicts changed; 1 rows" in shown.stdout
    for file in ("report.html", "report.md"):
        assert "2 moved, 1 by more than" in (reports / file).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("files", "message"), [({}, "no report.json"), ({"report.json": '{"scale": "toy"}'}, "scale=toy")]
)
def test_what_is_no_report_to_compare_with_is_refused_before_anything_is_built(
    here: InProcess, tmp_path: Path, files: dict[str, str], message: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    result = here("report", *SMALL, "--against", str(tmp_path))
    assert result.returncode == 2
    assert message in result.stderr
    assert not (here.home / "reports").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("warm_home")
def test_reproduce_all_trains_builds_and_reports_and_does_so_once(cli: Cli, here: InProcess) -> None:
    for suite in ("table1", "table2"):
        write_runs(from_suite(suite, SMALL, ""), probed=True)
    first = cli("reproduce", "all", *SMALL)
    assert first.returncode == 0, first.stderr
    (trained,) = from_suite("mastery", SMALL, "").cells
    assert [path.parent.name for path in cli.home.glob("runs/*/worker.log")] == [trained.spec.run_id]
    folder = cli.home / "reports" / "smoke"
    assert all(f"written: {folder / name}\n" in first.stderr for name in FILES)
    for name in artifacts.names("all"):
        assert f"\n{name}: " in f"\n{first.stdout}"
    assert "runs of several commits" in (folder / "report.md").read_text(encoding="utf-8")
    before = {path: path.read_bytes() for path in folder.iterdir() if path.name not in FILES}
    attempts = sorted(cli.home.glob("runs/*/attempt_*"))
    again = here.json("reproduce", "all", *SMALL)
    assert again["report"]["not_built"] == {}
    assert {run["state"] for suite in again["suites"] for run in suite["runs"]} == {"done"}
    assert sorted(cli.home.glob("runs/*/attempt_*")) == attempts
    assert {path: path.read_bytes() for path in before} == before
    assert here("report", *SMALL).returncode == 0
