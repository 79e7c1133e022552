"""The journal: append-only JSON lines. It is the source of truth; everything else is derived.

Rows are flushed one by one, so that they survive a kill, and synced to the disk before each checkpoint, so that after
a power cut no checkpoint is ahead of its rows.

Each attempt writes its own files. Readers merge the attempts of a run: rows that a later attempt recomputed, because
no checkpoint covered them, count once.

Readers raise an error if a checksum does not match: a JSON document may hold its own, and `sums.json` holds the
checksums of an ended attempt's row files. Rows without a checksum yet are only parsed.
"""

import hashlib
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, cast

import orjson

from mcpo_cli.errors import RunFailed
from mcpo_cli.home import gone_meanwhile, writing
from mcpo_cli.records import KEYS, EvalRow, GradientRow, GroupRow, MiniBatchRow, RerollRow, Status, StepRow
from mcpo_cli.redaction import without_secrets

Kind = Literal["groups", "eval", "rerolls", "mini_batches", "gradients", "samples", "branches"]
NOT_FINITE = re.compile(rb'"(?:nan|-?inf)"')
"""A non-finite float as `finite` writes it."""
TAIL_BYTES = 1 << 16
"""Bytes read to find the last row; longer than two rows of metrics."""
STEPS = "metrics.jsonl"
"""The file of an attempt whose rows are global steps."""
SUMS = "sums.json"
CHECKSUM = "checksum"
"""The key of a JSON document's own checksum."""


class JournalWriter:
    """Writes the rows of one attempt."""

    def __init__(self, attempt_dir: Path) -> None:
        self.folder = attempt_dir
        self._metrics = (attempt_dir / STEPS).open("a", encoding="utf-8")

    def step(self, row: StepRow) -> None:
        """Append one global step; flushed when this returns.

        Raises:
            RunFailed: the file cannot be written, or was removed since the attempt began.
        """
        with writing(Path(self._metrics.name)):
            self._metrics.write(dumps(row) + "\n")
            self._metrics.flush()
            is_gone = os.fstat(self._metrics.fileno()).st_nlink == 0
        if is_gone:
            raise gone_meanwhile(Path(self._metrics.name))

    def rows(self, kind: Kind, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write all rows of `kind` for one step as one file, atomically."""
        write_atomic(self.folder / kind / f"step_{step:06d}.jsonl", "".join(dumps(row) + "\n" for row in rows))

    def sync(self) -> None:
        """Sync all rows and the folders that list them to the disk: a power cut then loses none of them."""
        with writing(Path(self._metrics.name)):
            os.fsync(self._metrics.fileno())
            for folder in (*(path for path in self.folder.iterdir() if path.is_dir()), self.folder):
                sync(folder)

    def close(self) -> None:
        """Sync to disk and close; a second call does nothing."""
        if self._metrics.closed:
            return
        with self._metrics:
            self.sync()


class Journal:
    """Reads all attempts of one run, merged. An empty or absent folder is an empty journal.

    Raises:
        RunFailed: a file is damaged; the message names it. Every reading method raises it.
    """

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self._seals: dict[Path, dict[str, str]] = {}

    def attempts(self) -> list[Path]:
        """The attempts' folders, oldest first. A folder without settings, left by a removal in mid-run, is none."""
        needed = ("status.json", "spec.json")
        return [path for path in numbered(self.run_dir) if all((path / name).exists() for name in needed)]

    def steps(self) -> list[StepRow]:
        """One row per global step, in order."""
        files = ((attempt / STEPS, last) for attempt, last in self.spans())
        rows = (row for path, last in files for row in self.read(path) if row["step"] <= last)
        return sorted(cast("Iterable[StepRow]", rows), key=lambda row: row["step"])

    def groups(self) -> list[GroupRow]:
        """The prompt groups of all steps."""
        return cast("list[GroupRow]", self.rows("groups"))

    def eval(self) -> list[EvalRow]:
        """The held-out problems of all evaluations."""
        return cast("list[EvalRow]", self.rows("eval"))

    def rerolls(self) -> list[RerollRow]:
        """The prompts that probes resampled, of all steps."""
        return cast("list[RerollRow]", self.rows("rerolls"))

    def mini_batches(self) -> list[MiniBatchRow]:
        """The gradient steps (mini-batches) of all global steps."""
        return cast("list[MiniBatchRow]", self.rows("mini_batches"))

    def gradients(self) -> list[GradientRow]:
        """The prompts whose gradients were measured, of all steps."""
        return cast("list[GradientRow]", self.rows("gradients"))

    def final_step(self) -> float:
        """The last step whose records no later attempt can replace: inf if the last attempt is done, -1 without any."""
        attempts = self.attempts()
        if not attempts:
            return -1
        status: Status = read_json(attempts[-1] / "status.json")
        return math.inf if status["state"] == "done" else status["durable_step"]

    def files(self, kind: Kind) -> dict[int, Path]:
        """Global step -> its file of `kind`, in order."""
        files: dict[int, Path] = {}
        for attempt, last in self.spans():
            # A sealed attempt lists its files, so that reading notices one that was removed since.
            sealed = [attempt / name for name in self._sums(attempt) if name.startswith(f"{kind}/")]
            for path in sealed or (attempt / kind).glob("step_*.jsonl"):
                step = int(path.stem.removeprefix("step_"))
                if step <= last:
                    files[step] = path
        return dict(sorted(files.items()))

    def digest(self) -> str:
        """A hash of all rows and their provenance: equal digests give equal results to every reader."""
        total = hashlib.sha256()
        for attempt, last in self.spans():
            sums = self._sums(attempt) or _checksums(attempt)
            provenance = attempt / "provenance.json"
            digest = checksum(provenance) if provenance.exists() else ""
            total.update(json.dumps([attempt.name, str(last), digest, sums], sort_keys=True).encode())
        return total.hexdigest()

    def spans(self) -> Iterator[tuple[Path, float]]:
        """Each attempt with its last valid step: the earliest start of a later attempt, or inf."""
        attempts = self.attempts()
        starts = [read_json(attempt / "status.json")["start_step"] for attempt in attempts]
        for i, attempt in enumerate(attempts):
            yield attempt, min(starts[i + 1 :], default=math.inf)

    def rows(self, kind: Kind) -> list[dict[str, Any]]:
        """The rows of `kind` of all steps, as plain data."""
        return [row for path in self.files(kind).values() for row in self.read(path)]

    def read(self, path: Path) -> list[dict[str, Any]]:
        """The rows of one file of an attempt; empty if the file is absent."""
        return _rows(path, self.check(path))

    def check(self, path: Path) -> bytes:
        """The content of a row file, checked against the checksum taken when its attempt ended.

        Raises:
            RunFailed: the checksum does not match, or the file is gone.
        """
        attempt = self.run_dir / path.relative_to(self.run_dir).parts[0]
        digest = self._sums(attempt).get(path.relative_to(attempt).as_posix())
        if not path.exists():
            if digest is not None:
                raise damaged(path, "gone")
            return b""
        content = path.read_bytes()
        if digest not in (None, hashlib.sha256(content).hexdigest()):
            raise damaged(path, "damaged: its checksum does not match")
        return content

    def check_all(self) -> None:
        """`check` every row file."""
        for attempt in self.attempts():
            for name in self._sums(attempt):
                self.check(attempt / name)

    def _sums(self, attempt: Path) -> dict[str, str]:
        """File name -> checksum; empty until the attempt is sealed, at its end or when the next attempt begins."""
        if attempt not in self._seals and (attempt / SUMS).exists():
            self._seals[attempt] = read_json(attempt / SUMS)
        return self._seals.get(attempt, {})


class NewSteps:
    """Yields each step of a run once, in order, and remembers its place in the files between calls."""

    def __init__(self, journal: Journal, after: int) -> None:
        self._journal = journal
        self.last = after
        self._offsets: dict[Path, int] = {}

    def read(self, final: float) -> Iterator[StepRow]:
        """The steps up to `final` since the last call; `Journal.final_step` is the last that none can replace.

        Only the first row after it is read again.
        """
        for attempt, last in self._journal.spans():
            path = attempt / STEPS
            if path not in self._offsets:
                self._journal.check(path)
            for row, end in lines_from(path, self._offsets.get(path, 0)):
                if row["step"] > min(last, final):
                    break
                self._offsets[path] = end
                if row["step"] > self.last:
                    self.last = row["step"]
                    yield cast("StepRow", row)


def dumps(data: Any) -> str:
    """JSON on one line, see `finite`."""
    return json.dumps(finite(data), ensure_ascii=False, allow_nan=False)


def finite(data: Any) -> Any:
    """`data` with non-finite floats as the strings "nan", "inf" and "-inf", which float() reads back."""
    if isinstance(data, float) and not math.isfinite(data):
        return str(data)
    if isinstance(data, Mapping):
        return {key: finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [finite(value) for value in data]
    return data


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSON lines file, without a last line cut short by a crash."""
    return _rows(path, path.read_bytes()) if path.exists() else []


def numbered(run_dir: Path) -> list[Path]:
    """The folders of all attempts by number, with and without a status."""
    numbers = {path: path.name.removeprefix("attempt_") for path in run_dir.glob("attempt_*")}
    return sorted((path for path in numbers if numbers[path].isdecimal()), key=lambda path: int(numbers[path]))


def _rows(path: Path, content: bytes) -> list[dict[str, Any]]:
    *lines, _ = content.split(b"\n")
    is_step = path.name == STEPS
    return [_row(path, line, is_step=is_step) for line in lines]


def lines_from(path: Path, offset: int) -> Iterator[tuple[dict[str, Any], int]]:
    """The complete rows of a JSON lines file after byte `offset`, each with the offset of its end."""
    if not path.exists():
        return
    with path.open("rb") as file:
        file.seek(offset)
        for line in file:
            if line.endswith(b"\n"):
                offset += len(line)
                yield _row(path, line, is_step=path.name == STEPS), offset


def last_row(path: Path) -> dict[str, Any] | None:
    """The last complete row of a JSON lines file, read from its end; None without one."""
    if not path.exists():
        return None
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        *lines, _ = file.read().split(b"\n")
    return _row(path, lines[-1], is_step=path.name == STEPS) if lines else None


def _row(path: Path, line: bytes, *, is_step: bool) -> dict[str, Any]:
    try:
        row: dict[str, Any] = orjson.loads(line)
    except ValueError as error:
        raise damaged(path, f"damaged: one of its lines is not JSON ({line[:60]!r})") from error
    if not isinstance(row, dict):
        raise damaged(path, f"damaged: one of its lines is no JSON object ({line[:60]!r})")
    if is_step and not (type(row.get("step")) is int and isinstance(row.get("metrics"), dict)):
        raise damaged(path, f"damaged: one of its rows lacks a step or its metrics ({line[:60]!r})")
    if "metrics" in row and NOT_FINITE.search(line):
        row["metrics"] = {key: float(value) for key, value in row["metrics"].items()}
    return row


def sync(path: Path) -> None:
    """Sync a file, or the names that a folder lists, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def drop_torn(path: Path) -> None:
    """Cut a JSON lines file before its first incomplete row, which a power cut may leave."""
    end = 0
    # An error means that the row after `end` is damaged.
    with suppress(RunFailed):
        for _, intact in lines_from(path, 0):
            end = intact
    if path.exists() and end < path.stat().st_size:
        write_atomic(path, path.read_bytes()[:end])


def seal(attempt: Path) -> None:
    """Write the checksums of an ended attempt's row files; from now on readers detect changes."""
    write_json(attempt / SUMS, _checksums(attempt))


def _checksums(attempt: Path) -> dict[str, str]:
    """Row file name -> checksum."""
    files = sorted([*attempt.glob("*.jsonl"), *attempt.glob("*/step_*.jsonl")])
    return {path.relative_to(attempt).as_posix(): checksum(path) for path in files}


def checksum(path: Path) -> str:
    """The file's SHA-256 in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def damaged(path: Path, damage: str) -> RunFailed:
    """The error for a damaged file. damage: in a word, such as "gone"."""
    return RunFailed(
        f"{path} is {damage}",
        fix="restore that file from a copy, or remove the run's folder: mcpo runs unbundle restores a run from a "
        "bundle, and the command that trained it trains it again",
        code="damaged",
    )


def read_json(path: Path) -> Any:
    """A JSON document without its checksum, which is verified if present.

    Raises:
        RunFailed: the document is damaged.
    """
    # A folder, or a pipe, from which reading never ends.
    if path.exists() and not path.is_file():
        raise damaged(path, "not a file")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise damaged(path, f"damaged: it is not JSON ({error})") from error
    except PermissionError as error:
        raise damaged(path, "not readable for this user") from error
    if not isinstance(data, dict):
        raise damaged(path, "damaged: it is no JSON object")
    if data.pop(CHECKSUM, None) not in (None, _sum(data)):
        raise damaged(path, "damaged: its checksum does not match")
    for key, kind in KEYS.get(path.name, {}).items():
        if not isinstance(data.get(key), kind):
            raise damaged(path, f"damaged: {key!r} is missing, or not what it should be")
    return data


def document(path: Path) -> str:
    """The text of a JSON document, without secrets."""
    data = read_json(path)
    cleaned = without_secrets(data)
    return path.read_text(encoding="utf-8") if cleaned == data else json.dumps(cleaned, indent=2)


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write a JSON document with its checksum, atomically."""
    write_atomic(path, json.dumps({**data, CHECKSUM: _sum(data)}, indent=2))


def _sum(data: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write a file atomically, also in the case of a power cut. Text is UTF-8.

    Raises:
        RunFailed: the disk is full or cannot be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with part.open("wb") as file:
                file.write(content if isinstance(content, bytes) else content.encode())
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except OSError:
            # A partial file would take space that other files need.
            part.unlink(missing_ok=True)
            raise
