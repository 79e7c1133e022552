"""Starts verl for one attempt, follows it, explains its end, and cleans up all its processes and temporary files.

Worker process and trainer exchange small files in the attempt's folder (`Channel`), because the trainer is a Ray actor
and may run on another machine that shares the disk.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mcpo_cli import pretrained
from mcpo_cli.backends import Stop
from mcpo_cli.backends.verl import checkpoint, data
from mcpo_cli.backends.verl.overrides import Paths, command, environment, overrides, table
from mcpo_cli.backends.verl.processes import MARK, end
from mcpo_cli.config.reading import read_yaml
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import Interrupted, McpoError, RunFailed
from mcpo_cli.runs import folders
from mcpo_cli.runs.attempts import Attempt
from mcpo_cli.runs.journal import read_json, write_atomic

TICK_SECONDS = 0.25
LOG = "verl.log"
PREFIX = re.compile(r"\x1b\[[0-9;]*m|\([\w.]+ pid=[^)]*\)")
"""Colours and process name that Ray puts before a line written by another process."""
ERROR = re.compile(r"(?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt|Exit|Died|Failed)(?:\(\w+\))?: \S")
MAX_QUOTED = 3
"""Most lines quoted in an error message."""


class Channel:
    """The files of one attempt; each has one writer: worker, trainer or training process."""

    def __init__(self, attempt_dir: Path) -> None:
        self._progress = attempt_dir / "verl" / "progress.json"
        self._ending = attempt_dir / "verl" / "ending.json"
        self._stop = attempt_dir / "verl" / "stop"

    def tell(self, phase: str, durable_step: int | None) -> None:
        """Trainer: report the phase and the last step that a checkpoint of this attempt covers."""
        write_atomic(self._progress, json.dumps({"phase": phase, "durable_step": durable_step}))

    def progress(self) -> dict[str, Any]:
        """Worker: the trainer's last report."""
        return read_json(self._progress) if self._progress.exists() else {"phase": "starting", "durable_step": None}

    def ask_to_stop(self) -> None:
        """Worker: ask the trainer to write a checkpoint after this step and end."""
        self._stop.parent.mkdir(exist_ok=True)
        self._stop.touch()

    def asked_to_stop(self) -> bool:
        """Trainer: whether it was asked to end."""
        return self._stop.exists()

    def ended(self, error: McpoError) -> None:
        """Training process: record the McpoError that ends it."""
        kind = "interrupted" if isinstance(error, Interrupted) else "failed"
        write_atomic(self._ending, json.dumps({"kind": kind, "message": error.message, "fix": error.fix}))

    def ending(self) -> dict[str, Any] | None:
        """Worker: the record of `ended`, None if there is no record."""
        return read_json(self._ending) if self._ending.exists() else None


def run(spec: RunSpec, attempt: Attempt, stop: Stop) -> None:
    """Train `spec` from the checkpoint that the attempt starts after, and write its final policy: `Backend.run`."""
    # If an attempt was killed after its last checkpoint, only the final policy remains to be written.
    if attempt.status["start_step"] < spec.train.steps:
        _train(spec, attempt, stop)
    attempt.phase("writing the final policy")
    step = spec.train.steps
    with folders.atomic_folder(attempt.folder / "policy", {"step": step}) as part:
        checkpoint.export(attempt.folder.parent / "checkpoints", step, part, spec)


def _train(spec: RunSpec, attempt: Attempt, stop: Stop) -> None:
    folder = _model(spec, attempt, stop)
    start = attempt.status["start_step"]
    paths = Paths(attempt.folder.parent, attempt.folder, str(folder), evaluate_first=start == 0)
    attempt.phase("writing the problems")
    data.write(spec, data.prompt_ids(folder, spec.task), paths)
    checkpoint.choose(paths.checkpoints, start, spec.cluster.nodes * spec.cluster.gpus)
    with _ray(spec, paths) as variables:
        code = _follow(spec, paths, attempt, stop, variables)
    if code:
        fail(Channel(attempt.folder), attempt.folder / LOG, code)


def _model(spec: RunSpec, attempt: Attempt, stop: Stop) -> Path:
    """The Hugging Face folder of the initial policy."""
    if spec.model.path:
        folder = pretrained.folder(spec.model)
        if spec.task.needs_chat_template:
            pretrained.check_chat_template(spec.model.name, folder)
        return folder
    from mcpo_cli.backends.local.initial_policy import base_folder

    return base_folder(spec, attempt, stop)


def _follow(spec: RunSpec, paths: Paths, attempt: Attempt, stop: Stop, variables: dict[str, str]) -> int:
    """Run the training process to its end; returns its exit code."""
    channel, last_progress = Channel(attempt.folder), None
    with (attempt.folder / LOG).open("ab") as log:
        process = subprocess.Popen(
            command(paths, overrides(spec, table(spec, paths))),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment(spec), **variables},
            start_new_session=True,
        )
    while (code := process.poll()) is None:
        if (progress := channel.progress()) != last_progress:
            last_progress = progress
            if last_progress["durable_step"] is not None:
                attempt.durable(last_progress["durable_step"])
            attempt.phase(last_progress["phase"])
        if stop() and not channel.asked_to_stop():
            channel.ask_to_stop()
        time.sleep(TICK_SECONDS)
    if (durable_step := channel.progress()["durable_step"]) is not None:
        attempt.durable(durable_step)
    return code


@contextmanager
def _ray(spec: RunSpec, paths: Paths) -> Iterator[dict[str, str]]:
    """The extra environment variables of the training process; on exit, all its processes are ended.

    A Ray started for the run has a separate folder, and its logs are copied to the attempt. An existing cluster keeps
    its logs, and Ray itself ends the actors of a dead process. Processes left by a killed attempt are ended first,
    which is safe because the caller holds the run's lock.
    """
    name = str(paths.run)
    # Short, because a socket's path has at most 107 characters. All attempts share it.
    folder = Path(tempfile.gettempdir()) / f"mcpo-ray-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
    end(name)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        # To join a cluster, Ray must use its default folder.
        yield {MARK: name} | ({} if spec.cluster.ray_address else {"RAY_TMPDIR": str(folder)})
    finally:
        end(name)
        for number, logs in enumerate(sorted(folder.glob("ray/session_*_*/logs"))):
            shutil.copytree(logs, paths.attempt / "ray" / str(number), ignore_dangling_symlinks=True)
        shutil.rmtree(folder, ignore_errors=True)


def fail(channel: Channel, log: Path, code: int) -> None:
    """Raise Interrupted if the training process was asked to stop, otherwise RunFailed with the log's last errors."""
    ending = channel.ending()
    if ending and ending["kind"] == "interrupted":
        raise Interrupted(ending["message"])
    text = log.read_text(encoding="utf-8", errors="replace")
    message, fix = (ending["message"], ending["fix"]) if ending else (f"verl ended with exit code {code}", None)
    lines, failure = [message], known_failure(f"{text}\n{message}")
    if failure and not fix:
        lines, fix = [failure[0], message], failure[1]
    lines += [line for line in last_errors(text) if line not in message]
    raise RunFailed("\n".join([*lines, f"full log: {log}"]), fix=fix)


def known_failure(text: str) -> tuple[str, str] | None:
    """Name and fix of the first failure of `failures.yaml` whose pattern occurs in `text`."""
    failures = read_yaml(Path(__file__).with_name("failures.yaml"))["failures"]
    return next(((entry["name"], entry["fix"]) for entry in failures if re.search(entry["pattern"], text)), None)


def last_errors(text: str) -> list[str]:
    """The last few distinct error lines of a log, without Ray's prefixes."""
    errors: dict[str, None] = {}
    for raw_line in reversed(text.splitlines()):
        line = PREFIX.sub("", raw_line).strip()
        if ERROR.match(line) and "RayTaskError" not in line:
            errors.setdefault(line[:300])
        if len(errors) == MAX_QUOTED:
            break
    return list(reversed(errors))
