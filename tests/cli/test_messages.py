"""The wording of errors stands in one file; other tests assert codes, so that new prose changes that file alone.

`make messages` writes `tests/messages.snap` again; the diff is what users will read.
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
    "two.jsonl": '{"problem": "c", "correct": 1}\n{"problem": "d", "correct": 0}\n',
    "list.yaml": "[1]",
    "tag.yaml": "arms: !!python/object/apply:os.system [exit]",
    "noarms.yaml": "title: x",
    "unknown.yaml": "arms: {a: [train.lrr=1]}",
    "norows.yaml": "{rows: []}",
    "model/config.json": "{}",
}
COMMANDS = """
plan nope=1
plan train.lrr=0.1
plan skills=3
plan method=dappo
plan task=arithmetics
plan scale=smok
plan model=toy-xl
plan tabel1
plan table1 method=grpo
plan seed=one
plan seed=1.5
plan train.lr=nan
plan train.lr=-1
plan train.steps=10000000000000
plan train.aggregation=mean
plan method=mcpo method.clip_high=0.1,0.2 method.clip_high=0.3
plan method=dapo method.delta=1
plan method.name=mcpo
plan +x=1
plan ~seed
plan seed=${seed}
plan seed=[
plan scale=smoke train.mini_batch=7
plan model.path=./model
plan compute.device=tpu
plan hf_token=hf_PlantedPlantedPlantedPlanted
plan list.yaml
plan tag.yaml
plan noarms.yaml
plan unknown.yaml
plan ./missing.yaml
ablate nope
reproduce tabel1
probe maestry
probe mastery nope
evaluate nope
evaluate ./nowhere
evaluate ./model
evaluate ./model --benchmarks nope
grade missing.jsonl
grade empty.jsonl
grade broken.jsonl
grade answers.jsonl
grade answers.jsonl --grader nope
compare
compare one.jsonl
compare one.jsonl nope.jsonl
compare one.jsonl two.jsonl
compare one.jsonl one.jsonl
compare one.jsonl two.jsonl --baseline tow
compare one.jsonl two.jsonl --metric best@8
compare one.jsonl two.jsonl --columns corect=x
compare --arm a=one.jsonl --arm b=one.jsonl --k 3
data audit nope
data audit empty.jsonl
data audit broken.jsonl
data audit columns.jsonl
data audit golds.jsonl
method show nope
method check nope
runs show nope
runs samples nope
export nope
branch nope
model fetch nope
model fetch toy-s
help nope
claim "54.2 x 51.7"
claim "54.2 vs 51.7"
claim "54.2 vs 51.7, n=30, sd 1.2"
claim "54.2 vs 51.7, n=30, 4 samples, pass@8"
claim "54.2 vs 51.7, n=1"
claim nowhere.yaml
claim list.yaml
claim norows.yaml
"""


def said(here: InProcess, command: str) -> str:
    """Command, code and text of an error, without what differs between machines."""
    result = here(*shlex.split(command), "--json")
    document = json.loads(result.stdout) if result.stdout.startswith("{") else {}
    code = document.get("error", {}).get("code", "usage")
    text = result.stderr.strip().replace(str(here.home), "HOME")
    return re.sub(r" +$", "", f"$ mcpo {command}\n[{code}, exit {result.returncode}]\n{text}\n", flags=re.MULTILINE)


def test_messages(here: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in FILES.items():
        path = here.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.chdir(here.home)
    found = "\n".join(said(here, command) for command in COMMANDS.strip().splitlines())
    if os.environ.get("REWRITE_MESSAGES"):
        SNAPSHOT.write_text(found, encoding="utf-8")
    assert "exit 0]" not in found
    assert "bug in mcpo" not in found
    assert found == SNAPSHOT.read_text(encoding="utf-8"), "if the new wording is meant: make messages"


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
