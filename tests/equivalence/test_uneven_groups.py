"""Groups of 4, 2 and 3 rollouts in one rectangle: by hand, and against each group alone, without empty places."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from mcpo_cli.backends import masking, measure
from mcpo_cli.backends.graded import Graded, equal_pairs
from mcpo_cli.backends.local import gradients
from mcpo_cli.backends.local.encoding import Language
from mcpo_cli.backends.local.generate import Rollouts, sample
from mcpo_cli.backends.local.update import GradedBatch, Updater, crop
from mcpo_cli.config.schema import Compute, Train
from mcpo_cli.data.base import Problem
from mcpo_cli.methods import Method, MiniBatch, Signals, Step, get, reduce
from mcpo_cli.seeds import stream
from mcpo_cli.tasks.chains import Arithmetic
from tests.policies import EOS, TOKENIZER, G, T, new_policy, prompts

COUNTS = [4, 2, 3, 2]
TRAIN = Train(prompts=4, mini_batch=4, rollouts=4, max_response=T, lr=1e-3, grad_clip=1e9)
CORRECT_PG = torch.tensor([[1, 0, 0, 1], [1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 0, 0]]).bool()
"""The second group is mastered: its last two places are empty."""
METHODS = [
    get("grpo"),
    get("dapo"),
    get("mcpo", anchor="previous_step", delta=0.0),
    get("clip_cov"),
    get("otb"),
    get("remax"),
    get("rl_zvp"),
    get("disco"),
]


@pytest.fixture(scope="module")
def rollouts() -> Rollouts:
    return sample(new_policy(), prompts(4), G, T, 1.0, EOS, seed=3, count_P=torch.tensor(COUNTS))


def step_of(rollouts: Rollouts) -> Step:
    """The step of the rectangle, with all inputs that a method may need."""
    index_P = torch.arange(len(COUNTS))
    found = Step(CORRECT_PG.double(), CORRECT_PG, rollouts.length_PG, index_P + 100, max_response=T)
    mask_PGT = rollouts.mask_PGT
    return dataclasses.replace(
        found,
        logp_PGT=(rollouts.logp_PGT * mask_PGT)[..., : mask_PGT.shape[-1]],
        entropy_PGT=rollouts.entropy_PGT,
        collision_PGT=(2 * rollouts.logp_PGT).exp() * mask_PGT,
        answer_PG=CORRECT_PG.long(),
        greedy_reward_P=torch.tensor([1.0, 0.0, 0.0, 1.0]).double(),
    )


def cut(rollouts: Rollouts, index: int) -> Callable[[Tensor], Tensor]:
    """Cut a tensor of all groups to that of one group, with only its own places and tokens."""
    count, longest = COUNTS[index], int(rollouts.length_PG[index].max())

    def own(value: Tensor) -> Tensor:
        part = value[index : index + 1]
        return part if part.ndim == 1 else part[:, :count] if part.ndim == 2 else part[:, :count, :longest]

    return own


def alone(rollouts: Rollouts, index: int) -> tuple[Rollouts, Step]:
    """One group without empty places, cut by hand."""
    own, of, prompt_PS = cut(rollouts, index), step_of(rollouts), rollouts.prompt_PS[index : index + 1]
    tensors = {name: own(value) for name, value in vars(rollouts).items() if name != "prompt_PS"}
    parts: dict[str, Any] = {name: own(value) for name, value in vars(of).items() if isinstance(value, Tensor)}
    return Rollouts(prompt_PS, **tensors), dataclasses.replace(of, **parts)


def graded_batch(rollouts: Rollouts, method: Method) -> GradedBatch:
    rollouts = crop(rollouts)
    signals, _ = masking.signals(method, step_of(rollouts), {}, rollouts.drawn_PG)
    return GradedBatch(rollouts, CORRECT_PG, signals, torch.arange(len(COUNTS)), rollouts.drawn_PG)


def test_smaller_groups_are_the_first_rollouts_of_larger_ones(rollouts: Rollouts) -> None:
    whole = sample(new_policy(), prompts(4), G, T, 1.0, EOS, seed=3)
    drawn_PG = torch.arange(G) < torch.tensor(COUNTS)[:, None]
    assert torch.equal(rollouts.drawn_PG, drawn_PG)
    assert torch.equal(rollouts.token_PGT[drawn_PG], whole.token_PGT[drawn_PG])
    assert torch.allclose(rollouts.logp_PGT[drawn_PG], whole.logp_PGT[drawn_PG])
    assert not rollouts.length_PG[~drawn_PG].any()
    assert not rollouts.ended_PG[~drawn_PG].any()
    assert not rollouts.mask_PGT[~drawn_PG].any()
    assert torch.equal(rollouts.token_PGT[~drawn_PG].unique(), torch.tensor([EOS]))


def test_empty_places_are_neither_read_nor_graded(rollouts: Rollouts) -> None:
    language = Language(Arithmetic(), TOKENIZER, closed=True)
    problems = Arithmetic().training(0, 0, 4)
    assert [len(texts) for texts in language.texts(rollouts)] == COUNTS
    assert [len(texts) for texts in language.shown(rollouts)] == COUNTS
    grades = language.grade(problems, rollouts)
    assert grades.correct_PG.shape == (4, G)
    assert not grades.correct_PG[~rollouts.drawn_PG].any()
    assert all(answers[count:] == [None] * (G - count) for answers, count in zip(grades.answers, COUNTS, strict=True))


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.label)
def test_signals_are_those_of_each_group_alone(rollouts: Rollouts, method: Method) -> None:
    rollouts = crop(rollouts)
    found, _ = masking.signals(method, step_of(rollouts), {}, rollouts.drawn_PG)
    assert found.counts_PG is not None
    for index, count in enumerate(COUNTS):
        expected, _ = method.signals(alone(rollouts, index)[1], {})
        for tensor, wanted in zip(_tensors(found), _tensors(expected), strict=True):
            own = tensor[index]
            inside = tuple(slice(size) for size in wanted.shape[1:])
            assert torch.allclose(own[inside].double(), wanted[0].double())
            own = own.clone()
            own[inside] = 0
            assert not own.any(), "something is in an empty place"
        assert not found.counts_PG[index, count:].any()


def _tensors(signals: Signals) -> list[Tensor]:
    counts_PG = signals.has_gradient_PG | True if signals.counts_PG is None else signals.counts_PG
    return [signals.advantage, signals.has_gradient_PG, counts_PG, *signals.columns.values()]


def test_totals_by_hand(rollouts: Rollouts) -> None:
    """11 rollouts, two of them in the mastered group."""
    batch = graded_batch(rollouts, get("mcpo"))
    total = batch.total(T)
    lengths = [int(alone(rollouts, index)[0].length_PG.sum()) for index in range(4)]
    assert total == MiniBatch(11, sum(lengths), 4, T, {"mastered": 2.0})
    assert batch.mixed_P.tolist() == [True, False, True, True]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.label)
def test_an_update_is_that_of_the_groups_without_empty_places(rollouts: Rollouts, method: Method) -> None:
    """One gradient step on the rectangle, against the sum of the gradients of each group's own rectangle."""
    policy = new_policy(1)
    updater = Updater(policy, method, TRAIN, Compute(micro_batch=3), seed=0)
    batch = graded_batch(rollouts, method)
    total = batch.total(T)
    if method.prepares:
        batch = updater.prepared(batch, total, stream(0, "method", 1, 1), on_policy=False)
    expected = [torch.zeros_like(parameter) for parameter in policy.parameters()]
    for index in range(4):
        own, of = alone(batch.rollouts, index)
        signals, index_P = batch.signals.map(cut(batch.rollouts, index)), torch.tensor([index])
        group = GradedBatch(own, of.correct_PG, signals, index_P, own.drawn_PG)
        tokens = updater.tokens(group, total)
        assert len(tokens.group_B) == COUNTS[index]
        loss = reduce(updater.loss(tokens), tokens.mask_BT)
        for sum_so_far, gradient in zip(expected, torch.autograd.grad(loss, policy.parameters()), strict=True):
            sum_so_far.add_(gradient)
    sums = updater.mini_batch(graded_batch(rollouts, method), 1, 1)
    assert all(map(math.isfinite, sums.means().values()))
    for parameter, gradient in zip(policy.parameters(), expected, strict=True):
        assert parameter.grad is not None
        assert torch.allclose(parameter.grad, gradient, atol=1e-9)


USED_PG = torch.tensor([[1, 0, 1, 1], [1, 1, 1, 1], [0, 1, 1, 1], [0, 1, 1, 0]]).bool()
"""Rollouts that were graded; the ungraded ones are in any place."""


@pytest.mark.parametrize("method", METHODS[:4], ids=lambda method: method.label)
def test_an_update_without_ungraded_rollouts_is_that_of_smaller_groups(method: Method) -> None:
    """The same rollouts with the ungraded ones left in their places, and as a rectangle from which they are taken."""
    whole = crop(sample(new_policy(), prompts(4), G, T, 1.0, EOS, seed=3))
    place_PG = (~USED_PG).int().argsort(dim=-1, stable=True)
    empty_PG = ~USED_PG.gather(-1, place_PG)

    def moved(value: Tensor) -> Tensor:
        index = place_PG if value.ndim == 2 else place_PG[..., None].expand_as(value)
        empty = empty_PG if value.ndim == 2 else empty_PG[..., None]
        return value.gather(1, index).masked_fill(empty, EOS if value is whole.token_PGT else 0)

    tensors = {name: moved(value) for name, value in vars(whole).items() if name != "prompt_PS"}
    smaller = crop(Rollouts(prompt_PS=whole.prompt_PS, **tensors))
    correct_PG = (torch.rand(4, G, generator=torch.Generator().manual_seed(5)) < 0.6) & USED_PG
    gradients = []
    for rollouts, right_PG, used_PG in ((whole, correct_PG, USED_PG), (smaller, moved(correct_PG), ~empty_PG)):
        seen = dataclasses.replace(step_of(rollouts), reward_PG=right_PG.double(), correct_PG=right_PG)
        seen = dataclasses.replace(seen, answer_PG=right_PG.long())
        found, _ = masking.signals(method, seen, {}, used_PG)
        batch = GradedBatch(rollouts, right_PG, found, torch.arange(4), used_PG)
        policy = new_policy(1)
        sums = Updater(policy, method, TRAIN, Compute(micro_batch=3), seed=0).mini_batch(batch, 1, 1)
        gradients.append([parameter.grad for parameter in policy.parameters()])
        assert sums.pairs["train/policy_loss"][0] != 0
    for one, two in zip(*gradients, strict=True):
        assert one is not None
        assert two is not None
        assert torch.allclose(one, two, atol=1e-9)


def test_trained_tokens_are_those_of_real_rollouts(rollouts: Rollouts) -> None:
    """The tokens of the three mixed groups, each rollout with its prompt."""
    updater = Updater(new_policy(1), get("grpo"), TRAIN, Compute(), seed=0)
    updater.global_step(graded_batch(rollouts, get("grpo")), 1)
    prompt = rollouts.prompt_PS.shape[1]
    assert updater.trained_tokens == int(rollouts.length_PG[[0, 2, 3]].sum()) + (4 + 3 + 2) * prompt


def test_probed_gradients_are_those_of_the_group_alone(rollouts: Rollouts) -> None:
    updater = Updater(new_policy(), get("grpo"), TRAIN, Compute(), seed=0)
    batch = graded_batch(rollouts, get("grpo"))
    own, of = alone(rollouts, 2)
    signals, _ = get("grpo").signals(of, {})
    small = GradedBatch(own, of.correct_PG, signals, torch.tensor([2]), own.drawn_PG)
    pairs = (batch.select(torch.tensor([2])), rollouts.select(torch.tensor([1]))), (small, alone(rollouts, 1)[0])
    found, wanted = (
        gradients.rows(
            1,
            [
                gradients.update_direction(updater, "", group),
                gradients.likelihood_direction(updater.policy, "", mastered),
            ],
        )
        for group, mastered in pairs
    )
    assert found[0]["p"] == 2 / 3
    for row, other in zip(found, wanted, strict=True):
        assert row == pytest.approx(other)


def graded() -> Graded:
    """Two rollouts and three: lengths 2 and 4, 1, 3 and 8; the last two places of the first group and one are empty."""
    length_PG = torch.tensor([[2, 4, 0, 0], [1, 3, 8, 0]])
    token_PGT = torch.tensor([[[5], [5], [0], [0]], [[0], [0], [7], [0]]])
    return Graded(
        problems=[Problem("a", "1"), Problem("b", "2")],
        correct_PG=torch.tensor([[1, 1, 0, 0], [0, 1, 0, 0]]).bool(),
        reward_PG=torch.tensor([[1.0, 0.5, 0, 0], [0, 1.0, 0, 0]]).double(),
        length_PG=length_PG,
        ended_PG=torch.tensor([[1, 1, 0, 0], [1, 1, 0, 0]]).bool(),
        same_P=equal_pairs(token_PGT, length_PG > 0),
        entropy_PG=torch.tensor([[0.4, 0.1, 0, 0], [0.3, 0.5, 0.2, 0]]).double(),
        logp_PG=torch.tensor([[0.5, 0.5, 1, 1], [0.25, 0.25, 0.125, 1]]).double().log(),
    )


def test_metrics_by_hand() -> None:
    """2 of 2 correct and 1 of 3: five rollouts in all."""
    one = graded()
    assert one.mastered_P.tolist() == [True, False]
    found = measure.sampled(one, 0.0)
    assert found == pytest.approx(
        {
            "train/wrong_length": 4.5,
            "train/reward": 2.5 / 5,
            "train/accuracy": (1 + 1 / 3) / 2,
            "train/response_length": 18 / 5,
            "train/entropy": 0.0,
            "mastery/mastered": 0.5,
            "mastery/majority_correct": 0.0,
            "mastery/minority": 0.5,
            "mastery/all_wrong": 0.0,
        }
    )
    health = measure.sanity(one, reasons=True)
    assert health["sanity/truncated"] == pytest.approx(1 / 5)
    # The pair of the first group is equal, and one of three pairs of the second.
    assert health["sanity/duplicates"] == pytest.approx((1 + 1 / 3) / 2)
    assert health["sanity/duplicates_expected"] == pytest.approx((1 / 2 + 5 / 24) / 2)
    assert health["sanity/bare_right"] == 1.0
    # W of the second group: (2/3 x 3 - 1/3 x (-1) x 2) / 3.
    advantage_PG = torch.tensor([[0.0, 0, 0, 0], [-1, 3, -1, 0]]).double()
    shares = measure.weights(one.correct_PG, advantage_PG, one.rollouts_P)
    assert shares["weight/p_0.25_0.50"] == pytest.approx(8 / 9)
    assert shares["weight/effective_sample"] == pytest.approx(25 / 11)
    assert measure.signs(one.correct_PG, advantage_PG, one.rollouts_P) == {
        "advantage/zero": 0.4,
        "advantage/flipped": 0.0,
    }


def test_rows_by_hand() -> None:
    first, second = measure.group_rows(3, graded(), {0, 1})
    assert (first["rollouts"], first["p"], first["mean_length"], first["truncated"]) == (2, 1.0, 3.0, 0.0)
    assert (second["rollouts"], second["p"]) == (3, 1 / 3)
    assert (second["mean_length"], second["truncated"], second["duplicates"]) == pytest.approx((4.0, 1 / 3, 1 / 3))
    # (2 x .4 + 4 x .1) / 6, and (1 x .3 + 8 x .2) / 9 of the incorrect ones.
    assert first["entropy"] == first["entropy_right"] == pytest.approx(0.2)
    assert "entropy_wrong" not in first
    assert second["entropy_wrong"] == pytest.approx(1.9 / 9)
    rows = measure.sample_rows(3, graded(), [["x", "y"], ["u", "v", "w"]])
    assert [(row["prompt"], row["response"], row["correct"]) for row in rows] == [
        ("a", "x", True),
        ("a", "y", True),
        ("b", "u", False),
        ("b", "v", True),
        ("b", "w", False),
    ]
