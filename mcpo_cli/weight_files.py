"""The weights in a model's folder: which files have them, and the stored tensors.

Loaders disagree about folders: transformers prefers `model.safetensors` to an index, vLLM reads every file that no
index leaves out. A folder which they read differently is refused. A safetensors file begins with the length of the
header in 8 bytes, then the header in JSON, then the tensors (https://github.com/huggingface/safetensors#format).
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mcpo_cli import model_files
from mcpo_cli.errors import ConfigError, bad_model
from mcpo_cli.model_files import SAMPLE_BYTES

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
SAMPLES = 64
"""Places at which two tensors are compared, with `SAMPLE_BYTES` bytes each."""


@dataclass(frozen=True)
class Tensor:
    """A stored tensor."""

    file: Path
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of its elements."""
        return math.prod(self.shape)


def stored(name: str, folder: Path) -> dict[str, Tensor]:
    """The tensors in the weight files of `folder`, by name; the headers are read, not the weights.

    Raises:
        ConfigError: a file is missing or damaged, or loaders would read the folder differently.
    """
    index = _index(name, folder)
    files = _files(name, folder, index)
    tensors: dict[str, Tensor] = {}
    for path in files:
        for key, tensor in _tensors(name, path).items():
            if index and index.get(key, path.name) != path.name:
                raise bad_model(f"{name}: {key} is in {path.name}, but in {index[key]} by {INDEX}", fix=_ONE_SAVE)
            tensors[key] = tensor
    for problem, keys in (
        ("lacks", tensors.keys() - index.keys()),
        ("names without a file", index.keys() - tensors.keys()),
    ):
        if index and keys:
            raise bad_model(f"{name}: {INDEX} {problem} {len(keys)} tensors, {min(keys)} first", fix=_ONE_SAVE)
    return tensors


_ONE_SAVE = "the files of one save only, as save_pretrained writes them to an empty folder"


def _index(name: str, folder: Path) -> dict[str, str]:
    """The file of each tensor; empty without an index."""
    if not (folder / INDEX).exists():
        return {}
    files = model_files.read_json(name, folder / INDEX).get("weight_map")
    if not isinstance(files, dict) or not files or not all(isinstance(file, str) for file in files.values()):
        raise bad_model(f"{name}: {INDEX} has no weight_map")
    return files


def _files(name: str, folder: Path, index: Mapping[str, str]) -> list[Path]:
    """The weight files: one, or the shards that the index names."""
    names = sorted({*index.values()} or {WHOLE})
    if outside_names := [file for file in names if Path(file).name != file]:
        raise ConfigError(f"{name}: {INDEX} names a file outside the folder: {outside_names[0]}", code="unsafe")
    if gaps := [file for file in names if not (folder / file).is_file()]:
        text = f"{name}: {gaps[0]} is missing ({len(names) - len(gaps)} of {len(names)} weight files are there)"
        if pickles := sorted(path.name for kind in ("*.bin", "*.pth", "*.pt") for path in folder.glob(kind)):
            fix = "https://huggingface.co/spaces/safetensors/convert converts a hub model to safetensors"
            raise bad_model(f"{text}; {pickles[0]} is a pickle, which can run code and is never loaded", fix=fix)
        raise bad_model(text, fix=f"copy {gaps[0]} into {name}")
    if extra_names := sorted(path.name for path in folder.glob("*.safetensors") if path.name not in names):
        source = INDEX if index else WHOLE
        raise bad_model(
            f"{name}: {extra_names[0]} is beside the weights of {source}, and loaders disagree which of them to read",
            fix=f"move {extra_names[0]} to another folder, or the files of {source}",
        )
    return [folder / file for file in names]


def _tensors(name: str, path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, by name. Raises ConfigError if it is damaged."""
    from safetensors import SafetensorError, safe_open  # not imported above: comparisons do not need it

    try:
        with safe_open(path, framework="numpy") as file:
            slices = {key: file.get_slice(key) for key in file.keys()}  # noqa: SIM118 (no mapping)
            tensors = {key: Tensor(path, part.get_dtype(), tuple(part.get_shape())) for key, part in slices.items()}
    except (SafetensorError, OSError) as error:
        raise bad_model(f"{name}: {path.name} is not a safetensors file, or was cut short") from error
    if not tensors:
        raise bad_model(f"{name}: {path.name} has no tensors")
    return tensors


def are_equal(tensors: Mapping[str, Tensor], *names: str) -> bool:
    """True if two tensors have the same bytes at places that are spread over them: training changes all of a tensor."""
    return len({(tensors[name].dtype, tensors[name].shape, _sample(tensors[name].file, name)) for name in names}) == 1


def _sample(path: Path, name: str) -> str:
    with path.open("rb") as file:
        header = model_files.safetensors_header(file, path.stat().st_size)
        begin, end = json.loads(header)[name]["data_offsets"]
        total = hashlib.sha256()
        for number in range(SAMPLES):
            file.seek(8 + len(header) + begin + number * max(0, end - begin - SAMPLE_BYTES) // (SAMPLES - 1))
            total.update(file.read(min(SAMPLE_BYTES, end - begin)))
    return total.hexdigest()
