"""The server of `mcpo ui`: `python -m mcpo_cli.trackers.ui_server HOST PORT CALLER`, started by `commands/ui.py`.

It is MLflow's own server behind a gate. Requests that read may pass (of these, `label-schemas/list` writes a default
row of MLflow's), and of those that change the store only the ones in `EDITS`: names, tags and notes, deleting,
restoring. So nobody can send files, set the location of files, log into runs, or have the server call other machines.
It ends when CALLER, the process that started it, is gone.
"""

import os
import re
import sys
import threading
import time
from typing import Any

READS = frozenset(
    (
        *("experiments/search", "experiments/search-datasets", "runs/search", "logged-models/search"),
        *("registered-models/get-latest-versions", "traces/search", "traces/batchGetInfos", "traces/metrics"),
        *("traces/calculate-filter-correlation", "datasets/search", "issues/search"),
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


def allowed(method: str, path: str) -> bool:
    """True if a request may pass the gate."""
    if method in ("GET", "HEAD", "OPTIONS"):
        return path.startswith(_FILES) or not _CALLS.search(path)
    route = _ROUTE.fullmatch(path)
    # The mutations of /graphql do not change the store; they only test it.
    return method == "POST" and (path == "/graphql" or (route is not None and route[1] in READS | EDITS))


class Gate:
    """An ASGI application that puts `allowed` in front of another one."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request, with 403 if it may not pass and has no entry in `ANSWERS`."""
        if scope["type"] == "lifespan" or (scope["type"] == "http" and allowed(scope["method"], scope["path"])):
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


def _end_with(caller: int) -> None:
    while os.getppid() == caller:
        time.sleep(0.5)
    os._exit(1)


def main() -> None:
    """Serve until the process is ended."""
    host, port, caller = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    threading.Thread(target=_end_with, args=(caller,), daemon=True).start()
    import uvicorn
    from mlflow.server.fastapi_app import app

    uvicorn.run(Gate(app), host=host, port=port, log_level="warning")


if __name__ == "__main__":
    main()
