"""The policy: a stock Qwen3 whose forward pass runs the prompt once a group of rollouts.

Shape suffixes: P prompts, G rollouts of each, S prompt tokens, T response tokens, H heads, D head size,
V vocabulary, E hidden size, N rows of tokens without padding. The weights live in a
`Qwen3ForCausalLM`, so saving, loading, vLLM and verl need nothing of this file; a test holds its
logits against the stock forward pass.
"""

import copy
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from mcpo_cli.config.schema import Model
from mcpo_cli.seeds import stream

KeysValues = list[tuple[Tensor, Tensor]]
"""Keys and values of the prompts, a pair a layer, each PHSD."""

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""Layer, and q, k, v of shape NHD, to the attention output of shape NHD."""


def device(wanted: str) -> torch.device:
    """The device that `compute.device` names; `auto` takes CUDA where there is one."""
    return torch.device("cuda" if wanted == "cuda" or (wanted == "auto" and torch.cuda.is_available()) else "cpu")


def build(settings: Model, tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
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
    """Forward passes over the weights of `model`; they stay shared with it."""

    def __init__(self, model: Qwen3ForCausalLM, place: torch.device) -> None:
        config = model.config
        self.model, self.device = model, place
        torch.nn.Module.to(model, place)
        self.heads, self.head_dim, self.eps = config.num_attention_heads, config.head_dim, config.rms_norm_eps
        positions = torch.arange(config.max_position_embeddings, device=place)[None]
        cos, sin = model.model.rotary_emb(model.model.embed_tokens.weight, positions)
        self.cos, self.sin = cos[0], sin[0]

    def parameters(self) -> list[Tensor]:
        """The trained tensors, in a fixed order."""
        return list(self.model.parameters())

    def copy(self) -> "Policy":
        """A policy with its own weights, equal to these now."""
        return Policy(copy.deepcopy(self.model), self.device)

    def save(self, folder: Path, tokenizer: PreTrainedTokenizerFast) -> None:
        """Write the Hugging Face folder that vLLM, verl and `from_pretrained` load."""
        self.model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)

    def prompt(self, prompt_PS: Tensor) -> tuple[Tensor, KeysValues]:
        """Run the prompts once: logits_PV of the first response token, and what responses attend to."""
        P, S = prompt_PS.shape
        cache: KeysValues = []

        def attend(_layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            q_PHSD, k_PHSD, v_PHSD = (x.view(P, S, self.heads, self.head_dim).transpose(1, 2) for x in (q, k, v))
            cache.append((k_PHSD, v_PHSD))
            out_PHSD = functional.scaled_dot_product_attention(q_PHSD, k_PHSD, v_PHSD, is_causal=True)
            return out_PHSD.transpose(1, 2).reshape(P * S, self.heads, self.head_dim)

        positions_N = torch.arange(S, device=self.device).repeat(P)
        hidden_NE = self._layers(prompt_PS.reshape(-1), positions_N, attend)
        return self._logits(hidden_NE.view(P, S, -1)[:, -1]), cache

    def response(self, prompt_PS: Tensor, token_PGT: Tensor, mask_PGT: Tensor) -> Tensor:
        """Logits_PGTV that predict each response token; rows outside the mask hold zeros.

        Linear layers see the real tokens only; attention is computed on the padded square.
        """
        P, G, T = token_PGT.shape
        first_PV, prompts = self.prompt(prompt_PS)
        V = first_PV.shape[-1]
        # Token t is predicted at the place of token t - 1; the last token predicts nothing.
        feed_PGT = mask_PGT.clone()
        feed_PGT[..., :-1] &= mask_PGT[..., 1:]
        feed_PGT[..., -1] = False
        index_N = feed_PGT.reshape(-1).nonzero().squeeze(-1)
        causal_TT = torch.ones(T, T, dtype=torch.bool, device=self.device).triu(1)

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            q_PHGTD, k_PHGTD, v_PHGTD = (self._pad(x, index_N, (P, G, T)) for x in (q, k, v))
            out_PHGTD = attend_group(q_PHGTD, prompts[layer], (k_PHGTD, v_PHGTD), causal_TT)
            return out_PHGTD.permute(0, 2, 3, 1, 4).reshape(P * G * T, self.heads, self.head_dim)[index_N]

        positions_N = prompt_PS.shape[1] + index_N % T
        hidden_NE = self._layers(token_PGT.reshape(-1)[index_N], positions_N, attend)
        rest_BTV = hidden_NE.new_zeros(P * G * T, V).index_copy(0, index_N, self._logits(hidden_NE)).view(P, G, T, V)
        return torch.cat([first_PV[:, None, None].expand(P, G, 1, V), rest_BTV[:, :, :-1]], dim=2)

    def decode(self, token_PG: Tensor, position: int, prompts: KeysValues, past: KeysValues, length: int) -> Tensor:
        """Logits_PGV after one more token of each rollout.

        `past` holds keys and values PHGTD of the response so far, preallocated; this writes row `length`.
        """
        P, G = token_PG.shape

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            q_PHGTD, k_PHGTD, v_PHGTD = (
                x.view(P, G, self.heads, self.head_dim).transpose(1, 2).unsqueeze(3) for x in (q, k, v)
            )
            keys, values = past[layer]
            keys[:, :, :, length : length + 1] = k_PHGTD
            values[:, :, :, length : length + 1] = v_PHGTD
            so_far = keys[:, :, :, : length + 1], values[:, :, :, : length + 1]
            out_PHGTD = attend_group(q_PHGTD, prompts[layer], so_far, None)
            return out_PHGTD.squeeze(3).transpose(1, 2).reshape(P * G, self.heads, self.head_dim)

        positions_N = torch.full((P * G,), position, device=self.device)
        return self._logits(self._layers(token_PG.reshape(-1), positions_N, attend)).view(P, G, -1)

    def _layers(self, token_N: Tensor, position_N: Tensor, attend: Attend) -> Tensor:
        """Embedding, decoder layers and final norm; what attends to what is the caller's."""
        inner = self.model.model
        shape = (-1, self.heads, self.head_dim)
        cos_N1D, sin_N1D = self.cos[position_N].unsqueeze(1), self.sin[position_N].unsqueeze(1)
        hidden_NE = functional.embedding(token_N, inner.embed_tokens.weight)
        for index, layer in enumerate(inner.layers):
            attention, mlp = layer.self_attn, layer.mlp
            x_NE = self._norm(hidden_NE, layer.input_layernorm.weight)
            weight = torch.cat([attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight])
            q, k, v = (x.reshape(shape) for x in functional.linear(x_NE, weight).chunk(3, dim=-1))
            q = rotate(self._norm(q, attention.q_norm.weight), cos_N1D, sin_N1D)
            k = rotate(self._norm(k, attention.k_norm.weight), cos_N1D, sin_N1D)
            hidden_NE = hidden_NE + functional.linear(attend(index, q, k, v).flatten(1), attention.o_proj.weight)
            x_NE = self._norm(hidden_NE, layer.post_attention_layernorm.weight)
            gate, up = functional.linear(x_NE, torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight])).chunk(2, dim=-1)
            hidden_NE = hidden_NE + functional.linear(functional.silu(gate) * up, mlp.down_proj.weight)
        return self._norm(hidden_NE, inner.norm.weight)

    def _logits(self, hidden: Tensor) -> Tensor:
        return functional.linear(hidden, self.model.lm_head.weight)

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(x, (x.shape[-1],), weight, self.eps)

    def _pad(self, x_NHD: Tensor, index_N: Tensor, shape: tuple[int, int, int]) -> Tensor:
        """Rows NHD to their places in PHGTD, zeros elsewhere."""
        P, G, T = shape
        padded = x_NHD.new_zeros(P * G * T, self.heads, self.head_dim).index_copy(0, index_N, x_NHD)
        return padded.view(P, G, T, self.heads, self.head_dim).permute(0, 3, 1, 2, 4)


def attend_group(
    q_PHGTD: Tensor, prompt: tuple[Tensor, Tensor], own: tuple[Tensor, Tensor], hidden_TT: Tensor | None
) -> Tensor:
    """Attention of each rollout to its group's prompt (kept once a group) and to its own tokens.

    hidden_TT: which own tokens a token must not see; None where it may see all.
    """
    P, H, G, T, D = q_PHGTD.shape
    k_PHSD, v_PHSD = prompt
    S = k_PHSD.shape[2]
    q_PHGTD = q_PHGTD * D**-0.5
    to_prompt = (q_PHGTD.reshape(P, H, G * T, D) @ k_PHSD.transpose(-1, -2)).view(P, H, G, T, S)
    to_own = q_PHGTD @ own[0].transpose(-1, -2)
    if hidden_TT is not None:
        to_own = to_own.masked_fill(hidden_TT, float("-inf"))
    weight = torch.cat([to_prompt, to_own], dim=-1).softmax(-1)
    from_prompt = (weight[..., :S].reshape(P, H, G * T, S) @ v_PHSD).view(P, H, G, T, D)
    return from_prompt + weight[..., S:] @ own[1]


def rotate(x_NHD: Tensor, cos_N1D: Tensor, sin_N1D: Tensor) -> Tensor:
    """Rotary position embedding as Qwen3 applies it (halves, not pairs)."""
    first, second = x_NHD.chunk(2, dim=-1)
    return x_NHD * cos_N1D + torch.cat([-second, first], dim=-1) * sin_N1D
