"""Small servers on this machine that simulate the Hugging Face Hub, MLflow or a page."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


class Answers(BaseHTTPRequestHandler):
    """A handler that does not log; a subclass has `do_GET` and `do_POST`."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.answer(404)

    def answer(self, status: int, content: Any = b"", **headers: str) -> None:
        """Send an answer. content: bytes, or a document that becomes JSON. Headers are named with underscores."""
        content = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {**headers, "Content_Length": str(len(content))}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(answers: type[Answers]) -> Iterator[str]:
    """The address of a server that runs during the block."""
    with ThreadingHTTPServer(("127.0.0.1", 0), answers) as server:
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
