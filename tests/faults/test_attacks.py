"""What others send (`attacks.py`): a message or a result, in time, with nothing that a terminal or browser obeys."""

import re
import time
from pathlib import Path

import pytest

from tests.cli.conftest import InProcess
from tests.faults.attacks import AREAS, Attack
from tests.faults.pages import acting

SECONDS = 60.0
"""CPU time of a command."""
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
"""What a terminal obeys."""
CASES = {f"{area}: {name}": attack for area, attacks in AREAS.items() for name, attack in attacks.items()}


def prepared(attack: Attack, folder: Path) -> list[str]:
    """The words of the command, with the paths of the files that are made for it."""
    for name, content in attack.files.items():
        path = folder / name
        if callable(content):
            content(path)
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
    return [
        re.sub(rf"^(.*=)?({'|'.join(map(re.escape, attack.files))})$", rf"\1{folder}/\2", word) for word in attack.words
    ]


@pytest.mark.parametrize("attack", CASES.values(), ids=CASES)
def test_what_others_send(attack: Attack, here: InProcess, tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    words = prepared(attack, folder)
    began, before = time.process_time(), set(folder.rglob("*"))
    done = here(*words)
    assert time.process_time() - began < SECONDS
    said = done.stdout + done.stderr
    assert done.returncode == attack.code, said[-3000:]
    assert len(re.findall("^error:", done.stderr, re.MULTILINE)) == (done.returncode > 0), done.stderr[-3000:]
    assert not CONTROL.search(said), ascii(CONTROL.findall(said))
    assert len(done.stderr) < 3000
    assert set(folder.rglob("*")) == before, "it wrote beside the files that it read"
    written = {path.name for path in tmp_path.iterdir()} - {"theirs"}
    assert written <= {"home", "reports"}, "it wrote elsewhere"
    assert [what for name in written for what in acting(tmp_path / name)] == []
