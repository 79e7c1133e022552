"""Tags of runs: words of the user's, kept beside the runs in `tags.json`, as they are no part of a run's record."""

import re
from collections.abc import Sequence
from pathlib import Path

from filelock import FileLock

from mcpo_cli.errors import ConfigError
from mcpo_cli.runs.journal import read_json, write_json

FILE = "tags.json"
PLAIN = re.compile(r"\w[\w.-]*")


def of(home: Path) -> dict[str, list[str]]:
    """Run id -> its tags, sorted.

    Raises:
        RunFailed: the file is damaged.
    """
    path = home / FILE
    return dict(read_json(path)["tags"]) if path.exists() else {}


def change(home: Path, run_id: str, tags: Sequence[str], *, remove: bool = False) -> list[str]:
    """Add tags to a run, or remove them; returns those that it has now.

    Raises:
        ConfigError: a tag is not a plain word.
        RunFailed: the file is damaged or cannot be written.
    """
    if odd := next((tag for tag in tags if not PLAIN.fullmatch(tag)), None):
        word = re.sub(r"[^\w.-]+", "-", odd).strip("-.") or "keep"
        raise ConfigError(
            f"'{odd}' is no tag: a tag has letters, digits, _, - and .", fix=f"mcpo runs tag {run_id} {word}"
        )
    with FileLock(home / f"{FILE}.lock"):
        known = of(home)
        before = set(known.pop(run_id, []))
        after = sorted(before - set(tags) if remove else before | set(tags))
        write_json(home / FILE, {"tags": {**known, run_id: after} if after else known})
    return after
