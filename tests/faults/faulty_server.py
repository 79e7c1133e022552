"""A real MLflow server on loopback, and a proxy in front of it that misbehaves on demand."""

import http.client
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal

from tests.store_runs import free_port

PATIENCE = 1
"""Seconds that clients wait for an answer (MLFLOW_HTTP_REQUEST_TIMEOUT)."""
Deed = Literal["pass", "late", "drop", "lose"]
FAULTS: dict[str, Callable[[int, int], Deed]] = {
    "is slow": lambda number, _: "late" if number % 6 == 0 else "pass",
    "drops every third connection": lambda number, _: "drop" if number % 3 == 0 else "pass",
    "loses every second answer": lambda _, number_of_path: "lose" if number_of_path % 2 else "pass",
}
"""The fate of a request, by its number and its number among those of its path. late: done, and answered after the
client has given up; drop: not done, no answer; lose: done, no answer."""
DOWN = "is down"


class Proxy:
    """Hands requests on to the server at port `upstream`."""

    def __init__(self, upstream: int) -> None:
        self.upstream, self.port = upstream, free_port()
        self._fault: Callable[[int, int], Deed] = lambda *_: "pass"
        self._requests = Counter[str]()
        self._lock = threading.Lock()
        self._listener: ThreadingHTTPServer | None = None
        self.heal()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def begin(self, fault: str) -> None:
        """Misbehave by `fault` from now on."""
        if fault == DOWN:
            self.close()
        else:
            self._fault = FAULTS[fault]

    def heal(self) -> None:
        """Behave from now on."""
        self._fault = lambda *_: "pass"
        if self._listener is None:
            self._listener = ThreadingHTTPServer(("127.0.0.1", self.port), _handler(self))
            threading.Thread(target=self._listener.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        """Refuse connections."""
        if self._listener:
            self._listener.shutdown()
            self._listener.server_close()
            self._listener = None

    def deed(self, path: str) -> Deed:
        """The fate of the next request."""
        with self._lock:
            self._requests[path] += 1
            return self._fault(self._requests.total(), self._requests[path])


def _handler(proxy: Proxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def handle_one_request(self) -> None:
            self.raw_requestline = self.rfile.readline(1 << 16)
            self.close_connection = True
            if not self.raw_requestline or not self.parse_request():
                return
            deed = proxy.deed(self.path.partition("?")[0])
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if deed != "drop":
                status, kind, content = self._ask(body)
                if deed == "late":
                    time.sleep(1.5 * PATIENCE)
                if deed != "lose":
                    self._answer(status, kind, content)

        def _ask(self, body: bytes) -> tuple[int, str, bytes]:
            upstream = http.client.HTTPConnection("127.0.0.1", proxy.upstream, timeout=600)
            headers = {key: value for key, value in self.headers.items() if key not in ("Connection", "Content-Length")}
            headers["Host"] = f"127.0.0.1:{proxy.upstream}"
            upstream.request(self.command, self.path, body or None, headers)
            response = upstream.getresponse()
            found = response.status, response.getheader("Content-Type", ""), response.read()
            upstream.close()
            return found

        def _answer(self, status: int, kind: str, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            # The client may have gone.
            try:
                self.wfile.write(content)
            except OSError:
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            """Do not log: requests are counted."""

    return Handler


@contextmanager
def mlflow_server(folder: Path, database: str = "") -> Iterator[int]:
    """A server with its artifacts in `folder`: the port that it listens at. database: its address, or `server.db`."""
    port = free_port()
    env = os.environ | {
        "MLFLOW_BACKEND_STORE_URI": database or f"sqlite:///{folder}/server.db",
        "MLFLOW_ARTIFACTS_DESTINATION": str(folder / "artifacts"),
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    with (folder / "server.log").open("wb") as log:
        running = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        _wait(running, f"http://127.0.0.1:{port}/health")
        yield port
    finally:
        os.killpg(running.pid, signal.SIGTERM)
        running.wait(300)


def _wait(running: "subprocess.Popen[bytes]", url: str) -> None:
    while True:
        assert running.poll() is None, "the server ended"
        try:
            with urllib.request.urlopen(url, timeout=10):
                return
        except OSError:
            time.sleep(0.2)
