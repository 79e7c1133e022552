"""`mcpo ui` and the servers of verl: the machines that can reach them, and the requests that the UI refuses."""

import asyncio
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from mcpo_cli.backends.verl import overrides
from mcpo_cli.config.load import load
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.trackers import ui_server
from mcpo_cli.trackers.mlflow import Store
from tests.store_runs import complete, free_port, plan, spec

READING = {"GET", "HEAD", "OPTIONS"}
SEARCH = "/api/2.0/mlflow/experiments/search"


def answer(url: str, body: dict[str, Any], seconds: float = 300) -> Any:
    """The server's answer. It may still be starting: MLflow needs minutes to make its store on a busy machine."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    end = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return json.load(response)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


@contextmanager
def ui(home: Path, *options: str) -> Iterator["subprocess.Popen[str]"]:
    """`mcpo ui` over a store with one run."""
    complete(spec())
    store = Store(f"sqlite:///{home / 'mlflow.db'}")
    store.check()
    store.ingest(plan(spec()))
    command = [sys.executable, "-m", "mcpo_cli.main", "ui", *options]
    environment = {key: value for key, value in os.environ.items() if key != "MLFLOW_TRACKING_URI"}
    running = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, text=True)
    try:
        yield running
    finally:
        running.send_signal(signal.SIGINT)
        running.wait(300)


def routes() -> set[tuple[str, str]]:
    """Method and path of every route of the server, with parameters filled in."""
    from mlflow.server import app as flask
    from mlflow.server.fastapi_app import app

    found = {(method, rule.rule) for rule in flask.url_map.iter_rules() for method in rule.methods or ()}

    def native(router: Any, prefix: str) -> None:
        for route in router.routes:
            inner = getattr(route, "router", None) or getattr(route, "original_router", None)
            path = prefix + getattr(getattr(route, "include_context", None), "prefix", "") + getattr(route, "path", "")
            if inner is not None:
                native(inner, path)
            found.update((method, path) for method in getattr(route, "methods", None) or ())

    native(app, "")
    return {(method, re.sub(r"<[^>]*>|{[^}]*}", "x", path)) for method, path in found}


def test_whatever_changes_anything_is_listed_or_refused() -> None:
    changing = {(method, path) for method, path in routes() if method not in READING}
    passed = {(method, path) for method, path in changing if ui_server.allowed(method, path)}
    assert len(changing) > 100
    assert {path for _, path in changing} >= {
        *("/v1/traces", "/graphql", "/ajax-api/2.0/mlflow/upload-artifact", "/ajax-api/3.0/mlflow/mcp-servers/x/tags")
    }
    listed = ui_server.READS | ui_server.EDITS
    assert {method for method, _ in passed} == {"POST"}
    short = {re.sub(r"^/(ajax-)?api/\d\.0/mlflow/", "", path) for _, path in passed}
    assert short - {"/graphql"} == listed  # each is a route that MLflow has
    for word in ("artifact", "create", "log-", "secret", "webhook", "gateway", "scorer", "model-versions/"):
        assert not [path for _, path in passed if word in path]


REFUSED = [
    ("POST", "/ajax-api/2.0/mlflow/upload-artifact"),
    ("POST", "/ajax-api/2.0/mlflow//runs/update"),
    ("POST", "/ajax-api/2.0/mlflow/runs/update/"),
    ("POST", "/ajax-api/2.0/mlflow/runs/../upload-artifact"),
    ("PUT", "/ajax-api/2.0/mlflow/runs/update"),
    ("post", "/ajax-api/2.0/mlflow/runs/update"),
    ("POST", "/graphql/"),
    ("PUT", "/api/2.0/mlflow-artifacts/artifacts/x"),
    ("POST", "/v1/traces"),
    ("GET", "/ajax-api/2.0/mlflow/gateway-proxy"),
    ("GET", "/ajax-api/3.0/mlflow/assistant/config"),
]


@pytest.mark.parametrize(("method", "path"), REFUSED)
def test_requests_that_are_refused(method: str, path: str) -> None:
    assert not ui_server.allowed(method, path)


def test_the_pages_own_files_pass_whatever_their_names() -> None:
    assert ui_server.allowed("GET", "/static-files/static/media/assistant-debug.11458b995f95dedcb985.svg")


def test_pages_are_told_that_there_is_no_gateway_and_mlflow_is_not_asked() -> None:
    """A refusal would show an error message on each of MLflow's pages; MLflow itself could ask another machine."""
    sent = list[Any]()

    async def never(*_: Any) -> None:
        pytest.fail("MLflow was asked")

    async def send(message: Any) -> None:
        sent.append(message)

    gate = ui_server.Gate(never)
    asked_for = {"type": "http", "method": "GET", "path": "/ajax-api/2.0/mlflow/gateway-proxy"}
    asyncio.run(gate(asked_for, None, send))
    asyncio.run(gate({**asked_for, "method": "POST"}, None, send))
    assert [message["status"] for message in sent if "status" in message] == [200, 403]
    assert json.loads(sent[1]["body"]) == {"endpoints": []}


def status(url: str, data: bytes) -> int:
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code


def asked(port: int, method: str, path: str, **headers: str) -> int:
    """The status of the answer to a request whose headers may be anything."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.putrequest(method, path, skip_host=True)
    body = b'{"max_results": 5, "name": "theirs"}'
    standard = {"Host": f"127.0.0.1:{port}", "Content-Type": "application/json", "Content-Length": str(len(body))}
    for name, value in {**standard, **headers}.items():
        connection.putheader(name, value)
    connection.endheaders(body)
    try:
        return connection.getresponse().status
    finally:
        connection.close()


def listening(process: int) -> set[str]:
    """The addresses that a process and its children listen on."""
    family = [psutil.Process(process), *psutil.Process(process).children(recursive=True)]
    found = [connection for one in family for connection in one.net_connections("tcp")]
    return {connection.laddr.ip for connection in found if connection.status == psutil.CONN_LISTEN}


def settings(*words: str) -> tuple[RunSpec, overrides.Table]:
    (found,) = load(["scale=paper", "model=qwen3-8b", *words])
    return found, overrides.table(found, overrides.planned(found, Path("/home")))


def test_ray_and_the_servers_of_verl_stay_on_one_machine() -> None:
    """Except in a cluster that a run joins, which its owners configure."""
    alone, table = settings()
    assert overrides.environment(alone)["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] == "0"
    assert table["+ray_kwargs.ray_init.include_dashboard"] is False
    assert table["+ray_kwargs.ray_init.address"] == "local"
    assert not [key for key, value in table.items() if "host" in key or value in ("0.0.0.0", "::")]
    joined, table = settings("cluster.ray_address=10.0.0.1:6379", "cluster.nodes=2")
    assert "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER" not in overrides.environment(joined)
    assert "+ray_kwargs.ray_init.include_dashboard" not in table


@pytest.mark.slow
def test_a_served_page(mcpo_home: Path) -> None:
    """Other pages cannot reach it under any name or origin; it takes no files, and ends with its command."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with ui(mcpo_home, "--port", str(port)) as running:
        found = answer(f"{url}/api/2.0/mlflow/experiments/search", {"max_results": 9})
        experiments = [one["experiment_id"] for one in found["experiments"]]
        runs = answer(f"{url}/api/2.0/mlflow/runs/search", {"experiment_ids": experiments})["runs"]
        run = runs[0]["info"]["run_id"]
        assert listening(running.pid) == {"127.0.0.1"}
        for host in ("127.0.0.1", "localhost", "localhost:8080"):
            assert asked(port, "POST", SEARCH, Host=host) == 200
        for host in ("evil.com", "127.0.0.1.evil.com", "10.0.0.1", "localhost@evil.com", ""):
            assert asked(port, "POST", SEARCH, Host=host) in (400, 403), host
        for origin in ("http://evil.com", "https://localhost.evil.com", "file://", "null"):
            assert asked(port, "POST", "/api/2.0/mlflow/experiments/create", Origin=origin) == 403, origin
        for path in (
            "../../../mlflow.db",
            "..%2f..%2fmlflow.db",
            "/etc/passwd",
            "%2fetc%2fpasswd",
            "....//....//mlflow.db",
        ):
            assert asked(port, "GET", f"/get-artifact?run_uuid={run}&path={path}") >= 400, path
        before = {path: path.read_bytes() for path in mcpo_home.rglob("*") if path.is_file() and "db" not in path.name}
        upload = f"{url}/ajax-api/2.0/mlflow/upload-artifact?run_uuid={run}&path=archive.tar.gz"
        outside = b'{"name": "evil", "artifact_location": "file:///%s"}' % str(mcpo_home / "outside").encode()
        assert status(upload, b"evil") == 403
        for api in ("api", "ajax-api"):
            assert status(f"{url}/{api}/2.0/mlflow/experiments/create", outside) == 403
        after = {path: path.read_bytes() for path in mcpo_home.rglob("*") if path.is_file() and "db" not in path.name}
        assert after == before
        # Editing goes on, and the page itself is there.
        tag = b'{"run_id": "%s", "key": "mlflow.note.content", "value": "seen"}' % run.encode()
        assert status(f"{url}/ajax-api/2.0/mlflow/runs/set-tag", tag) == 200
        with urllib.request.urlopen(url, timeout=60) as page:
            assert b"<html" in page.read().lower()
        family = psutil.Process(running.pid).children(recursive=True)
        assert family
        running.send_signal(signal.SIGKILL)
        running.wait(60)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and any(
            one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in family
        ):
            time.sleep(0.1)
        with pytest.raises((urllib.error.URLError, ConnectionError)):
            urllib.request.urlopen(url, timeout=5)
