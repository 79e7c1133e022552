"""Facts read only from the files of a model: weights, window, end tokens, template, format.

`examine` is the one reader of a model's folder, for training, evaluation and dry runs. It imports neither torch nor
transformers where tokenizer.json names the end token.
"""

import fnmatch
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcpo_cli import architecture, model_files, tokenization, weight_files
from mcpo_cli.architecture import Architecture
from mcpo_cli.errors import ConfigError, bad_model
from mcpo_cli.model_files import agreed
from mcpo_cli.weight_files import Tensor

FORMATS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
TEMPLATES = ("chat_template.*", "additional_chat_templates/*.jinja")
NO_LIMIT = 10**9
"""Lengths from here on mean no limit: tokenizers without one report 10^30."""
FILES_ELSEWHERE = ("transformers_weights", "fast_tokenizer_files")
"""Keys of configurations that name other files to read."""
OUTPUT, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
BUFFERS = (".rotary_emb.inv_freq",)
"""Ends of the names of tensors in older files; config.json determines these tensors."""
MOST_GROWTH = 64.0
"""Most letters that a tokenizer's normalizer may make of one letter."""


@dataclass(frozen=True)
class ModelFacts:
    """Facts read from the files in `folder`."""

    name: str
    """The name that the user gave."""
    folder: Path
    revision: str | None
    """The hub's commit; None for a local folder."""
    tokens: int
    """The highest token id plus 1; an embedding may have more rows."""
    window: int
    """Largest number of tokens of prompt and response together."""
    stop_ids: tuple[int, ...]
    """Ids of the tokens that end a response."""
    chat_template: bool
    """True if the tokenizer has a chat template."""
    dtype: str
    """Format of the weights, as torch names it."""
    weights: Mapping[str, Tensor] = field(hash=False)
    """The stored tensors."""

    @property
    def parameters(self) -> int:
        """Number of stored parameters; tied ones count once."""
        return sum(tensor.size for tensor in self.weights.values())

    @functools.cached_property
    def architecture(self) -> Architecture:
        """The architecture by config.json. Raises ConfigError: see `architecture.read`."""
        return architecture.read(self.name, configuration(str(self.folder)))

    @functools.cached_property
    def digest(self) -> str:
        """12 hex digits over the content of configuration, weights and tokenizer, which are read whole."""
        return model_files.digest(self.folder)

    @functools.cached_property
    def tokenizer(self) -> Any:
        """The tokenizer, loaded on first use."""
        return tokenization.load(self.folder)

    @property
    def stop_tokens(self) -> tuple[str, ...]:
        """The tokens of `stop_ids` as text."""
        return tuple(self.tokenizer.convert_ids_to_tokens(list(self.stop_ids)))


def resolve(model: str, revision: str | None = None) -> ModelFacts:
    """The facts of a local Hugging Face folder or of a hub model (`OWNER/NAME`), which is fetched.

    revision: a branch, tag or commit of the hub; None means the main branch.

    Raises:
        ConfigError: the model does not exist, cannot be fetched, or cannot be loaded by an engine.
    """
    folder = model_files.folder(model, revision)
    return examine(model, folder, None if model_files.local_folder(model) else folder.name)


def configuration(model: str, revision: str | None = None) -> dict[str, Any]:
    """The config.json of a model, see `resolve`; nothing else is fetched.

    Raises:
        ConfigError: the model does not exist, its config.json cannot be fetched or read, or it requires custom code.
    """
    return _config(model, model_files.folder(model, revision, ("config.json",)))


def examine(name: str, folder: Path, revision: str | None = None) -> ModelFacts:
    """The facts of the model in `folder`, whose weight files must all be there.

    Raises:
        ConfigError: a file is missing, damaged, or cannot be loaded by an engine.
    """
    model_files.counted(folder)
    config = _config(name, folder)
    weights = weight_files.stored(name, folder)
    if isinstance(config.get("model_type"), str) and config["model_type"] in architecture.MODEL_TYPES:
        _check_weights(name, architecture.read(name, config), weights)
    settings = _optional(name, folder, "tokenizer_config.json")
    vocabulary = _vocabulary(name, folder, settings)
    return ModelFacts(
        name=name,
        folder=folder,
        revision=revision,
        tokens=vocabulary.tokens,
        window=_window(name, config, settings.get("model_max_length")),
        stop_ids=_stop_ids(name, folder, config, vocabulary),
        chat_template=bool(settings.get("chat_template") or [path for form in TEMPLATES for path in folder.glob(form)]),
        dtype=_dtype(name, config, next(iter(weights.values())).dtype),
        weights=weights,
    )


def _check_weights(name: str, design: Architecture, weights: Mapping[str, Tensor]) -> None:
    """Raise ConfigError if the stored tensors differ from the tensors of `design`, a model of the Llama family."""
    if design.quantized or design.output_bias or design.mlp_bias:
        return
    if design.layers > len(weights):
        raise bad_model(f"{name}: its config.json describes {design.layers} layers, its files have fewer tensors")
    described = architecture.tensors(design)
    shapes = {key: tensor.shape for key, tensor in weights.items() if not key.endswith(BUFFERS)}
    if design.tied and OUTPUT in shapes and weight_files.are_equal(weights, OUTPUT, EMBEDDING):
        del shapes[OUTPUT]
    keys = [*described, *sorted(shapes.keys() - described.keys())]
    if conflicts := [key for key in keys if described.get(key) != shapes.get(key)]:
        is_tied = conflicts == [OUTPUT] and design.tied
        by_config, by_files = (" x ".join(map(str, side.get(conflicts[0], ["none"]))) for side in (described, shapes))
        raise bad_model(
            f"{name}: {len(conflicts)} tensors of its weight files differ from its config.json, {conflicts[0]} first: "
            f"its shape is {by_config} by config.json, {by_files} by the files",
            fix='"tie_word_embeddings": false in config.json' if is_tied else "config.json and all weights of one save",
        )


@dataclass(frozen=True)
class _Vocabulary:
    """The tokens of a tokenizer, from its files."""

    tokens: int
    """The highest id plus 1."""
    end: int | None
    """The token that ends a text; None if the files name none."""
    special: Mapping[str, int] = field(default_factory=dict)
    """Ids of added tokens, by their text."""


def _vocabulary(name: str, folder: Path, settings: Mapping[str, Any]) -> _Vocabulary:
    """The vocabulary by tokenizer.json; `settings` is the content of tokenizer_config.json."""
    _check_tokenizer(name, folder)
    if not (folder / "tokenizer.json").exists():
        tokenizer = tokenization.load(folder)
        return _Vocabulary(len(tokenizer), tokenizer.eos_token_id)
    content = model_files.read_json(name, folder / "tokenizer.json")
    try:
        vocabulary = content["model"]["vocab"]
        ids = [len(vocabulary) - 1] if isinstance(vocabulary, list) else [*vocabulary.values()]
        special = {token["content"]: token["id"] for token in content.get("added_tokens") or []}
        ids_of = {**(vocabulary if isinstance(vocabulary, Mapping) else {}), **special}
        for number, token in (settings.get("added_tokens_decoder") or {}).items():
            text = token["content"]
            special[text] = agreed(name, f"the number of {text!r:.40}", ids_of.get(text), int(number))
        bad_numbers = [
            number for number in [*ids, *special.values()] if type(number) is not int or not 0 <= number < NO_LIMIT
        ]
        growth = _growth(content.get("normalizer"))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise bad_model(f"{name}: tokenizer.json has no vocabulary that can be read") from error
    if bad_numbers:
        raise bad_model(f"{name}: tokenizer.json has a token of number {str(bad_numbers[0])[:40]}")
    if growth > MOST_GROWTH:
        raise bad_model(f"{name}: the normalizer in tokenizer.json makes {growth:.3g} letters of one")
    tokens = [item.get("eos_token") for item in (settings, _optional(name, folder, "special_tokens_map.json"))]
    end = agreed(name, "eos_token", *(item.get("content") if isinstance(item, Mapping) else item for item in tokens))
    number = special.get(str(end), ids_of.get(str(end)))
    if number is None:
        # A class of tokenizer may have an end token of its own.
        number = tokenization.load(folder).eos_token_id
    return _Vocabulary(max([*ids, *special.values()]) + 1, number, special)


def _growth(normalizer: Any) -> float:
    """The most letters that a normalizer of tokenizer.json makes of one letter."""
    if not isinstance(normalizer, Mapping):
        return 1.0
    growth = 1.0
    for part in normalizer.get("normalizers") or []:
        growth *= _growth(part)
    if normalizer.get("type") == "Replace":
        pattern = normalizer.get("pattern") or {}
        # A regular expression may match a single letter, or nothing between two.
        length = max(1, len(pattern.get("String", ""))) if isinstance(pattern, Mapping) else 1
        growth *= max(1.0, len(str(normalizer.get("content", ""))) / length)
    return growth * max(1.0, len(str(normalizer.get("prepend", ""))))


def _dtype(name: str, config: Mapping[str, Any], stored: str) -> str:
    """The format that the configuration names, else the format of the first tensor; by torch's name."""
    dtype = agreed(name, "dtype", config.get("dtype"), config.get("torch_dtype")) or FORMATS.get(stored, "float32")
    if dtype not in FORMATS.values():
        raise bad_model(f"{name}: {str(dtype)[:40]} is no format of weights: {', '.join(FORMATS.values())}")
    return str(dtype)


def _config(name: str, folder: Path, file: str = "config.json") -> dict[str, Any]:
    """The content of a configuration, which must not ask for code, or for files that do not count."""
    adapter = folder / "adapter_config.json"
    if file == "config.json" and adapter.is_file() and not (folder / file).exists():
        base = str(model_files.read_json(name, adapter).get("base_model_name_or_path"))[:80]
        raise bad_model(
            f"{name}: the folder has a LoRA adapter of {base}, which is no model by itself",
            fix=f"peft: AutoPeftModelForCausalLM.from_pretrained('{name}').merge_and_unload().save_pretrained(FOLDER)",
        )
    config = model_files.read_json(name, folder / file)
    for key, value in _entries(config):
        if key == "auto_map":
            reason, fix = "requires the model's own code (auto_map), which is never run", "use a model without auto_map"
        elif key.endswith("_implementation") and "/" in str(value):
            reason, fix = f"asks for code of the hub ({key}: {str(value)[:60]})", f"remove {key} from {file}"
        elif key in FILES_ELSEWHERE:
            reason, fix = f"names files of its own ({key})", f"remove {key} from {file}"
        else:
            continue
        raise ConfigError(f"{name}: its {file} {reason}", fix=fix, code="unsafe")
    return config


def _entries(value: Any) -> Iterator[tuple[str, Any]]:
    """All keys and values of nested objects, the inner ones included."""
    queue = [value]
    while queue:
        item = queue.pop()
        if isinstance(item, Mapping):
            yield from item.items()
        queue += [*item.values()] if isinstance(item, Mapping) else item if isinstance(item, list) else []


def _window(name: str, config: Mapping[str, Any], longest: Any) -> int:
    """The smaller of the limits that configuration and tokenizer (`longest`) set."""
    limits = [config.get("max_position_embeddings"), longest]
    if bad_limits := [limit for limit in limits if limit is not None and type(limit) not in (int, float)]:
        raise bad_model(f"{name}: a limit of tokens must be a number, not {bad_limits[0]!r:.40}")
    numbers = [int(limit) for limit in limits if isinstance(limit, int | float) and 1 <= limit < NO_LIMIT]
    if not numbers:
        raise bad_model(f"{name}: config.json has no max_position_embeddings, so the model's window is unknown")
    return min(numbers)


def _stop_ids(name: str, folder: Path, config: Mapping[str, Any], vocabulary: _Vocabulary) -> tuple[int, ...]:
    """The tokenizer's end token and the end tokens of generation_config.json (else config.json), as in vLLM."""
    file = "generation_config.json"
    setting = _optional(name, folder, file).get("eos_token_id", config.get("eos_token_id"))
    ids: Sequence[Any] = setting if isinstance(setting, list) else [setting]
    tokens = [token for token in [vocabulary.end, *ids] if token is not None]
    template = _of_template(folder, vocabulary)
    fix = f'set "eos_token_id"{f": {template[1]}" if template else ""} in {name}/{file}'
    if bad_tokens := [token for token in tokens if type(token) is not int or not 0 <= token < vocabulary.tokens]:
        raise bad_model(
            f"{name}: an end token must be the number of one of the tokenizer's {vocabulary.tokens} tokens, not "
            f"{str(bad_tokens[0])[:40]}",
            fix=fix,
        )
    if not tokens:
        ends = f"; the chat template ends turns with {template[0]}" if template else ""
        reason = f"names an end token, so that every response would be truncated{ends}"
        raise bad_model(f"{name}: neither tokenizer, {file} nor config.json {reason}", fix=fix)
    return tuple(dict.fromkeys(tokens))


def _of_template(folder: Path, vocabulary: _Vocabulary) -> tuple[str, int] | None:
    """The special token that follows a turn in the chat template, and its number; None if there is no such token."""
    for path in (folder / "chat_template.jinja", folder / "tokenizer_config.json"):
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        if marker := re.search(r"content[^{}<]*(?:\}\}|\+ *['\"])(<[^<>{}'\"]+>)", text):
            return (marker[1], vocabulary.special[marker[1]]) if marker[1] in vocabulary.special else None
    return None


def _check_tokenizer(name: str, folder: Path) -> None:
    """Raise ConfigError if the folder has no tokenizer, or one that needs the model's own code."""
    if not any(fnmatch.fnmatch(path.name, pattern) for path in folder.iterdir() for pattern in model_files.TOKENIZER):
        raise bad_model(f"{name}: the folder has no tokenizer (no tokenizer.json, no vocab.json, no *.model)")
    if (folder / "tokenizer_config.json").exists():
        _config(name, folder, "tokenizer_config.json")


def _optional(name: str, folder: Path, file: str) -> dict[str, Any]:
    return model_files.read_json(name, folder / file) if (folder / file).exists() else {}
