"""`mcpo ui` and the servers of verl: the machines that can reach them, and the requests that the UI refuses."""

import asyncio
import http.client
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from mcpo_cli.backends.verl import overrides
from mcpo_cli.config.load import load
from mcpo_cli.trackers import ui_server
from mcpo_cli.trackers.mlflow import Store
from tests.store_runs import complete, free_port, plan, spec

READING = {"GET", "HEAD", "OPTIONS"}


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


@pytest.mark.slow
def test_whatever_changes_anything_is_listed_or_refused() -> None:
    changing = {(method, path) for method, path in routes() if method not in READING}
    passed = {(method, path) for method, path in changing if ui_server.allowed(method, path)}
    assert len(changing) > 100
    assert {path for _, path in changing} >= {
        *("/v1/traces", "/graphql", "/ajax-api/2.0/mlflow/upload-artifact", "/ajax-api/3.0/mlflow/mcp-servers/x/tags")
    }
    assert {method for method, _ in passed} == {"POST"}
    short = {re.sub(r"^/(ajax-)?api/\d\.0/mlflow/", "", path) for _, path in passed}
    assert short - {"/graphql"} == ui_server.READS | ui_server.EDITS  # each is a route that MLflow has
    for word in ("artifact", "create", "log-", "secret", "webhook", "gateway", "scorer", "model-versions/"):
        assert not [path for _, path in passed if word in path and not path.endswith("/presigned-download-url")]


REFUSED = [
    ("POST", "/ajax-api/2.0/mlflow//runs/update"),
    ("POST", "/ajax-api/2.0/mlflow/runs/update/"),
    ("POST", "/ajax-api/2.0/mlflow/runs/../upload-artifact"),
    ("PUT", "/ajax-api/2.0/mlflow/runs/update"),
    ("post", "/ajax-api/2.0/mlflow/runs/update"),
    ("POST", "/graphql/"),
    ("GET", "/ajax-api/2.0/mlflow/gateway-proxy"),
    ("GET", "/ajax-api/3.0/mlflow/assistant/config"),
]


def test_requests_that_look_like_listed_ones_are_refused_and_the_pages_own_files_pass() -> None:
    assert [path for method, path in REFUSED if ui_server.allowed(method, path)] == []
    assert ui_server.allowed("GET", "/static-files/static/media/assistant-debug.11458b995f95dedcb985.svg")


def test_pages_are_told_that_there_is_no_gateway_and_mlflow_is_not_asked() -> None:
    """A refusal would show an error message on each of MLflow's pages; MLflow itself could ask another machine."""
    sent = list[Any]()

    async def never(*_: Any) -> None:
        pytest.fail("MLflow was asked")

    async def send(message: Any) -> None:
        sent.append(message)

    gate = ui_server.UiGate(never, "#/experiments")
    asked_for = {"type": "http", "method": "GET", "path": "/ajax-api/2.0/mlflow/gateway-proxy"}
    asyncio.run(gate(asked_for, None, send))
    asyncio.run(gate({**asked_for, "method": "POST"}, None, send))
    assert [message["status"] for message in sent if "status" in message] == [200, 403]
    assert json.loads(sent[1]["body"]) == {"endpoints": []}


def asked(port: int, method: str, path: str, body: dict[str, Any] | None = None, **headers: str) -> tuple[int, bytes]:
    """Status and body of the answer to a request whose headers may be anything."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.putrequest(method, path, skip_host=True)
    content = json.dumps(body or {}).encode()
    standard = {"Host": f"127.0.0.1:{port}", "Content-Type": "application/json", "Content-Length": str(len(content))}
    for name, value in {**standard, **headers}.items():
        connection.putheader(name, value)
    connection.endheaders(content)
    try:
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_ray_and_the_servers_of_verl_stay_on_one_machine() -> None:
    """Except in a cluster that a run joins, which its owners configure."""

    def settings(*words: str) -> tuple[dict[str, str], overrides.Table]:
        (found,) = load(["scale=paper", "model=qwen3-8b", *words])
        return overrides.environment(found), overrides.table(found, overrides.planned(found, Path("/home")))

    environment, table = settings()
    assert environment["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] == "0"
    assert table["+ray_kwargs.ray_init.include_dashboard"] is False
    assert table["+ray_kwargs.ray_init.address"] == "local"
    assert not [key for key, value in table.items() if "host" in key or value in ("0.0.0.0", "::")]
    environment, table = settings("cluster.ray_address=10.0.0.1:6379", "cluster.nodes=2")
    assert "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER" not in environment
    assert "+ray_kwargs.ray_init.include_dashboard" not in table


@pytest.mark.slow
def test_a_served_page(mcpo_home: Path) -> None:
    """Other pages cannot reach it under any name or origin, and it takes no files."""
    complete(spec())
    store = Store(f"sqlite:///{mcpo_home / 'mlflow.db'}")
    store.check()
    store.ingest(plan(spec()))
    port, api = free_port(), "/ajax-api/2.0/mlflow"
    environment = {key: value for key, value in os.environ.items() if key != "MLFLOW_TRACKING_URI"}
    command = [sys.executable, "-m", "mcpo_cli.main", "ui", "--port", str(port)]
    running = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        assert running.stderr
        assert f"127.0.0.1:{port}" in running.stderr.readline()
        # MLflow needs minutes to start on a busy machine; the socket is there already.
        _, found = asked(port, "POST", f"{api}/experiments/search", {"max_results": 9})
        experiments = [one["experiment_id"] for one in json.loads(found)["experiments"]]
        _, found = asked(port, "POST", f"{api}/runs/search", {"experiment_ids": experiments})
        run = json.loads(found)["runs"][0]["info"]["run_id"]
        family = [psutil.Process(running.pid), *psutil.Process(running.pid).children(recursive=True)]
        sockets = [one for process in family for one in process.net_connections("tcp")]
        assert {one.laddr.ip for one in sockets if one.status == psutil.CONN_LISTEN} == {"127.0.0.1"}
        for host in ("127.0.0.1", "localhost", "localhost:8080"):
            assert asked(port, "POST", f"{api}/experiments/search", {"max_results": 5}, Host=host)[0] == 200
        for host in ("evil.com", "127.0.0.1.evil.com", "10.0.0.1", "localhost@evil.com", ""):
            assert asked(port, "POST", f"{api}/experiments/search", Host=host)[0] in (400, 403), host
        for origin in ("http://evil.com", "https://localhost.evil.com", "file://", "null"):
            assert asked(port, "POST", f"{api}/experiments/create", Origin=origin)[0] == 403, origin
        for path in ("../../../mlflow.db", "..%2f..%2fmlflow.db", "/etc/passwd", "%2fetc%2fpasswd"):
            assert asked(port, "GET", f"/get-artifact?run_uuid={run}&path={path}")[0] >= 400, path
        before = {path for path in mcpo_home.rglob("*") if "db" not in path.name}
        outside = {"name": "evil", "artifact_location": f"file:///{mcpo_home / 'outside'}"}
        assert asked(port, "POST", f"{api}/upload-artifact?run_uuid={run}&path=archive.tar.gz")[0] == 403
        assert asked(port, "POST", "/api/2.0/mlflow/experiments/create", outside)[0] == 403
        assert {path for path in mcpo_home.rglob("*") if "db" not in path.name} == before
        # Editing goes on, and the page itself is there.
        tag = {"run_id": run, "key": "mlflow.note.content", "value": "seen"}
        assert asked(port, "POST", f"{api}/runs/set-tag", tag)[0] == 200
        assert b"machine_learning" in asked(port, "GET", "/")[1]
        assert b"<html" in asked(port, "GET", "/?ui")[1].lower()
    finally:
        running.send_signal(signal.SIGINT)
    assert running.wait(60) == 0
    with pytest.raises(ConnectionError):
        asked(port, "GET", "/")
