"""Starts verl for one attempt, follows it, and cleans up all its processes and temporary files."""

import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mcpo_cli import pretrained
from mcpo_cli.backends.base import Stop
from mcpo_cli.backends.verl import checkpoint, data, diagnosis, export, processes
from mcpo_cli.backends.verl.channel import Channel
from mcpo_cli.backends.verl.overrides import Paths, command, environment
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import Interrupted, RunFailed
from mcpo_cli.runs import folders
from mcpo_cli.runs.attempts import Attempt

TICK_SECONDS = 0.25
LOG = "verl.log"


def run(spec: RunSpec, attempt: Attempt, stop: Stop) -> None:
    """Train `spec` from the checkpoint that the attempt starts after, and write the final policy.

    Raises:
        Interrupted: `stop` returned true; a checkpoint was written if a step was done. RunFailed: verl failed.
    """
    # If an attempt was killed after its last checkpoint, only the final policy remains to be written.
    if attempt.status["start_step"] < spec.train.steps:
        _train(spec, attempt, stop)
    attempt.phase("writing the final policy")
    step = spec.train.steps
    with folders.whole(attempt.folder / "policy", {"step": step}) as part:
        export.policy(attempt.folder.parent / "checkpoints", step, part, spec)


def _train(spec: RunSpec, attempt: Attempt, stop: Stop) -> None:
    folder = _model(spec, attempt, stop)
    start = attempt.status["start_step"]
    paths = Paths(attempt.folder.parent, attempt.folder, str(folder), evaluate_first=start == 0)
    attempt.phase("writing the problems")
    data.write(spec, data.fits(spec, folder), paths)
    checkpoint.choose(paths.checkpoints, start)
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
    from mcpo_cli.backends.local.warmup import base_folder

    return base_folder(spec, attempt, stop)


def _follow(spec: RunSpec, paths: Paths, attempt: Attempt, stop: Stop, variables: dict[str, str]) -> int:
    """Run the training process to its end; returns its exit code."""
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
def _ray(spec: RunSpec, paths: Paths) -> Iterator[dict[str, str]]:
    """The extra environment variables of the training process; on exit, all its processes are ended.

    A Ray started for the run has a separate folder, and its logs are copied to the attempt. An existing cluster keeps
    its logs, and Ray itself ends the actors of a dead process. Processes left by a killed attempt are ended first,
    which is safe because the caller holds the run's lock.
    """
    name = str(paths.run)
    # Short, because a socket's path has at most 107 characters. All attempts share it.
    folder = Path(tempfile.gettempdir()) / f"mcpo-ray-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
    processes.end(name)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        # To join a cluster, Ray must use its default folder.
        yield {processes.MARK: name} | ({} if spec.cluster.ray_address else {"RAY_TMPDIR": str(folder)})
    finally:
        processes.end(name)
        for number, logs in enumerate(sorted(folder.glob("ray/session_*_*/logs"))):
            shutil.copytree(logs, paths.attempt / "ray" / str(number), ignore_dangling_symlinks=True)
        shutil.rmtree(folder, ignore_errors=True)


def fail(channel: Channel, log: Path, code: int) -> None:
    """Turn the end of the training process, with exit code `code`, into a McpoError.

    Raises:
        Interrupted: it was asked to stop. RunFailed: otherwise; quotes the log's last errors.
    """
    ending = channel.ending()
    if ending and ending["kind"] == "interrupted":
        raise Interrupted(ending["message"])
    text = log.read_text(encoding="utf-8", errors="replace")
    message, fix = (ending["message"], ending["fix"]) if ending else (f"verl ended with exit code {code}", None)
    lines, known = [message], diagnosis.cause(f"{text}\n{message}")
    if known and not fix:
        lines, fix = [known.name, message], known.fix
    lines += [line for line in diagnosis.last_errors(text) if line not in message]
    raise RunFailed("\n".join([*lines, f"full log: {log}"]), fix=fix)
