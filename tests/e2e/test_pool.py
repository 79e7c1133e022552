"""The pool of graders never hangs, loses no answer and leaves no process, wherever it is used."""

import asyncio
import multiprocessing
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Container, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from mcpo_cli.grading import Grade, Pool
from tests import hostile
from tests.errors import refused

PAIRS = [(r"\frac{1}{2}", r"so \boxed{0.5}"), ("42", r"\boxed{41}"), (r"2\sqrt{3}", "Answer: $\\sqrt{12}$"), ("1", "?")]
STATUSES = ["correct", "wrong", "correct", "unparsable"]


def workers(besides: Container[psutil.Process] = ()) -> list[psutil.Process]:
    """This process's supervisors and graders, except those of other pools."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it has just ended
            if child not in besides and "mcpo_cli.grading.worker" in " ".join(child.cmdline()):
                found.append(child)
    return found


def gone(processes: list[psutil.Process]) -> bool:
    """True if they end; a zombie with a dead parent counts as ended."""
    _, alive = psutil.wait_procs(processes, timeout=60)
    return all(process.status() == psutil.STATUS_ZOMBIE for process in alive if process.is_running())


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(workers=2, timeout=1.0) as opened:
        yield opened
        served = workers()
    assert served
    assert gone(served)


def statuses(pool: Pool) -> list[str]:
    return [verdict.status for verdict in pool.grade(PAIRS)]


def test_verdicts_come_in_order(pool: Pool) -> None:
    assert statuses(pool) == STATUSES
    assert pool.grade([("42", r"\boxed{42}")] * 3) == [Grade("correct", "42")] * 3
    assert pool.version.startswith("math_verify ")


def test_a_restated_problem_is_refused_where_that_is_wanted(pool: Pool) -> None:
    restated = [("91", r"\boxed{\sum_{k=1}^{6} k^2}")]
    assert pool.grade(restated) == [Grade("correct", r"\sum_{k=1}^{6} k^2", "unevaluated")]
    with Pool(workers=1, refuse_unevaluated=True) as strict:
        assert strict.grade(restated) == [Grade("unevaluated", r"\sum_{k=1}^{6} k^2")]
        assert statuses(strict) == STATUSES
        assert strict.version == f"{pool.version} refusing unevaluated"


def test_an_event_loop(pool: Pool) -> None:
    async def grade() -> list[str]:
        futures = [asyncio.wrap_future(pool.submit(*pair)) for pair in PAIRS]
        return [verdict.status for verdict in await asyncio.gather(*futures)]

    assert asyncio.run(grade()) == STATUSES


def in_a_daemon(queue: "multiprocessing.Queue[list[str]]") -> None:
    """Run in a daemonic process, which must not have children of multiprocessing."""
    with Pool(workers=1) as pool:
        queue.put(statuses(pool))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_a_daemonic_process(method: str) -> None:
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    process = context.Process(target=in_a_daemon, args=(queue,), daemon=True)
    process.start()
    assert queue.get(timeout=300) == STATUSES
    process.join()


@pytest.mark.parametrize("name", ["NUL bytes", "lone surrogate", "megabyte of text", "hedged: chain"])
def test_a_hostile_answer_gets_a_verdict_in_time(pool: Pool, name: str) -> None:
    start = time.monotonic()
    (verdict,) = pool.grade([(hostile.GOLDS[1], hostile.ANSWERS[name])])
    # The time limit is a second; without it most of these would take minutes or never end.
    assert time.monotonic() - start < 20
    assert verdict.status in {"wrong", "unparsable", "timeout"}
    assert statuses(pool) == STATUSES


@pytest.mark.slow
def test_a_killed_grader_and_a_killed_supervisor_are_replaced(pool: Pool) -> None:
    for _ in range(2):
        for process in workers():
            process.kill()
        assert statuses(pool) == STATUSES


@pytest.mark.slow
def test_closing_ends_everything_at_once() -> None:
    others = workers()
    pool = Pool(workers=1, timeout=60)
    running, waiting = (pool.submit("42", hostile.ANSWERS["sum to 10^9"]) for _ in range(2))
    while not running.running():
        time.sleep(0.01)
    served = workers(others)
    start = time.monotonic()
    pool.close()
    pool.close()
    assert time.monotonic() - start < 30
    assert running.result().status == "infra_error"
    assert waiting.cancelled()
    assert gone(served)
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit(r"\sqrt{2}", r"\boxed{42}")


CALLER = r"""
import sys
from mcpo_cli.grading import Pool

pool = Pool(workers=2, timeout=600)
for _ in range(2):
    pool.submit("42", sys.argv[1])
print("working", flush=True)
input()
"""


@pytest.mark.slow
def test_nothing_outlives_a_killed_caller(tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", CALLER, hostile.ANSWERS["sum to 10^9"]]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path) as caller:
        assert caller.stdout is not None
        assert caller.stdout.readline() == b"working\n"
        served = psutil.Process(caller.pid).children(recursive=True)
        assert len(served) == 4
        caller.kill()
    assert gone(served)


@pytest.mark.slow
def test_too_little_memory_is_said() -> None:
    with refused("grader_failed", "100 MiB"):
        Pool(workers=1, memory_mib=100)


@pytest.mark.slow
def test_a_library_that_cannot_be_imported_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "math_verify.py").write_text("raise ImportError('no antlr here')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    others = workers()
    with refused("grader_failed", "no antlr here"):
        Pool(workers=2)
    assert not workers(others)


Made = Callable[[str], str]


@pytest.fixture
def made(tmp_path: Path, plugin_folder: Path) -> Made:
    """Adds a grader whose `grade` has the given body, and returns its name."""

    def make(body: str) -> str:
        lines = "".join(f"    {line}\n" for line in body.splitlines())
        (plugin_folder / "made.py").write_text(
            "import os, pathlib, signal, time\nfrom mcpo_cli.grading.base import Grade\n"
            f"MARK = pathlib.Path({str(tmp_path / 'mark')!r})\ndef version(): return 'made 1'\n"
            f"def grade(gold, response, extracted):\n    if 'box' in response: return\n{lines}"
        )
        return "made"

    return make


FAULTY = """\
print('{"id": 1}'); os.write(1, b'noise')
if response == 'dies once' and not MARK.exists():
    MARK.touch(); os.kill(os.getpid(), signal.SIGKILL)
if response == 'dies': os.abort()
if response == 'raises': 1 / 0
if response == 'eats': return bytearray(10**10)
return Grade('correct')"""


def test_faults_of_a_grader_are_no_scores_and_its_output_no_verdict(made: Made) -> None:
    """A process that dies once is replaced by one that answers; other answers are graded as if nothing had happened."""
    with Pool(made(FAULTY), workers=1, memory_mib=300) as pool:
        found = pool.grade([("1", response) for response in ("dies once", "dies", "raises", "eats", "good")])
    assert found == [
        Grade("correct"),
        Grade("infra_error", detail="the grading process died twice"),
        Grade("infra_error", detail="ZeroDivisionError: division by zero"),
        Grade("timeout", detail="memory"),
        Grade("correct"),
    ]


@pytest.mark.slow
def test_a_process_that_keeps_memory_is_replaced(made: Made) -> None:
    body = "KEPT.append(bytearray(50 * 2**20)) if 'KEPT' in globals() else globals().update(KEPT=[])\n"
    with Pool(made(body + "return Grade('correct', str(os.getpid()))"), workers=1, memory_mib=400) as pool:
        verdicts = pool.grade([("1", "1")] * 30)
    assert {verdict.status for verdict in verdicts} == {"correct"}
    assert len({verdict.answer for verdict in verdicts}) > 2


def ordinary(count: int) -> list[tuple[str, str, str]]:
    """(gold, response, status), with a status that only a grader can find out."""
    found = []
    for k in range(1, count + 1):
        wrong = k % 3 == 0
        top, bottom = 2 * k + 1, k + 2
        answer = rf"\frac{{{2 * top + wrong}}}{{{2 * bottom}}}"
        found.append(
            (rf"\frac{{{top}}}{{{bottom}}}", rf"Step {k}. \boxed{{{answer}}}", "wrong" if wrong else "correct")
        )
    return found


@pytest.mark.slow
def test_two_thousand_gradings_lose_nothing() -> None:
    """With every hostile answer; the memory of all processes of the pool stays below its limit."""
    cap, count, total = 512, 2, 2_000
    bad = hostile.items(len(hostile.ANSWERS), seed=1)
    mixed = ordinary(total - len(bad))
    for i, (gold, response) in enumerate(bad):
        mixed.insert(i * (total // len(bad)), (gold, response, "hostile"))
    most, stop, others = 0.0, threading.Event(), workers()

    def watch() -> None:
        nonlocal most
        while not stop.wait(0.25):
            used = 0
            for process in workers(others):
                with suppress(psutil.Error):
                    used += process.memory_full_info().pss
            most = max(most, used / 2**20)

    with Pool(workers=count, timeout=0.5, memory_mib=cap) as pool:
        watcher, start = threading.Thread(target=watch), time.monotonic()
        watcher.start()
        verdicts = pool.grade([(gold, response) for gold, response, _ in mixed])
        seconds = time.monotonic() - start
        stop.set()
        watcher.join()
    assert len(verdicts) == total
    # Without the time limit most hostile answers would take minutes or never end.
    assert seconds < 5 * len(bad)
    told = [
        (item, verdict)
        for item, verdict in zip(mixed, verdicts, strict=True)
        if verdict.status != item[2] and item[2] != "hostile"
    ]
    # On a busy machine an ordinary answer can take half a second; this is reported, and with more time it is correct.
    late = [item for item, verdict in told if verdict.status == "timeout"]
    assert len(late) == len(told) < total / 100, told
    with Pool(workers=count) as patient:
        again = patient.grade([(gold, response) for gold, response, _ in late])
    assert [verdict.status for verdict in again] == [status for *_, status in late]
    judged = {verdict.status for item, verdict in zip(mixed, verdicts, strict=True) if item[2] == "hostile"}
    assert judged <= {"wrong", "unparsable", "timeout"}
    assert 0 < most < cap * count
