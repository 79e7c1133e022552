"""Runs come back from the store: whole, equal, and never over what is there."""

import gzip
import io
import os
import tarfile
from pathlib import Path

import pytest
from pandas.testing import assert_frame_equal

from mcpo_cli.analysis.frames import Runs
from mcpo_cli.commands.runs import pull_runs
from mcpo_cli.config.plan import Cell, Plan
from mcpo_cli.errors import StoreError
from mcpo_cli.home import run_dir
from mcpo_cli.runs import catalog
from mcpo_cli.runs.journal import Journal
from mcpo_cli.store import archive
from mcpo_cli.store.connection import MlflowClient
from mcpo_cli.store.mlflow import Store
from mcpo_cli.store.pulls import Pulls
from tests.store_runs import complete, made_up, plan, runs, spec

KINDS = ("groups", "eval", "samples")


def several(suite: str, *seeds: int) -> Plan:
    cells = [Cell(name.upper(), spec(seed, name)) for name in ("dapo", "mcpo") for seed in seeds]
    return Plan(suite, f"mcpo reproduce {suite}", tuple(cells))


@pytest.fixture
def elsewhere(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of another machine, which has the same store; to be entered by setting MCPO_HOME."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store.uri)
    other = tmp_path / "elsewhere"
    other.mkdir()
    return other


def test_frames_of_pulled_runs_equal_the_originals_and_the_store(
    store: Store, elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = several("table1", 0, 1)
    made_up(table)
    store.ingest(table)
    original = Runs(table)
    kept = {cell.spec.run_id: Journal(run_dir(cell.spec.run_id)).digest() for cell in table.cells}
    frames = [original.steps(), original.eval(step="all"), *(original.rows(kind) for kind in KINDS)]
    monkeypatch.setenv("MCPO_HOME", str(elsewhere))
    pull_runs(suite=None)
    assert "4 runs copied" in capsys.readouterr().out
    pulled = Runs(table)  # raises where a run is not done
    for before, after in zip(
        frames, [pulled.steps(), pulled.eval(step="all"), *(pulled.rows(kind) for kind in KINDS)], strict=True
    ):
        assert_frame_equal(before, after)
    assert {run_id: Journal(run_dir(run_id)).digest() for run_id in kept} == kept
    assert [run.origin for run in catalog.runs(elsewhere)] == [
        {"suite": "table1", "arm": arm, "command": table.command} for arm in ("DAPO", "DAPO", "MCPO", "MCPO")
    ]
    client, steps = MlflowClient(store.uri), pulled.steps().set_index(["run_id", "step"])
    for run_id, mlflow_run in runs(store, "table1").items():
        if run_id in kept:
            for name, column in steps.loc[run_id].select_dtypes("float64").items():
                history = client.get_metric_history(mlflow_run.info.run_id, str(name))
                assert {point.step: point.value for point in history} == column.dropna().to_dict()
    assert set(Store(store.uri).sync().values()) == {0}


def test_a_pull_brings_what_is_done_and_lacking_and_touches_nothing_else(
    store: Store, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = several("table1", 0), several("table2", 1)
    for each in (one, other):
        made_up(each)
        store.ingest(each)
    ids = [cell.spec.run_id for cell in one.cells]
    client = MlflowClient(store.uri)
    client.set_tag(runs(store, "table2")[other.cells[0].spec.run_id].info.run_id, "state", "failed")
    monkeypatch.setenv("MCPO_HOME", str(elsewhere))
    mine = elsewhere / "runs" / ids[0] / "spec.json"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    assert Pulls(store.uri).pull("table1") == ([ids[1]], {})
    assert Pulls(store.uri).pull("table1") == ([], {})
    assert [path.name for path in mine.parent.iterdir()] == ["spec.json"]
    assert mine.read_text() == "mine"
    assert Pulls(store.uri).pull(None) == ([other.cells[1].spec.run_id], {})
    assert sorted(path.name for path in elsewhere.iterdir() if not path.name.endswith(".lock")) == ["runs"]


def test_a_run_that_is_not_what_it_says_or_not_there_stays(
    store: Store, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_up(plan(spec(0), spec(1)))
    store.ingest(plan(spec(0), spec(1)))
    found, client = runs(store), MlflowClient(store.uri)
    client.set_tag(found[spec(0).run_id].info.run_id, "mcpo.run_id", "../../outside")
    for path in (elsewhere.parent / "home" / "mlartifacts").rglob(archive.NAME):
        if found[spec(1).run_id].info.run_id in path.parts:
            path.unlink()
    monkeypatch.setenv("MCPO_HOME", str(elsewhere))
    pulled, left = Pulls(store.uri).pull(None)
    assert pulled == []
    assert "another run" in left["../../outside"]
    assert "mcpo runs sync" in left[spec(1).run_id]
    assert list((elsewhere / "runs").iterdir()) == []
    assert not (elsewhere.parent / "outside").exists()


def test_an_archive_depends_on_the_records_alone_and_comes_back_whole(home: Path, tmp_path: Path) -> None:
    complete(spec())
    folder = run_dir(spec().run_id)
    records = _files(folder)
    assert {"spec.json", "attempt_1/status.json", "attempt_1/provenance.json", "attempt_1/metrics.jsonl"} < records
    for name in ("checkpoints/step_4/model.safetensors", "policy/config.json", "log.txt"):
        (folder / "attempt_1" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "attempt_1" / name).write_text("{}")
    packed = archive.pack(folder)
    for path in folder.rglob("*"):
        os.utime(path, (1, 1))
    assert archive.pack(folder) == packed
    archive.unpack(packed, tmp_path / "again")
    assert archive.pack(tmp_path / "again") == packed
    assert _files(tmp_path / "again") == records


def test_secrets_stay_at_home_and_documents_stay_documents(home: Path, tmp_path: Path) -> None:
    (tmp_path / "provenance.json").write_text(
        '{"uri": "http://me:word@host/x", "line": ["api_key=12", "next"], "n": 1.50}'
    )
    with tarfile.open(fileobj=io.BytesIO(archive.pack(tmp_path))) as tar:
        member = tar.extractfile("provenance.json")
        assert member
        assert archive.read_json(_written(tmp_path / "out.txt", member.read())) == {
            "uri": "http://***@host/x",
            "line": ["api_key=***", "next"],
            "n": 1.5,
        }


def _files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def _tar(name: str, kind: bytes = tarfile.REGTYPE) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        member = tarfile.TarInfo(name)
        member.type, member.linkname, member.size = kind, "/etc/passwd", 2 if kind == tarfile.REGTYPE else 0
        tar.addfile(member, io.BytesIO(b"{}"))
    return content.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        _tar("../spec.json"),
        _tar("/tmp/spec.json"),
        _tar("attempt_1/../../spec.json"),
        _tar("attempt_1/policy/model.safetensors"),
        _tar("spec.json", tarfile.SYMTYPE),
        _tar("spec.json", tarfile.LNKTYPE),
        _tar("spec.json", tarfile.FIFOTYPE),
        _tar("spec.json")[:-20],
        gzip.compress(b"no tar"),
        b"no gzip",
        b"",
    ],
    ids=["up", "absolute", "inner up", "foreign", "link", "hard link", "fifo", "cut", "no tar", "no gzip", "empty"],
)
def test_an_archive_with_anything_else_in_it_writes_nothing(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(StoreError):
        archive.unpack(content, tmp_path / "inner" / "run")
    assert list(tmp_path.rglob("*")) == []
