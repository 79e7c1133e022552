"""`mcpo data`, with a small server on this machine that speaks the hub's protocol."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from mcpo_cli import data
from tests.cli.conftest import Cli, InProcess
from tests.web import Answers, serving

AIME = [{"problem": f"What is the {number}th prime?", "answer": f"{number:03}"} for number in range(30)]
# the hub's answer about a repository -> the message to the user
REFUSALS = {
    "GatedRepo": (403, "is gated"),
    "RepoNotFound": (404, "does not exist there, or is private"),
    "RevisionNotFound": (404, "exists, but not at this revision"),
    "EntryNotFound": (404, "has no file 'test.jsonl'"),
    "": (500, "could not be fetched"),
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
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A hub for the subprocesses of the test, with an empty cache."""
    Hub.asked.clear()
    with serving(Hub) as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        monkeypatch.delenv("HF_HUB_CACHE", raising=False)
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        yield address


def test_list(here: InProcess) -> None:
    listed = here.json("data", "list")["datasets"]
    assert [row["name"] for row in listed] == data.names()
    text = here("data", "list").stdout
    assert all(row["source"] in text for row in listed)


@pytest.mark.slow
def test_an_audit_of_a_clean_file(home: Path, hub: str, tmp_path: Path) -> None:
    path = write(tmp_path / "aime24.jsonl", AIME)
    result = Cli(home)("data", "audit", path)
    assert result.returncode == 0, result.stderr
    assert "AIME 2024, benchmark" in result.stdout
    assert "30 (published: 30)" in result.stdout
    assert "no problems found" in result.stdout
    assert Hub.asked == [], "nothing is downloaded for a comparison that nobody asked for"


@pytest.mark.slow
def test_an_audit_that_finds_copies_and_overlap(home: Path, hub: str, tmp_path: Path) -> None:
    copies = write(tmp_path / "copies.jsonl", AIME * 32)
    training = write(tmp_path / "dapo_math_17k.jsonl", AIME[:2])
    result = Cli(home)("data", "audit", copies, "--as", "aime24")
    assert result.returncode == 1
    assert "WRONG  copies: 960 rows hold 30 problems x 32 copies; each is used once" in result.stdout
    assert "WRONG  overlap: problems that also occur in dapo_math_17k: 2" in result.stdout
    assert "metrics measured on it would be wrong: copies, overlap" in result.stderr
    against = Cli(home)("data", "audit", training, "--against", f"aime24={copies}", "--json")
    assert against.returncode == 1
    document = json.loads(against.stdout)
    assert [finding["kind"] for finding in document["findings"] if finding["serious"]] == ["overlap"]
    assert document["error"]["exit_code"] == 1


@pytest.mark.slow
def test_an_unknown_file_is_judged_as_a_benchmark(home: Path, hub: str, tmp_path: Path) -> None:
    document = Cli(home).json("data", "audit", write(tmp_path / "mine.jsonl", AIME[:3]))
    assert (document["name"], document["role"], document["problems"]) == ("mine", "benchmark", 3)
    assert Cli(home)("data", "audit", write(tmp_path / "mine.jsonl", AIME[:3] * 2)).returncode == 1


@pytest.mark.slow
def test_a_gold_that_no_grader_understands(home: Path, hub: str, tmp_path: Path) -> None:
    rows = [{"problem": "p", "answer": "\\frac{1}{2}"}, {"problem": "q", "answer": "\\"}]
    result = Cli(home)("data", "audit", write(tmp_path / "mine.jsonl", rows), "--json")
    assert result.returncode == 1
    (gold,) = json.loads(result.stdout)["not_parsable"]
    assert (gold["row"], gold["gold"]) == (2, "\\")


@pytest.mark.slow
def test_a_data_set_comes_from_the_hub_once(home: Path, hub: str) -> None:
    cli = Cli(home)
    document = cli.json("data", "audit", "aime25")
    assert document["source"] == f"hub:math-ai/aime25@{data.get('aime25').revision}"
    assert (document["problems"], document["golds"]) == (30, {"integer": 30})
    assert Hub.asked.count("GET") == 1
    Hub.asked.clear()
    again = cli("data", "audit", "aime25", "--json", HF_HUB_OFFLINE="1")
    assert json.loads(again.stdout) == document
    assert Hub.asked == []


@pytest.mark.parametrize(
    "refusal", ["GatedRepo", *(pytest.param(name, marks=pytest.mark.slow) for name in REFUSALS if name != "GatedRepo")]
)
def test_what_the_hub_refuses(home: Path, hub: str, refusal: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Hub, "refusal", refusal)
    said = Cli(home).refused("unreachable", "data", "audit", "aime25")
    for part in (REFUSALS[refusal][1], f"math-ai/aime25@{data.get('aime25').revision}", "data.path=FILE"):
        assert part in said


@pytest.mark.usefixtures("hub")
def test_no_network(home: Path) -> None:
    for env in ({"HF_ENDPOINT": "http://127.0.0.1:1"}, {"HF_HUB_OFFLINE": "1"}):
        assert "data.path=FILE" in Cli(home).refused("unreachable", "data", "audit", "aime25", **env)
