"""Tiny models for tests of the evaluation: Hugging Face folders with weights as they were drawn."""

from pathlib import Path

from mcpo_cli import tasks
from mcpo_cli.backends.local import policy as policies
from mcpo_cli.backends.local import tokenizer as tokenizers
from mcpo_cli.config.load import load


def untrained(folder: Path) -> Path:
    """An untrained toy-s with its tokenizer in `folder`; embeddings so small that no token is certain."""
    (spec,) = load(["model=toy-s", "model.init_std=0.04"])
    tokenizer = tokenizers.build(tasks.closed(spec.task).vocabulary)
    policies.build(spec.model, tokenizer, 0).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
