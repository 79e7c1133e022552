"""Starts verl for one attempt, follows it, and leaves nothing of it behind."""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mcpo_cli.backends.base import Stop
from mcpo_cli.backends.verl import checkpoint, data, export, processes
from mcpo_cli.backends.verl.channel import Channel
from mcpo_cli.backends.verl.overrides import Paths, command, environment
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import Interrupted, RunFailed
from mcpo_cli.runs.attempts import Attempt

TICK_SECONDS = 0.25
LOG = "verl.log"
PREFIX = re.compile(r"\x1b\[[0-9;]*m|\([\w.]+ pid=[^)]*\)")
"""What Ray puts before a line that another process wrote: colours, and its name."""
ERROR = re.compile(r"(?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt|Exit|Died|Failed)(?:\(\w+\))?: \S")
SAID = 3
"""Lines of an error message."""


def run(spec: RunSpec, attempt: Attempt, stop: Stop) -> None:
    """Train `spec` from its newest checkpoint to the end, and write the final policy.

    Raises:
        Interrupted: `stop` said so; a checkpoint was written if there was a step. RunFailed: verl ended in an error.
    """
    folder = _model(spec, attempt, stop)
    start = attempt.status["start_step"]
    paths = Paths(attempt.folder.parent, attempt.folder, str(folder), evaluate_first=start == 0)
    attempt.phase("writing the problems")
    data.write(data.Problems(spec, data.fits(spec, folder)), paths)
    checkpoint.choose(paths.checkpoints)
    # An attempt that was killed after its last checkpoint left the final policy to write.
    if start < spec.train.steps:
        with _ray(paths) as variables:
            code = _follow(spec, paths, attempt, stop, variables)
        if code:
            _raise(Channel(attempt.folder), attempt.folder / LOG, code)
    attempt.phase("writing the final policy")
    export.policy(paths.checkpoints, spec.train.steps, attempt.folder / "policy", spec)


def _model(spec: RunSpec, attempt: Attempt, stop: Stop) -> Path:
    """The Hugging Face folder of the policy that training begins with."""
    if spec.model.path:
        from mcpo_cli.evaluation.model import resolve

        return resolve(spec.model.path, spec.model.revision or None).folder
    from mcpo_cli.backends.local.warmup import base_folder

    return base_folder(spec, attempt, stop)


def _follow(spec: RunSpec, paths: Paths, attempt: Attempt, stop: Stop, variables: dict[str, str]) -> int:
    """Run the process that trains to its end; returns its exit code."""
    channel, told = Channel(attempt.folder), None
    with (attempt.folder / LOG).open("ab") as log:
        process = subprocess.Popen(
            command(spec, paths),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment(spec), **variables},
            start_new_session=True,
        )
    while (code := process.poll()) is None:
        if (progress := channel.progress()) != told:
            told = progress
            if told["durable_step"] is not None:
                attempt.durable(told["durable_step"])
            attempt.phase(told["phase"])
        if stop() and not channel.asked_to_stop():
            channel.ask_to_stop()
        time.sleep(TICK_SECONDS)
    if (durable := channel.progress()["durable_step"]) is not None:
        attempt.durable(durable)
    return code


@contextmanager
def _ray(paths: Paths) -> Iterator[dict[str, str]]:
    """The environment of a Ray of the run's own: afterwards its processes are gone and its logs with the attempt.

    What a killed attempt left behind is ended first: whoever holds the run's lock may.
    """
    name = str(paths.run)
    # Short, because a socket's path has at most 107 characters; the same for every attempt.
    folder = Path(tempfile.gettempdir()) / f"mcpo-ray-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
    processes.end(name)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        yield {processes.MARK: name, "RAY_TMPDIR": str(folder)}
    finally:
        processes.end(name)
        for number, logs in enumerate(sorted(folder.glob("ray/session_*_*/logs"))):
            shutil.copytree(logs, paths.attempt / "ray" / str(number), ignore_dangling_symlinks=True)
        shutil.rmtree(folder, ignore_errors=True)


def _raise(channel: Channel, log: Path, code: int) -> None:
    """Turn the end of the process that trains into an error of ours."""
    ending = channel.ending()
    if ending and ending["kind"] == "interrupted":
        raise Interrupted(ending["message"])
    said = last_errors(log.read_text(encoding="utf-8", errors="replace"))
    lines = [ending["message"]] if ending else [f"verl ended with exit code {code}"]
    lines += [line for line in said if line not in lines[0]]
    raise RunFailed("\n".join([*lines, f"all of it: {log}"]), fix=ending["fix"] if ending else None)


def last_errors(text: str) -> list[str]:
    """The last few lines of a log that name an error, each once, without what Ray puts around them."""
    found: dict[str, None] = {}
    for raw in reversed(text.splitlines()):
        line = PREFIX.sub("", raw).strip()
        if ERROR.match(line) and "RayTaskError" not in line:
            found.setdefault(line[:300])
        if len(found) == SAID:
            break
    return list(reversed(found))
