"""`mcpo data`, and the hub as a small server on this machine that speaks its protocol."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from mcpo_cli import data
from tests.cli.conftest import Cli, InProcess

PUBLISHED = Path(__file__).resolve().parents[2].parent / "shared" / "data"
AIME = [{"problem": f"What is the {number}th prime?", "answer": f"{number:03}"} for number in range(30)]
# what the hub says about a repository -> what a user reads
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


class Hub(ThreadingHTTPServer):
    """Hands out `rows` as the pinned file of AIME 2025, or refuses with `refusal`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.rows = AIME
        self.refusal: str | None = None
        self.asked: list[str] = []


class Answer(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        dataset = data.get("aime25")
        if self.path != f"/datasets/{dataset.repo}/resolve/{dataset.revision}/{dataset.file}":
            self.send_error(404)
            return
        self.server.asked.append(self.command)
        body = "".join(json.dumps(row) + "\n" for row in self.server.rows).encode()
        self.send_response(200 if self.server.refusal is None else REFUSALS[self.server.refusal][0])
        headers = {"X-Repo-Commit": dataset.revision, "ETag": '"made-up"', "Content-Length": str(len(body))}
        if self.server.refusal:
            headers["X-Error-Code"] = self.server.refusal
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *details: Any) -> None:
        pass


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub for the subprocesses of the test, with an empty cache."""
    with Hub() as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        monkeypatch.delenv("HF_HUB_CACHE", raising=False)
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        yield server
        server.shutdown()


def test_list(here: InProcess) -> None:
    listed = here.json("data", "list")["datasets"]
    assert [row["name"] for row in listed] == data.names()
    text = here("data", "list").stdout
    assert all(row["source"] in text for row in listed)


@pytest.mark.slow
def test_an_audit_of_a_clean_file(home: Path, hub: Hub, tmp_path: Path) -> None:
    path = write(tmp_path / "aime24.jsonl", AIME)
    result = Cli(home)("data", "audit", path)
    assert result.returncode == 0, result.stderr
    assert "AIME 2024, benchmark" in result.stdout
    assert "30 (published: 30)" in result.stdout
    assert "no problems found" in result.stdout
    assert hub.asked == [], "nothing is downloaded for a comparison that nobody asked for"


@pytest.mark.slow
def test_an_audit_that_finds_copies_and_overlap(home: Path, hub: Hub, tmp_path: Path) -> None:
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
def test_an_unknown_file_is_judged_as_a_benchmark(home: Path, hub: Hub, tmp_path: Path) -> None:
    document = Cli(home).json("data", "audit", write(tmp_path / "mine.jsonl", AIME[:3]))
    assert (document["name"], document["role"], document["problems"]) == ("mine", "benchmark", 3)
    assert Cli(home)("data", "audit", write(tmp_path / "mine.jsonl", AIME[:3] * 2)).returncode == 1


@pytest.mark.slow
def test_a_gold_that_no_grader_understands(home: Path, hub: Hub, tmp_path: Path) -> None:
    rows = [{"problem": "p", "answer": "\\frac{1}{2}"}, {"problem": "q", "answer": "\\"}]
    result = Cli(home)("data", "audit", write(tmp_path / "mine.jsonl", rows), "--json")
    assert result.returncode == 1
    (gold,) = json.loads(result.stdout)["not_parsable"]
    assert (gold["row"], gold["gold"]) == (2, "\\")


@pytest.mark.parametrize(
    ("arguments", "message", "fix"),
    [
        (["aime42"], "unknown data set 'aime42'", "mcpo data list"),
        (["nothing.jsonl"], "no such file: nothing.jsonl", "parquet or JSONL"),
        (["aime24", "--as", "aime42"], "unknown data set 'aime42'", "mcpo data list"),
        (["x=nothing.jsonl"], "unknown data set 'x'", "mcpo data list"),
    ],
)
def test_bad_input(here: InProcess, arguments: list[str], message: str, fix: str) -> None:
    result = here("data", "audit", *arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert fix in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


@pytest.mark.slow
def test_a_data_set_comes_from_the_hub_once(home: Path, hub: Hub) -> None:
    cli = Cli(home)
    document = cli.json("data", "audit", "aime25")
    assert document["source"] == f"hub:math-ai/aime25@{data.get('aime25').revision}"
    assert (document["problems"], document["golds"]) == (30, {"integer": 30})
    assert hub.asked.count("GET") == 1
    hub.asked.clear()
    again = cli("data", "audit", "aime25", "--json", HF_HUB_OFFLINE="1")
    assert json.loads(again.stdout) == document
    assert hub.asked == []


@pytest.mark.parametrize(
    "refusal", ["GatedRepo", *(pytest.param(name, marks=pytest.mark.slow) for name in REFUSALS if name != "GatedRepo")]
)
def test_what_the_hub_refuses(home: Path, hub: Hub, refusal: str) -> None:
    hub.refusal = refusal
    result = Cli(home)("data", "audit", "aime25")
    assert result.returncode == 2
    assert REFUSALS[refusal][1] in result.stderr
    assert f"math-ai/aime25@{data.get('aime25').revision}" in result.stderr
    assert "data.path=FILE" in result.stderr


def test_no_network(home: Path, hub: Hub) -> None:
    hub.shutdown()
    hub.server_close()
    cut = Cli(home)("data", "audit", "aime25")
    assert cut.returncode == 2
    assert "the Hugging Face Hub cannot be reached" in cut.stderr
    forbidden = Cli(home)("data", "audit", "aime25", HF_HUB_OFFLINE="1")
    assert forbidden.returncode == 2
    assert "HF_HUB_OFFLINE forbids downloads" in forbidden.stderr
    assert all("data.path=FILE" in result.stderr for result in (cut, forbidden))


@pytest.mark.slow
def test_the_published_960_rows(home: Path, hub: Hub) -> None:
    path = PUBLISHED / "verl_schema" / "dapo_aime-2024.original.parquet"
    if path.is_file():
        result = Cli(home)("data", "audit", str(path))
        assert result.returncode == 1
        assert "960 rows hold 30 problems x 32 copies" in result.stdout


@pytest.mark.slow
def test_the_published_near_duplicates(home: Path, hub: Hub) -> None:
    path = PUBLISHED / "verl_schema" / "dapo_math17k_sample_verl_form.jsonl"
    if path.is_file():
        document = Cli(home).json("data", "audit", str(path), "--as", "dapo_math_17k")
        assert [pair["rows"] for pair in document["near_duplicates"]] == [[4, 14]]
        assert document["rows"] == document["problems"] == 16
