"""`mcpo data`, with a small server on this machine that speaks the hub's protocol."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from huggingface_hub import constants

from mcpo_cli import data, machine
from tests.cli.conftest import InProcess
from tests.web import Answers, hub_at, serving

AIME = [{"problem": f"What is the {number}th prime?", "answer": f"{number:03}"} for number in range(30)]
# the hub's answer about a repository -> the message to the user
REFUSALS = {
    "GatedRepo": (403, "accept its licence"),
    "RepoNotFound": (404, "has no datasets/math-ai/aime25, or you have no access"),
    "RevisionNotFound": (404, "it has no such revision"),
    "EntryNotFound": (404, "test.jsonl of math-ai/aime25@"),
    "": (500, "not in the cache, and not available"),
}


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


class Hub(Answers):
    """Hands out `rows` as the pinned file of AIME 2025, or refuses with `refusal`."""

    refusal: ClassVar[str | None] = None
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        dataset = data.get("aime25")
        if self.path != f"/datasets/{dataset.repo}/resolve/{dataset.revision}/{dataset.file}":
            return self.answer(404)
        self.asked.append(self.command)
        body = "".join(json.dumps(row) + "\n" for row in AIME).encode()
        headers = {"X_Repo_Commit": dataset.revision, "ETag": '"made-up"'}
        if self.refusal is None:
            return self.answer(200, body, **headers)
        return self.answer(REFUSALS[self.refusal][0], body, **headers, X_Error_Code=self.refusal)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The hub of the test, with an empty cache; and one grading process, which is enough."""
    Hub.asked.clear()
    monkeypatch.setattr(machine, "cores", lambda: 1)
    with serving(Hub) as address:
        hub_at(address, monkeypatch, tmp_path / "hf")
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("hub")
def test_an_audit_that_finds_copies_and_overlap(here: InProcess, tmp_path: Path) -> None:
    copies = write(tmp_path / "copies.jsonl", AIME * 32)
    training = write(tmp_path / "dapo_math_17k.jsonl", AIME[:2])
    result = here("components", "check", "data", copies, "--as", "aime24")
    assert result.returncode == 1
    assert "WRONG  copies: 960 rows hold 30 problems x 32 copies; each is used once" in result.stdout
    assert "WRONG  overlap: problems that also occur in dapo_math_17k: 2" in result.stdout
    assert "metrics measured on it would be wrong: copies, overlap" in result.stderr
    against = here("components", "check", "data", training, "--against", f"aime24={copies}", "--json")
    assert against.returncode == 1
    document = json.loads(against.stdout)
    assert [finding["kind"] for finding in document["findings"] if finding["serious"]] == ["overlap"]
    assert document["error"]["exit_code"] == 1


@pytest.mark.slow
@pytest.mark.usefixtures("hub")
def test_a_data_set_comes_from_the_hub_once(here: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    document = here.json("components", "check", "data", "aime25")
    assert document["source"] == f"hub:math-ai/aime25@{data.get('aime25').revision}"
    assert (document["problems"], document["golds"]) == (30, {"integer": 30})
    assert Hub.asked.count("GET") == 1
    Hub.asked.clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert here.json("components", "check", "data", "aime25") == document
    assert Hub.asked == []


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("refusal", REFUSALS)
def test_what_the_hub_refuses(here: InProcess, refusal: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Hub, "refusal", refusal)
    said = here.refused("unreachable", "components", "check", "data", "aime25")
    for part in (REFUSALS[refusal][1], f"math-ai/aime25@{data.get('aime25').revision}", "data.path=FILE"):
        assert part in said
