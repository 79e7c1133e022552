"""Settings of an existing model that its own files determine: sizes, name and digest."""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from mcpo_cli import architecture
from mcpo_cli.config.schema import WHEEL
from mcpo_cli.errors import ConfigError
from mcpo_cli.model_facts import configuration
from mcpo_cli.model_files import fingerprint, local_folder

NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


def completed(model: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """The settings `model` with those that the files of the model determine.

    given: settings that a preset of this model or an override sets. If they include a size, no other size is
    read: the backend compares all sizes with config.json before a run.

    Raises:
        ConfigError: the model's files cannot be read.
    """
    path = str(model["path"])
    if not path or path.startswith(WHEEL):
        return dict(model)
    try:
        folder = local_folder(path)
    except ConfigError:  # the commands that use the model report that it does not exist
        return dict(model)
    found: dict[str, Any] = {}
    if not any(size in given for size in architecture.SIZES):
        found = {"name": _name(path, folder), **_sizes(path, folder, str(model["revision"]))}
    if folder and not model["digest"]:
        try:
            found["digest"] = fingerprint(folder)
        except OSError as error:
            raise ConfigError(f"model.path={path}: {error.filename} cannot be read: {error.strerror}") from error
    return {**model, **{name: value for name, value in found.items() if name not in given}}


def _sizes(path: str, folder: Path | None, revision: str) -> dict[str, Any]:
    try:
        return architecture.read(path, configuration(path, revision or None)).sizes
    except ConfigError as error:
        if folder:
            raise
        wanted = " ".join(f"model.{size}=..." for size in architecture.SIZES)
        raise ConfigError(
            f"{error.message}; its sizes are unknown",
            fix="; or set ".join(filter(None, [error.fix, wanted])),
            code=error.code,
        ) from error


def _name(path: str, folder: Path | None) -> str:
    """The last part of `path`, with only such characters as folder names may have."""
    last = folder.name if folder else path.rpartition("/")[2]
    return NOT_IN_NAMES.sub("-", last).strip("._-") or "model"
