"""Bundles of runs are complete and equal to the byte, and a bundle by somebody else can do no harm."""

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from mcpo_cli.errors import ConfigError
from mcpo_cli.home import run_dir
from mcpo_cli.runs import bundle
from mcpo_cli.runs.journal import read_json, write_json
from tests.errors import refused
from tests.store_runs import made_up, plan, spec

RUN = spec().run_id
EVAL = "attempt_1/eval/step_000002.jsonl"
METRICS = "attempt_1/metrics.jsonl"
Change = Callable[[dict[str, bytes]], None]


@pytest.fixture
def sound(home: Path) -> dict[str, bytes]:
    """Name -> content of the records of a done run."""
    made_up(plan(spec()), probed=True)
    folder = run_dir(RUN)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.json*")}


def restore(home: Path, file: Path) -> tuple[list[str], list[str]]:
    """Restore a bundle in a new home next to `home`."""
    other = home.with_name("other")
    other.mkdir(exist_ok=True)
    return bundle.restore(file, other)


def complaint(home: Path, file: Path) -> str:
    """The message for a bundle that is refused and leaves no file."""
    with pytest.raises(ConfigError) as caught:
        restore(home, file)
    assert [path.name for path in home.with_name("other").rglob("*")] == ["runs"]
    assert {path.name for path in home.parent.iterdir()} <= {"home", "other", file.name}
    assert str(file) in caught.value.message
    return caught.value.message


def test_a_bundle_depends_on_the_records_alone_and_comes_back_whole(
    home: Path, sound: dict[str, bytes], tmp_path: Path
) -> None:
    folder = run_dir(RUN)
    for name in ("checkpoints/step_4/model.safetensors", "policy/config.json", "log.txt"):
        (folder / "attempt_1" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "attempt_1" / name).write_text("{}")
    for name in ("a", "b"):
        bundle.write([folder], tmp_path / name)
        for path in folder.rglob("*"):
            os.utime(path, (1, 1))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert restore(home, tmp_path / "a") == ([RUN], [])
    assert restore(home, tmp_path / "a") == ([], [RUN])
    theirs = home.with_name("other") / "runs" / RUN
    found = {path.relative_to(theirs).as_posix(): path.read_bytes() for path in theirs.rglob("*") if path.is_file()}
    assert found == sound


def test_secrets_stay_at_home(home: Path, sound: dict[str, bytes], tmp_path: Path) -> None:
    document = {"uri": "http://me:word@host/x", "line": ["api_key=12", "next"], "n": 1.5}
    (run_dir(RUN) / "attempt_1" / "provenance.json").write_text(json.dumps(document))
    bundle.write([run_dir(RUN)], tmp_path / "file")
    restore(home, tmp_path / "file")
    theirs = read_json(home.with_name("other") / "runs" / RUN / "attempt_1" / "provenance.json")
    assert theirs == {"uri": "http://***@host/x", "line": ["api_key=***", "next"], "n": 1.5}


def row(file: str, **values: object) -> Change:
    """Change the first row of a file; a value of None removes its key. The file's checksum is removed with others."""

    def change(members: dict[str, bytes]) -> None:
        first, _, others = members[file].partition(b"\n")
        changed = {**json.loads(first), **values}
        text = json.dumps({key: value for key, value in changed.items() if value is not None})
        members[file] = text.encode() + b"\n" + others
        del members["attempt_1/sums.json"]

    return change


def sums(name: str) -> Change:
    return lambda members: members.update({"attempt_1/sums.json": json.dumps({name: "0" * 64}).encode()})


def origin(suite: object) -> Change:
    return lambda members: members.update({"origin.json": json.dumps({"suite": suite}).encode()})


def repeated(members: dict[str, bytes]) -> None:
    first, _, others = members[EVAL].partition(b"\n")
    members[EVAL] = first + b"\n" + first + b"\n" + others.partition(b"\n")[2]
    del members["attempt_1/sums.json"]


def steps(number: int) -> Change:
    """Settings with this number of steps."""

    def change(members: dict[str, bytes]) -> None:
        for name in ("spec.json", "attempt_1/spec.json"):
            settings = json.loads(members[name])
            settings.pop("checksum", None)
            settings["train"]["steps"] = number
            members[name] = json.dumps(settings).encode()

    return change


RECORDS: dict[str, tuple[Change, str]] = {
    "a row without step": (row(METRICS, step=None), "lacks a step"),
    "a step that the run has not": (row(METRICS, step=10**6), "step=1000000"),
    "a step that is text": (row(EVAL, step="2"), "step=2"),
    "a row of another step": (row(EVAL, step=3), "step=3"),
    "metrics that are a list": (row(METRICS, metrics=["nan"]), "damaged"),
    "a metric that is text": (row(METRICS, metrics={"train/accuracy": "much"}), "metrics="),
    "c above n": (row(EVAL, c=3, n=2), "c=3 of n=2"),
    "c below 0": (row(EVAL, c=-1), "c=-1"),
    "n of 0": (row(EVAL, c=0, n=0), "c=0 of n=0"),
    "a time that no clock shows": (row(METRICS, time=1e308), "time="),
    "10^30": (row(EVAL, n=10**30), "n=1"),
    "true for 1": (row(EVAL, c=True), "c=True"),
    "a problem without a name": (row(EVAL, problem=None), "problem is missing"),
    "a problem twice": (repeated, "it repeats"),
    "sums of a file elsewhere": (sums("../../../home/runs/x.jsonl"), "is no file of rows"),
    "sums of an absolute path": (sums("/etc/passwd"), "is no file of rows"),
    "sums of a file that is not there": (sums("eval/step_000009.jsonl"), "done"),
    "a suite that is a path": (origin("../../outside"), "is not a plain folder name"),
    "a suite that is a list": (origin(["x"]), "is not a plain folder name"),
    "rows of an unknown kind": (lambda members: members.update({"attempt_1/x/step_000001.jsonl": b""}), "none of"),
    "no settings": (lambda members: members.pop("spec.json") and None, "no run"),
    "settings of another run": (steps(5), "holds the settings of"),
    "more steps than any memory holds": (steps(2**31 - 1), "train.steps"),
    "rows that are missing": (lambda members: members.pop(METRICS) and None, ""),
    "a status that is text": (lambda members: members.update({"attempt_1/status.json": b'"done"'}), "no JSON object"),
    "brackets": (lambda members: members.update({METRICS: b"[" * 100_000 + b"\n"}), "damaged"),
}


def test_records_that_no_run_writes_are_refused(home: Path, sound: dict[str, bytes], tmp_path: Path) -> None:
    for case, (change, message) in RECORDS.items():
        members = dict(sound)
        change(members)
        file = tmp_path / "bundle"
        with zipfile.ZipFile(file, "w") as packed:
            for name, content in members.items():
                packed.writestr(f"{RUN}/{name}", content)
        assert message in complaint(home, file), case


NAMES = [
    *("../spec.json", "/tmp/spec.json", "../spec.json/x", f"{RUN}/../../spec.json", "./spec.json", "spec.json"),
    *(f"{RUN}/attempt_1/policy/model.safetensors", f"{RUN}/run.sh", f"{RUN}\\spec.json", f"{RUN}/"),
]


def test_a_member_with_another_name_is_refused(home: Path, tmp_path: Path) -> None:
    for name in NAMES:
        with zipfile.ZipFile(tmp_path / "bundle", "w") as packed:
            packed.writestr(name, "{}")
        assert "it holds" in complaint(home, tmp_path / "bundle"), name


def zipped(compression: int = zipfile.ZIP_DEFLATED, size: int = 10, count: int = 1) -> Callable[[Path], None]:
    def make(file: Path) -> None:
        with zipfile.ZipFile(file, "w", compression) as packed:
            for number in range(count):
                packed.writestr(f"{RUN}/attempt_1/groups/step_{number:06d}.jsonl", bytes(size))

    return make


def claiming_less(file: Path) -> None:
    """The directory says 10 bytes, the member has many more."""
    zipped(size=1 << 20)(file)
    file.write_bytes(file.read_bytes().replace((1 << 20).to_bytes(4, "little"), (10).to_bytes(4, "little")))


def twice(file: Path) -> None:
    with zipfile.ZipFile(file, "w") as packed:
        packed.writestr(f"{RUN}/spec.json", "{}")
        with pytest.warns(UserWarning, match="Duplicate"):
            packed.writestr(f"{RUN}/spec.json", "{}")


def cut(file: Path) -> None:
    zipped(zipfile.ZIP_STORED, size=1000)(file)
    file.write_bytes(file.read_bytes()[:-30])


def flipped(file: Path) -> None:
    zipped(zipfile.ZIP_STORED, size=1000)(file)
    content = bytearray(file.read_bytes())
    content[500] ^= 1
    file.write_bytes(content)


FILES: dict[str, Callable[[Path], object]] = {
    "zeros": zipped(size=200 << 20),
    "20 000 empty files": zipped(count=20_000, size=0),
    "another compression": zipped(zipfile.ZIP_LZMA),
    "a size that is not true": claiming_less,
    "a member twice": twice,
    "a cut end": cut,
    "a bit that flipped": flipped,
    "text": lambda file: file.write_text("no zip"),
    "nothing": lambda file: file.touch(),
    "no member": zipped(count=0),
    "not there": lambda file: None,
}


SLOW = ("20 000 empty files",)


@pytest.mark.parametrize(
    "make", [pytest.param(make, id=name, marks=[pytest.mark.slow] * (name in SLOW)) for name, make in FILES.items()]
)
def test_a_file_that_is_no_bundle_is_refused(home: Path, tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "bundle")
    complaint(home, tmp_path / "bundle")


def test_a_run_that_is_there_with_other_records_stays_and_nothing_is_restored(
    home: Path, sound: dict[str, bytes], tmp_path: Path
) -> None:
    made_up(plan(spec(1)))
    bundle.write([run_dir(RUN), run_dir(spec(1).run_id)], tmp_path / "file")
    write_json(run_dir(RUN) / "attempt_1" / "provenance.json", {"commit": "other"})
    run_dir(spec(1).run_id).rename(home / "aside")
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    with refused("bad_input", RUN):
        bundle.restore(tmp_path / "file", home)
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == before
