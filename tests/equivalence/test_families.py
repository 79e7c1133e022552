"""The local engine against the stock classes: Llama, Mistral, Qwen2 and Qwen3, with all their variations.

Small random models in float32, prompts of different lengths with a common prefix, and responses with common prefixes.
"""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import AutoConfig, AutoModelForCausalLM

from mcpo_cli.backends.local import generate, log_probs, products
from mcpo_cli.backends.local import policy as policies
from mcpo_cli.backends.local import tree as trees
from mcpo_cli.backends.local.generate import Rollouts, sample
from mcpo_cli.backends.local.lora import Lora
from mcpo_cli.backends.local.policy import Policy
from mcpo_cli.backends.local.rounding import GROUPS, Rounding

CPU = torch.device("cpu")
V, EOS, G, T = 61, 60, 6, 9
SIZES = {
    "vocab_size": V,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "max_position_embeddings": 256,
    "eos_token_id": EOS,
    "pad_token_id": EOS,
    "bos_token_id": EOS,
    "initializer_range": 0.3,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
LINEAR = {"rope_type": "linear", "rope_theta": 100.0, "factor": 2.0}
PLAIN = {"rope_type": "default", "rope_theta": 100.0}


def heads(queries: int, keys: int) -> dict[str, Any]:
    return {"num_attention_heads": queries, "num_key_value_heads": keys}


FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama grouped": ("llama", heads(6, 2)),
    "llama untied, scaled rope": (
        "llama",
        heads(4, 4) | {"head_dim": 16, "tie_word_embeddings": False, "rope_parameters": LLAMA3},
    ),
    "llama tied, one key": ("llama", heads(3, 1) | {"tie_word_embeddings": True, "rope_parameters": LINEAR}),
    "mistral": ("mistral", heads(4, 2) | {"head_dim": 8, "sliding_window": None}),
    "qwen2": ("qwen2", heads(6, 2)),
    "qwen3": ("qwen3", heads(4, 2) | {"head_dim": 20, "tie_word_embeddings": True}),
}
"""A type of model in transformers, and its settings."""


def stock(family: str, seed: int = 0) -> Any:
    """A random model in float32; biases and norms are random, too, because new ones are 0 and 1."""
    kind, options = FAMILIES[family]
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **SIZES | {"rope_parameters": PLAIN} | options))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(std=0.3)
            elif parameter.dim() == 1:
                parameter.uniform_(0.5, 1.5)
        if model.config.tie_word_embeddings:
            # Otherwise each token would predict itself.
            model.model.embed_tokens.weight *= 0.3
    return model


def prompts() -> Tensor:
    """Five prompts of 10 to 14 tokens whose first nine are the same."""
    generator = torch.Generator().manual_seed(1)
    beginning = torch.randint(0, EOS, (9,), generator=generator)
    rest = [torch.randint(0, EOS, (1 + i,), generator=generator) for i in range(5)]
    ragged = [torch.cat([beginning, tail]) for tail in rest]
    return torch.nn.utils.rnn.pad_sequence(ragged, batch_first=True, padding_value=trees.NO_TOKEN)


def rollouts_of(policy: Policy) -> Rollouts:
    """Responses with common prefixes, because the temperature is low, and with different lengths."""
    return sample(policy, prompts(), G, T, 0.5, EOS, seed=3)


def sampled(family: str) -> tuple[Policy, Rollouts, tuple[Tensor, Tensor, Tensor]]:
    """A random policy of that family, its rollouts, and their prompts, tokens and mask."""
    policy = Policy(stock(family), CPU)
    rollouts = rollouts_of(policy)
    return policy, rollouts, (rollouts.prompt_PS, rollouts.token_PGT, rollouts.mask_PGT)


def stock_log_probs(model: Any, rollouts: Rollouts) -> Tensor:
    """logp_PGT by the stock forward pass over each prompt and response written out."""
    found = []
    for filled_S, token_GT in zip(rollouts.prompt_PS, rollouts.token_PGT, strict=True):
        prompt_S = filled_S[filled_S != trees.NO_TOKEN]
        whole = torch.cat([prompt_S.expand(len(token_GT), -1), token_GT], dim=1)
        logits = model(whole).logits[:, len(prompt_S) - 1 : -1]
        found.append(logits.log_softmax(-1).gather(-1, token_GT[..., None]).squeeze(-1))
    return torch.stack(found) * rollouts.mask_PGT


def relative(mine: list[Tensor], theirs: list[Tensor]) -> float:
    """The norm of the difference over that of `theirs`."""
    difference = sum(float((a - b).double().square().sum()) for a, b in zip(mine, theirs, strict=True))
    return (difference / sum(float(b.double().square().sum()) for b in theirs)) ** 0.5


def gradients(logp_PGT: Tensor, parameters: list[Tensor]) -> list[Tensor]:
    weight_PGT = torch.linspace(-1, 1, logp_PGT.numel()).view_as(logp_PGT)
    return list(torch.autograd.grad((logp_PGT * weight_PGT).sum(), parameters))


@pytest.mark.parametrize("family", FAMILIES)
def test_log_probabilities_and_gradients_are_those_of_the_stock_classes(family: str) -> None:
    policy, rollouts, tensors = sampled(family)
    assert len(rollouts.length_PG.unique()) > 2
    mine, theirs = policy.log_probs(*tensors), stock_log_probs(policy.model, rollouts)
    assert float((mine - theirs).detach().abs().max()) < 1e-4
    # The sampler recorded the same number.
    assert float((rollouts.logp_PGT - theirs.detach()).abs().max()) < 1e-4
    parameters = policy.parameters()
    assert relative(gradients(mine, parameters), gradients(theirs, parameters)) < 1e-4


def test_prompts_share_the_rows_of_what_they_begin_with() -> None:
    policy, rollouts, tensors = sampled("llama grouped")
    tree = trees.grow(*tensors, V, policy.row_cost)
    tails = int((trees.lengths(rollouts.prompt_PS) - 9).sum())
    assert tree.silent == 9 + tails - len(rollouts.prompt_PS)
    other = rollouts.prompt_PS.clone()
    other[0, 7] = (other[0, 7] + 1) % EOS
    apart = trees.grow(other, *tensors[1:], V, policy.row_cost)
    assert apart.silent == int((trees.lengths(other) - 1).sum())


@pytest.mark.parametrize("family", ["llama grouped", "qwen2"])
@pytest.mark.parametrize("how", ["pieces of the vocabulary", "pieces again", "activations again"])
def test_what_saves_memory_changes_nothing(family: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, rollouts, tensors = sampled(family)
    expected = plain.log_probs_and_entropies(*tensors)
    wanted = gradients(expected[0], plain.parameters())
    if how == "activations again":
        saving = Policy(plain.model, CPU, kept_rows=1)
    else:
        monkeypatch.setattr(policies, "VOCABULARY_NUMBERS", 7 * V)
        monkeypatch.setattr(policies, "PIECES_KEPT", 1 if how == "pieces again" else 1000)
        saving = plain
        assert saving.rows_at_once == 7
        again = rollouts_of(saving)
        assert torch.equal(again.token_PGT, rollouts.token_PGT)
        assert torch.allclose(again.entropy_PGT, rollouts.entropy_PGT, atol=1e-5)
    found = saving.log_probs_and_entropies(*tensors)
    for mine, theirs in zip(found, expected, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-5)
    assert relative(gradients(found[0], plain.parameters()), wanted) < 1e-5


@pytest.mark.parametrize("family", ["llama grouped", "qwen2", "qwen3"])
def test_large_matrices_give_the_products_of_fused_ones(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, rollouts, tensors = sampled(family)
    logp_PGT = policy.log_probs(*tensors)
    wanted = gradients(logp_PGT, policy.parameters())
    monkeypatch.setattr(products, "FUSED", 0)
    assert torch.equal(rollouts_of(policy).token_PGT, rollouts.token_PGT)
    assert torch.allclose(rollouts_of(policy).logp_PGT, rollouts.logp_PGT, atol=1e-5)
    assert torch.allclose(policy.log_probs(*tensors), logp_PGT, atol=1e-5)
    assert relative(gradients(policy.log_probs(*tensors), policy.parameters()), wanted) < 1e-5


@pytest.mark.parametrize("family", ["llama grouped", "qwen2"])
def test_long_rollouts_that_share_little_go_on_in_sequences_of_their_own(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, shapes = Policy(stock(family), CPU), list[tuple[int, ...]]()
    together = sample(policy, prompts(), G, 40, 1.0, EOS, seed=3)

    def seen(q: Tensor, *others: Tensor) -> Tensor:
        shapes.append(tuple(q.shape[:2]))
        return attention(q, *others)

    attention = generate.attention
    monkeypatch.setattr(generate, "attention", seen)
    monkeypatch.setattr(generate, "LONG", 30)
    apart = sample(policy, prompts(), G, 40, 1.0, EOS, seed=3)
    sequences, rows = zip(*shapes, strict=True)
    assert sequences[0] == len(prompts())
    assert rows[0] > 1
    assert max(sequences) > 2 * len(prompts())
    assert rows[-1] == 1
    assert torch.equal(apart.token_PGT, together.token_PGT)
    assert torch.allclose(apart.logp_PGT, together.logp_PGT, atol=1e-5)
    stock_PGT = stock_log_probs(policy.model, apart)
    assert torch.allclose(apart.logp_PGT[apart.mask_PGT], stock_PGT[apart.mask_PGT], atol=1e-4)


@pytest.mark.parametrize(("kept", "layers_again"), [(1.0, 0), (0.7, 1), (0.4, 2), (0.1, 3)])
def test_only_layers_without_memory_for_their_activations_are_computed_again(
    kept: float, layers_again: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, _, tensors = sampled("qwen2")
    wanted = gradients(plain.log_probs(*tensors), plain.parameters())
    rows = len(trees.grow(*tensors, V, plain.row_cost).token_N)
    again = list[int]()

    def counted(block: Any, *step: Any, use_reentrant: bool) -> Any:
        again.append(step[0])
        return checkpoint(block, *step, use_reentrant=use_reentrant)

    monkeypatch.setattr(policies, "checkpoint", counted)
    saving = Policy(plain.model, CPU, kept_rows=round(kept * rows))
    found = gradients(saving.log_probs(*tensors), saving.parameters())
    assert again == list(range(layers_again))
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(found, wanted, strict=True))


def test_the_backward_pass_of_the_output_layer_in_bfloat16() -> None:
    """By autograd in float64, also where rollouts share a token and where a token is nearly certain."""
    generator = torch.Generator().manual_seed(0)
    x_NE, weight_VE = torch.randn(5, 16, generator=generator), torch.randn(V, 16, generator=generator)
    row_K, token_K = torch.tensor([0, 0, 1, 1, 3, 4]), torch.tensor([7, 7, 2, 9, 60, 0])
    weight_VE[60] += 0.6 * x_NE[3]
    given_K = torch.tensor([1.0, -0.5, 2.0, 1.0, 3.0, 0.0])

    def gradient(dtype: torch.dtype) -> tuple[Tensor, ...]:
        x, weight = (tensor.to(dtype).requires_grad_() for tensor in (x_NE, weight_VE))
        if dtype == torch.float32:
            logp_K = log_probs.log_probs(x, weight, row_K, token_K)
        else:
            logp_K = (x @ weight.T).log_softmax(-1)[row_K, token_K]
        return logp_K.detach(), *torch.autograd.grad(logp_K, (x, weight), given_K.to(dtype))

    (logp_K, *found), (exact_K, *wanted) = gradient(torch.float32), gradient(torch.float64)
    assert torch.allclose(logp_K.double(), exact_K, atol=1e-5)
    for mine, theirs in zip(found, wanted, strict=True):
        assert mine.dtype == torch.float32
        assert float((mine - theirs).norm() / theirs.norm()) < 0.01
    # The row whose token is nearly certain has a small gradient, not none.
    assert float((found[0][3] - wanted[0][3]).norm() / wanted[0][3].norm()) < 0.02
    assert not found[0][2].any()


def test_bfloat16_is_near_float32_and_trains_float32_weights() -> None:
    exact, rollouts, tensors = sampled("llama grouped")
    reduced = Policy(exact.model, CPU, dtype=torch.bfloat16)
    mine, theirs = reduced.log_probs(*tensors), exact.log_probs(*tensors)
    difference = (mine - theirs).abs()[rollouts.mask_PGT]
    assert 0 < float(difference.mean()) < 0.1
    found, wanted = (gradients(logp, exact.parameters()) for logp in (mine, theirs))
    assert {gradient.dtype for gradient in found} == {torch.float32}
    assert relative(found, wanted) < 0.3
    again = sample(reduced, prompts(), G, T, 0.5, EOS, seed=3)
    assert again.logp_PGT.dtype == torch.float32
    at_sampling = reduced.log_probs(again.prompt_PS, again.token_PGT, again.mask_PGT)
    assert float((at_sampling - again.logp_PGT * again.mask_PGT).abs().mean()) < 0.1


def test_lora_is_the_model_with_a_product_added_to_its_weights() -> None:
    before, rollouts, tensors = sampled("qwen2")
    model, expected = before.model, before.log_probs(*tensors)
    of_weights = dict(zip(dict(model.named_parameters()), gradients(expected, list(model.parameters())), strict=True))
    lora = Lora.of(model, rank=3, alpha=6, seed=5)
    policy = Policy(model, CPU, lora=lora)
    # B is 0 at first, so the output is unchanged.
    logp = policy.log_probs(*tensors)
    assert torch.equal(logp, expected)
    assert len(policy.parameters()) == 2 * 7 * 3
    found = dict(zip(policy.named_parameters(), gradients(logp, policy.parameters()), strict=True))
    for name, (a_RI, _) in lora.pairs.items():
        layer = name.removesuffix(".weight")
        # dL/dB = scale dL/dW A^T, and dL/dA = scale B^T dL/dW = 0.
        assert torch.allclose(found[f"{layer}.lora_B.weight"], 2 * of_weights[name] @ a_RI.T, atol=1e-3)
        assert not found[f"{layer}.lora_A.weight"].any()
    with torch.no_grad():
        for _, b_OR in lora.pairs.values():
            b_OR.normal_(std=0.05)
    changed = policy.log_probs(*tensors)
    assert not torch.allclose(changed, expected, atol=1e-3)
    merged = stock("qwen2")
    weights = {name: lora.merged(name, weight).detach() for name, weight in model.state_dict().items()}
    merged.load_state_dict(weights)
    assert torch.allclose(stock_log_probs(merged, rollouts), changed, atol=1e-4)
    # A copy has its own matrices.
    other = policy.copy()
    with torch.no_grad():
        next(iter(lora.pairs.values()))[1].zero_()
    assert torch.equal(other.log_probs(*tensors), changed)
    assert not torch.equal(policy.log_probs(*tensors), changed)


def test_a_response_depends_neither_on_the_prompts_beside_it_nor_on_their_lengths() -> None:
    policy = Policy(stock("llama grouped"), CPU)
    prompt_PS = prompts()
    together = sample(policy, prompt_PS, G, T, 1.0, EOS, seed=3)
    # The first prompt of a batch of the same size gets the same quantiles.
    others = prompt_PS.clone()
    others[1:] = others[1:].roll(1, 0)
    beside = sample(policy, others, G, T, 1.0, EOS, seed=3)
    assert torch.equal(together.token_PGT[0], beside.token_PGT[0])
    wider = torch.nn.functional.pad(prompt_PS, (0, 3), value=trees.NO_TOKEN)
    assert torch.equal(sample(policy, wider, G, T, 1.0, EOS, seed=3).token_PGT, together.token_PGT)


@torch.no_grad()
def test_rounding_over_a_gradient_step_is_what_bfloat16_adds_to_the_drift() -> None:
    """By hand: the change in bfloat16 minus the change in float32, over the tokens of the first groups."""
    model = stock("llama grouped")
    exact, reduced = Policy(model, CPU), Policy(model, CPU, dtype=torch.bfloat16)
    whole = rollouts_of(exact)
    rollouts = whole.select(torch.arange(min(GROUPS, len(whole.prompt_PS))))
    tensors, mask_PGT = (rollouts.prompt_PS, rollouts.token_PGT, rollouts.mask_PGT), rollouts.mask_PGT
    measured, before = Rounding(reduced, whole), [one.log_probs(*tensors)[mask_PGT] for one in (reduced, exact)]
    still = measured.over_step()
    for weight in model.parameters():
        weight.data += 1e-4 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(0))
    after = [one.log_probs(*tensors)[mask_PGT] for one in (reduced, exact)]
    rounded, true = ((b - a).double() for a, b in zip(before, after, strict=True))
    found = measured.over_step()
    assert found["sanity/rounding_after_step"] == pytest.approx(
        float((rounded - true).square().mean().sqrt()), rel=1e-3
    )
    assert found["sanity/drift_after_step"] == pytest.approx(float(true.square().mean().sqrt()), rel=1e-3)
    assert found["sanity/rounding_after_step"] > 0
    assert set(still.values()) == {0.0}
