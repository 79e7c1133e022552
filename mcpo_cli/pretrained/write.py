"""Writes a model as a Hugging Face folder that older releases of transformers read, too.

transformers 5 writes a layout that 4.57 reads wrongly without a word: the base of the rotary embedding only inside
`rope_parameters` (4.57 takes 10 000), names of tokenizer classes that 4.57 lacks, and extra special tokens as a list.
The folder has both layouts, where they differ.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

OLDEST = "4.57"
"""The oldest release of transformers that reads what `write` writes, as the model card says."""
ANY_TOKENIZER = "PreTrainedTokenizerFast"
"""The class that reads any tokenizer.json in all releases."""


def write(folder: Path, model: Any, tokenizer: Any, weights: Mapping[str, Any] | None = None) -> None:
    """Write `model` and its tokenizer to `folder`. weights: by name, in place of the model's own weights."""
    model.save_pretrained(folder, state_dict=weights)
    tokenizer.save_pretrained(folder)
    _change(folder / "config.json", _older_config)
    _change(folder / "tokenizer_config.json", _older_tokenizer)


def _older_config(config: dict[str, Any]) -> None:
    rope = config.get("rope_parameters")
    if not isinstance(rope, dict) or "rope_theta" not in rope:
        return
    config["rope_theta"] = rope["rope_theta"]
    if rope.get("rope_type", "default") != "default":
        config["rope_scaling"] = {name: value for name, value in rope.items() if name != "rope_theta"}


def _older_tokenizer(settings: dict[str, Any]) -> None:
    if settings.get("tokenizer_class") == "TokenizersBackend":
        settings["tokenizer_class"] = ANY_TOKENIZER
    if isinstance(settings.get("extra_special_tokens"), list):
        settings["additional_special_tokens"] = settings.pop("extra_special_tokens")


def _change(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
