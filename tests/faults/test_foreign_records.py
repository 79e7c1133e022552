"""A home into which somebody, or a broken copy, has put what is no run: it is named, and the others stay readable."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mcpo_cli.config.load import load
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.home import run_dir
from mcpo_cli.runs.journal import write_json
from tests.cli.conftest import InProcess
from tests.fakes import write_run
from tests.faults.conftest import Faults


def placed(name: str, content: str | bytes) -> Callable[[Path], object]:
    """Writes a file into the folder of the run."""

    def place(folder: Path) -> object:
        return (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    return place


def replaced(name: str, make: Callable[[Path], object]) -> Callable[[Path], object]:
    """Puts something else in the place of a file."""

    def replace(folder: Path) -> object:
        (folder / name).unlink()
        return make(folder / name)

    return replace


def changed(name: str, **values: object) -> Callable[[Path], object]:
    """Changes a document, with a right checksum."""

    def change(folder: Path) -> object:
        path = folder / name
        document = json.loads(path.read_text()) if path.exists() else {}
        document.pop("checksum", None)
        return write_json(path, {**document, **values})

    return change


SPECS: dict[str, Callable[[Path], object]] = {
    "empty": placed("spec.json", ""),
    "null": placed("spec.json", "null"),
    "a list": placed("spec.json", "[1, 2]"),
    "an empty object": placed("spec.json", "{}"),
    "a number of 5 000 digits": placed("spec.json", '{"seed": ' + "9" * 5000 + "}"),
    "100 000 brackets": placed("spec.json", "[" * 100_000),
    "not UTF-8": placed("spec.json", b'{"seed": "\xff\xfe"}'),
    "NUL bytes": placed("spec.json", b"\0" * 4096),
    "a folder": replaced("spec.json", Path.mkdir),
    "a link to nothing": replaced("spec.json", lambda path: path.symlink_to("nowhere")),
    "a link to itself": replaced("spec.json", lambda path: path.symlink_to(path)),
    "a pipe": replaced("spec.json", os.mkfifo),
    "settings of another type": changed("spec.json", train=[1]),
    "a method that is none": changed("spec.json", method={"name": "../evil"}),
    "a method without a name": changed("spec.json", method={}),
    "NaN": changed("spec.json", seed=float("nan")),
    "a status that is a list": placed("attempt_1/status.json", "[]"),
    "a status without a step": placed("attempt_1/status.json", "{}"),
    "a status with a step that is text": changed("attempt_1/status.json", start_step="x"),
    "an attempt that is no number": lambda folder: (folder / "attempt_1").rename(folder / "attempt_x"),
    "an attempt that is a file": lambda folder: (folder / "attempt_2").write_text("x"),
    "rows that are lists": placed("attempt_1/metrics.jsonl", "[]\n"),
    "rows nested 5 000 deep": placed("attempt_1/metrics.jsonl", '{"step":' + "[" * 5000 + "]" * 5000 + "}\n"),
    "a lock that is a folder": lambda folder: (folder / "lock").mkdir(),
    "an origin that is a list": placed("origin.json", "[]"),
    "an origin of 100 000 brackets": placed("origin.json", "[" * 100_000),
    "a suite that is no text": changed("origin.json", suite=["x"]),
    "a suite that is a number": changed("origin.json", suite=7, arm=None, command=3),
}
HARMLESS = ("an origin", "a suite", "an attempt that is a file", "a lock")
"""What begins with these words leaves the records of the run as they are."""


@pytest.fixture
def runs(mcpo_home: Path) -> tuple[RunSpec, RunSpec]:
    """Two runs that are done."""
    found = load(["scale=smoke", "compute.tracking_uri=offline", "seed=0,1"])
    for spec in found:
        write_run(spec)
        write_json(run_dir(spec.run_id) / "spec.json", spec.to_dict())
    return found[0], found[1]


@pytest.mark.parametrize("place", SPECS.values(), ids=SPECS)
def test_a_record_that_is_none(
    runs: tuple[RunSpec, RunSpec],
    mcpo_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
    place: Callable[[Path], object],
    faults: Faults,
) -> None:
    """It ends in a message or counts as not done; it hides no other run, and `show` says what is wrong."""
    bad, good = runs
    place(run_dir(bad.run_id))
    here = InProcess(mcpo_home, monkeypatch, capsys)
    listed = here("runs", "list", "--json")
    assert listed.returncode == 0, listed.stderr
    found = {run["run_id"]: run["state"] for run in json.loads(listed.stdout)["runs"]}
    shown = here("runs", "show", bad.run_id)
    assert shown.returncode in (0, 1, 2), shown.stderr
    assert shown.stderr.count("error:") == (shown.returncode > 0)
    assert "Traceback" not in shown.stderr
    name = request.node.callspec.id
    taken = found.get(bad.run_id) == "done" and not name.startswith(HARMLESS)
    faults(f"a record of a run: {name}", lost=int(found.get(good.run_id) != "done"), wrong=int(taken))


NAMES = ["a b", "new\nline", "\x1b[31mred", "-rf", "~", "$(id)", "ü", "%s", "'\"", "x" * 255, "\u202etxt", "..."]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_folder_with_an_odd_name(
    runs: tuple[RunSpec, RunSpec],
    mcpo_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    faults: Faults,
) -> None:
    """A copy of a run under another name is no run, is named in a message, and sends nothing to the terminal."""
    folder = mcpo_home / "runs" / name
    folder.mkdir()
    (folder / "spec.json").write_bytes((run_dir(runs[0].run_id) / "spec.json").read_bytes())
    here = InProcess(mcpo_home, monkeypatch, capsys)
    listed = here("runs", "list")
    assert listed.returncode == 0, listed.stderr
    assert "is left out" in listed.stderr
    assert not {"\x1b", "\u202e"} & set(listed.stdout + listed.stderr)
    states = [run["state"] for run in here.json("runs", "list")["runs"]]
    faults("a folder beside the runs whose name a shell or a terminal would obey", lost=2 - states.count("done"))


def test_records_send_nothing_to_the_terminal(
    runs: tuple[RunSpec, RunSpec],
    mcpo_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    faults: Faults,
) -> None:
    """Escape sequences can rename a terminal's window, or write over what stands above."""
    folder = run_dir(runs[0].run_id)
    changed("origin.json", suite="train", arm="\x1b]0;owned\x07", command="\x1b[2J\x9b1A")(folder)
    here = InProcess(mcpo_home, monkeypatch, capsys)
    said = [here(*words) for words in (("runs", "list"), ("runs", "show", runs[0].run_id))]
    shown = "".join(one.stdout + one.stderr for one in said)
    assert r"\x1b]0;owned\x07" in shown
    faults("a record with escape sequences", times=2, wrong=sum(sign in shown for sign in "\x1b\x07\x9b"))
