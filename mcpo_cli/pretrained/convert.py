"""Converts a GGUF file to a Hugging Face folder: `python -m mcpo_cli.pretrained.convert FILE FOLDER`.

transformers dequantises the weights to float32. Its tokenizer has the wrong end token (it takes the begin token), so
that special tokens are set from the file's own metadata. The last line of stdout says what went wrong.
"""

import sys
from pathlib import Path
from typing import Any

from mcpo_cli.errors import first_line

SPECIAL = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}
"""Attributes of a tokenizer and their names in GGUF (below `tokenizer.ggml.`)."""
ENDS = ("eos_token_id", "eot_token_id")
"""GGUF's names of tokens that end a response."""


def convert(gguf: Path, target: Path) -> None:
    """Write weights, configuration, tokenizer and generation settings of `gguf` to `target`.

    Raises:
        ValueError: the file lacks weights or a tokenizer.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    loaded: Any = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32, output_loading_info=True, local_files_only=True
    )
    model, loading = loaded
    if missing := sorted(loading["missing_keys"]):
        raise ValueError(f"it lacks {len(missing)} tensors, {missing[0]} first")
    words = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, local_files_only=True)
    about = _metadata(gguf)
    for attribute, key in SPECIAL.items():
        if (token := about.get(key)) is not None:
            setattr(words, attribute, words.convert_ids_to_tokens(int(token)))
    ends = list(dict.fromkeys(int(about[key]) for key in ENDS if about.get(key) is not None))
    if not ends:
        raise ValueError("it names no end token")
    model.generation_config = GenerationConfig(
        bos_token_id=words.bos_token_id,
        eos_token_id=ends if len(ends) > 1 else ends[0],
        pad_token_id=words.pad_token_id,
    )
    model.config._name_or_path = ""
    model.save_pretrained(target)
    words.save_pretrained(target)


def _metadata(gguf: Path) -> dict[str, Any]:
    """The values below `tokenizer.ggml.` that are single numbers."""
    from gguf import GGUFReader

    prefix = "tokenizer.ggml."
    fields = GGUFReader(gguf).fields.items()
    return {
        key.removeprefix(prefix): field.contents()
        for key, field in fields
        if key.startswith(prefix) and key.endswith("_id")
    }


def main() -> None:
    """Convert; exit with 1 and one line on stdout where that fails."""
    try:
        convert(Path(sys.argv[1]), Path(sys.argv[2]))
    except Exception as error:  # transformers raises many kinds for files it does not know
        sys.stdout.write(f"{type(error).__name__}: {first_line(error)}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
