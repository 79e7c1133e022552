"""The files of a model: the folder or hub model that a name means, the files to fetch, and their digests.

A safetensors file begins with the length of the header in 8 bytes, then the header in JSON, then the tensors
(https://github.com/huggingface/safetensors#format).
"""

import fnmatch
import functools
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from mcpo_cli import paths
from mcpo_cli.errors import ConfigError, bad_model, first_line, nearest, similar

TOKENIZER = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "*.model",
    "*.tiktoken",
    "chat_template.*",
)
READ = ("config.json", "generation_config.json", "*.safetensors", "*.safetensors.index.json", *TOKENIZER)
"""Files that are fetched from the hub and enter the digest: no code, no pickle."""
ELSEWHERE = ("*/*", "consolidated*")
"""Files not fetched: copies of the weights in the maker's own format."""
SAMPLE_BYTES = 4096
"""Bytes of each tensor that `fingerprint` reads."""
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
MAX_HEADER = 100_000_000
"""Largest size of a header in bytes, as in the library: a sparse file may claim any size."""


def local_folder(model: str) -> Path | None:
    """The folder that `model` names on this machine; None for a hub model (`OWNER/NAME`). Fetches nothing.

    Raises:
        ConfigError: it can only be a folder, which does not exist.
    """
    path = paths.named(model)
    if path.is_dir():
        return path.resolve()
    # runs/NAME is a path if the folder runs exists, else a hub model.
    if not HUB_ID.fullmatch(model) or path.parent.is_dir():
        here = "the folder of a model, a model of the Hugging Face Hub (OWNER/NAME), or a run (mcpo runs list)"
        raise ConfigError(f"{model}: there is no such folder; {_neighbour(path)}", fix=here, code="not_found")
    return None


def folder(model: str, revision: str | None, files: Sequence[str] = READ) -> Path:
    """The local folder of a model, or the folder of the hub's cache with `files`, which are fetched.

    Raises:
        ConfigError: the model does not exist, or cannot be fetched.
    """
    local = local_folder(model)
    if local and revision:
        raise ConfigError(
            f"revision={revision} names a commit on the Hugging Face Hub, but {model} is a local folder",
            code="contradiction",
        )
    return local or _fetch(model, revision, files)


def find(model: str, revision: str | None = None) -> Path | None:
    """The local folder of a model, or that of the hub's cache if it has config.json and weights. No network.

    Raises:
        ConfigError: see `local_folder`.
    """
    return local_folder(model) or _cached(model, revision)


def _cached(model: str, revision: str | None) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(model, revision=revision, allow_patterns=[*READ], local_files_only=True))
    except (LocalEntryNotFoundError, HfHubHTTPError, ValueError, OSError):
        return None
    return folder if (folder / "config.json").exists() and any(folder.glob("*.safetensors")) else None


def _fetch(model: str, revision: str | None, files: Sequence[str]) -> Path:
    """The folder of the hub's cache with `files` (patterns), named by the commit."""
    from huggingface_hub import constants, errors, snapshot_download

    at = f"{model}@{revision}" if revision else model
    try:
        return Path(snapshot_download(model, revision=revision, allow_patterns=[*files], ignore_patterns=[*ELSEWHERE]))
    except errors.GatedRepoError as error:
        fix = f"accept its licence at https://huggingface.co/{model}, then hf auth login"
        raise ConfigError(
            f"{at}: the Hugging Face Hub provides it only after you accept its licence", fix=fix, code="unreachable"
        ) from error
    except errors.RepositoryNotFoundError as error:
        fix = "check the name; for a private model: hf auth login"
        raise ConfigError(
            f"{at}: the Hugging Face Hub has no such model, or you have no access to it", fix=fix, code="unreachable"
        ) from error
    except errors.RevisionNotFoundError as error:
        fix = f"use a branch, tag or commit of https://huggingface.co/{model}/commits/main"
        raise ConfigError(f"{at}: the model has no such revision", fix=fix, code="not_found") from error
    except Exception as error:  # no network, a timeout, a full disk: the client's errors have no common class
        fix = f"run hf download {model} where there is a network, and name that folder instead of {model}"
        why = f"not in the cache, and not available from {constants.ENDPOINT}: {first_line(error)}"
        raise ConfigError(f"{at}: {why}", fix=fix, code="unreachable") from error


def _neighbour(path: Path) -> str:
    """A hint for the message about the missing folder `path`."""
    if not path.parent.is_dir():
        return f"{path.parent} does not exist either; a model on the Hugging Face Hub is named OWNER/NAME"
    names = [entry.name for entry in path.parent.iterdir() if entry.is_dir()]
    listed = f"folders there: {', '.join(sorted(names)) or 'none'}"
    return nearest(path.name, names) if similar(path.name, names) else listed


def fingerprint(folder: Path) -> str:
    """A digest of the model in `folder` that changes with its files, in milliseconds even for large models.

    Files with weights are sampled: it reads their header and the middle of each tensor, because training changes all of
    a tensor. Other files are read whole. `digest` reads all bytes, in a second or more per GB, which is too long for a
    command that only shows a plan.
    """
    statuses = ((path, path.stat()) for path in _read(folder))
    return _digest((path, _sampled(path, status.st_size, status.st_mtime_ns)) for path, status in statuses)


@functools.lru_cache(maxsize=1024)
def _sampled(path: Path, size: int, changed: int) -> str:
    """SHA-256 of a file, or of a sample if it has weights; a new `changed` (its time of change) bypasses the cache."""
    with path.open("rb") as file:
        if path.suffix != ".safetensors":
            return hashlib.file_digest(file, "sha256").hexdigest()
        total = hashlib.sha256(str(size).encode())
        length = int.from_bytes(file.read(8), "little")
        header = file.read(length) if length <= min(size - 8, MAX_HEADER) else b""
        total.update(header)
        for middle in _middles(header, size):
            file.seek(8 + len(header) + middle)
            total.update(file.read(SAMPLE_BYTES))
        return total.hexdigest()


def _middles(header: bytes, size: int) -> list[int]:
    """Positions of the middles of tensors in a file of `size` bytes; none if the header is damaged: see `tensors`."""
    try:
        entries = [entry for key, entry in json.loads(header).items() if key != "__metadata__"]
        found = {sum(entry["data_offsets"]) // 2 for entry in entries}
    except (ValueError, RecursionError, AttributeError, KeyError, TypeError):
        return []
    return sorted(middle for middle in found if isinstance(middle, int) and 0 <= middle < size)


def digest(folder: Path) -> str:
    """A digest of the names and content of the READ files."""

    def hashed(path: Path) -> str:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    return _digest((path, hashed(path)) for path in _read(folder))


def _digest(hashes: Iterable[tuple[Path, str]]) -> str:
    """12 hex digits over the names of files and the hashes of their content."""
    total = hashlib.sha256()
    for path, content in hashes:
        total.update(f"{path.name}\0{content}\n".encode())
    return total.hexdigest()[:12]


def _read(folder: Path) -> Iterator[Path]:
    """The files of a folder that match READ, in the order of their names."""
    return (path for path in sorted(folder.iterdir()) if any(fnmatch.fnmatch(path.name, one) for one in READ))


def tensors(name: str, path: Path) -> dict[str, dict[str, Any]]:
    """Format and shape of each tensor in a safetensors file, by its name. Raises ConfigError if it is damaged."""
    from safetensors import SafetensorError, safe_open  # not above: comparisons do without it

    try:
        with safe_open(path, framework="numpy") as file:
            slices = {key: file.get_slice(key) for key in file.keys()}  # noqa: SIM118 (no mapping)
            found = {key: {"dtype": one.get_dtype(), "shape": one.get_shape()} for key, one in slices.items()}
    except (SafetensorError, OSError) as error:
        raise bad_model(f"{name}: {path.name} is not a safetensors file, or was cut short") from error
    if not found:
        raise bad_model(f"{name}: {path.name} has no tensors")
    return found
