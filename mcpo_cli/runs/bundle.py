"""Bundles: the records of done runs in one zip file, to give to somebody else.

A bundle may come from anybody. Files are written only after all names and sizes have been checked, and kept only if
each row fits its schema (`records.py`).
"""

import json
import re
import shutil
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from mcpo_cli import records
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import ConfigError, McpoError, RunFailed
from mcpo_cli.home import writing
from mcpo_cli.records import Status
from mcpo_cli.redaction import redact
from mcpo_cli.runs import attempts, catalog
from mcpo_cli.runs.journal import SUMS, Journal, damaged, numbered, read_json, read_lines, write_atomic

ROWS = r"\w+\.jsonl|\w+/step_\d+\.jsonl"
RECORD = re.compile(rf"\w+\.json|attempt_\d+/(\w+\.json|{ROWS})")
"""Paths, relative to a run's folder, that a bundle holds: records and rows, but no checkpoints, policies or logs."""
MEMBER = re.compile(rf"[\w+-][\w.+-]*/({RECORD.pattern})")
MOST_RATIO, LEAST_LIMIT = 100, 1 << 20
"""Largest compression ratio (records have 5 to 20, zeros a thousand), and bytes that are allowed at any ratio."""
COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
NOT_FINITE = ("nan", "inf", "-inf")
"""Floats that JSON lacks, as `journal.finite` writes them."""
LARGEST = 1 << 53
"""Larger integers exceed every count of a run, and floats cannot represent them exactly."""
KINDS: dict[str, Any] = {
    "metrics": records.StepRow,
    "groups": records.GroupRow,
    "eval": records.EvalRow,
    "rerolls": records.RerollRow,
    "mini_batches": records.MiniBatchRow,
    "gradients": records.GradientRow,
    "samples": records.SampleRow,
    "branches": records.BranchRow,
}
"""The schema of the rows in each file or folder of an attempt."""
LATEST = 1 << 40
"""A time, in seconds since the epoch, after the end of any run."""
UNIQUE = {"metrics": ("step",), "eval": ("tier", "problem"), "mini_batches": ("mini_batch",)}
"""Columns that must differ between any two rows of a file."""


def write(folders: Sequence[Path], file: Path) -> None:
    """Write the records of the runs in `folders` into `file`. Equal records give equal bytes.

    Raises:
        RunFailed: the disk cannot be written.
    """
    with tempfile.TemporaryFile() as content:
        with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as bundle:
            for folder in folders:
                for name, data in _records(folder).items():
                    # With zipfile's default date, so that equal records give equal bytes.
                    bundle.writestr(zipfile.ZipInfo(f"{folder.name}/{name}"), data, zipfile.ZIP_DEFLATED)
        content.seek(0)
        write_atomic(file, content.read())


def restore(file: Path, home: Path) -> tuple[list[str], list[str]]:
    """Restore the runs of a bundle in `home`: all of them, or none.

    Returns:
        The ids of the restored runs, and of those that exist already with the same records.

    Raises:
        ConfigError: the file is not a bundle, a run in it is damaged or not done, or exists with other records.
        RunFailed: the disk cannot be written.
    """
    (home / "runs").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home, prefix=".unbundle-") as temporary:
        folders = _extract(file, Path(temporary) / "runs")
        for folder in folders:
            try:
                _check(folder)
            except (McpoError, LookupError, TypeError, ValueError, AttributeError) as error:
                message = error.message if isinstance(error, McpoError) else f"its records are damaged: {error}"
                raise ConfigError(f"{file}: {folder.name}: {message.replace(f'{temporary}/', '')}") from error
        own = {folder: home / "runs" / folder.name for folder in folders}
        there = [folder for folder in folders if own[folder].exists()]
        if differing := [folder.name for folder in there if _records(folder) != _records(own[folder])]:
            raise ConfigError(
                f"nothing is restored: {home / 'runs'} has other records of {', '.join(differing)}",
                fix=f"MCPO_HOME=OTHER_FOLDER mcpo runs unbundle {file}",
            )
        new = [folder for folder in folders if folder not in there]
        with writing(home / "runs"):
            for folder in new:
                folder.rename(own[folder])
    return [folder.name for folder in new], [folder.name for folder in there]


def document(path: Path) -> str:
    """The text of a JSON document with secrets removed; unchanged if it holds none."""
    data = read_json(path)
    cleaned = _cleaned(data)
    return path.read_text(encoding="utf-8") if cleaned == data else json.dumps(cleaned, indent=2)


def _records(folder: Path) -> dict[str, bytes]:
    """Name -> content of the records of a run, in order."""
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.json*")}
    return {
        name: document(path).encode() if path.suffix == ".json" else path.read_bytes()
        for name, path in sorted(paths.items())
        if RECORD.fullmatch(name)
    }


def _extract(file: Path, target: Path) -> list[Path]:
    """Write the members of a bundle below `target`; returns the folders of its runs. Raises ConfigError, RunFailed."""
    no_bundle = f"{file} is no bundle of runs"
    try:
        with zipfile.ZipFile(file) as bundle:
            members = bundle.infolist()
            names = Counter(member.filename for member in members)
            for member in members:
                is_known = MEMBER.fullmatch(member.filename) and member.compress_type in COMPRESSIONS
                if not is_known or names[member.filename] > 1:
                    raise ConfigError(f"{no_bundle}: it holds {member.filename!r}")
            # zipfile reads at most the size that the directory gives for a member.
            if sum(member.file_size for member in members) > max(LEAST_LIMIT, MOST_RATIO * file.stat().st_size):
                raise ConfigError(f"{no_bundle}: it unpacks to more than {MOST_RATIO} times its size")
            if not members:
                raise ConfigError(f"{no_bundle}: it is empty")
            for member in members:
                with writing(target), bundle.open(member) as source:
                    path = target / member.filename
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with path.open("xb") as copy:
                        shutil.copyfileobj(source, copy)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError, RuntimeError) as error:
        raise ConfigError(f"{no_bundle}: {error}", fix="mcpo runs bundle SUITE FILE") from error
    return sorted(target.iterdir())


def _check(folder: Path) -> None:
    """Raise RunFailed or ConfigError unless the records are those of a complete, done run."""
    spec = catalog.find(folder.parents[1], folder.name).spec
    for attempt in numbered(folder):
        for path in sorted([*attempt.glob("*.jsonl"), *attempt.glob("*/*.jsonl")]):
            _check_rows(path, attempt, spec)
        sums = read_json(attempt / SUMS) if (attempt / SUMS).exists() else {}
        if wrong := [name for name in sums if not re.fullmatch(ROWS, name)]:
            raise damaged(attempt / SUMS, f"damaged: {wrong[0]!r} is no file of rows")
    for attempt in Journal(folder).attempts():
        status: Status = read_json(attempt / "status.json")
        if not all(0 <= status[name] < LATEST for name in ("started", "updated")):
            raise damaged(attempt / "status.json", "damaged: it names times that no run has")
    if attempts.state(folder, spec) != "done":
        raise RunFailed("its records are not those of a run that is done")
    Journal(folder).check_all()


def _check_rows(path: Path, attempt: Path, spec: RunSpec) -> None:
    """Raise RunFailed for the first row that does not fit its schema, its file or its run."""
    kind = path.stem if path.parent == attempt else path.parent.name
    schema, seen = KINDS.get(kind), set[tuple[Any, ...]]()
    if schema is None:
        raise damaged(path, "none of the files that runs write")
    hints = get_type_hints(schema)
    for number, row in enumerate(read_lines(path), start=1):
        wrong = _misfit(hints, schema.__required_keys__, row)
        if not wrong:
            step, n, key = row["step"], row.get("n", 1), tuple(row[name] for name in UNIQUE.get(kind, ()))
            if not 0 <= step <= spec.train.steps or (path.parent != attempt and path.stem != f"step_{step:06d}"):
                wrong = f"step={step}"
            elif n < 1 or not all(0 <= row.get(name, 0) <= n for name in ("c", "c_after")):
                wrong = f"c={row['c']} of n={n}"
            elif not 0 <= row.get("time", 0) < LATEST:
                wrong = f"time={row['time']}"
            elif key in seen:
                wrong = f"it repeats {', '.join(map(str, key))}"
            elif key:
                seen.add(key)
        if wrong:
            raise damaged(path, f"damaged: row {number}: {wrong}")


def _misfit(hints: Mapping[str, Any], required: Set[str], row: Mapping[str, Any]) -> str:
    """The first value of a row that does not fit its schema; empty if all fit."""
    for key, hint in hints.items():
        if key in row and not _fits(hint, row[key]):
            return f"{key}={str(row[key])[:60]}"
        if key not in row and key in required:
            return f"{key} is missing"
    return ""


def _fits(hint: Any, value: Any) -> bool:
    """True if `value` is of the type `hint`: a list, a dict, a Literal or a scalar."""
    inner = get_args(hint)
    if get_origin(hint) is Literal:
        return value in inner
    if get_origin(hint) is list:
        return isinstance(value, list) and all(_fits(inner[0], item) for item in value)
    if get_origin(hint) is dict:
        return isinstance(value, dict) and all(_fits(inner[1], item) for item in value.values())
    if hint is int:
        return type(value) is int and abs(value) < LARGEST
    return type(value) in (int, float) or value in NOT_FINITE if hint is float else isinstance(value, hint)


def _cleaned(data: Any) -> Any:
    if isinstance(data, str):
        return redact(data)
    if isinstance(data, Mapping):
        return {key: _cleaned(value) for key, value in data.items()}
    return [_cleaned(value) for value in data] if isinstance(data, list) else data
