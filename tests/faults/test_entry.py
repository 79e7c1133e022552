"""Who asks MLflow's UI for what, and whose modules are imported: requests of others, and a folder full of traps."""

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcpo_cli.analysis import render
from mcpo_cli.commands import ui
from mcpo_cli.store.mlflow import Store
from tests.faults.conftest import Faults
from tests.store_runs import complete, free_port, plan, spec
from tests.unit.test_store_servers import answer

MCPO = [sys.executable, "-P", "-m", "mcpo_cli.main"]
"""As the installed script starts it: without the current folder in the search path."""
SEARCH = "/api/2.0/mlflow/experiments/search"


def planted(folder: Path, trace: Path) -> None:
    """Modules named like libraries, and files that programs read from the current folder; each says that it ran."""
    names = "mlflow loky torch numpy matplotlib pandas yaml hydra sympy math_verify uvicorn gunicorn alembic sqlalchemy"
    names += " json socket typing sitecustomize usercustomize mcpo_cli transformers safetensors filelock psutil orjson"
    source = f"open({str(trace)!r}, 'a').write(__name__ + chr(10))\n"
    folder.mkdir()
    for name in [*names.split(), "gunicorn.conf", "conftest", "setup"]:
        (folder / f"{name}.py").write_text(source)
    (folder / "mcpo_cli").mkdir()
    (folder / "mcpo_cli" / "__init__.py").write_text(source)
    (folder / "matplotlibrc").write_text("savefig.dpi: 3\nfigure.facecolor: red\n")
    (folder / ".env").write_text("MLFLOW_TRACKING_URI=offline\n")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Iterator[Path]:
    """A home with a run in its store, which has an artifact."""
    with pytest.MonkeyPatch.context() as patch:
        found = tmp_path_factory.mktemp("home")
        patch.setenv("MCPO_HOME", str(found))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        complete(spec())
        shutil.copy(empty_store, found / "mlflow.db")
        Store(f"sqlite:///{found / 'mlflow.db'}").ingest(plan(spec()))
        yield found


@pytest.fixture(scope="module")
def server(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    """The port of `mcpo ui`, started in a folder of traps, and the file that they write to."""
    traps = tmp_path_factory.mktemp("traps")
    planted(traps / "here", traps / "it ran")
    port = free_port()
    command = [*MCPO, "ui", "--port", str(port)]
    running = subprocess.Popen(command, cwd=traps / "here", stderr=subprocess.DEVNULL, env={**os.environ})
    try:
        answer(f"http://127.0.0.1:{port}{SEARCH}", {"max_results": 1})
        yield port, traps / "it ran"
    finally:
        running.send_signal(signal.SIGINT)
        running.wait(300)


def ask(port: int, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
    """Status and content of an answer to a request, whose headers may be anything."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.putrequest(method, path, skip_host=True)
    for name, value in {"Host": f"127.0.0.1:{port}", "Content-Length": str(len(body)), **headers}.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders(body)
    try:
        got = connection.getresponse()
        return got.status, got.read()
    finally:
        connection.close()


def stored(port: int) -> list[str]:
    """The ids of all runs in the store."""

    def search(what: str, **query: object) -> list[dict[str, dict[str, str]]]:
        path = f"/api/2.0/mlflow/{what}/search"
        content = ask(port, "POST", path, json.dumps(query).encode(), Content_Type="application/json")[1]
        found: list[dict[str, dict[str, str]]] = json.loads(content)[what]
        return found

    experiments = [one["experiment_id"] for one in search("experiments", max_results=100)]
    return [run["info"]["run_id"] for run in search("runs", experiment_ids=experiments)]


HOSTS = [
    *("10.evil.com", "192.168.evil.com", "172.16.evil.com", "fc00:evil.com", "evil.com", "localhost.evil.com"),
    *("127.0.0.1.evil.com", "10.0.0.1", "192.168.1.1:5000", "evil.com:5000", "localhost@evil.com", "", "*", "0.0.0.0"),
    *("LOCALHOST.evil.com", "xlocalhost", "127.0.0.2", "2130706433", "evil.com/localhost"),
]


@pytest.mark.slow
@pytest.mark.parametrize("host", HOSTS)
def test_a_request_under_another_name_is_refused(server: tuple[int, Path], host: str, faults: Faults) -> None:
    """A page of that name reaches the server through the reader's browser, once the name leads to 127.0.0.1."""
    status, content = ask(server[0], "POST", SEARCH, b'{"max_results": 5}', Host=host, Content_Type="application/json")
    assert status in (400, 403), content
    faults("a request to the UI under a foreign host name", wrong=int(b"experiment_id" in content))


@pytest.mark.slow
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "localhost:8080"])
def test_the_names_of_this_machine_and_of_tunnels_are_taken(server: tuple[int, Path], host: str) -> None:
    headers = {"Host": host, "Content_Type": "application/json"}
    assert ask(server[0], "POST", SEARCH, b'{"max_results": 5}', **headers)[0] == 200


PROXY = "/api/2.0/mlflow-artifacts"
WRITES = {
    "a file put": ("PUT", f"{PROXY}/artifacts/evil.txt"),
    "a file put through the pages' own address": ("PUT", "/ajax-api/2.0/mlflow-artifacts/artifacts/evil.txt"),
    "a file put into another folder": ("PUT", f"{PROXY}/artifacts/..%2f..%2fevil.txt"),
    "files deleted": ("DELETE", f"{PROXY}/artifacts/train"),
    "a file in parts": ("POST", f"{PROXY}/mpu/create/evil.txt"),
    "files listed": ("GET", f"{PROXY}/artifacts?path=."),
    "a file read": ("GET", f"{PROXY}/artifacts/train"),
    "a file read from another folder": ("GET", f"{PROXY}/artifacts/..%2f..%2fmlflow.db"),
}


def files(home: Path) -> set[Path]:
    return {path for path in home.rglob("*") if "mlflow.db" not in path.name}


@pytest.mark.slow
@pytest.mark.parametrize(("method", "path"), WRITES.values(), ids=WRITES)
def test_the_ui_keeps_no_files_for_others(
    server: tuple[int, Path], home: Path, method: str, path: str, request: pytest.FixtureRequest, faults: Faults
) -> None:
    before = files(home)
    status, content = ask(server[0], method, path, b'{"path": "evil.txt", "num_parts": 1}')
    assert status >= 400, content
    harm = len(files(home) ^ before) + (b"SQLite" in content)
    faults(f"the UI's service for artifacts: {request.node.callspec.id}", wrong=harm)


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", ["../../../mlflow.db", "..%2f..%2fmlflow.db", "/etc/passwd", "%2fetc%2fpasswd", "~/.ssh"]
)
def test_no_artifact_leads_elsewhere(server: tuple[int, Path], path: str, faults: Faults) -> None:
    port = server[0]
    run = stored(port)[0]
    status, content = ask(port, "GET", f"/get-artifact?run_uuid={run}&path={path}")
    assert status >= 400, content
    faults("an artifact whose path leads elsewhere", wrong=int(b"root:" in content or b"SQLite" in content))


@pytest.mark.slow
@pytest.mark.parametrize("origin", ["http://evil.com", "https://localhost.evil.com", "http://10.0.0.1:5000", "file://"])
def test_no_page_from_elsewhere_changes_anything(server: tuple[int, Path], origin: str, faults: Faults) -> None:
    body = json.dumps({"name": f"made by {origin}"}).encode()
    headers = {"Origin": origin, "Content_Type": "application/json"}
    status, content = ask(server[0], "POST", "/api/2.0/mlflow/experiments/create", body, **headers)
    assert status == 403, content
    faults("a change asked for by a page from elsewhere")


@pytest.mark.slow
def test_the_artifacts_of_the_store_are_still_shown(server: tuple[int, Path]) -> None:
    port = server[0]
    names = {
        run: json.loads(ask(port, "GET", f"/ajax-api/2.0/mlflow/artifacts/list?run_id={run}")[1]).get("files", [])
        for run in stored(port)
    }
    run, files = next((run, files) for run, files in names.items() if files)
    path = next(file["path"] for file in files if not file["is_dir"])
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/get-artifact?run_uuid={run}&path={path}") as got:
        assert len(got.read()) > 100


@pytest.mark.slow
def test_the_ui_imports_nothing_from_the_current_folder(server: tuple[int, Path], faults: Faults) -> None:
    ran = server[1].read_text() if server[1].exists() else ""
    assert ran == ""
    faults("modules named like libraries beside `mcpo ui`")


VERBS: dict[str, list[str]] = {
    "train, report and sync": ["train", "scale=smoke", "train.steps=1", "warmup.target_accuracy=0"],
    "report": ["report", "scale=smoke"],
    "runs sync": ["runs", "sync"],
    "grade": ["grade", "answers.jsonl", "--workers", "1"],
    "doctor": ["doctor"],
    "method check": ["method", "check", "mcpo"],
}


@pytest.mark.slow
@pytest.mark.parametrize("words", VERBS.values(), ids=VERBS)
def test_no_verb_imports_anything_from_the_current_folder(
    words: list[str], tmp_path: Path, request: pytest.FixtureRequest, faults: Faults
) -> None:
    trace, here = tmp_path / "it ran", tmp_path / "here"
    planted(here, trace)
    (here / "answers.jsonl").write_text(json.dumps({"gold": "\\frac{1}{2}", "response": "\\boxed{0.5}"}) + "\n")
    env = {key: value for key, value in os.environ.items() if key != "MLFLOW_TRACKING_URI"}
    env |= {"MCPO_HOME": str(tmp_path / "home"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*MCPO, *words], cwd=here, env=env, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1, 3), done.stderr
    assert "Traceback" not in done.stderr
    ran = trace.read_text().split() if trace.exists() else []
    assert ran == []
    faults(f"modules named like libraries beside `mcpo {request.node.callspec.id}`")


def test_what_the_ui_answers_to(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ui._answers_to("127.0.0.1") == ["127.0.0.1", "127.0.0.1:*", "localhost", "localhost:*"]
    assert "10.1.2.3:*" in ui._answers_to("10.1.2.3")
    monkeypatch.setattr(ui.socket, "gethostname", lambda: "node17")
    everywhere = ui._answers_to("0.0.0.0")
    assert {"node17", "node17:*", "localhost:*"} <= set(everywhere)
    assert not [name for name in everywhere if "*" in name.removesuffix(":*")]


MARKUP = {
    "a link that runs a script": "[x](javascript:alert(1))",
    "a link behind an escape": "\\[x](javascript:alert(1))",
    "an image": "![x](http://evil.com/pixel.png)",
    "a reference": "[x]\n\n[x]: javascript:alert(1)",
    "an address in angles": "<javascript:alert(1)>",
    "a tag": "<script>alert(1)</script>",
    "the end of a cell": "a | b |\n| c",
    "a heading": "x\n# y",
    "code": "`` ` ``",
}


@pytest.mark.parametrize("text", MARKUP.values(), ids=MARKUP)
def test_no_text_becomes_markup(text: str, request: pytest.FixtureRequest, faults: Faults) -> None:
    """In the report for GitHub, whatever a suite, a claim or a record says."""
    grid = render.Grid(text, ["name", text], [[text, text]])
    page = render.markdown(render.Page(text, text, [grid], [text]))
    bare = [sign for sign, before in zip(page, "\n" + page, strict=False) if sign in "[]<`" and before != "\\"]
    rows = [line for line in page.splitlines() if line.startswith("|")]
    headings = [line for line in page.splitlines() if line.startswith("#")]
    wrong = len(bare) + abs(len(rows) - 3) + abs(len(headings) - 3)
    faults(f"a text of the report with {request.node.callspec.id}", wrong=wrong)


@pytest.mark.parametrize("command", ["mcpo plan 'a`b'", "mcpo plan '```'", "mcpo\n\n# plan", "mcpo plan `"])
def test_no_command_leaves_its_code_span(command: str, faults: Faults) -> None:
    span = render.code(command)
    fence = span[: len(span) - len(span.lstrip("`"))]
    assert span.endswith(fence)
    assert "\n" not in span
    faults("a command with backticks in the report", wrong=span.strip("`").count(fence))
