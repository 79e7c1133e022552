"""The wording of errors is in one file; other tests assert codes, so that new prose changes only that file.

`make messages` writes `tests/messages.snap` again; its diff shows what users will read. Every bad input that a command
can show is tested here, and only here.
"""

import json
import os
import re
import shlex
from pathlib import Path

import pytest

from mcpo_cli.errors import CODES
from tests.cli.conftest import InProcess

ROOT = Path(__file__).resolve().parents[2]
SNAPSHOT = ROOT / "tests" / "messages.snap"
FILES = {
    "empty.jsonl": "",
    "broken.jsonl": "{",
    "columns.jsonl": '{"question": "1 + 1?"}\n',
    "golds.jsonl": '{"problem": "1 + 1?", "answer": "2"}\n{"problem": "1 + 1?", "answer": "3"}\n',
    "answers.jsonl": '{"gold": 1}\n',
    "one.jsonl": '{"problem": "a", "correct": 1}\n{"problem": "b", "correct": 0}\n',
    "same.jsonl": '{"problem": "a", "correct": 1}\n{"problem": "b", "correct": 0}\n',
    "two.jsonl": '{"problem": "c", "correct": 1}\n{"problem": "d", "correct": 0}\n',
    "odd.csv": "Question ID,Is Right\n1,1\n2,0\n",
    "elsewhere.jsonl": '{"problem": "a", "correct": 1, "benchmark": "another"}\n',
    "list.yaml": "[1]",
    "tag.yaml": "arms: !!python/object/apply:os.system [exit]",
    "noarms.yaml": "title: x",
    "unknown.yaml": "arms: {a: [train.lrr=1]}",
    "norows.yaml": "{rows: []}",
    "plug/fluent.py": """\
from mcpo_cli.methods.group_relative import Clipped, Normalized

class Fluent(Clipped, Normalized):
    name = "fluent"
""",
    "model/config.json": "{}",
}
AT_ONCE = 12
"""Number of commands in one test, which then takes about a second."""


def write_files(here: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write FILES to the home, and go there."""
    for name, text in FILES.items():
        path = here.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.chdir(here.home)


def sections(snapshot: Path = SNAPSHOT) -> list[str]:
    """Each command of a snapshot with its output. To add one, add a line `$ mcpo ...` and run `make messages`."""
    return re.findall(r"^\$ mcpo .*?(?=^\$ mcpo |\Z)", snapshot.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def said(here: InProcess, command: str) -> str:
    """Command, code and text of an error, without the parts that differ between machines."""
    result = here(*shlex.split(command), "--json")
    document = json.loads(result.stdout) if result.stdout.startswith("{") else {}
    code = document.get("error", {}).get("code", "usage")
    text = result.stderr.strip().replace(str(here.home), "HOME")
    assert len(re.findall(r"^error:", text, re.MULTILINE)) == 1, f"{command}: one message\n{text}"
    assert "Traceback" not in text
    return re.sub(r" +$", "", f"$ mcpo {command}\n[{code}, exit {result.returncode}]\n{text}\n", flags=re.MULTILINE)


@pytest.mark.parametrize("first", range(0, len(sections()), AT_ONCE))
def test_messages(here: InProcess, monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    """Each is one message with the code of its error, and nothing is started or written."""
    write_files(here, monkeypatch)
    expected = sections()[first : first + AT_ONCE]
    found = [said(here, text.splitlines()[0].removeprefix("$ mcpo ")) for text in expected]
    if os.environ.get("REWRITE_MESSAGES"):
        every = sections()
        every[first : first + AT_ONCE] = found
        SNAPSHOT.write_text("\n".join(text.strip() + "\n" for text in every), encoding="utf-8")
        expected = sections()[first : first + AT_ONCE]
    assert "exit 0]" not in (whole := "\n".join(found))
    assert "bug in mcpo" not in whole
    assert [text.strip() for text in found] == [text.strip() for text in expected], "if it is meant: make messages"
    written = {
        str(path.relative_to(here.home)) for path in here.home.rglob("*") if path.is_file() and path.stat().st_size
    }
    assert written == FILES.keys() - {"empty.jsonl"}


def test_codes_are_those_of_the_table() -> None:
    """In the source, in tests and on the page."""
    sources = [path.read_text() for folder in ("mcpo_cli", "analysis") for path in (ROOT / folder).rglob("*.py")]
    raised = {code for source in sources for code in re.findall(r"\bcode ?= ?\"(\w+)\"", source)}
    tests = [path.read_text() for path in (ROOT / "tests").rglob("*.py")]
    asserted = {code for source in tests for code in re.findall(r"\brefused\(\"(\w+)\"", source)}
    assert raised == CODES.keys()
    assert asserted <= CODES.keys()
    page = (ROOT / "docs" / "command-line.md").read_text()
    assert [f"| `{code}` | {meaning} |" in page for code, meaning in CODES.items()] == [True] * len(CODES)
