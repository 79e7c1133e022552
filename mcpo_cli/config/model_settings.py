"""Settings of an existing model that its own files determine: sizes, name and digest."""

import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from mcpo_cli import architecture
from mcpo_cli.config.schema import WHEEL
from mcpo_cli.errors import ConfigError
from mcpo_cli.model_facts import configuration
from mcpo_cli.model_files import fingerprint, local_folder

NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
Reader = Callable[[str, str, bool, bool], Mapping[str, Any]]
"""See `of_files`."""


def completed(model: Mapping[str, Any], given: Collection[str], read: Reader) -> dict[str, Any]:
    """The settings `model`, completed by the settings that the files of the model determine.

    Args:
        given: settings that a preset of this model or an override sets. If they include a size, no other size is
            read: the backend compares all sizes with config.json before a run.
        read: `of_files`, which may remember what it has read.

    Raises:
        ConfigError: the model's files cannot be read.
    """
    path, with_sizes = str(model["path"]), not any(size in given for size in architecture.SIZES)
    if not path or path.startswith(WHEEL):
        return dict(model)
    file_settings = read(path, str(model["revision"]), with_sizes, not model["digest"])
    return {**model, **{name: value for name, value in file_settings.items() if name not in given}}


def of_files(path: str, revision: str, with_sizes: bool, with_digest: bool) -> Mapping[str, Any]:
    """The settings that the files of the model at `path` determine: name and sizes, and a local folder's digest.

    Raises:
        ConfigError: the files cannot be read.
    """
    try:
        folder = local_folder(path)
    except ConfigError:  # the commands that use the model report that it does not exist
        return {}
    settings = {"name": _name(path, folder), **_sizes(path, folder, revision)} if with_sizes else {}
    if folder and with_digest:
        try:
            settings["digest"] = fingerprint(folder)
        except OSError as error:
            raise ConfigError(f"model.path={path}: {error.filename} cannot be read: {error.strerror}") from error
    return settings


def _sizes(path: str, folder: Path | None, revision: str) -> dict[str, Any]:
    try:
        return architecture.read(path, configuration(path, revision or None)).sizes
    except ConfigError as error:
        if folder:
            raise
        size_words = " ".join(f"model.{size}=..." for size in architecture.SIZES)
        raise ConfigError(
            f"{error.message}; its sizes are unknown",
            fix="; or set ".join(filter(None, [error.fix, size_words])),
            code=error.code,
        ) from error


def _name(path: str, folder: Path | None) -> str:
    """The last part of `path`, with only such characters as folder names may have."""
    last_part = folder.name if folder else path.rpartition("/")[2]
    return NOT_IN_NAMES.sub("-", last_part).strip("._-") or "model"
