"""Facts read from the files of the evaluated model, and from nowhere else: window, end tokens, template, format."""

import fnmatch
import functools
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcpo_cli import paths, safetensors_header
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
FORMATS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
SAMPLE_BYTES = 4096
"""Bytes of each tensor that `fingerprint` reads."""
NO_LIMIT = 10**9
"""Lengths from here on mean no limit: tokenizers without one report 10^30."""
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True)
class ModelFacts:
    """Facts read from the files in `folder`."""

    name: str
    """The name that the user gave."""
    folder: Path
    digest: str
    """12 hex digits over the content of configuration, weights and tokenizer."""
    revision: str | None
    """The hub's commit; None for a local folder."""
    parameters: int
    """Number of stored parameters; tied ones count once."""
    dtype: str
    """Format of the weights, as torch names it."""
    window: int
    """Most tokens of prompt and response together."""
    stop_ids: tuple[int, ...]
    """Ids of the tokens that end a response."""
    stop_tokens: tuple[str, ...]
    """The same tokens as text."""
    chat_template: bool
    """Whether the tokenizer has one."""


def resolve(model: str, revision: str | None = None) -> ModelFacts:
    """The facts of a local Hugging Face folder or of a hub model (`OWNER/NAME`), which is fetched.

    revision: a branch, tag or commit of the hub; None means the main branch.

    Raises:
        ConfigError: the model does not exist, cannot be fetched, or cannot be loaded by an engine.
    """
    folder = _folder(model, revision, READ)
    return _facts(model, folder, None if local_folder(model) else folder.name)


def configuration(model: str, revision: str | None = None) -> dict[str, Any]:
    """The config.json of a model, see `resolve`; nothing else is fetched.

    Raises:
        ConfigError: the model does not exist, its config.json cannot be fetched or read, or it requires custom code.
    """
    return _config(model, _folder(model, revision, ("config.json",)))


def local_folder(model: str) -> Path | None:
    """The folder that `model` names on this machine; None for a hub model (`OWNER/NAME`). Fetches nothing.

    Raises:
        ConfigError: it can only be a folder, and there is none.
    """
    path = paths.named(model)
    if path.is_dir():
        return path.resolve()
    # runs/NAME is a path if the folder runs exists, else a hub model.
    if not HUB_ID.fullmatch(model) or path.parent.is_dir():
        raise ConfigError(f"{model}: there is no such folder; {_neighbour(path)}", code="not_found")
    return None


def _folder(model: str, revision: str | None, files: Sequence[str]) -> Path:
    """The local folder, or the folder of the hub's cache that holds `files`."""
    folder = local_folder(model)
    if folder and revision:
        raise ConfigError(
            f"revision={revision} names a commit on the Hugging Face Hub, but {model} is a local folder",
            code="contradiction",
        )
    return folder or _fetch(model, revision, files)


def fetched(model: str, revision: str | None = None) -> Path:
    """The folder of a model, see `resolve`, with all of its files.

    Raises:
        ConfigError: the model does not exist, or cannot be fetched.
    """
    return _folder(model, revision, READ)


def is_cached(model: str, revision: str | None = None) -> bool:
    """Whether the hub's cache has a config.json and weights of a hub model. Asks no network."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(model, revision=revision, allow_patterns=[*READ], local_files_only=True))
    except (LocalEntryNotFoundError, HfHubHTTPError, ValueError, OSError):
        return False
    return (folder / "config.json").exists() and any(folder.glob("*.safetensors"))


@dataclass(frozen=True)
class FileFacts:
    """Facts that `examine` reads without loading the tokenizer, and so without importing torch."""

    tokens: int
    """The highest token id plus 1; an embedding may have more rows."""
    window: int
    """Most tokens of prompt and response together."""
    chat_template: bool
    """Whether the tokenizer has one."""
    weights: Mapping[str, tuple[int, ...]] = field(hash=False)
    """Shape of each stored tensor."""


def examine(name: str, folder: Path) -> FileFacts:
    """The facts of the model in `folder`, whose weight files must all be there.

    Raises:
        ConfigError: a file is missing, damaged, or cannot be loaded by an engine.
    """
    config = _config(name, folder)
    tensors = {key: value for path in _weights(name, folder) for key, value in _entries(name, path).items()}
    about = _json(name, folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").exists() else {}
    return FileFacts(
        tokens=_tokens(name, folder, about),
        window=_window(name, config, about.get("model_max_length")),
        chat_template=bool(about.get("chat_template")) or any(folder.glob("chat_template.*")),
        weights={key: tuple(entry["shape"]) for key, entry in tensors.items()},
    )


def _tokens(name: str, folder: Path, about: Mapping[str, Any]) -> int:
    """The highest token id plus 1, from the tokenizer's files; `about` is the content of tokenizer_config.json."""
    _check_tokenizer(name, folder)
    if not (folder / "tokenizer.json").exists():
        return len(_tokenizer(name, folder))
    content = _json(name, folder / "tokenizer.json")
    try:
        vocabulary = content["model"]["vocab"]
        ids = [len(vocabulary) - 1] if isinstance(vocabulary, list) else list(vocabulary.values())
        ids += [token["id"] for token in content.get("added_tokens") or []]
        ids += [int(token) for token in about.get("added_tokens_decoder") or {}]
        return max(ids) + 1
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise bad_model(f"{name}: tokenizer.json has no vocabulary that can be read") from error


def fingerprint(folder: Path) -> str:
    """A digest of the model in `folder` that changes with its files, in milliseconds even for large models.

    Files with weights are sampled: it reads their header and the middle of each tensor, because training changes all of
    a tensor. Other files are read whole. The digest of `resolve`, of all bytes, takes a second for each GB or more,
    which is too long for a command that only shows a plan.
    """
    total = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if any(fnmatch.fnmatch(path.name, pattern) for pattern in READ):
            status = path.stat()
            total.update(f"{path.name}\0{_file_fingerprint(path, status.st_size, status.st_mtime_ns)}\n".encode())
    return total.hexdigest()[:12]


@functools.lru_cache(maxsize=1024)
def _file_fingerprint(path: Path, size: int, changed: int) -> str:
    """SHA-256 of a file, of one with weights a sample; `changed` (its time of change) makes the cache read it again."""
    with path.open("rb") as file:
        if path.suffix != ".safetensors":
            return hashlib.file_digest(file, "sha256").hexdigest()
        total = hashlib.sha256(str(size).encode())
        header = safetensors_header.read(file, size)
        total.update(header)
        try:
            middles = {sum(entry["data_offsets"]) // 2 for entry in safetensors_header.tensors(header, size).values()}
        except ValueError:
            middles = set()
        for middle in sorted(middles):
            file.seek(8 + len(header) + middle)
            total.update(file.read(SAMPLE_BYTES))
        return total.hexdigest()


@functools.lru_cache(maxsize=1)
def tokenizer(facts: ModelFacts) -> Any:
    """The tokenizer of the model's folder."""
    return _tokenizer(facts.name, facts.folder)


def encode(facts: ModelFacts, text: str, chat: bool) -> tuple[int, ...]:
    """Token ids of `text` as a prompt: with `chat` as the user's turn in the chat template, else unchanged.

    Raises:
        ConfigError: `chat` is set, but the model has no template.
    """
    if not chat:
        return tuple(tokenizer(facts)(text)["input_ids"])
    if not facts.chat_template:
        raise bad_model(f"{facts.name}: its tokenizer has no chat template", fix="chat=off")
    turns = [{"role": "user", "content": text}]
    return tuple(tokenizer(facts).apply_chat_template(turns, add_generation_prompt=True, return_dict=False))


def _facts(name: str, folder: Path, revision: str | None) -> ModelFacts:
    config = _config(name, folder)
    generation = _json(name, folder / "generation_config.json") if (folder / "generation_config.json").exists() else {}
    weights = _weights(name, folder)
    tensors = [entry for path in weights for entry in _entries(name, path).values()]
    words = _tokenizer(name, folder)
    stop_ids = _stop_ids(name, config, generation, words)
    return ModelFacts(
        name=name,
        folder=folder,
        digest=_digest(folder),
        revision=revision,
        parameters=sum(math.prod(entry["shape"]) for entry in tensors),
        dtype=_dtype(name, config, tensors[0]["dtype"]),
        window=_window(name, config, words.model_max_length),
        stop_ids=stop_ids,
        stop_tokens=tuple(words.convert_ids_to_tokens(list(stop_ids))),
        chat_template=words.chat_template is not None,
    )


def _dtype(name: str, config: Mapping[str, Any], stored: str) -> str:
    """The format that the configuration names, else that of the first tensor; as torch names it."""
    named = config.get("dtype") or config.get("torch_dtype") or FORMATS.get(stored, "float32")
    if named not in FORMATS.values():
        raise bad_model(f"{name}: {str(named)[:40]} is no format of weights: {', '.join(FORMATS.values())}")
    return str(named)


def _config(name: str, folder: Path, file: str = "config.json") -> dict[str, Any]:
    config = _json(name, folder / file)
    if "auto_map" in config:
        raise ConfigError(
            f"{name}: its {file} requires the model's own code (auto_map), which is never run",
            fix="use a model without auto_map, whose architecture transformers supports",
            code="unsafe",
        )
    return config


def _window(name: str, config: Mapping[str, Any], longest: Any) -> int:
    """The smaller of the limits that configuration and tokenizer (`longest`) set."""
    limits = [config.get("max_position_embeddings"), longest]
    known = [int(limit) for limit in limits if isinstance(limit, int | float) and 1 <= limit < NO_LIMIT]
    if not known:
        raise bad_model(f"{name}: config.json has no max_position_embeddings, so the model's window is unknown")
    return min(known)


def _stop_ids(name: str, config: Mapping[str, Any], generation: Mapping[str, Any], words: Any) -> tuple[int, ...]:
    """The tokenizer's end token and those of generation_config.json (else config.json), as in vLLM."""
    named = generation.get("eos_token_id", config.get("eos_token_id"))
    listed = named if isinstance(named, list) else [named]
    tokens = [token for token in [words.eos_token_id, *listed] if token is not None]
    fix = f'set "eos_token_id" in {name}/generation_config.json'
    if wrong := [token for token in tokens if type(token) is not int or not 0 <= token < NO_LIMIT]:
        raise bad_model(f"{name}: an end token must be the number of a token, not {str(wrong[0])[:40]}", fix=fix)
    if not tokens:
        why = "names an end token, so that every response would be truncated"
        raise bad_model(f"{name}: neither tokenizer, generation_config.json nor config.json {why}", fix=fix)
    return tuple(dict.fromkeys(tokens))


def _check_tokenizer(name: str, folder: Path) -> None:
    """Raise ConfigError if the folder has no tokenizer, or one that needs the model's own code."""
    if not any(fnmatch.fnmatch(path.name, pattern) for path in folder.iterdir() for pattern in TOKENIZER):
        raise bad_model(f"{name}: the folder has no tokenizer (no tokenizer.json, no vocab.json, no *.model)")
    if (folder / "tokenizer_config.json").exists():
        _config(name, folder, "tokenizer_config.json")


def _tokenizer(name: str, folder: Path) -> Any:
    from transformers import AutoTokenizer

    _check_tokenizer(name, folder)
    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # transformers raises many kinds for files that are not what it expects
        raise bad_model(f"{name}: its tokenizer cannot be loaded: {first_line(error)}") from error


def _weights(name: str, folder: Path) -> list[Path]:
    """The weight files: one, or the shards that the index names."""
    index = folder / "model.safetensors.index.json"
    named = _json(name, index).get("weight_map") if index.exists() else {"": "model.safetensors"}
    if not isinstance(named, dict) or not named:
        raise bad_model(f"{name}: {index.name} has no weight_map")
    names = sorted({str(file) for file in named.values()})
    if outside := [file for file in names if Path(file).name != file]:
        raise ConfigError(f"{name}: {index.name} names a file outside the folder: {outside[0]}", code="unsafe")
    if absent := [file for file in names if not (folder / file).is_file()]:
        what = f"{name}: {absent[0]} is missing ({len(names) - len(absent)} of {len(names)} weight files are there)"
        if pickled := sorted(path.name for kind in ("*.bin", "*.pth", "*.pt") for path in folder.glob(kind)):
            fix = "https://huggingface.co/spaces/safetensors/convert converts a hub model to safetensors"
            raise bad_model(f"{what}; {pickled[0]} is a pickle, which can run code and is never loaded", fix=fix)
        raise bad_model(what, fix=f"copy {absent[0]} into {name}")
    return [folder / file for file in names]


def _entries(name: str, path: Path) -> dict[str, dict[str, Any]]:
    """Format and shape of each tensor, by its name."""
    size = path.stat().st_size
    with path.open("rb") as file:
        header = safetensors_header.read(file, size)
    if not header:
        raise bad_model(f"{name}: {path.name} is not a safetensors file, or was cut short")
    try:
        return safetensors_header.tensors(header, size)
    except ValueError as error:
        raise bad_model(f"{name}: the header of {path.name} is damaged") from error


def _digest(folder: Path) -> str:
    """A digest of the names and content of the READ files, in the order of their names."""
    total = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if any(fnmatch.fnmatch(path.name, pattern) for pattern in READ):
            with path.open("rb") as file:
                total.update(f"{path.name}\0{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return total.hexdigest()[:12]


def _json(name: str, path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise bad_model(f"{name}: the folder has no {path.name}; is it a Hugging Face model?")
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise bad_model(f"{name}: {path.name} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise bad_model(f"{name}: {path.name} must hold an object, not {type(content).__name__}")
    return content


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
