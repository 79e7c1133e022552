"""Facts read only from the files of the evaluated model: window, end tokens, template, format."""

import fnmatch
import functools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcpo_cli import model_files, tokenization
from mcpo_cli.errors import ConfigError, bad_model, first_line

FORMATS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
NO_LIMIT = 10**9
"""Lengths from here on mean no limit: tokenizers without one report 10^30."""


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
    """Largest number of tokens of prompt and response together."""
    stop_ids: tuple[int, ...]
    """Ids of the tokens that end a response."""
    stop_tokens: tuple[str, ...]
    """The same tokens as text."""
    chat_template: bool
    """True if the tokenizer has one."""


def resolve(model: str, revision: str | None = None) -> ModelFacts:
    """The facts of a local Hugging Face folder or of a hub model (`OWNER/NAME`), which is fetched.

    revision: a branch, tag or commit of the hub; None means the main branch.

    Raises:
        ConfigError: the model does not exist, cannot be fetched, or cannot be loaded by an engine.
    """
    folder = model_files.folder(model, revision)
    return _facts(model, folder, None if model_files.local_folder(model) else folder.name)


def configuration(model: str, revision: str | None = None) -> dict[str, Any]:
    """The config.json of a model, see `resolve`; nothing else is fetched.

    Raises:
        ConfigError: the model does not exist, its config.json cannot be fetched or read, or it requires custom code.
    """
    return _config(model, model_files.folder(model, revision, ("config.json",)))


@dataclass(frozen=True)
class FileFacts:
    """Facts that `examine` reads without loading the tokenizer, and so without importing torch."""

    tokens: int
    """The highest token id plus 1; an embedding may have more rows."""
    window: int
    """Largest number of tokens of prompt and response together."""
    chat_template: bool
    """True if the tokenizer has one."""
    weights: Mapping[str, tuple[int, ...]] = field(hash=False)
    """Shape of each stored tensor."""


def examine(name: str, folder: Path) -> FileFacts:
    """The facts of the model in `folder`, whose weight files must all be there.

    Raises:
        ConfigError: a file is missing, damaged, or cannot be loaded by an engine.
    """
    config = _config(name, folder)
    tensors = {key: value for path in _weights(name, folder) for key, value in model_files.tensors(name, path).items()}
    settings = _optional(name, folder / "tokenizer_config.json")
    return FileFacts(
        tokens=_tokens(name, folder, settings),
        window=_window(name, config, settings.get("model_max_length")),
        chat_template=bool(settings.get("chat_template")) or any(folder.glob("chat_template.*")),
        weights={key: tuple(entry["shape"]) for key, entry in tensors.items()},
    )


def _tokens(name: str, folder: Path, settings: Mapping[str, Any]) -> int:
    """The highest token id plus 1, from the tokenizer's files; `settings` is the content of tokenizer_config.json."""
    _check_tokenizer(name, folder)
    if not (folder / "tokenizer.json").exists():
        return len(_tokenizer(name, folder))
    content = _json(name, folder / "tokenizer.json")
    try:
        vocabulary = content["model"]["vocab"]
        ids = [len(vocabulary) - 1] if isinstance(vocabulary, list) else list(vocabulary.values())
        ids += [token["id"] for token in content.get("added_tokens") or []]
        ids += [int(token) for token in settings.get("added_tokens_decoder") or {}]
        return max(ids) + 1
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise bad_model(f"{name}: tokenizer.json has no vocabulary that can be read") from error


@functools.lru_cache(maxsize=1)
def tokenizer(facts: ModelFacts) -> Any:
    """The tokenizer of the model's folder."""
    return _tokenizer(facts.name, facts.folder)


def _facts(name: str, folder: Path, revision: str | None) -> ModelFacts:
    config = _config(name, folder)
    generation = _optional(name, folder / "generation_config.json")
    weights = _weights(name, folder)
    tensors = [entry for path in weights for entry in model_files.tensors(name, path).values()]
    loaded = _tokenizer(name, folder)
    stop_ids = _stop_ids(name, config, generation, loaded)
    return ModelFacts(
        name=name,
        folder=folder,
        digest=model_files.digest(folder),
        revision=revision,
        parameters=sum(math.prod(entry["shape"]) for entry in tensors),
        dtype=_dtype(name, config, tensors[0]["dtype"]),
        window=_window(name, config, loaded.model_max_length),
        stop_ids=stop_ids,
        stop_tokens=tuple(loaded.convert_ids_to_tokens(list(stop_ids))),
        chat_template=loaded.chat_template is not None,
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


def _stop_ids(name: str, config: Mapping[str, Any], generation: Mapping[str, Any], tokenizer: Any) -> tuple[int, ...]:
    """The tokenizer's end token and those of generation_config.json (else config.json), as in vLLM."""
    named = generation.get("eos_token_id", config.get("eos_token_id"))
    listed = named if isinstance(named, list) else [named]
    tokens = [token for token in [tokenizer.eos_token_id, *listed] if token is not None]
    fix = f'set "eos_token_id" in {name}/generation_config.json'
    if wrong := [token for token in tokens if type(token) is not int or not 0 <= token < NO_LIMIT]:
        raise bad_model(f"{name}: an end token must be the number of a token, not {str(wrong[0])[:40]}", fix=fix)
    if not tokens:
        why = "names an end token, so that every response would be truncated"
        raise bad_model(f"{name}: neither tokenizer, generation_config.json nor config.json {why}", fix=fix)
    return tuple(dict.fromkeys(tokens))


def _check_tokenizer(name: str, folder: Path) -> None:
    """Raise ConfigError if the folder has no tokenizer, or one that needs the model's own code."""
    if not any(fnmatch.fnmatch(path.name, pattern) for path in folder.iterdir() for pattern in model_files.TOKENIZER):
        raise bad_model(f"{name}: the folder has no tokenizer (no tokenizer.json, no vocab.json, no *.model)")
    if (folder / "tokenizer_config.json").exists():
        _config(name, folder, "tokenizer_config.json")


def _tokenizer(name: str, folder: Path) -> Any:
    _check_tokenizer(name, folder)
    try:
        return tokenization.load(folder)
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


def _optional(name: str, path: Path) -> dict[str, Any]:
    return _json(name, path) if path.exists() else {}


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
