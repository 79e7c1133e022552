"""The policy: a stock Qwen3 whose forward pass computes each distinct beginning of a group's rollouts once.

`tree.py` says what a beginning is and draws the tree of a group. `Policy.log_probs` runs a whole tree at once, for
training; `Growth` adds a level of rows at a time, for sampling. In both, linear layers see the rows of all groups as
one matrix without padding, attention sees a sequence a group, and a mask lets each row see its own ancestors only.

Shape suffixes: P prompts, G rollouts of each, S prompt tokens, T response tokens, N rows, H heads, D head size,
V vocabulary, E hidden size; B sequences of L rows, W of which are asked. The weights live in a `Qwen3ForCausalLM`,
so saving, loading, vLLM and verl need nothing of this file; a test holds log-probabilities and gradients against the
stock forward pass.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from mcpo_cli.backends.local import tree as trees
from mcpo_cli.backends.local.tree import Tree
from mcpo_cli.config.schema import Model
from mcpo_cli.seeds import stream

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""Number of a layer, and q, k, v of shape NHD, to the attention output NHD of the rows of q, which may be the last."""

KeysValues = list[tuple[Tensor, Tensor]]
"""Keys and values BLHD, a pair a layer."""


@dataclass(frozen=True)
class Layer:
    """The weights of one decoder layer; those that multiply the same input are one matrix."""

    input_norm: Tensor
    qkv: Tensor
    qk_norm_2HD: Tensor
    out: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


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
        self.vocabulary: int = config.vocab_size
        positions = torch.arange(config.max_position_embeddings, device=place)[None]
        cos, sin = model.model.rotary_emb(model.model.embed_tokens.weight, positions)
        # A rotation for each position and pair of numbers of a head; cos and sin hold every angle twice.
        self.turns = torch.complex(*(x[0, :, : self.head_dim // 2].contiguous() for x in (cos, sin)))

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

    def log_probs(self, prompt_PS: Tensor, token_PGT: Tensor, mask_PGT: Tensor) -> Tensor:
        """logp_PGT of the tokens at temperature 1, nats, with its gradient; 0 outside the mask.

        mask_PGT: the tokens of each response, the first ones.
        """
        logp_NV, place_PGT = self._predictions(prompt_PS, token_PGT, mask_PGT)
        return logp_NV.flatten()[place_PGT] * mask_PGT

    def log_probs_and_entropies(self, prompt_PS: Tensor, token_PGT: Tensor, mask_PGT: Tensor) -> tuple[Tensor, Tensor]:
        """`log_probs`, and entropy_PGT where each token was drawn, nats, without a gradient; 0 outside the mask."""
        logp_NV, place_PGT = self._predictions(prompt_PS, token_PGT, mask_PGT)
        fixed_NV = logp_NV.detach()
        entropy_N = -(fixed_NV.exp() * fixed_NV).sum(-1)
        return logp_NV.flatten()[place_PGT] * mask_PGT, entropy_N[place_PGT // self.vocabulary] * mask_PGT

    def _predictions(self, prompt_PS: Tensor, token_PGT: Tensor, mask_PGT: Tensor) -> tuple[Tensor, Tensor]:
        """logp_NV of the rows that predict, and the place of each response's tokens in it, flattened."""
        tree = trees.grow(prompt_PS, token_PGT, mask_PGT, self.vocabulary)
        logp_NV = self.logits(tree, self.layers()).log_softmax(-1)
        return logp_NV, (tree.predictor_PGT * self.vocabulary + token_PGT).where(mask_PGT, 0)

    def logits(self, tree: Tree, layers: Sequence[Layer], cache: KeysValues | None = None) -> Tensor:
        """logits_NV of the rows of `tree` that predict, under the weights `layers`; `cache` takes keys and values."""
        unseen_BLL = self.unseen(tree.seen_BLL)

        def attend(_layer: int, q_NHD: Tensor, k_NHD: Tensor, v_NHD: Tensor) -> Tensor:
            k_BLHD, v_BLHD = rows(k_NHD, tree.row_BL), rows(v_NHD, tree.row_BL)
            if cache is not None:
                cache.append((k_BLHD, v_BLHD))
            # Without the silent rows in the last layer: these fill the slots before a prompt's last token.
            silent = len(k_NHD) - len(q_NHD)
            first = tree.prompt - 1 if silent else 0
            q_BWHD = rows(q_NHD, tree.row_BL[:, first:] - silent)
            out_BWHD = attention(q_BWHD, k_BLHD, v_BLHD, unseen_BLL[:, first:])
            place_N = tree.sequence_N[silent:] * q_BWHD.shape[1] + tree.slot_N[silent:] - first
            return rows(out_BWHD.flatten(0, 1), place_N)

        return self.forward(layers, tree.token_N, tree.position_N, attend, tree.silent)

    def layers(self) -> list[Layer]:
        """The weights as they are now, as `forward` wants them."""
        found = []
        for layer in self.model.model.layers:
            a, mlp = layer.self_attn, layer.mlp
            norms = [self._paired(norm.weight).expand(self.heads, -1) for norm in (a.q_norm, a.k_norm)]
            q, k = (self._paired(x.weight, self.heads) for x in (a.q_proj, a.k_proj))
            found.append(
                Layer(
                    input_norm=layer.input_layernorm.weight,
                    qkv=torch.cat([q, k, a.v_proj.weight]),
                    qk_norm_2HD=torch.stack(norms),
                    out=a.o_proj.weight,
                    mlp_norm=layer.post_attention_layernorm.weight,
                    gate_up=torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]),
                    down=mlp.down_proj.weight,
                )
            )
        return found

    def forward(
        self, layers: Sequence[Layer], token_N: Tensor, position_N: Tensor, attend: Attend, silent: int = 0
    ) -> Tensor:
        """logits_NV of the rows after the first `silent`; what attends to what is the caller's.

        Silent rows need keys and values in every layer, and nothing else of the last one.
        """
        inner = self.model.model
        turn = self.turns[position_N][:, None, None]
        hidden_NE = functional.embedding(token_N, inner.embed_tokens.weight)
        for index, layer in enumerate(layers):
            x_NE = self._norm(hidden_NE) * layer.input_norm
            qkv = functional.linear(x_NE, layer.qkv).view(-1, 3, self.heads, self.head_dim)
            q_NHD, k_NHD = rotate(self._norm(qkv[:, :2]) * layer.qk_norm_2HD, turn).unbind(1)
            if index == len(layers) - 1:
                q_NHD, hidden_NE = q_NHD[silent:], hidden_NE[silent:]
            out_NHD = attend(index, q_NHD, k_NHD, qkv[:, 2])
            hidden_NE = hidden_NE + functional.linear(out_NHD.flatten(1), layer.out)
            x_NE = self._norm(hidden_NE) * layer.mlp_norm
            gate, up = functional.linear(x_NE, layer.gate_up).chunk(2, dim=-1)
            hidden_NE = hidden_NE + functional.linear(functional.silu(gate) * up, layer.down)
        return functional.linear(self._norm(hidden_NE) * inner.norm.weight, self.model.lm_head.weight)

    @staticmethod
    def _paired(weight: Tensor, heads: int = 1) -> Tensor:
        """Each head's numbers in the order first, D/2-th, second, ...: neighbours are rotated together.

        Qwen3 rotates the halves of a head against each other. The order of a head's numbers does not matter to
        the product of query and key, as long as it is the same in both.
        """
        paired: Tensor = weight.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)
        return paired

    def _norm(self, x: Tensor) -> Tensor:
        normed: Tensor = functional.rms_norm(x, (x.shape[-1],), eps=self.eps)
        return normed

    def unseen(self, seen: Tensor) -> Tensor:
        """What attention adds to its scores: 0 where seen, -inf elsewhere."""
        nothing = self.turns.real.new_zeros(())
        return nothing.where(seen, float("-inf"))


class Growth:
    """Trees that grow by a level of rows at a time, with the keys and values that later rows read.

    A group is a sequence. Its rows have slots in the order in which they come, after those of its prompt.
    """

    def __init__(self, policy: Policy, prompt_PS: Tensor) -> None:
        P, S = prompt_PS.shape
        self.policy, self.layers, self.position = policy, policy.layers(), S
        self.cache: KeysValues = []
        no_token_P11 = prompt_PS.new_zeros(P, 1, 1)
        trunks = trees.grow(prompt_PS, no_token_P11, no_token_P11.bool(), policy.vocabulary)
        self.logits_NV = policy.logits(trunks, self.layers, self.cache)
        """Logits after each row of the newest level; at first after each prompt."""
        self.sequence_N = torch.arange(P, device=prompt_PS.device)
        self.seen_NL = torch.ones(P, S, dtype=torch.bool, device=prompt_PS.device)
        self.filled_B = torch.full_like(self.sequence_N, S)

    def extend(self, parent_N: Tensor, token_N: Tensor) -> None:
        """The next level: a row for each token of `token_N`, after the row `parent_N` of the level before."""
        sequence_N = self._drop_ended(self.sequence_N[parent_N])
        B = len(self.filled_B)
        rank_N = trees.ranks(sequence_N, B)
        slot_N = self.filled_B[sequence_N] + rank_N
        self.filled_B = self.filled_B + sequence_N.bincount(minlength=B)
        L, W = int(self.filled_B.max()), int(rank_N.max()) + 1
        seen_NL = widen(self.seen_NL[parent_N], L)
        seen_NL.scatter_(1, slot_N[:, None], True)
        self.sequence_N, self.seen_NL = sequence_N, seen_NL
        seen_BWL = seen_NL.new_ones(B, W, L)
        seen_BWL[sequence_N, rank_N] = seen_NL[:, :L]
        unseen_BWL = self.policy.unseen(seen_BWL)

        def attend(layer: int, q_NHD: Tensor, k_NHD: Tensor, v_NHD: Tensor) -> Tensor:
            k_BLHD, v_BLHD = self.cache[layer] = (widen(self.cache[layer][0], L), widen(self.cache[layer][1], L))
            k_BLHD[sequence_N, slot_N], v_BLHD[sequence_N, slot_N] = k_NHD, v_NHD
            q_BWHD = q_NHD.new_zeros(B, W, *q_NHD.shape[1:])
            q_BWHD[sequence_N, rank_N] = q_NHD
            return attention(q_BWHD, k_BLHD[:, :L], v_BLHD[:, :L], unseen_BWL)[sequence_N, rank_N]

        position_N = torch.full_like(token_N, self.position)
        self.position += 1
        self.logits_NV = self.policy.forward(self.layers, token_N, position_N, attend)

    def _drop_ended(self, sequence_N: Tensor) -> Tensor:
        """`sequence_N` numbered without the groups that have no row in it, once these are a quarter of all.

        They would cost attention; to drop them costs a copy of the keys and values.
        """
        goes_on_B = sequence_N.bincount(minlength=len(self.filled_B)) > 0
        if int(goes_on_B.sum()) > 0.75 * len(goes_on_B):
            return sequence_N
        self.cache = [(k_BLHD[goes_on_B], v_BLHD[goes_on_B]) for k_BLHD, v_BLHD in self.cache]
        self.filled_B = self.filled_B[goes_on_B]
        return (goes_on_B.cumsum(0) - 1)[sequence_N]


def widen(x: Tensor, length: int) -> Tensor:
    """With room for `length` entries on axis 1, zeros at first; twice the room or more, so that copies are rare."""
    room = x.shape[1]
    if room >= length:
        return x
    return torch.cat([x, x.new_zeros(len(x), max(room, length - room), *x.shape[2:])], dim=1)


def attention(q_BWHD: Tensor, k_BLHD: Tensor, v_BLHD: Tensor, unseen_BWL: Tensor) -> Tensor:
    """Attention of W rows to L ones in each of B sequences, BWHD; unseen_BWL: see `Policy.unseen`."""
    q, k, v = (x.transpose(1, 2) for x in (q_BWHD, k_BLHD, v_BLHD))
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=unseen_BWL[:, None]).transpose(1, 2)


def rows(x_NHD: Tensor, index: Tensor) -> Tensor:
    """The rows of `index`, in its shape. As an embedding: its backward pass is faster than that of indexing."""
    found: Tensor = functional.embedding(index, x_NHD.flatten(1)).unflatten(-1, x_NHD.shape[1:])
    return found


def rotate(x: Tensor, turn: Tensor) -> Tensor:
    """Rotary position embedding of the last axis, whose neighbours are the two parts of a complex number."""
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    rotated: Tensor = torch.view_as_real(pairs * turn).flatten(-2)
    return rotated
