"""Small servers on this machine that simulate the Hugging Face Hub, MLflow or a page."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest


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


def hub_at(address: str, monkeypatch: pytest.MonkeyPatch, cache: object = None) -> None:
    """The Hugging Face Hub of this process is at `address`, with the folder `cache` if given.

    huggingface_hub reads the variables of its users only when it is imported.
    """
    from huggingface_hub import constants

    template = address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    if cache:
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
