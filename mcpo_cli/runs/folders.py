"""Folders (checkpoints, policies) that are written atomically, with checksums; where base policies are."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import ConfigError, RunFailed
from mcpo_cli.home import writing
from mcpo_cli.runs.journal import checksum, read_json, sync, write_json

MANIFEST = "manifest.json"
SHIPPED = Path(__file__).resolve().parents[1] / "bases"
"""Base policies that come with mcpo."""


@contextmanager
def atomic_folder(final: Path, about: Mapping[str, Any]) -> Iterator[Path]:
    """Yield a temporary folder to write to; at the end it becomes `final`, with `about` in its manifest.

    Raises:
        RunFailed: the disk cannot be written; the temporary folder is removed, which frees room for the status.
    """
    part = final.with_name(f".{final.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        with writing(final):
            part.mkdir(parents=True)
            yield part
            for path in part.iterdir():
                # Without this a checksum could survive a power cut that its file does not.
                sync(path)
            sums = {path.name: checksum(path) for path in sorted(part.iterdir())}
            write_json(part / MANIFEST, {**about, "sha256": sums})
            shutil.rmtree(final, ignore_errors=True)
            sync(part)
            part.rename(final)
            sync(final.parent)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def check_policy(policy: Path, purpose: str) -> None:
    """Raise ConfigError if a run's final policy does not match its stored checksums, where it has any.

    purpose: what it then is not, as in "evaluated".
    """
    if (policy / MANIFEST).exists() and (problem := damage(policy)):
        raise ConfigError(
            f"{problem}: the policy changed after training and is not {purpose}",
            fix=f"rm -r {policy.parent.parent}  (then train the run again with the same command)",
            code="damaged",
        )


def damage(folder: Path) -> str | None:
    """What is wrong with a folder that `atomic_folder` wrote; None if it is intact."""
    try:
        for name, written in read_json(folder / MANIFEST)["sha256"].items():
            if not (folder / name).exists():
                return f"{folder / name} is gone"
            if checksum(folder / name) != written:
                return f"{folder / name} is damaged: its checksum does not match"
    except (RunFailed, OSError, KeyError) as error:
        return error.message if isinstance(error, RunFailed) else f"{folder / MANIFEST} cannot be read"
    return None


def cached_base(home: Path, spec: RunSpec) -> Path:
    """The folder of the base policy of `spec` below `home`, whether it exists or not."""
    return home / "cache" / "base" / spec.base_id


def shipped_base(spec: RunSpec) -> Path | None:
    """The folder of the base policy of `spec` that comes with mcpo; None if none does, or `shipped_base` is off."""
    folder = SHIPPED / spec.base_id
    return folder if spec.compute.shipped_base and (folder / MANIFEST).exists() else None


def has_base(home: Path, spec: RunSpec) -> bool:
    """Whether a run of `spec` below `home` needs no warm-up."""
    return (cached_base(home, spec) / MANIFEST).exists() or shipped_base(spec) is not None


def makes_base(home: Path, spec: RunSpec, counted: set[str]) -> bool:
    """Whether a run of `spec` has to make its base policy first, which only the first run of those asked about does.

    counted: ids of the base policies that were asked about; that of `spec` is added.
    """
    first = spec.base_id not in counted
    counted.add(spec.base_id)
    return first and not has_base(home, spec)
