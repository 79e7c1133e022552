"""The atlas of estimators: exact gradients by independent formulas, moments by counting, by listing and by sampling."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from mcpo_study.analysis.atlas import conditions, sampling
from mcpo_study.analysis.atlas.counting import counted
from mcpo_study.analysis.atlas.estimate import Circumstances, Drawn, Moments, compute, draw, gradients
from mcpo_study.analysis.atlas.sampling import BLOCKS, Sample, sampled
from mcpo_study.analysis.atlas.world import ACCURACIES, LIMIT, SYMBOLS, Policy, path, responses, world
from torch import Tensor

from mcpo_cli.config import plan
from mcpo_cli.errors import RunFailed
from mcpo_cli.methods import Method, get

TRAIN = plan.from_overrides(["train.overlong_cache=0"]).cells[0].spec.train
UNCLIPPED = {"clip_low": 0.999999, "clip_high": 1e9}


def where(stale: int = 0, **train: Any) -> Circumstances:
    return Circumstances(stale, dataclasses.replace(TRAIN, **train))


POLICIES = {"base": world().base, "stale": path(4)[-1], "rounded": world().base.rounded(1.0)}


def test_the_responses_are_all_there_are_and_the_prompts_have_their_accuracies() -> None:
    every = responses()
    # One end, three symbols and an end, nine pairs and any of four tokens.
    assert len({tuple(row) for row in every.token_RT.tolist()}) == len(every.token_RT) == 1 + 3 + 9 * 4
    for policy in POLICIES.values():
        assert torch.allclose(policy.probability_PR.sum(-1), torch.ones(len(ACCURACIES)).double())
    assert world().accuracy_P(world().base).tolist() == pytest.approx(ACCURACIES)


@pytest.mark.parametrize("name", POLICIES)
def test_the_exact_gradient_is_that_of_the_listed_expectation(name: str) -> None:
    logits_PSV = POLICIES[name].logits_PSV.clone().requires_grad_()
    world().accuracy_P(Policy(logits_PSV)).mean().backward()
    assert logits_PSV.grad is not None
    assert torch.allclose(world().gradient(POLICIES[name]), logits_PSV.grad, rtol=0, atol=1e-14)


def walked(logits_SV: np.ndarray[Any, Any], gold: int) -> np.ndarray[Any, Any]:
    """The gradient of one prompt's accuracy by the policy gradient theorem: probability of a prefix times advantage.

    It recurses over prefixes by the rules in the world's docstring, without listing responses.
    """
    probability_SV = np.exp(logits_SV) / np.exp(logits_SV).sum(-1, keepdims=True)
    gradient_SV, end = np.zeros_like(logits_SV), SYMBOLS
    every = responses()
    number = {
        tuple(tokens[:t]): int(state)
        for tokens, states, mask in zip(every.token_RT.tolist(), every.state_RT.tolist(), every.mask_RT, strict=True)
        for t, state in enumerate(states)
        if mask[t]
    }

    def value(prefix: tuple[int, ...], chance: float) -> float:
        p_V = probability_SV[number[prefix]]
        value_V = np.zeros(SYMBOLS + 1)
        value_V[end] = float(prefix[-1:] == (gold,))
        if len(prefix) + 1 < LIMIT:
            for token in range(SYMBOLS):
                value_V[token] = value((*prefix, token), chance * p_V[token])
        mean = float(p_V @ value_V)
        gradient_SV[number[prefix]] = chance * p_V * (value_V - mean)
        return mean

    value((), 1.0)
    return gradient_SV


@pytest.mark.parametrize("name", POLICIES)
def test_the_exact_gradient_is_that_of_the_policy_gradient_theorem(name: str) -> None:
    policy = POLICIES[name]
    found = [walked(logits_SV.numpy(), p % SYMBOLS) for p, logits_SV in enumerate(policy.logits_PSV)]
    assert np.allclose(world().gradient(policy).numpy() * len(ACCURACIES), found, rtol=0, atol=1e-14)


@pytest.mark.parametrize("rollouts", [2, 16])
@pytest.mark.parametrize(
    ("method", "gain"),
    [
        (get("rloo", aggregation="seq-mean-token-sum"), lambda G: 1),
        (get("dr_grpo"), lambda G: (G - 1) / G / LIMIT),
        (get("topr"), lambda G: 2),
        (get("psr_nsr", aggregation="seq-mean-token-sum"), lambda G: 1.1),
    ],
    ids=["rloo", "dr_grpo", "topr", "psr_nsr"],
)
def test_estimators_that_are_unbiased_by_theory_are_so_up_to_their_factor(
    method: Method, gain: Any, rollouts: int
) -> None:
    moments = counted(method, where(), rollouts)
    assert moments is not None
    measures = moments.measures()
    assert measures["gain"] == pytest.approx(gain(rollouts), abs=1e-12)
    assert measures["cosine_mean"] == pytest.approx(1, abs=1e-12)
    assert measures["bias"] == pytest.approx(abs(gain(rollouts) - 1), abs=1e-6)


def test_the_ratio_of_the_response_makes_a_stale_estimate_unbiased_and_that_of_tokens_does_not() -> None:
    exact = counted(get("rloo", ratio="sequence-sum", **UNCLIPPED), where(16), 4)
    by_token = counted(get("rloo", aggregation="seq-mean-token-sum", **UNCLIPPED), where(16), 4)
    assert exact is not None
    assert by_token is not None
    assert exact.measures()["bias"] == pytest.approx(0, abs=1e-6)
    assert by_token.measures()["bias"] > 0.01


def test_the_ratio_of_the_response_makes_up_for_an_inexact_sampler_and_that_of_tokens_does_not() -> None:
    plain, by_token, exact = (
        counted(get("topr"), where(sampler_rounding=1.0, correction=way, correction_high=1e9), 4)
        for way in ("none", "token-truncate", "sequence-truncate")
    )
    assert plain is not None
    assert by_token is not None
    assert exact is not None
    assert exact.measures()["cosine_mean"] == pytest.approx(1, abs=1e-12)
    assert plain.measures()["cosine_mean"] < by_token.measures()["cosine_mean"] < 1 - 1e-3


def listed(method: Method, of: Circumstances) -> Moments:
    """Moments for G = 2 from every pair of responses to every prompt."""
    P, R = of.world.correct_PR.shape
    first, second = (axis.flatten() for axis in torch.meshgrid(torch.arange(R), torch.arange(R), indexing="ij"))
    mean_D, variance = torch.zeros(0).double(), 0.0
    for p in range(P):
        pairs = Drawn(torch.full_like(first, p), torch.stack([first, second], -1))
        coefficient_MGT = compute(method, of, pairs, {}, 0).coefficient_MGT * len(first) / P
        own_MD = gradients(of, pairs, coefficient_MGT, len(first)).view(len(first), P, -1)[:, p]
        probability_R = of.sampler.probability_PR[p]
        weight_M = probability_R[first] * probability_R[second]
        own_D = weight_M @ own_MD
        variance += float(weight_M @ own_MD.square().sum(-1) - own_D @ own_D)
        mean_D = torch.cat([mean_D, own_D])
    exact_D, of_mean = of.exact_PSV.flatten(), float(mean_D @ mean_D)
    return Moments(float(mean_D @ exact_D), of_mean, of_mean + variance, float(exact_D @ exact_D))


@pytest.mark.parametrize("name", ["grpo", "mc_grpo", "rl_zvp", "max_rl"])
@pytest.mark.parametrize("stale", [0, 4])
def test_counting_gives_the_moments_of_all_pairs_of_responses(name: str, stale: int) -> None:
    method, of = get(name), where(stale, sampler_rounding=0.5, correction="token-truncate")
    found, expected = counted(method, of, 2), listed(method, of)
    assert found is not None
    for one, other in zip(dataclasses.astuple(found), dataclasses.astuple(expected), strict=True):
        assert one == pytest.approx(other, rel=1e-9)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer batches than the atlas draws."""
    monkeypatch.setattr(sampling, "SINGLY", 90)
    monkeypatch.setattr(sampling, "ROLLOUTS", 45_000)


def agree(one: dict[str, float], other: dict[str, float]) -> None:
    for name in ("cosine_mean", "cosine"):
        error = math.hypot(one.get(f"{name}_se", 0), other.get(f"{name}_se", 0))
        assert 0 < error < 0.1
        assert abs(one[name] - other[name]) < 4 * error, name


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("name", ["grpo", "mc_grpo", "rl_zvp", "gspo"])
@pytest.mark.parametrize("stale", [0, 4])
def test_sampling_agrees_with_counting_within_its_error(name: str, stale: int) -> None:
    moments = counted(get(name), where(stale), 5)
    assert moments is not None
    agree(sampled(get(name), where(stale), 5).measures(), moments.measures())


def test_what_depends_on_the_batch_on_lengths_or_on_the_past_is_not_counted() -> None:
    for name in ("lite_ppo", "cispo", "opo", "spo", "unlikeliness"):
        assert counted(get(name), where(), 4) is None, name
    # The hinge divides by the mastered rollouts of the batch, once there is drift.
    assert counted(get("mcpo"), where(), 4)
    assert not counted(get("mcpo"), where(4), 4)


def test_one_call_for_many_batches_gives_the_gradient_of_each() -> None:
    of, P = where(4), len(ACCURACIES)
    for name, divide in (("grpo", 0), ("cispo", 1), ("mc_grpo", 0)):
        drawn = draw(of, 5, 5, seed=7)
        together_MGT = sampling._together(get(name), of, drawn, sampling.DIVISORS[divide])
        for number, part_MGT in enumerate(together_MGT.split(P)):
            alone = compute(get(name), of, drawn.select(slice(number * P, (number + 1) * P)), {}, 0)
            assert torch.allclose(part_MGT, alone.coefficient_MGT, rtol=1e-12, atol=1e-15), name
    assert sampling._divisor(get("lite_ppo"), of, 4, 0) is None
    assert sampling._divisor(get("spo"), of, 4, 0) is None


@pytest.mark.usefixtures("few")
def test_batches_one_by_one_agree_with_batches_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    together = sampled(get("cispo"), where(4), 4)
    monkeypatch.setattr(sampling, "DIVISORS", ())
    singly = sampled(get("cispo"), where(4), 4, seed=1)
    assert singly.batches < together.batches
    agree(singly.measures(), together.measures())


def test_a_method_with_a_memory_sees_the_batches_in_their_order() -> None:
    """SPO's baseline is the remembered accuracy, so its estimates become better than at the first visit."""
    remembering = sampled(get("spo"), where(), 2)
    assert remembering.batches == sampling.SINGLY - 1
    blank = Sample(where().exact_PSV.flatten())
    for seed in range(200):
        drawn = draw(where(), 1, 2, seed)
        blank.add(gradients(where(), drawn, compute(get("spo"), where(), drawn, {}, 0).coefficient_MGT, 1), seed)
    assert remembering.measures()["cosine"] > blank.measures()["cosine"] + 3 * blank.measures()["cosine_se"]


def test_measures_by_hand() -> None:
    """g = (1, 0); x is (2, 0) or (0, 2), so that its mean is (1, 1) and its mean square 4."""
    found = Moments(along=1, mean_square=2, square=4, exact=1).measures()
    root = math.sqrt(0.5)
    assert found == pytest.approx(
        {"gain": 1, "bias": 1, "cosine_mean": root, "bias_scaled": root, "noise": 1, "cosine": 0.5}
    )
    nothing = Moments(along=0, mean_square=0, square=4, exact=1).measures()
    assert nothing["gain"] == nothing["cosine"] == 0
    assert math.isnan(nothing["cosine_mean"])
    assert math.isnan(nothing["noise"])


def test_the_square_of_the_mean_is_estimated_without_bias() -> None:
    """Over all pairs of three values its mean is the square of their mean."""
    values = torch.tensor([[1.0, 0.0], [0.0, 2.0], [5.0, 1.0]]).double()
    found = []
    for pair in ((a, b) for a in range(3) for b in range(3)):
        sample = Sample(values[0])
        sample.add(values[list(pair)], first=0)
        found.append(sample.moments().mean_square)
    mean: Tensor = values.mean(0)
    assert sum(found) / 9 == pytest.approx(float(mean @ mean))


def test_jackknife_error_of_a_mean_is_the_textbook_one() -> None:
    """Of `cosine` where all gradients have one length: along / square is a mean."""
    angle_N = torch.linspace(0, 1, BLOCKS).double()
    sample = Sample(torch.tensor([1.0, 0.0]).double())
    sample.add(torch.stack([angle_N.cos(), angle_N.sin()], -1), first=0)
    expected = float(angle_N.cos().std() / BLOCKS**0.5)
    assert sample.measures()["cosine_se"] == pytest.approx(expected, rel=1e-9)


def test_groups_have_a_size_that_the_method_takes() -> None:
    sizes = {
        name: [conditions.fitting(get(name), TRAIN, G) for G in (2, 4, 8)]
        for name in ("grpo", "mc_grpo", "passk", "gfpo")
    }
    assert sizes == {"grpo": [2, 4, 8], "mc_grpo": [3, 5, 9], "passk": [None, 4, 8], "gfpo": [None, None, 8]}


@pytest.mark.usefixtures("few")
def test_rows_are_marked_by_how_they_were_made() -> None:
    of_counts = conditions.row(get("grpo"), TRAIN, conditions.Condition(4, 0))
    drawn = conditions.row(get("cispo"), TRAIN, conditions.Condition(4, 0))
    assert of_counts is not None
    assert drawn is not None
    assert (of_counts["batches"], of_counts["cosine_se"]) == (0, 0)
    assert drawn["batches"] > 0 < drawn["cosine_se"]
    assert conditions.row(get("passk"), TRAIN, conditions.Condition(2, 0)) is None


def test_a_method_that_breaks_its_contract_is_told_so() -> None:
    class Broken(type(get("grpo"))):  # type: ignore[misc]
        def signals(self, step: Any, state: Any) -> Any:
            signals, state = super().signals(step, state)
            return signals.map(lambda value: value[:1]), state

    with pytest.raises(RunFailed) as error:
        counted(Broken(), where(), 2)
    assert "mcpo components check method grpo" in str(error.value.fix)


def test_the_greedy_response_takes_the_most_probable_token_everywhere() -> None:
    base = world().base
    assert base.greedy_PR.sum(-1).tolist() == [1] * len(base.logits_PSV)
    prefixes = {(): 0}
    every = responses()
    for row, states, length in zip(
        every.token_RT.tolist(), every.state_RT.tolist(), every.length_R.tolist(), strict=True
    ):
        prefixes |= {tuple(row[:t]): states[t] for t in range(length)}
    for prompt, logits_SV in enumerate(base.logits_PSV):
        taken: tuple[int, ...] = ()
        while len(taken) < LIMIT and (not taken or taken[-1] != SYMBOLS):
            taken += (int(logits_SV[prefixes[taken]].argmax()),)
        (number,) = base.greedy_PR[prompt].nonzero().flatten().tolist()
        assert tuple(every.token_RT[number, : every.length_R[number]].tolist()) == taken
