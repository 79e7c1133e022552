"""Tiny models for tests of the evaluation: Hugging Face folders with weights as they were drawn."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

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


CHAT = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
"""A chat template."""


def wordy(folder: Path, *, chat: bool = False) -> Path:
    """An untrained Llama that writes any text, in `folder`: each byte is a token, and so is `7\\n`."""
    torch.manual_seed(0)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    seven, newline = "7", "\u010a"
    vocabulary = {token: i for i, token in enumerate(["<end>", *alphabet, seven + newline])}
    core = Tokenizer(BPE(vocabulary, [(seven, newline)]))
    core.pre_tokenizer, core.decoder = (
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        decoders.ByteLevel(),
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<end>")
    tokenizer.chat_template = CHAT if chat else None
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        initializer_range=0.2,
        bos_token_id=None,
        eos_token_id=0,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
