"""Which requests `mcpo ui` takes: every route of MLflow's server is allowed on purpose or refused."""

import re
import signal
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest

from mcpo_cli.store import ui_server
from tests.faults.test_listening import ui
from tests.store_runs import free_port
from tests.unit.test_store_servers import answer

READING = {"GET", "HEAD", "OPTIONS"}


def routes() -> set[tuple[str, str]]:
    """Method and path of every route of the server, parameters filled in."""
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
        *("/v1/traces", "/graphql", "/ajax-api/2.0/mlflow/upload-artifact", "/ajax-api/3.0/mlflow/mcp-servers/x/tags"),
    }
    listed = ui_server.READS | ui_server.EDITS
    assert {method for method, _ in passed} == {"POST"}
    short = {re.sub(r"^/(ajax-)?api/\d\.0/mlflow/", "", path) for _, path in passed}
    assert short - {"/graphql"} == listed  # each is a route that MLflow has
    for word in ("artifact", "create", "log-", "secret", "webhook", "gateway", "scorer", "model-versions/"):
        assert not [path for _, path in passed if word in path]


@pytest.mark.parametrize(
    ("method", "path"),
    [
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
    ],
)
def test_requests_that_are_refused(method: str, path: str) -> None:
    assert not ui_server.allowed(method, path)


def status(url: str, data: bytes) -> int:
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.slow
def test_a_served_page_takes_no_files_and_ends_with_its_command(mcpo_home: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with ui(mcpo_home, "--port", str(port)) as running:
        found = answer(f"{url}/api/2.0/mlflow/experiments/search", {"max_results": 9})
        experiments = [one["experiment_id"] for one in found["experiments"]]
        runs = answer(f"{url}/api/2.0/mlflow/runs/search", {"experiment_ids": experiments})["runs"]
        run = runs[0]["info"]["run_id"]
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
