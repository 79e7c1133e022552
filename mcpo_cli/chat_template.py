"""Renders chat templates: programs in the files of a model, run in a process of their own with limits.

`python -m mcpo_cli.chat_template` is that process. It reads a template and its variables as a line of JSON and answers
with a line: the text, or what the template raised. The environment equals the one of transformers'
`apply_chat_template` with two differences: the clock stands still at `DATE`, and nothing is random. So a prompt depends
on files and settings only. A test compares the texts of both.
"""

import atexit
import json
import os
import re
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import mcpo_cli
from mcpo_cli.errors import bad_model, first_line

MIB = 2**20
DATE = datetime(2024, 7, 26, tzinfo=UTC)
"""The date that `strftime_now` shows: Llama 3's template has it where there is no clock."""
SECONDS, START_SECONDS = 10.0, 120.0
"""Time limits for a prompt, and for the process to start even on a busy machine."""
MEMORY = 512 * MIB
"""Address space of the process."""
LONGEST = 4 * MIB
"""Most bytes of a rendered prompt."""
ADDRESS = re.compile(r"<([^<>\n]{1,80}) at 0x[0-9a-f]{6,16}>")
"""The text by which Python shows an object without a text of its own."""

INHERITED = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "VIRTUAL_ENV")
"""Variables of the caller's environment that the process gets; others could change a prompt, or are secret."""

RESERVED = ("messages", "add_generation_prompt", "tools", "documents")
"""Variables that every prompt has."""


class TemplateError(Exception):
    """A template has raised an error, or exceeded a limit; the message is the template's own."""


class Renderer:
    """A process that renders; it starts on first use, and again after a limit ended it. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        atexit.register(self._end)

    def render(self, template: str, context: Mapping[str, Any]) -> str:
        """The text of `template` with the variables `context`.

        Raises:
            TemplateError: the template raised an error, or needs more time or memory than the limits.
        """
        with self._lock:
            request = json.dumps({"template": template, "context": context}).encode() + b"\n"
            reply = self._ask(request)
        answer: dict[str, str] = json.loads(reply)
        if "error" in answer:
            raise TemplateError(answer["error"])
        return answer["text"]

    def _ask(self, request: bytes) -> bytes:
        # A forked process has its parent's pipes, and would read its parent's answers.
        if self._process is None or self._owner != os.getpid() or self._process.poll() is not None:
            self._start()
            self._exchange(b"{}\n", START_SECONDS)
        return self._exchange(request, SECONDS)

    def _exchange(self, request: bytes, seconds: float) -> bytes:
        """The line that the process answers to `request`; a process that does not answer is ended."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(request)
            process.stdin.flush()
            if not select.select([process.stdout], [], [], seconds)[0]:
                raise TemplateError(f"it needs more than {seconds:g} s")
            if reply := process.stdout.readline():
                return reply
        except BrokenPipeError:
            pass
        except BaseException:
            self._end()
            raise
        self._end()
        raise TemplateError(f"it needs more than {MEMORY // MIB} MiB of memory")

    def _start(self) -> None:
        path = [str(Path(mcpo_cli.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
        variables = {name: os.environ[name] for name in INHERITED if name in os.environ}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**variables, "PYTHONPATH": os.pathsep.join(path), "PYTHONHASHSEED": "0", "TZ": "UTC"},
            start_new_session=True,
        )
        self._owner = os.getpid()

    def _end(self) -> None:
        if self._process is not None and self._owner == os.getpid():
            self._process.kill()
            self._process.communicate()
        self._process = None


_RENDERER = Renderer()


@lru_cache(maxsize=4096)
def _rendered(template: str, context: str) -> str:
    return _RENDERER.render(template, json.loads(context))


def rendered(name: str, template: str, context: Mapping[str, Any]) -> str:
    """The text of a model's `template`; `name` is the model's, for messages.

    Raises:
        ConfigError: see `Renderer.render`, or a turn of `context["messages"]` is not in the text.
    """
    fix = "task.system='' if it has no place for a system turn, or task.style=plain (mcpo evaluate: chat=off)"
    try:
        text = _rendered(template, json.dumps(context))
    except TemplateError as error:
        raise bad_model(f"{name}: its chat template cannot write this prompt: {first_line(error)}", fix=fix) from None
    for turn in context["messages"]:
        # Templates leave out the thoughts of earlier turns, and white space around a turn.
        if turn["content"].rpartition("</think>")[2].strip() not in text:
            raise bad_model(
                f"{name}: its chat template leaves out the {turn['role']} turn '{turn['content'].strip()[:40]}'",
                fix=fix,
            )
    return text


def _environment() -> Any:
    """The environment of templates: a sandbox without a clock, random numbers and addresses of memory."""
    import jinja2
    import jinja2.ext
    import jinja2.sandbox

    class Generation(jinja2.ext.Extension):
        """`{% generation %}` marks what the assistant writes, for training on given texts; here it marks nothing."""

        tags = {"generation"}  # noqa: RUF012 (as Jinja declares it)

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return jinja2.nodes.Scope(body).set_lineno(line)

    def fail(message: str) -> None:
        raise jinja2.TemplateError(message)

    def tojson(
        value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
    ) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    del environment.filters["random"], environment.globals["lipsum"]
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = fail
    environment.globals["strftime_now"] = DATE.strftime
    return environment


def _answer(compiled: Callable[[str], Any], request: Mapping[str, Any]) -> dict[str, str]:
    """The text or the error; an empty request asks whether the process has started."""
    if not request:
        return {}
    try:
        text = compiled(request["template"]).render(**request["context"])
        text.encode()
        message_texts = [turn["content"] for turn in request["context"].get("messages", ())]
        for address in ADDRESS.finditer(text):
            if not any(address[0] in turn for turn in message_texts):
                return {"error": f"it shows a {address[1]}, whose text changes between processes"}
    except MemoryError:
        return {"error": f"it needs more than {MEMORY // MIB} MiB of memory"}
    except Exception as error:  # whatever a template raises
        return {"error": first_line(error)}
    return {"text": text} if len(text) <= LONGEST else {"error": f"it writes more than {LONGEST // MIB} MiB"}


def main() -> None:
    """Answer requests until the caller has ended."""
    import resource

    compiled = lru_cache(maxsize=16)(_environment().from_string)
    with suppress(ValueError, OSError):  # a system without such limits, or with a lower one
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for line in sys.stdin.buffer:
        sys.stdout.write(json.dumps(_answer(compiled, json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
