"""Bundles of runs are complete and equal to the byte, and a bundle by somebody else can do no harm."""

import io
import json
import os
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from mcpo_cli.errors import ConfigError
from mcpo_cli.home import run_dir
from mcpo_cli.runs import bundle
from mcpo_cli.runs.attempts import owned
from mcpo_cli.runs.journal import read_json, write_json
from tests.errors import refused
from tests.store_runs import made_up, plan, spec

RUN = spec().run_id
SUMS = "attempt_1/sums.json"
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


def _other_settings(members: dict[str, bytes]) -> None:
    for name in ("spec.json", "attempt_1/spec.json"):
        settings = json.loads(members[name])
        settings.pop("checksum", None)
        settings["train"]["steps"] = 5
        members[name] = json.dumps(settings).encode()


RECORDS: dict[str, tuple[Change, str]] = {
    "a row that changed": (
        lambda members: members.update({METRICS: members[METRICS].replace(b"1", b"2", 1)}),
        "its checksum does not match",
    ),
    "rows that are missing": (lambda members: members.pop(METRICS) and None, ""),
    "brackets": (lambda members: members.update({METRICS: b"[" * 100_000 + b"\n"}), ""),
    "sums of a file elsewhere": (
        lambda members: members.update({SUMS: json.dumps({"../../../home/runs/x.jsonl": "0" * 64}).encode()}),
        "is no file of rows",
    ),
    "a suite that is a path": (
        lambda members: members.update({"origin.json": json.dumps({"suite": "../../outside"}).encode()}),
        "is not a plain folder name",
    ),
    "no settings": (lambda members: members.pop("spec.json") and None, "no run"),
    "settings of another run": (_other_settings, "holds the settings of"),
    "a status that is text": (lambda members: members.update({"attempt_1/status.json": b'"done"'}), "not those of"),
}


@pytest.mark.parametrize("case", RECORDS)
def test_records_that_no_run_has_are_refused(case: str, home: Path, sound: dict[str, bytes], tmp_path: Path) -> None:
    change, message = RECORDS[case]
    change(sound)
    packed(tmp_path / "bundle", {f"{RUN}/{name}": content for name, content in sound.items()})
    assert message in complaint(home, tmp_path / "bundle")


def packed(file: Path, members: Mapping[str, bytes], kind: bytes = tarfile.REGTYPE) -> None:
    with tarfile.open(file, "w:gz") as bundle:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size, member.type, member.linkname = len(content), kind, "/etc/passwd"
            bundle.addfile(member, io.BytesIO(content))


NAMES = [
    *("../spec.json", "/tmp/spec.json", "../spec.json/x", f"{RUN}/../../spec.json", "./spec.json", "spec.json"),
    *(f"{RUN}/attempt_1/policy/model.safetensors", f"{RUN}/run.sh", f"{RUN}\\spec.json", f"{RUN}/"),
]


def test_a_member_with_another_name_or_of_another_kind_is_refused(home: Path, tmp_path: Path) -> None:
    for name in NAMES:
        packed(tmp_path / "bundle", {name: b"{}"})
        assert "it holds" in complaint(home, tmp_path / "bundle"), name
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE):
        packed(tmp_path / "bundle", {f"{RUN}/spec.json": b""}, kind)
        assert "it holds" in complaint(home, tmp_path / "bundle"), kind


def _twice(file: Path) -> None:
    with tarfile.open(file, "w:gz") as bundle:
        for _ in range(2):
            bundle.addfile(tarfile.TarInfo(f"{RUN}/spec.json"))


def _cut(file: Path) -> None:
    packed(file, {f"{RUN}/spec.json": os.urandom(5000)})
    file.write_bytes(file.read_bytes()[:-3000])


FILES: dict[str, Callable[[Path], object]] = {
    "zeros": lambda file: packed(file, {f"{RUN}/attempt_1/metrics.jsonl": bytes(20 << 20)}),
    "a member twice": _twice,
    "a cut end": _cut,
    "text": lambda file: file.write_text("no tar"),
    "nothing": lambda file: file.touch(),
    "no member": lambda file: packed(file, {}),
    "not there": lambda file: None,
    "a folder": lambda file: file.mkdir(),
}


@pytest.mark.parametrize("make", FILES.values(), ids=FILES)
def test_a_file_that_is_no_bundle_is_refused(home: Path, tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "bundle")
    assert "Errno" not in complaint(home, tmp_path / "bundle")


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


def test_what_a_killed_process_left_is_removed_and_a_living_one_keeps_its_own(
    home: Path, sound: dict[str, bytes], tmp_path: Path
) -> None:
    bundle.write([run_dir(RUN)], tmp_path / "bundle")
    other = home.with_name("other")
    for name in ("dead", "alive"):
        (other / f".unbundle-{name}" / "runs").mkdir(parents=True)
    (other / ".unbundle-dead" / "lock").touch()
    with owned(other / ".unbundle-alive"):
        assert restore(home, tmp_path / "bundle") == ([RUN], [])
        assert {path.name for path in other.iterdir()} == {"runs", ".unbundle-alive"}
