"""Files by other people: suites, data, plug-ins, models and records. A bad one gives a single message."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mcpo_cli.config.load import load
from mcpo_cli.config.plan import Plan, PlannedRun
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import MissingRuns, RunFailed
from mcpo_cli.evaluation import gradings
from mcpo_cli.home import is_plain, run_dir
from mcpo_cli.measures.frames import Runs
from mcpo_cli.runs import attempts, catalog
from mcpo_cli.runs.journal import read_json, write_json
from tests.cli.conftest import InProcess
from tests.errors import refused
from tests.fakes import write_run


def placed(name: str, content: str | bytes) -> Callable[[Path], object]:
    """Writes a file into the folder of the run."""

    def place(folder: Path) -> object:
        return (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    return place


def changed(name: str, **values: object) -> Callable[[Path], object]:
    """Changes a document, with a valid checksum."""

    def change(folder: Path) -> object:
        path = folder / name
        document = json.loads(path.read_text()) if path.exists() else {}
        document.pop("checksum", None)
        return write_json(path, {**document, **values})

    return change


RECORDS: dict[str, Callable[[Path], object]] = {
    "empty": placed("spec.json", ""),
    "100 000 brackets": placed("spec.json", "[" * 100_000),
    "a link to itself": lambda at: ((at / "spec.json").unlink(), (at / "spec.json").symlink_to(at / "spec.json")),
    "settings of another type": changed("spec.json", train=[1]),
    "an unknown method": changed("spec.json", method={"name": "../evil"}),
    "NaN": changed("spec.json", seed=float("nan")),
    "a status with a step that is text": changed("attempt_1/status.json", start_step="x"),
    "an attempt without number": lambda folder: (folder / "attempt_1").rename(folder / "attempt_x"),
    "rows nested 5 000 deep": placed("attempt_1/metrics.jsonl", '{"step":' + "[" * 5000 + "]" * 5000 + "}\n"),
    "an attempt that is a file": lambda at: (shutil.rmtree(at / "attempt_1"), (at / "attempt_1").write_text("")),
    "a step of 10^30": placed("attempt_1/metrics.jsonl", '{"step": 1' + "0" * 30 + ', "time": 1, "metrics": {}}\n'),
    "an origin with a suite that is a number": changed("origin.json", suite=7, arm=None, command=3),
}


@pytest.fixture
def runs(mcpo_home: Path) -> tuple[RunSpec, RunSpec]:
    """Two runs that are done."""
    found = load(["scale=smoke", "compute.tracking_uri=offline", "seed=0,1"])
    for spec in found:
        write_run(spec)
        write_json(run_dir(spec.run_id) / "spec.json", spec.to_dict())
    return found[0], found[1]


@pytest.mark.parametrize("place", RECORDS.values(), ids=RECORDS)
def test_records(runs: tuple[RunSpec, RunSpec], here: InProcess, place: Callable[[Path], object]) -> None:
    """A run with a bad record is not done and does not hide other runs; `show` reports the error."""
    bad, good = runs
    place(run_dir(bad.run_id))
    found = {run["run_id"]: run["state"] for run in here.json("runs", "list")["runs"]}
    shown = here("runs", "show", bad.run_id)
    assert shown.returncode in (0, 1, 2), shown.stderr
    assert shown.stderr.count("error:") == (shown.returncode > 0)
    assert found.get(good.run_id) == "done"
    assert found.get(bad.run_id) != "done"


def test_folders_with_odd_names(runs: tuple[RunSpec, RunSpec], here: InProcess) -> None:
    """A copy of a run under another name is not a run; the message that names it has no control characters."""
    names = {"a b", "new\nline", "\x1b[31mred", "-rf", "$(id)", "x" * 255, "\u202etxt"}
    for name in names:
        (here.home / "runs" / name).mkdir()
        shutil.copy(run_dir(runs[0].run_id) / "spec.json", here.home / "runs" / name)
    left_out: dict[str, str] = {}
    assert [run.state for run in catalog.runs(here.home, left_out.__setitem__)] == ["done", "done"]
    assert left_out.keys() == names
    listed = here("runs", "list")
    assert listed.returncode == 0, listed.stderr
    assert listed.stderr
    assert not {"\x1b", "\u202e"} & set(listed.stdout + listed.stderr)


def test_records_send_nothing_to_the_terminal(runs: tuple[RunSpec, RunSpec], here: InProcess) -> None:
    """Escape sequences can rename a terminal's window, or overwrite what it shows."""
    folder = run_dir(runs[0].run_id)
    changed("origin.json", suite="train", arm="\x1b]0;owned\x07", command="\x1b[2J\x9b1A")(folder)
    said = [here(*words) for words in (("runs", "list"), ("runs", "show", runs[0].run_id))]
    shown = "".join(one.stdout + one.stderr for one in said)
    assert r"\x1b]0;owned\x07" in shown
    assert not set("\x1b\x07\x9b") & set(shown)


@pytest.mark.parametrize("linked", [False, True])
def test_a_folder_under_another_id_is_not_a_run(
    linked: bool, runs: tuple[RunSpec, RunSpec], mcpo_home: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Copied with its own settings, or linked: mcpo does not read it, continue it or write through the link."""
    first, second = runs
    source, target = run_dir(first.run_id), run_dir(second.run_id)
    target.rename(tmp_path_factory.mktemp("away") / "run")
    if linked:
        target.symlink_to(source)
    else:
        target.mkdir()
        shutil.copytree(source / "attempt_1", target / "attempt_1")
        write_json(target / "spec.json", second.to_dict())
    assert attempts.state(target, second) == "failed"
    assert [run.spec.run_id for run in catalog.runs(mcpo_home)] == [first.run_id]
    with pytest.raises(MissingRuns):
        Runs(Plan("train", "mcpo train", (PlannedRun("MCPO", first), PlannedRun("MCPO", second))))
    with pytest.raises(RunFailed):
        attempts.resume_step(target, second, [2])
    assert read_json(source / "spec.json")["seed"] == 0
    assert attempts.state(source, first) == "done"


VERBS = {
    "export": ["export", "{}"],
    "probe": ["probe", "sanity", "{}"],
    "plan": ["train", "--dry-run", "{}"],
    "benchmarks": ["evaluate", "{run}", "--benchmarks", "{}"],
    "a model's name": ["train", "--dry-run", "model.name='{}'"],
    "a preset": ["train", "--dry-run", "scale='{}'"],
}


@pytest.mark.parametrize("words", VERBS.values(), ids=VERBS)
def test_no_name_leads_to_another_folder(runs: tuple[RunSpec, RunSpec], here: InProcess, words: list[str]) -> None:
    before = sorted([*here.home.rglob("*"), *here.home.parent.iterdir()])
    for name in ("../../outside", "../runs", "/etc/passwd"):
        result = here(*(word.replace("{run}", runs[0].run_id).replace("{}", name) for word in words))
        assert result.returncode == 2, result.stderr
        assert result.stderr.count("error:") == 1
    assert sorted([*here.home.rglob("*"), *here.home.parent.iterdir()]) == before


def test_a_suite_of_a_record_leads_nowhere(runs: tuple[RunSpec, RunSpec], mcpo_home: Path) -> None:
    for suite in ("../../outside", "/etc", "..", ".", "", "a/../../outside", "runs/../.."):
        assert not is_plain(suite)
        write_json(run_dir(runs[0].run_id) / "origin.json", {"suite": suite, "arm": "mcpo", "command": "mcpo train"})
        assert [run.spec.run_id for run in catalog.runs(mcpo_home)] == [runs[1].run_id]
        with pytest.raises(RunFailed):
            catalog.find(mcpo_home, runs[0].run_id)


GRADINGS: dict[str, object] = {
    "another's number": {"grading": "../../../secret"},
    "another folder": {"benchmarks": {"../../outside": {}}},
    "a metric in words": {"benchmarks": {"a": {"metrics": {"pass@1": "high"}}}},
    "no benchmarks": {"benchmarks": None},
}


@pytest.mark.parametrize("change", GRADINGS.values(), ids=GRADINGS)
def test_gradings(change: object, tmp_path: Path) -> None:
    path = tmp_path / "gradings" / "1" / "results.json"
    for name in ("x", "1e3", "٤", "9" * 30):
        (tmp_path / "gradings" / name).mkdir(parents=True)
        (tmp_path / "gradings" / name / "results.json").write_text("{}")
    path.parent.mkdir()
    results = {"grading": 1, "benchmarks": {"aime24": {"metrics": {}}}}
    path.write_text(json.dumps(results))
    assert [one["benchmarks"].keys() for one in gradings.all_of(tmp_path)] == [{"aime24"}]
    path.write_text(json.dumps({**results, **change} if isinstance(change, dict) else change))
    with refused("damaged", "gradings/1/results.json"):
        gradings.all_of(tmp_path)
