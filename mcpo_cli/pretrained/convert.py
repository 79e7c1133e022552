"""Converts a GGUF file to a Hugging Face folder: `python -m mcpo_cli.pretrained.convert FILE FOLDER`.

transformers dequantises the weights to float32. Its tokenizer has the begin token as the end token, and always splits
text as GPT-2 does; `_mend` sets both from the file's metadata. The last line of stdout is the error, if there is one.
"""

import sys
from pathlib import Path
from typing import Any

from mcpo_cli.errors import first_line
from mcpo_cli.pretrained import write

SPECIAL = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}
"""Attributes of a tokenizer and their names in GGUF (below `tokenizer.ggml.`)."""
SPLITS = ("default", "gpt-2", "qwen2", "smollm")
"""Values of `tokenizer.ggml.pre` whose rules transformers or `_mend` applies."""
ENDS = ("eos_token_id", "eot_token_id")
"""GGUF's names of tokens that end a response."""


def convert(gguf: Path, target: Path) -> None:
    """Write weights, configuration, tokenizer and generation settings of `gguf` to `target`.

    Raises:
        ValueError: the file lacks weights or a tokenizer.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    result: Any = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.float32,
        output_loading_info=True,
        local_files_only=True,
        trust_remote_code=False,
    )
    model, report = result
    if missing_keys := sorted(report["missing_keys"]):
        raise ValueError(f"it lacks {len(missing_keys)} tensors, {missing_keys[0]} first")
    tokenizer = AutoTokenizer.from_pretrained(
        gguf.parent, gguf_file=gguf.name, local_files_only=True, trust_remote_code=False
    )
    metadata = _metadata(gguf)
    _mend(tokenizer, metadata)
    end_ids = list(dict.fromkeys(int(metadata[key]) for key in ENDS if metadata.get(key) is not None))
    if not end_ids:
        raise ValueError("it names no end token")
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=end_ids if len(end_ids) > 1 else end_ids[0],
        pad_token_id=tokenizer.pad_token_id,
    )
    # The name by which its makers called a training run.
    model.config.__dict__.pop("_model_name_or_path", None)
    write.write(target, model, tokenizer)


def _mend(tokenizer: Any, metadata: dict[str, Any]) -> None:
    """Set special tokens and the way in which text is split from `metadata`.

    Raises:
        ValueError: `metadata` names an unknown way.
    """
    from tokenizers import pre_tokenizers

    for attribute, key in SPECIAL.items():
        if (token := metadata.get(key)) is not None:
            setattr(tokenizer, attribute, tokenizer.convert_ids_to_tokens(int(token)))
    tokenizer.clean_up_tokenization_spaces = False
    split = metadata.get("pre", "default")
    if metadata.get("model") == "gpt2" and split not in SPLITS:
        raise ValueError(f"its tokenizer splits text as '{split}', and only {', '.join(SPLITS)} are known")
    if split == "smollm":
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )


def _metadata(gguf: Path) -> dict[str, Any]:
    """The values below `tokenizer.ggml.` that are single numbers or names."""
    from gguf import GGUFReader

    prefix = "tokenizer.ggml."
    fields = GGUFReader(gguf).fields.items()
    return {
        key.removeprefix(prefix): field.contents()
        for key, field in fields
        if key.startswith(prefix) and key.endswith(("_id", ".pre", ".model"))
    }


def main() -> None:
    """Convert; exit with 1 and one line on stdout where that fails."""
    try:
        convert(Path(sys.argv[1]), Path(sys.argv[2]))
    except Exception as error:  # transformers raises many kinds for unknown files
        sys.stdout.write(f"{type(error).__name__}: {first_line(error)}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
