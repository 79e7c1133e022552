"""The files of a model: the folder or hub model that a name means, the files that count, and their digests.

Training, evaluation, export and dry runs read a folder through this module and `weight_files`: a file that a library
would read is in the digest, or the folder is refused.
"""

import fnmatch
import functools
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from mcpo_cli import hub, paths
from mcpo_cli.errors import ConfigError, bad_model, nearest, similar

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
    "additional_chat_templates/*.jinja",
)
READ = ("config.json", "generation_config.json", "*.safetensors", "*.safetensors.index.json", *TOKENIZER)
"""Files that are fetched from the hub and enter the digest: no code, no pickle."""
ELSEWHERE = ("*/*", "consolidated*")
"""Files not fetched: copies of the weights in the maker's own format."""
MORE = {
    "adapter_config.json": "a LoRA adapter, which transformers adds to the weights where peft is installed",
    "tekken.json": "a tokenizer that transformers takes instead of tokenizer.json where mistral_common is installed",
}
"""Files that libraries read if a package is installed: a folder with such a file is not one model everywhere."""
MAX_BYTES = 2**28
"""Largest size of a file without weights."""
SAMPLE_BYTES = 4096
"""Bytes of each tensor that `fingerprint` reads."""
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
MAX_HEADER = 100_000_000
"""Largest size of a header in bytes, as in the library: a sparse file may claim any size."""


def local_folder(model: str) -> Path | None:
    """The folder that `model` names on this machine; None for a hub model (`OWNER/NAME`). Fetches nothing.

    Raises:
        ConfigError: `model` can only be a folder, and there is no such folder.
    """
    path = paths.named(model)
    if path.is_dir():
        return path.resolve()
    # runs/NAME is a path if the folder runs exists, else a hub model.
    if not HUB_ID.fullmatch(model) or path.parent.is_dir():
        fix = "the folder of a model, a model of the Hugging Face Hub (OWNER/NAME), or a run (mcpo runs list)"
        raise ConfigError(f"{model}: there is no such folder; {_neighbour(path)}", fix=fix, code="not_found")
    return None


def folder(model: str, revision: str | None, files: Sequence[str] = READ) -> Path:
    """The local folder of a model, or the folder of the hub's cache with `files`, which are fetched.

    Raises:
        ConfigError: the model does not exist, or cannot be fetched.
    """
    path = local_folder(model)
    if path and revision:
        raise ConfigError(
            f"revision={revision} names a commit on the Hugging Face Hub, but {model} is a local folder",
            code="contradiction",
        )
    return path or _fetch(model, revision, files)


def find(model: str, revision: str | None = None) -> Path | None:
    """The local folder of a model, or its folder in the hub's cache if that has config.json and weights. No network.

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
    from huggingface_hub import snapshot_download

    advice = f"run hf download {model} where there is a network, and name that folder instead of {model}"
    model_name = f"{model}@{revision}" if revision else model
    with hub.fetching(model_name, f"https://huggingface.co/{model}", advice):
        return Path(snapshot_download(model, revision=revision, allow_patterns=[*files], ignore_patterns=[*ELSEWHERE]))


def _neighbour(path: Path) -> str:
    """A hint for the message about the missing folder `path`."""
    if not path.parent.is_dir():
        return f"{path.parent} does not exist either; a model on the Hugging Face Hub is named OWNER/NAME"
    names = [entry.name for entry in path.parent.iterdir() if entry.is_dir()]
    listing = f"folders there: {', '.join(sorted(names)) or 'none'}"
    return nearest(path.name, names) if similar(path.name, names) else listing


def fingerprint(folder: Path) -> str:
    """A digest of the model in `folder` that changes with its files, in milliseconds even for large models.

    Files with weights are sampled: it reads their header and the middle of each tensor, because training changes all of
    a tensor. Other files are read whole. `digest` reads all bytes, in a second or more per GB, which is too long for a
    command that only shows a plan.
    """
    statuses = ((path, path.stat()) for path in counted(folder))
    return _digest(folder, ((path, _sampled(path, status.st_size, status.st_mtime_ns)) for path, status in statuses))


@functools.lru_cache(maxsize=1024)
def _sampled(path: Path, size: int, mtime_ns: int) -> str:
    """SHA-256 of a file, or of a sample if it has weights; a new `mtime_ns` (its time of change) bypasses the cache."""
    with path.open("rb") as file:
        if path.suffix != ".safetensors":
            return hashlib.file_digest(file, "sha256").hexdigest()
        total = hashlib.sha256(str(size).encode())
        header = safetensors_header(file, size)
        total.update(header)
        for middle in _middles(header, size):
            file.seek(8 + len(header) + middle)
            total.update(file.read(SAMPLE_BYTES))
        return total.hexdigest()


def safetensors_header(file: BinaryIO, size: int) -> bytes:
    """The header of a safetensors file of `size` bytes, in JSON; the tensors follow it. Empty if it is damaged."""
    length = int.from_bytes(file.read(8), "little")
    return file.read(length) if length <= min(size - 8, MAX_HEADER) else b""


def _middles(header: bytes, size: int) -> list[int]:
    """Positions of the middles of tensors in a file of `size` bytes; none if the header is damaged."""
    try:
        entries = [entry for key, entry in json.loads(header).items() if key != "__metadata__"]
        middles = {sum(entry["data_offsets"]) // 2 for entry in entries}
    except (ValueError, RecursionError, AttributeError, KeyError, TypeError):
        return []
    return sorted(middle for middle in middles if isinstance(middle, int) and 0 <= middle < size)


def digest(folder: Path) -> str:
    """A digest of the names and content of the READ files."""

    def hashed(path: Path) -> str:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    return _digest(folder, ((path, hashed(path)) for path in counted(folder)))


def _digest(folder: Path, hashes: Iterable[tuple[Path, str]]) -> str:
    """12 hex digits over the names of files and the hashes of their content."""
    total = hashlib.sha256()
    for path, content in hashes:
        total.update(f"{path.relative_to(folder).as_posix()}\0{content}\n".encode())
    return total.hexdigest()[:12]


def counted(folder: Path) -> list[Path]:
    """The files of a model that count, because they match READ, in the order of their names.

    Raises:
        ConfigError: a file is a pipe, a device, a link to another folder, or too large to be read; or a library would
            read a file besides these.
    """
    for name, risk in MORE.items():
        if (folder / name).is_file() and (folder / "config.json").exists():
            raise ConfigError(
                f"{folder.name}: {name} is {risk}", fix=f"move {name} to another folder, or merge it", code="unsafe"
            )
    paths = sorted([*folder.iterdir(), *folder.glob("additional_chat_templates/*")])
    matches = [
        path for path in paths if any(fnmatch.fnmatch(path.relative_to(folder).as_posix(), pattern) for pattern in READ)
    ]
    return [path for path in matches if not path.is_dir() and _is_readable(folder, path)]


def _is_readable(folder: Path, path: Path) -> bool:
    """True; raises ConfigError if reading the file might not end, or would read something from another folder."""
    if not path.exists():
        defect = "a link to a file that does not exist"
    elif not path.is_file():
        defect = "not a file"
    elif not _is_inside(folder, path.resolve()):
        defect = "a link to another folder"
    elif path.suffix != ".safetensors" and path.stat().st_size > MAX_BYTES:
        defect = f"larger than {MAX_BYTES // 2**20} MiB"
    else:
        return True
    raise ConfigError(f"{folder.name}: {path.name} is {defect}", fix=f"a file {path.name} of the model", code="unsafe")


def _is_inside(folder: Path, target: Path) -> bool:
    """True for files of the folder; in the hub's cache they are links to a folder beside the folders of all commits."""
    folders = [folder.resolve()] + ([folder.parents[1] / "blobs"] if folder.parent.name == "snapshots" else [])
    return any(target.is_relative_to(allowed_folder.resolve()) for allowed_folder in folders)


def agreed(name: str, what: str, *values: Any) -> Any:
    """The value that the files of the model `name` state, where several may: the first of `values` that is not None.

    Raises:
        ConfigError: two of the values differ.
    """
    entries = [value for value in values if value is not None]
    if clashes := [value for value in entries if value != entries[0]]:
        raise bad_model(
            f"{name}: its files have two values of {what}, {entries[0]!r:.40} and {clashes[0]!r:.40}, and releases of "
            "transformers read different ones",
            fix=f"one value of {what}",
        )
    return entries[0] if entries else None


def read_json(name: str, path: Path) -> dict[str, Any]:
    """The object in a JSON file of the model `name`. Raises ConfigError if it is missing, damaged, or no such file."""
    if not path.exists():
        raise bad_model(f"{name}: the folder has no {path.name}; is it a Hugging Face model?")
    _is_readable(path.parent, path)
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise bad_model(f"{name}: {path.name} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise bad_model(f"{name}: {path.name} must hold an object, not {type(content).__name__}")
    return content
