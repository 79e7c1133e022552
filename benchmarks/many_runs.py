"""What people wait for in a home of many runs: `python -m benchmarks.many_runs 100 1000 10000` records rows of it.

The runs are not trained. One real run is the template; every other run is an `Attempt` of its own settings, made by
the writer of journals, and its row files are links to those of one of VARIANTS copies of the template with other
numbers. The store has the first PER_PLAN runs as `mcpo runs sync` wrote them, and the others as copies of these rows
of the database under other ids, without the history of their metrics: MLflow takes a tenth of a second for a run.
Homes are kept in the folder that BENCH_HOMES names.
"""

import os
import random
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import psutil

from benchmarks import growth, rows
from mcpo_cli.config.load import load
from mcpo_cli.config.plan import Plan, PlannedRun
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.home import run_dir
from mcpo_cli.runs.attempts import Attempt
from mcpo_cli.runs.journal import Journal, JournalWriter, read_json, seal, write_json

FOLDER = Path(os.environ.get("BENCH_HOMES", "/tmp/mcpo-bench-homes"))
TEMPLATE = ("method=mcpo", "seed=0", "scale=toy")
ARMS = [
    *(f"method=mcpo method.delta={delta} train.lr={lr}" for delta in (0.01, 0.05, 0.1) for lr in ("3e-4", "7e-4")),
    *(f"method=dapo train.lr={lr}" for lr in ("1e-4", "3e-4", "7e-4", "1e-3")),
    *(f"method=grpo train.lr={lr}" for lr in ("3e-4", "7e-4")),
]
"""The arms of a home, whose runs differ in their seeds: a sweep of three methods."""
PER_PLAN = 12
"""Runs of a command: one of each arm."""
VARIANTS = 8
KINDS = ("groups", "rerolls", "mini_batches", "gradients", "samples")
SIZES = (100, 1000)
"""Numbers of runs of `make bench`; ten thousand take five minutes to write and 6 GB of disk."""
READY_SECONDS = 300.0


def specs(number: int) -> Iterator[RunSpec]:
    """The settings of `number` runs: all arms of seed 0, then those of seed 1, and so on."""
    arms = [load([*arm.split(), "scale=toy"])[0] for arm in ARMS]
    for i in range(number):
        yield replace(arms[i % len(arms)], seed=i // len(arms))


def template() -> Path:
    """The folder of a real run, which is trained if it is missing."""
    home = FOLDER / "template"
    environment = os.environ | {"MCPO_HOME": str(home), "MLFLOW_TRACKING_URI": "offline"}
    subprocess.run([sys.executable, "-m", "mcpo_cli.main", "train", *TEMPLATE], env=environment, check=True)
    (spec,) = load(list(TEMPLATE))
    return home / "runs" / spec.run_id / "attempt_1"


def variants(real: Path) -> list[Path]:
    """Copies of the template's rows with other numbers of correct answers, made once."""
    return [_variant(real, FOLDER / "variants" / str(number), random.Random(number)) for number in range(VARIANTS)]


def _variant(real: Path, folder: Path, rng: random.Random) -> Path:
    if folder.exists():
        return folder
    folder.mkdir(parents=True)
    journal, writer = Journal(real.parent), JournalWriter(folder)
    for row in journal.steps():
        writer.step({**row, "metrics": {name: value * rng.uniform(0.9, 1.1) for name, value in row["metrics"].items()}})
    for kind in (*KINDS, "eval"):
        for step, path in journal.files(kind).items():
            found = journal.read(path)
            if kind == "eval":
                found = [row | {"c": min(row["n"], max(0, row["c"] + rng.choice((-1, 0, 0, 1))))} for row in found]
            writer.rows(kind, step, found)
    writer.close()
    seal(folder)
    return folder


def make(number: int) -> Path:
    """A home of `number` done runs with their store, made if it is missing."""
    home = FOLDER / str(number)
    os.environ["MCPO_HOME"] = str(home)
    if not (home / "made").exists():
        real = template()
        sources, fsync = variants(real), os.fsync
        os.fsync = lambda _: None  # a power cut may take these runs
        try:
            for i, spec in enumerate(specs(number)):
                if not run_dir(spec.run_id).exists():
                    _write(spec, sources[i % VARIANTS], real, command(i // PER_PLAN))
        finally:
            os.fsync = fsync
        (home / "made").touch()
    if not (home / "mlflow.db").exists():
        _make_store(home, number)
    return home


def command(plan: int) -> str:
    """The command that the runs of a plan have in common."""
    return f"mcpo train sweep={plan}"


def _write(spec: RunSpec, source: Path, real: Path, command: str) -> None:
    """One done run with the files that a worker and a scheduler leave."""
    attempt = Attempt(run_dir(spec.run_id), spec, 0)
    attempt.journal.close()
    (attempt.folder / "metrics.jsonl").unlink()
    for path in source.rglob("*"):
        target = attempt.folder / path.relative_to(source)
        if path.is_dir():
            target.mkdir()
        else:
            target.hardlink_to(path)
    (attempt.folder / "provenance.json").hardlink_to(real / "provenance.json")
    (attempt.folder / "policy").mkdir()
    for path in (real / "policy").iterdir():
        (attempt.folder / "policy" / path.name).hardlink_to(path)
    (attempt.folder / ".reserve").unlink()
    attempt.durable(spec.train.steps)
    attempt.status["state"] = "done"
    attempt.phase(f"evaluation after step {spec.train.steps} of {spec.train.steps}")
    folder = attempt.folder.parent
    write_json(folder / "spec.json", spec.to_dict())
    write_json(folder / "origin.json", {"suite": "train", "arm": spec.method.label, "command": command})
    (folder / "lock").touch()
    (folder / "worker.log").touch()


def _make_store(home: Path, number: int) -> None:
    """The store of a home: that of its first runs, and copies of their rows for the others."""
    if number == PER_PLAN:
        growth.mcpo(environment(home), "runs", "sync")
        return
    small = make(PER_PLAN)
    os.environ["MCPO_HOME"] = str(home)
    part = home / "mlflow.part"
    with closing(sqlite3.connect(small / "mlflow.db")) as source, closing(sqlite3.connect(part)) as copy:
        source.backup(copy)
        moved = "update tags set value = replace(value, ?, ?) where key = 'mlflow.mcpo.home'"
        copy.execute(moved, (str(small), str(home)))
        for i, plan in enumerate(_plans(number)):
            _copy_plan(copy, plan, is_first=not i)
        copy.commit()
    part.rename(home / "mlflow.db")


def _plans(number: int) -> Iterator[Plan]:
    found = list(specs(number))
    for start in range(0, number, PER_PLAN):
        runs = tuple(PlannedRun(spec.method.label, spec) for spec in found[start : start + PER_PLAN])
        yield Plan("train", command(start // PER_PLAN), runs)


def _copy_plan(store: sqlite3.Connection, plan: Plan, *, is_first: bool) -> None:
    """Rows of a plan's parent and children, like those of the first plan, which get the times of this home's runs."""
    (parent,) = store.execute("select run_uuid from tags where key = 'mcpo.plan_id' order by rowid limit 1").fetchone()
    if not is_first:
        parent = _copied(store, parent)
        _set(store, parent, {"mcpo.plan_id": plan.plan_id, "mlflow.source.name": plan.command})
    for run in plan.runs:
        of_arm = "select run_uuid from tags where key = 'mcpo.run_id' and value = ?"
        (child,) = store.execute(of_arm, (replace(run.spec, seed=0).run_id,)).fetchone()
        child = child if is_first else _copied(store, child)
        status = read_json(run_dir(run.spec.run_id) / "attempt_1" / "status.json")
        tags = {
            "mcpo.run_id": run.spec.run_id,
            "mlflow.parentRunId": parent,
            "mlflow.mcpo.settled": f"attempt_1 {status['updated']}",
            "mlflow.source.name": plan.command,
            "seed": str(run.spec.seed),
            "base_seed": str(run.spec.seed),
        }
        _set(store, child, tags)
        start = round(status["started"] * 1000)
        store.execute("update runs set start_time = ? where run_uuid = ?", (start, child))


def _copied(store: sqlite3.Connection, old: str) -> str:
    """The id of a copy of a stored run."""
    new = uuid.uuid4().hex
    for table in ("runs", "tags", "params", "latest_metrics"):
        columns = [row[1] for row in store.execute(f"pragma table_info({table})")]
        taken = ", ".join("?" if name == "run_uuid" else name for name in columns)
        store.execute(f"insert into {table} select {taken} from {table} where run_uuid = ?", (new, old))
    return new


def _set(store: sqlite3.Connection, run: str, tags: Mapping[str, str]) -> None:
    for key, value in tags.items():
        store.execute("update tags set value = ? where run_uuid = ? and key = ?", (value, run, key))


def environment(home: Path) -> dict[str, str]:
    """The variables of a command in a home."""
    found = os.environ | {"MCPO_HOME": str(home)}
    found.pop("MLFLOW_TRACKING_URI", None)
    return found


def costs(home: Path) -> Iterator[tuple[str, growth.Cost]]:
    """What each verb takes in a home; lists are measured with their file of summaries, and the first one without."""
    around = environment(home)
    six = [spec.run_id for i, spec in enumerate(specs(3 * PER_PLAN)) if i % PER_PLAN in (0, 6)]
    (home / "cache" / "runs.json").unlink(missing_ok=True)
    verbs = {
        "first runs list": ("runs", "list"),
        "runs list": ("runs", "list"),
        "runs list --where --sort": ("runs", "list", "--where", "train.lr=3e-4", "--sort", "-score"),
        "compare of six runs": ("compare", *six),
        "train table1 --dry-run": ("train", "table1", "--dry-run"),
        "runs sync, nothing new": ("runs", "sync"),
        "reproduce all --built": ("reproduce", "all", "--built"),
    }
    for name, words in verbs.items():
        with suppress(RuntimeError):  # a report without a done suite
            yield name, growth.mcpo(around, *words)
    asked = {"_MCPO_COMPLETE": "complete_bash", "COMP_WORDS": "mcpo runs show dapo-toy-s-s1", "COMP_CWORD": "3"}
    yield "completion of a run id", growth.mcpo(around | asked)
    yield from zip(("ui, start", "ui, table of runs"), _ui(around), strict=True)


def _ui(around: Mapping[str, str]) -> tuple[growth.Cost, growth.Cost]:
    """The cost of `mcpo ui` until it answers, and of the request that fills the first page of the table of runs."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    begun = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "mcpo_cli.main", "ui", "--port", str(port)],
        env=around,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        used = psutil.Process(process.pid)
        address = f"http://127.0.0.1:{port}"
        while True:
            with suppress(OSError), urllib.request.urlopen(f"{address}/health", timeout=READY_SECONDS):
                break
            time.sleep(0.1)
        started = _used(used, begun, 0.0)
        begun, before = time.perf_counter(), started.cpu_seconds
        body = b'{"experiment_ids": ["1"], "max_results": 100, "order_by": ["attributes.start_time DESC"]}'
        request = urllib.request.Request(
            f"{address}/ajax-api/2.0/mlflow/runs/search", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=READY_SECONDS) as answer:
            answer.read()
        return started, _used(used, begun, before)
    finally:
        process.terminate()
        process.wait()


def _used(process: psutil.Process, begun: float, before: float) -> growth.Cost:
    times, memory = process.cpu_times(), process.memory_info()
    return growth.Cost(time.perf_counter() - begun, times.user + times.system - before, memory.rss / 1e6)


def measure(numbers: Sequence[int]) -> Iterator[rows.Measurement]:
    """The cost of each verb by number of runs."""
    for number in numbers:
        home = make(number)
        for verb, cost in costs(home):
            yield verb, {"runs": number}, cost.numbers
        shutil.rmtree(home / "reports", ignore_errors=True)


if __name__ == "__main__":
    for measurement in measure([int(word) for word in sys.argv[1:]]):
        print(rows.record(*measurement), flush=True)
