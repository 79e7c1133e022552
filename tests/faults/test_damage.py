"""Damaged files are noticed and named; the last good one is used, or an error raised, and no number comes from them.

Every file of a done run is damaged in turn, by one flipped bit in its middle and by a missing end.
"""

import json
import math
import shutil
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from mcpo_cli import data
from mcpo_cli.config import plan as plans
from mcpo_cli.config.plan import Plan
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import McpoError
from mcpo_cli.home import run_dir
from mcpo_cli.measures.frames import Runs
from mcpo_cli.runs import attempts, bases, catalog
from mcpo_cli.runs.journal import Journal, Kind, NewSteps, last_row, read_json, read_lines
from mcpo_cli.scheduling.progress import Tracker
from tests.engine import begin, differences, end, records, work
from tests.errors import refused
from tests.fakes import write_run
from tests.faults.suites import send, spec_of

Damage = Callable[[bytes], bytes]
KINDS: tuple[Kind, ...] = ("groups", "eval", "mini_batches")


def flipped(content: bytes) -> bytes:
    """One bit of a number's first digit, nearest to the middle: still JSON, and another number."""
    digits = [
        place for place in range(1, len(content)) if chr(content[place]).isdigit() and content[place - 1] in b' "'
    ]
    digits = digits or list(range(len(content)))
    place = min(digits, key=lambda place: abs(place - len(content) // 2))
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def cut(content: bytes) -> bytes:
    """The content without its last third, as on a disk that lost data after confirming the write."""
    return content[: 2 * len(content) // 3]


def gone(_: bytes) -> bytes:
    """The file is gone; the test removes it."""
    return b""


DAMAGES: dict[str, Damage] = {"a flipped bit": flipped, "a missing end": cut, "no file": gone}


def damage(path: Path, how: Damage) -> None:
    content = path.read_bytes()
    found = how(content)
    assert found != content
    if found:
        path.write_bytes(found)
    else:
        path.unlink()


@pytest.fixture
def plan(mcpo_home: Path) -> Plan:
    """A done run with every kind of row."""
    found = plans.from_overrides(["scale=smoke", "compute.tracking_uri=offline"])
    write_run(found.runs[0].spec, probed=True)
    return found


def everything_read(plan: Plan) -> list[str]:
    """The parts of the run that can be read without an error, in every way: kinds of rows, the store, a frame."""
    spec = plan.runs[0].spec
    journal = Journal(run_dir(spec.run_id))
    ways: dict[str, Callable[[], object]] = {
        "steps": journal.steps,
        "store": lambda: list(NewSteps(journal, 0).read(math.inf)),
        **{kind: (lambda kind=kind: journal.rows(kind)) for kind in KINDS},
        "frame": lambda: Runs(plan).steps(),
    }
    said = {name: error_of(way) for name, way in ways.items()}
    assert all("is damaged" in text or "is gone" in text for text in said.values() if text)
    assert all(str(journal.run_dir) in text for text in said.values() if text)
    return [name for name, text in said.items() if text is None]


def error_of(way: Callable[[], object]) -> str | None:
    """The message of the error of `way`; None without one."""
    try:
        way()
    except McpoError as error:
        return str(error)
    return None


@pytest.mark.parametrize("what", DAMAGES)
def test_damaged_rows_of_a_done_run_are_read_by_nobody(what: str, plan: Plan) -> None:
    spec = plan.runs[0].spec
    folder = run_dir(spec.run_id)
    assert everything_read(plan) == ["steps", "store", *KINDS, "frame"]
    files = {"metrics.jsonl": "steps"} | {f"{kind}/step_000003.jsonl": kind for kind in KINDS}
    for name, kind in files.items():
        path = folder / "attempt_1" / name
        whole = path.read_bytes()
        damage(path, DAMAGES[what])
        read = everything_read(plan)
        assert kind not in read
        if kind in ("steps", "eval"):
            # These files decide whether the run is done.
            assert attempts.state(folder, spec) == "failed"
            assert str(path) in "; ".join(attempts.missing(folder, spec))
            assert "frame" not in read
        path.write_bytes(whole)
        assert everything_read(plan) == ["steps", "store", *KINDS, "frame"]


@pytest.mark.parametrize("what", ["a flipped bit", "a missing end"])
@pytest.mark.parametrize("name", ["attempt_1/status.json", "attempt_1/sums.json", "spec.json"])
def test_damaged_documents_are_named(name: str, what: str, plan: Plan) -> None:
    spec = plan.runs[0].spec
    folder = run_dir(spec.run_id)
    shutil.copy(folder / "attempt_1" / "spec.json", folder / "spec.json")
    assert [run.state for run in catalog.runs(folder.parents[1])] == ["done"]
    damage(folder / name, DAMAGES[what])
    notes: list[str] = []
    states = [run.state for run in catalog.runs(folder.parents[1], lambda name, why: notes.append(f"{name}: {why}"))]
    if name == "spec.json":
        assert states == []
        assert str(folder / name) in notes[0]
        with refused("damaged", "spec.json"):
            catalog.find(folder.parents[1], spec.run_id)
    else:
        assert states == ["failed"]
        assert str(folder / name) in "; ".join(attempts.missing(folder, spec))
        # Readers that only watch do not stop.
        Tracker(folder).read()
    assert "done" not in states


def test_a_line_in_the_middle_of_a_running_journal_is_named(tmp_path: Path) -> None:
    """It is not sealed yet: a line that is not JSON is an error, a last line without its end is ignored."""
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "metrics": {}}\n{"step": \n{"step": 3, "metrics": {}}\n{"ste')
    with refused("damaged", "metrics.jsonl"):
        list(read_lines(path))
    assert last_row(path) == {"step": 3, "metrics": {}}


@pytest.fixture(scope="module")
def real(undisturbed: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunSpec]:
    """A real run that was killed in the evaluation after its last step: it has checkpoints of steps 2 and 3."""
    home, spec = tmp_path_factory.mktemp("real"), spec_of()
    shutil.copytree(bases.cached_base(undisturbed, spec), bases.cached_base(home, spec))
    assert work(home, spec, "evaluation", 8) == -signal.SIGKILL
    return home, spec


@pytest.mark.slow
def test_damaged_files_that_a_run_starts_from(real: tuple[Path, RunSpec], undisturbed: Path, tmp_path: Path) -> None:
    """Damage of weights, manifest or base policy: the intact predecessor is used, and the run reports it."""
    killed, spec = real
    expected = records(undisturbed, spec)
    run, newest = f"runs/{spec.run_id}", f"runs/{spec.run_id}/attempt_1/checkpoints/step_000003"
    base = next(path.parent for path in (killed / "cache").rglob("manifest.json")).relative_to(killed)
    damages: tuple[tuple[str, Damage, int], ...] = (
        (f"{newest}/policy.safetensors", flipped, 2),
        (f"{newest}/manifest.json", flipped, 2),
        (f"{base}/model.safetensors", cut, 3),
        (f"{base}/manifest.json", cut, 3),
    )
    for name, how, start in damages:
        home = tmp_path / name.replace("/", " ")
        shutil.copytree(killed, home)
        damage(home / name, how)
        assert work(home, spec) == 0
        assert f"{home / name} is damaged" in (home / run / "worker.log").read_text()
        assert read_json(home / run / "attempt_2" / "status.json")["start_step"] == start
        assert differences(expected, records(home, spec)) == (0, 0)


@pytest.mark.slow
def test_a_run_does_not_go_on_from_damaged_records(real: tuple[Path, RunSpec], tmp_path: Path) -> None:
    """An interrupted run whose first rows changed reports it before it trains further."""
    killed, spec = real
    home, run = tmp_path / "home", f"runs/{spec.run_id}"
    shutil.copytree(killed, home)
    process = begin(home, spec)
    while not Journal(home / run).attempts()[1:]:
        time.sleep(0.01)
    assert send(process, signal.SIGKILL, 0)
    end(process)
    # The second attempt sealed the first.
    damage(home / run / "attempt_1" / "metrics.jsonl", flipped)
    assert work(home, spec) == 1
    assert f"{home / run / 'attempt_1' / 'metrics.jsonl'} is damaged" in (home / run / "worker.log").read_text()
    assert len(Journal(home / run).attempts()) == 2


@pytest.mark.slow
def test_a_damaged_policy_is_not_evaluated(
    real: tuple[Path, RunSpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mcpo_cli.evaluation.scope import subject

    killed, spec = real
    shutil.copytree(killed, tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv("MCPO_HOME", str(tmp_path))
    assert work(tmp_path, spec) == 0
    assert subject(spec.run_id, "").facts.name == spec.run_id
    policy = tmp_path / "runs" / spec.run_id / "attempt_2" / "policy"
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        whole = (policy / name).read_bytes()
        damage(policy / name, flipped)
        for model in (spec.run_id, str(policy)):
            said = error_of(partial(subject, model, ""))
            assert f"{policy / name} is damaged" in str(said)
            assert "fix: rm -r" in str(said)
        (policy / name).write_bytes(whole)


def test_damaged_data_files_are_named(tmp_path: Path) -> None:
    """By Parquet's own checksums, or because a line of JSON is cut."""
    rows = [{"problem": f"What is {i} + {i}?", "answer": str(2 * i)} for i in range(30)]
    lines, table = tmp_path / "aime24.jsonl", tmp_path / "aime24.parquet"
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    parquet.write_table(
        pa.Table.from_pylist(rows), table, write_page_checksum=True, compression="none", use_dictionary=False
    )
    for path, how in ((lines, cut), (table, cut), (table, lambda content: content.replace(b"What is 7", b"What is 8"))):
        whole = path.read_bytes()
        assert len(data.load("aime24", path).problems) == 30
        path.write_bytes(how(whole))
        assert str(path) in str(error_of(partial(data.load, "aime24", path)))
        path.write_bytes(whole)


@pytest.mark.slow
def test_a_checkpoint_of_another_run_is_not_continued(
    real: tuple[Path, RunSpec], undisturbed: Path, tmp_path: Path
) -> None:
    """Only the checkpoints were copied: the run starts from the beginning, and its log says why."""
    (killed, first), second = real, spec_of("seed=1")
    shutil.copytree(undisturbed / "cache", tmp_path / "cache")
    assert work(tmp_path, second, "sampling", 1) == -signal.SIGKILL
    run = tmp_path / "runs" / second.run_id
    shutil.rmtree(run / "attempt_1" / "checkpoints", ignore_errors=True)
    shutil.copytree(killed / "runs" / first.run_id / "attempt_1" / "checkpoints", run / "attempt_1" / "checkpoints")
    assert work(tmp_path, second) == 0
    assert read_json(Journal(run).attempts()[-1] / "status.json")["start_step"] == 0
    assert first.run_id in (run / "worker.log").read_text()
