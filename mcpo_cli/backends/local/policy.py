"""The policy: a stock causal LM whose forward pass computes each distinct beginning of a group's rollouts once.

`tree.py` explains beginnings with a drawing of a group's tree. `Policy.log_probs` runs a whole tree at once, for
training; `generate.Growth` adds one level of rows at a time. In both, linear layers see the rows of all groups as
one matrix without padding, attention sees one sequence per group, and a mask lets each row see only its ancestors.

The stock class of transformers holds the weights (Llama, Mistral, Qwen2 or Qwen3: the same blocks, with or without
norms of queries and keys and with or without biases), so saving, loading, vLLM and verl do not depend on this file; a
test compares log-probabilities and gradients with the stock forward pass.

Shape suffixes: P prompts, G rollouts of each, S prompt tokens, T response tokens, N rows, H heads (of queries, of keys
and values, or of both), D head size, V vocabulary, E hidden size; B sequences of L rows, W of which are queries.
"""

import copy
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedTokenizerBase, Qwen3Config, Qwen3ForCausalLM

from mcpo_cli.backends.local import log_probs
from mcpo_cli.backends.local import tree as trees
from mcpo_cli.backends.local.lora import Lora
from mcpo_cli.backends.local.products import FUSED, Matrices, Matrix, fused, last_apart, product, products
from mcpo_cli.backends.local.tree import Tree
from mcpo_cli.config.cost import PIECES_KEPT, VOCABULARY_NUMBERS
from mcpo_cli.config.schema import Model
from mcpo_cli.pretrained import write
from mcpo_cli.seeds import stream

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""From a layer's number and q, k, v (NHD) to the attention output (NHD) of the rows of q, maybe only the last rows."""

Measure = Callable[[Tensor], Tensor]
"""From log-probabilities NV to a number N for each row's distribution."""

KeysValues = list[tuple[Tensor, Tensor]]
"""Keys and values BLHD, one pair per layer."""

ROW_COST = 200
"""Pairs of rows in an attention that cost as much as the other work for a row (toy-s: 180); more in wider layers."""
PAIR_COST = 9
"""Weights of a layer that cost as much as one number of a head in a pair of rows: attention is much slower than
matrix products."""


@dataclass(frozen=True)
class Layer:
    """The weights of one decoder layer."""

    input_norm: Tensor
    qkv: Matrices
    qk_norm_HD: Tensor | None
    out: Matrix
    mlp_norm: Tensor
    gate_up: Matrices
    down: Matrix


def device(name: str) -> torch.device:
    """The device that `compute.device` names; `auto` takes CUDA if available."""
    return torch.device("cuda" if name == "cuda" or (name == "auto" and torch.cuda.is_available()) else "cpu")


def build(settings: Model, tokenizer: PreTrainedTokenizerBase, seed: int) -> Qwen3ForCausalLM:
    """A Qwen3 with random weights from the `init` stream of `seed`; tied embeddings, float32."""
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=settings.hidden,
        intermediate_size=settings.mlp,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.heads,
        head_dim=settings.head_dim,
        rope_parameters={"rope_type": "default", "rope_theta": settings.rope_theta},
        max_position_embeddings=128,
        tie_word_embeddings=True,
        initializer_range=0.02,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    with torch.random.fork_rng():
        torch.manual_seed(stream(seed, "init"))
        model = Qwen3ForCausalLM(config)
        torch.nn.init.normal_(model.model.embed_tokens.weight, std=settings.init_std)
    return model


class Policy:
    """Forward passes over the weights of `model`; they stay shared with it.

    Args:
        dtype: of the products of weights, and on CUDA of attention; None for the dtype of the weights. Norms, the
        residual stream and logits are computed in the dtype of the weights, which are trained. So is attention on a
        CPU: in bfloat16 its forward pass is no faster there, and its backward pass takes twice as long.
        lora: the matrices that are trained in place of the weights.
        kept_rows: rows of a pass for whose activations there is memory. In a pass of more rows the last layers keep
        their activations as far as that memory goes, and the backward pass recomputes the other layers' (gradient
        checkpointing), which changes no bit.
    """

    def __init__(
        self,
        model: Any,
        torch_device: torch.device,
        *,
        dtype: torch.dtype | None = None,
        lora: Lora | None = None,
        kept_rows: int = sys.maxsize,
    ) -> None:
        config = model.config
        self.model, self.device, self.lora, self.kept_rows = model, torch_device, lora, kept_rows
        torch.nn.Module.to(model, torch_device)
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim: int = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.eps: float = config.rms_norm_eps
        self.vocabulary: int = config.vocab_size
        self.mlp: int = config.intermediate_size
        self.weights_dtype = model.model.embed_tokens.weight.dtype
        self.dtype = dtype or self.weights_dtype
        self.attention_dtype = self.dtype if torch_device.type == "cuda" else self.weights_dtype
        self.reduced_on_cpu = torch_device.type == "cpu" and self.dtype == torch.bfloat16
        self.layer_weights = sum(weight.numel() for weight in model.model.layers[0].parameters())
        """Weights of one layer."""
        self.row_cost = max(ROW_COST, self.layer_weights // (PAIR_COST * self.heads * self.head_dim))
        """Pairs of rows in an attention that cost as much as the other work for a row."""
        table = model.model.embed_tokens.weight
        self.sparse_embedding = table is model.lm_head.weight and table.numel() > FUSED
        """True if the embedding's gradient, which has the rows of a batch, is added to the output layer's in place."""
        self.bytes_in_cache = (
            2 * config.num_hidden_layers * self.kv_heads * self.head_dim * self.attention_dtype.itemsize
        )
        """Bytes of the keys and values of one row."""
        positions = torch.arange(config.max_position_embeddings, device=torch_device)[None]
        cos, sin = model.model.rotary_emb(model.model.embed_tokens.weight, positions)
        # A rotation for each position and pair of numbers of a head; cos and sin hold every angle twice.
        self.turns = torch.complex(*(x[0, :, : self.head_dim // 2].contiguous() for x in (cos, sin)))

    def named_parameters(self) -> dict[str, Tensor]:
        """The trained tensors by name, in a fixed order; tied weights are listed once."""
        return self.lora.named_parameters() if self.lora else dict(self.model.named_parameters())

    def parameters(self) -> list[Tensor]:
        """The trained tensors, in a fixed order."""
        return list(self.named_parameters().values())

    def weights(self) -> dict[str, Tensor]:
        """The trained tensors by name, without their gradients."""
        return {name: value.detach() for name, value in self.named_parameters().items()}

    @torch.no_grad()
    def load_weights(self, tensors: Mapping[str, Tensor]) -> None:
        """Set each trained tensor to the tensor of its name."""
        for name, parameter in self.named_parameters().items():
            parameter.copy_(tensors[name])

    def copy(self) -> "Policy":
        """A policy whose trained tensors are its own, equal to these now."""
        options: Mapping[str, Any] = {"dtype": self.dtype, "kept_rows": self.kept_rows}
        if self.lora:
            return Policy(self.model, self.device, lora=self.lora.copy(), **options)
        return Policy(copy.deepcopy(self.model), self.device, **options)

    def save(self, folder: Path, tokenizer: PreTrainedTokenizerBase) -> None:
        """Write the Hugging Face folder that vLLM, verl and `from_pretrained` load; LoRA's matrices are merged."""
        weights = self.model.state_dict()
        if self.lora:
            weights = {name: self.lora.merged(name, weight).detach() for name, weight in weights.items()}
        write.write(folder, self.model, tokenizer, weights)

    def log_probs(self, prompt_PS: Tensor, token_PGT: Tensor, mask_PGT: Tensor) -> Tensor:
        """logp_PGT of the tokens at temperature 1, nats, with its gradient; 0 outside the mask.

        prompt_PS: filled up with `trees.NO_TOKEN`. mask_PGT: the tokens of each response, which come first.
        """
        (logp_PGT,) = self._predictions(prompt_PS, token_PGT, mask_PGT)
        return logp_PGT

    def log_probs_and_entropies(self, prompt_PS: Tensor, token_PGT: Tensor, mask_PGT: Tensor) -> tuple[Tensor, Tensor]:
        """`log_probs`, and entropy_PGT where each token was drawn, nats, without a gradient; 0 outside the mask."""
        logp_PGT, entropy_PGT = self._predictions(prompt_PS, token_PGT, mask_PGT, _entropies)
        return logp_PGT, entropy_PGT

    def collisions(self, prompt_PS: Tensor, token_PGT: Tensor, mask_PGT: Tensor) -> Tensor:
        """collision_PGT: the sum of squared probabilities where each token was drawn; 0 outside the mask."""
        _, collision_PGT = self._predictions(prompt_PS, token_PGT, mask_PGT, _collisions)
        return collision_PGT

    def _predictions(
        self, prompt_PS: Tensor, token_PGT: Tensor, mask_PGT: Tensor, measure: Measure | None = None
    ) -> tuple[Tensor, ...]:
        """Log-probabilities of the tokens and, if asked for, a measure where they were drawn; 0 outside the mask.

        Rows of the vocabulary are made in pieces. `PIECES_KEPT` pieces stay in memory for the backward pass; if there
        are more, the backward pass recomputes all of them.
        """
        tree = trees.grow(prompt_PS, token_PGT, mask_PGT, self.vocabulary, self.row_cost)
        x_NE = self.hidden_states(tree, self.layers())
        row_PGT, token_PGT = tree.predictor_PGT.where(mask_PGT, 0), token_PGT.where(mask_PGT, 0)
        size = self.rows_at_once
        if len(x_NE) <= size:
            return tuple(part * mask_PGT for part in self._at_tokens(x_NE, row_PGT, token_PGT, measure))
        row_K, token_K = row_PGT.flatten(), token_PGT.flatten()
        pieces, indices, is_kept = [], [], len(x_NE) <= PIECES_KEPT * size
        for first, piece_NE in zip(range(0, len(x_NE), size), x_NE.split(size), strict=True):
            index = ((row_K >= first) & (row_K < first + size)).nonzero().squeeze(-1)
            args = piece_NE, row_K[index] - first, token_K[index], measure
            pieces.append(
                self._at_tokens(*args) if is_kept else checkpoint(self._at_tokens, *args, use_reentrant=False)
            )
            indices.append(index)
        order = torch.cat(indices).argsort()
        return tuple(torch.cat(part)[order].view_as(row_PGT) * mask_PGT for part in zip(*pieces, strict=True))

    def _at_tokens(self, x_NE: Tensor, row: Tensor, token: Tensor, measure: Measure | None) -> tuple[Tensor, ...]:
        """Log-probability of each `token`, and its measure if asked for, where row `row` of `x_NE` predicts."""
        if self.reduced_on_cpu and not measure and torch.is_grad_enabled():
            return (log_probs.log_probs(x_NE, self.model.lm_head.weight, row, token),)
        logp_NV = self.logits(x_NE).log_softmax(-1)
        logp = logp_NV.flatten()[row * self.vocabulary + token]
        return (logp, measure(logp_NV.detach())[row]) if measure else (logp,)

    @property
    def rows_at_once(self) -> int:
        """Rows of which logits are made at a time."""
        return max(1, VOCABULARY_NUMBERS // self.vocabulary)

    def logits(self, x_NE: Tensor) -> Tensor:
        """logits_NV of hidden states after the last norm."""
        return product(x_NE, (self.model.lm_head.weight, None))

    def hidden_states(self, tree: Tree, layers: Sequence[Layer], cache: KeysValues | None = None) -> Tensor:
        """x_NE of the rows of `tree` that predict, under the weights `layers`; `cache` takes keys and values."""
        unseen_BLL = self.unseen(tree.seen_BLL)

        def attend(_layer: int, q_NHD: Tensor, k_NHD: Tensor, v_NHD: Tensor) -> Tensor:
            k_BLHD, v_BLHD = rows(k_NHD, tree.row_BL), rows(v_NHD, tree.row_BL)
            if cache is not None:
                cache.append((k_BLHD, v_BLHD))
            # The last layer leaves out the silent rows, which fill the slots before a prompt's last token.
            silent = len(k_NHD) - len(q_NHD)
            first = tree.shortest - 1 if silent else 0
            row_BW = tree.row_BL[:, first:] - silent
            # In a longer prompt silent rows remain in these slots; their output is not used.
            q_BWHD = rows(q_NHD, row_BW.clamp(min=0))
            out_BWHD = attention(q_BWHD, k_BLHD, v_BLHD, unseen_BLL[:, first:])
            row_N = tree.sequence_N[silent:] * q_BWHD.shape[1] + tree.slot_N[silent:] - first
            return rows(out_BWHD.flatten(0, 1), row_N)

        return self.forward(layers, tree.token_N, tree.position_N, attend, tree.silent)

    def layers(self) -> list[Layer]:
        """The weights as they are now, as `forward` wants them."""
        return [self._layer(f"model.layers.{i}.", layer) for i, layer in enumerate(self.model.model.layers)]

    def _layer(self, name: str, layer: Any) -> Layer:
        attention, mlp = layer.self_attn, layer.mlp

        def matrix(module: Any, path: str, heads: int = 0) -> Matrix:
            weight = self.lora.merged(f"{name}{path}.weight", module.weight) if self.lora else module.weight

            def prepared(tensor: Tensor) -> Tensor:
                return (self._paired(tensor, heads) if heads else tensor).to(self.dtype)

            return prepared(weight), None if module.bias is None else prepared(module.bias)

        norms = [
            self._paired(norm.weight).expand(heads, -1)
            for norm, heads in (
                (getattr(attention, "q_norm", None), self.heads),
                (getattr(attention, "k_norm", None), self.kv_heads),
            )
            if norm is not None
        ]
        return Layer(
            input_norm=layer.input_layernorm.weight,
            qkv=fused(
                matrix(attention.q_proj, "self_attn.q_proj", self.heads),
                matrix(attention.k_proj, "self_attn.k_proj", self.kv_heads),
                matrix(attention.v_proj, "self_attn.v_proj"),
            ),
            qk_norm_HD=torch.cat(norms) if norms else None,
            out=matrix(attention.o_proj, "self_attn.o_proj"),
            mlp_norm=layer.post_attention_layernorm.weight,
            gate_up=fused(matrix(mlp.gate_proj, "mlp.gate_proj"), matrix(mlp.up_proj, "mlp.up_proj")),
            down=matrix(mlp.down_proj, "mlp.down_proj"),
        )

    def forward(
        self, layers: Sequence[Layer], token_N: Tensor, position_N: Tensor, attend: Attend, silent: int = 0
    ) -> Tensor:
        """x_NE of the rows after the first `silent`, after the last norm; the caller decides what each row attends to.

        Silent rows need keys and values in every layer, and nothing else in the last layer.
        """
        core = self.model.model
        turn = self.turns[position_N][:, None]
        recomputed_layers = self._recomputed(len(token_N)) if torch.is_grad_enabled() else 0
        hidden_NE = functional.embedding(token_N, core.embed_tokens.weight, sparse=self.sparse_embedding)
        for index, layer in enumerate(layers):
            args = index, layer, hidden_NE, turn, attend, silent if index == len(layers) - 1 else 0
            is_recomputed = index < recomputed_layers
            hidden_NE = checkpoint(self._block, *args, use_reentrant=False) if is_recomputed else self._block(*args)
        x_NE: Tensor = self._norm(hidden_NE) * core.norm.weight
        return x_NE

    def _recomputed(self, rows: int) -> int:
        """How many of the first layers have activations that the backward pass recomputes, for that many rows."""
        layers = len(self.model.model.layers)
        return layers - min(layers, layers * self.kept_rows // rows)

    def _block(self, index: int, layer: Layer, hidden_NE: Tensor, turn: Tensor, attend: Attend, silent: int) -> Tensor:
        """One decoder layer; returns hidden_NE of the rows after the first `silent`."""
        qkv = products(self._norm(hidden_NE) * layer.input_norm, layer.qkv)
        qk, v = (x.unflatten(-1, (-1, self.head_dim)) for x in last_apart(qkv, self.kv_heads * self.head_dim))
        qk_NHD, v_NHD = qk.to(self.weights_dtype), v.to(self.attention_dtype)
        if layer.qk_norm_HD is not None:
            qk_NHD = self._norm(qk_NHD) * layer.qk_norm_HD
        q_NHD, k_NHD = rotate(qk_NHD, turn).to(self.attention_dtype).split([self.heads, self.kv_heads], dim=1)
        q_NHD, hidden_NE = q_NHD[silent:], hidden_NE[silent:]
        out_NHD = attend(index, q_NHD, k_NHD, v_NHD)
        hidden_NE = hidden_NE + product(out_NHD.flatten(1), layer.out)
        gate, up = last_apart(products(self._norm(hidden_NE) * layer.mlp_norm, layer.gate_up), self.mlp)
        return hidden_NE + product(functional.silu(gate) * up, layer.down)

    @staticmethod
    def _paired(weight: Tensor, heads: int = 1) -> Tensor:
        """Each head's numbers in the order first, D/2-th, second, ...: neighbours are rotated together.

        The stock classes rotate the halves of a head against each other. The order of a head's numbers does not matter
        to the product of query and key, as long as it is the same in both.
        """
        result: Tensor = weight.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)
        return result

    def _norm(self, x: Tensor) -> Tensor:
        result: Tensor = functional.rms_norm(x, (x.shape[-1],), eps=self.eps)
        return result

    def unseen(self, seen: Tensor) -> Tensor:
        """The mask that attention adds to its scores: 0 where seen, -inf elsewhere."""
        zero = torch.zeros((), dtype=self.attention_dtype, device=self.device)
        return zero.where(seen, float("-inf"))


def _entropies(logp_NV: Tensor) -> Tensor:
    return -(logp_NV.exp() * logp_NV).sum(-1)


def _collisions(logp_NV: Tensor) -> Tensor:
    return (2 * logp_NV).exp().sum(-1)


def attention(q_BWHD: Tensor, k_BLHD: Tensor, v_BLHD: Tensor, unseen_BWL: Tensor) -> Tensor:
    """Attention of W rows to L rows in each of B sequences, BWHD; unseen_BWL: see `Policy.unseen`."""
    q, k, v = (x.transpose(1, 2) for x in (q_BWHD, k_BLHD, v_BLHD))
    is_grouped = q.shape[1] != k.shape[1]
    if is_grouped and q.is_cuda:
        # The CUDA kernel with a mask does not support groups of heads: torch would store the scores of all pairs.
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
        is_grouped = False
    out = functional.scaled_dot_product_attention(q, k, v, attn_mask=unseen_BWL[:, None], enable_gqa=is_grouped)
    return out.transpose(1, 2)


def rows(x_NHD: Tensor, index: Tensor) -> Tensor:
    """The rows of `index`, in its shape, as an embedding, whose backward pass is faster than indexing's."""
    result: Tensor = functional.embedding(index, x_NHD.flatten(1)).unflatten(-1, x_NHD.shape[1:])
    return result


def rotate(x: Tensor, turn: Tensor) -> Tensor:
    """Rotary position embedding of the last axis, whose neighbours are the two parts of a complex number."""
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    result: Tensor = torch.view_as_real(pairs * turn).flatten(-2)
    return result
