"""What verbs print, command by command: `make messages` writes `tests/transcripts.snap` again.

Its diff shows what users will read; other tests assert documents (`--json`) and files, not wording or layout. The runs
are made up, so that nothing is trained and every number is the same on every machine.
"""

import json
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import InProcess
from tests.cli.test_messages import sections
from tests.store_runs import begin, spec, train

SNAPSHOT = Path(__file__).resolve().parents[1] / "transcripts.snap"
DATE = re.compile(r"20\d\d-\d\d-\d\d( \d\d:\d\d)?")


def rollouts(step: int, prompt: str, **responses: int) -> list[dict[str, Any]]:
    """Rollouts of one group; `right_a=2` means two correct responses `a`."""
    return [
        {"step": step, "prompt": prompt, "gold": "7", "response": name[6:], "correct": name.startswith("right_")}
        for name, count in responses.items()
        for _ in range(count)
    ]


def log(path: Path, right: Callable[[int], bool]) -> None:
    """A log of 100 problems with one sample each."""
    rows = [{"problem": f"p{problem}", "correct": int(right(problem))} for problem in range(100)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture
def runs(here: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InProcess:
    """A run with rollouts and a warning, and one without either; and logs, `new` gaining 30 over `base`, losing 5."""
    monkeypatch.chdir(tmp_path)
    log(tmp_path / "base.jsonl", lambda problem: problem < 50)
    log(tmp_path / "new.jsonl", lambda problem: 5 <= problem < 80)
    log(tmp_path / "shifted.jsonl", lambda problem: 1 <= problem < 51)
    attempt = begin(spec())
    train(attempt, range(1, 3), **{"sanity/truncated": 0.1})
    train(attempt, range(3, 5), **{"sanity/truncated": 0.6})
    groups = [*rollouts(2, "3 + 4", right_seven=1, wrong_eight=3), *rollouts(2, "Numbers:\n5 + 2", wrong_9=1)]
    groups[-1]["response"] = "so\n\n8\n"
    attempt.journal.rows("samples", 2, groups)
    attempt.journal.rows("samples", 4, [*rollouts(4, "1 + 6", right_seven=4), *rollouts(4, "0 + 7", right_7=2)])
    attempt.end("done")
    other = begin(spec(1))
    train(other, range(1, 5), **{"sanity/truncated": 0.1})
    other.end("done")
    return here


def shown(here: InProcess, command: str) -> str:
    result = here(*shlex.split(command))
    assert result.returncode == 0, result.stderr
    text = (result.stdout + result.stderr).replace(str(here.home), "HOME").replace(str(here.home.parent), "FOLDER")
    text = DATE.sub("DATE", text)
    return re.sub(r" +$", "", f"$ mcpo {command}\n{text}", flags=re.MULTILINE)


def test_transcripts(runs: InProcess) -> None:
    """In order: a later command sees what an earlier one changed."""
    expected = sections(SNAPSHOT)
    printed = [shown(runs, text.splitlines()[0].removeprefix("$ mcpo ")) for text in expected]
    if os.environ.get("REWRITE_MESSAGES"):
        SNAPSHOT.write_text("\n".join(text.strip() + "\n" for text in printed), encoding="utf-8")
        return
    assert [text.strip() for text in printed] == [text.strip() for text in expected], "if it is meant: make messages"
