"""The server of `mcpo ui`: MLflow's own behind a gate.

MLflow itself would answer to any name that begins like a private address (`10.evil.example`), by which a web page can
reach it through the reader's browser (DNS rebinding), and would store files that anybody sends. Here it answers only to
the names of this machine. Requests that read may pass (one of them, `label-schemas/list`, writes a default row of
MLflow's). Of the requests that change the store, only `EDITS` may pass: names, tags and notes, deleting, restoring. So
nobody can send files, set the location of files, log into runs, or have the server call other machines.
"""

import ipaddress
import os
import re
import socket
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import psutil
import uvicorn

READS = frozenset(
    (
        *("experiments/search", "experiments/search-datasets", "runs/search", "logged-models/search"),
        *("registered-models/get-latest-versions", "traces/search", "traces/batchGetInfos", "traces/metrics"),
        *("traces/calculate-filter-correlation", "datasets/search", "issues/search"),
        "artifacts/presigned-download-url",  # what pages of 3.18 ask before they show a file
    )
)
"""Routes that only read, although by POST."""
EDITS = frozenset(
    (
        *("experiments/update", "experiments/delete", "experiments/restore"),
        *("experiments/set-experiment-tag", "experiments/delete-experiment-tag"),
        *("runs/update", "runs/delete", "runs/restore", "runs/set-tag", "runs/delete-tag"),
    )
)
"""Allowed routes that change the store, by POST."""
_ROUTE = re.compile(r"/(?:ajax-)?api/[23]\.0/mlflow/([a-zA-Z/-]+)")
_CALLS = re.compile(r"gateway|assistant", re.IGNORECASE)
"""Paths of routes that call other machines or programs, even by GET."""
_FILES = "/static-files/"
"""Path of the pages' own files, which may have any name."""
ANSWERS = {"/ajax-api/2.0/mlflow/gateway-proxy": b'{"endpoints": []}'}
"""The gate's own answers to a GET, such as that there is no gateway. Pages would show a refusal as an error."""
UI = "/?ui"
"""The address of MLflow's own start page behind the gate's."""
START = """<!DOCTYPE html><meta charset="utf-8"><title>mcpo</title><script>
for (const [key, value] of Object.entries({
  "mlflow.workflowType_v1": '"machine_learning"',
  "mlflow.assistant.fab.autoOpenedOnFirstLoad_v1": "true",
})) localStorage.getItem(key) ?? localStorage.setItem(key, value);
location.replace("%s" + (location.hash || "%s"));
</script>"""
"""The page at `/`, which goes on to the wanted page of MLflow, or to a first one.

MLflow shows its view for model training, with its assistant closed, until the reader chooses otherwise.
"""
LOOPBACK = ("127.0.0.1", "localhost")


def allowed(method: str, path: str) -> bool:
    """True if a request may pass the gate."""
    if method in ("GET", "HEAD", "OPTIONS"):
        return path.startswith(_FILES) or not _CALLS.search(path)
    route = _ROUTE.fullmatch(path)
    # The mutations of /graphql do not change the store; they only test it.
    return method == "POST" and (path == "/graphql" or (route is not None and route[1] in READS | EDITS))


class UiGate:
    """An ASGI application that puts `allowed` in front of another one. first: the page that it opens with."""

    def __init__(self, app: Any, first: str) -> None:
        self.app, self._start = app, (START % (UI, first)).encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request, with 403 if it may not pass and has no entry in `ANSWERS`."""
        request = scope.get("method"), scope.get("path"), scope.get("query_string", b"")
        if scope["type"] == "http" and request == ("GET", "/", b""):
            await _send(send, 200, b"text/html", self._start)
        elif scope["type"] == "lifespan" or (scope["type"] == "http" and allowed(scope["method"], scope["path"])):
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif scope["method"] == "GET" and (answer := ANSWERS.get(scope["path"])):
            await _send(send, 200, b"application/json", answer)
        else:
            await _send(send, 403, b"text/plain", b"mcpo ui does not take this request\n")


async def _send(send: Any, status: int, kind: bytes, body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})
    await send({"type": "http.response.body", "body": body})


class Server(uvicorn.Server):
    """MLflow's server over the store `uri`, in this process.

    Args:
        host: the address that it listens at, whose names it answers to.
        first: the page that it opens with.
        talks: whether it prints its log.
    """

    def __init__(self, uri: str, host: str, first: str, *, talks: bool) -> None:
        os.environ |= {
            "_MLFLOW_SERVER_FILE_STORE": uri,
            "_MLFLOW_SERVER_REGISTRY_STORE": uri,
            "MLFLOW_SERVER_ALLOWED_HOSTS": ",".join(_answers_to(host)),
            "MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE": "false",
            "_MLFLOW_SERVER_SERVE_ARTIFACTS": "false",
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        }
        # It reads these variables when it is imported.
        with warnings.catch_warnings(action="ignore"):
            from mlflow.server.fastapi_app import app

        super().__init__(uvicorn.Config(UiGate(app, first), log_level="info" if talks else "critical"))


def _answers_to(host: str) -> Sequence[str]:
    """MLflow's patterns of the host names that it answers to; with any port, because a tunnel may use another."""
    names, everywhere = {*LOOPBACK, host}, False
    with suppress(ValueError):  # the name of a machine
        everywhere = ipaddress.ip_address(host).is_unspecified
    if everywhere:
        addresses = [address for listed in psutil.net_if_addrs().values() for address in listed]
        names |= {address.address for address in addresses if address.family == socket.AF_INET}
        names |= {socket.gethostname(), socket.getfqdn()}
    return [pattern for name in sorted(names) for pattern in (name, f"{name}:*")]
