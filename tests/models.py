"""Tiny models for tests: Hugging Face folders with untrained weights, GGUF files, and wheels with these."""

import zipfile
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from mcpo_cli import tasks
from mcpo_cli.backends.local import policy as policies
from mcpo_cli.backends.local import tokenizer as tokenizers
from mcpo_cli.config.load import load
from mcpo_cli.model_facts import ModelFacts
from mcpo_cli.tokenization import TEXT, prompt_ids


def encoded(facts: ModelFacts, text: str, chat: bool = False) -> tuple[int, ...]:
    """Token ids of `text` as a prompt: plain, or as the user's turn in the chat template."""
    return tuple(prompt_ids(facts.tokenizer, [{"role": "user" if chat else TEXT, "content": text}]))


def untrained(folder: Path) -> Path:
    """An untrained toy-s with its tokenizer in `folder`; embeddings so small that no token is certain."""
    (spec,) = load(["model=toy-s", "model.init_std=0.04"])
    tokenizer = tokenizers.build(tasks.closed(spec.task).vocabulary)
    policies.build(spec.model, tokenizer, 0).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
SPECIAL = ["<|begin|>", "<|end|>", "<|user|>", "<|assistant|>"]


def words(chat: bool = True) -> Any:
    """A tokenizer of single bytes and a few merges, in the form of GPT-2's."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("t", "h"), ("th", "e"), ("Ġ", "a")]
    tokens = [*SPECIAL, *letters, *("".join(pair) for pair in merges)]
    tokenizer = Tokenizer(BPE({token: index for index, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    found = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=SPECIAL[0], eos_token=SPECIAL[1], pad_token=SPECIAL[1]
    )
    found.chat_template = TEMPLATE if chat else None
    return found


def existing(folder: Path, family: str = "llama", *, chat: bool = True, rows: int = 0, **changes: Any) -> Path:
    """A tiny random model of a family (llama, qwen2, qwen3, mistral) in `folder`, as its makers would publish it.

    rows: of the embedding; 0 means one for each token. changes: to its config.json.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    tokenizer = words(chat)
    options = {"num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 128, **changes}
    options |= {"vocab_size": rows or len(tokenizer), "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **SIZES, **options))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def gguf(source: Path, target: Path, split: str = "smollm") -> Path:
    """The model in the folder `source` as a GGUF file, as llama.cpp's converter writes it."""
    import numpy as np
    from gguf import GGUFWriter, TokenType
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = AutoModelForCausalLM.from_pretrained(source), AutoTokenizer.from_pretrained(source)
    config = model.config
    writer = GGUFWriter(target, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(split)
    tokens = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL if token in SPECIAL else TokenType.NORMAL for token in tokens])
    writer.add_token_merges(["t h", "th e", "Ġ a"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_pad_token_id(1)
    writer.add_chat_template(TEMPLATE)
    names = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    layer = {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }
    for index in range(config.num_hidden_layers):
        names |= {f"model.layers.{index}.{name}": f"blk.{index}.{short}" for name, short in layer.items()}
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, tensor in model.state_dict().items():
        value = tensor.numpy().astype(np.float32)
        if rows := next((count for kind, count in heads.items() if kind in name), 0):
            # llama.cpp rotates neighbouring pairs, and orders rows for that.
            value = value.reshape(rows, 2, -1, value.shape[1]).swapaxes(1, 2).reshape(value.shape)
        if name != "lm_head.weight" or not config.tie_word_embeddings:
            writer.add_tensor(f"{names[name.removesuffix('.weight')]}.weight", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def wheel(source: Path, folder: Path, name: str = "tiny_model", version: str = "1.0") -> Path:
    """A wheel in `folder` that holds the file `source`, for pip."""
    about = f"{name}-{version}.dist-info"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    files = {
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/RECORD": "",
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(source, f"{name}/{source.name}")
        for file, text in files.items():
            archive.writestr(file, text)
    return path


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
