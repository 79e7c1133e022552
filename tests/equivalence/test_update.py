"""An update of the policy against one without shortcuts: splits, threads, omitted sequences, records."""

import dataclasses
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from mcpo_cli.backends.local.generate import Rollouts
from mcpo_cli.backends.local.policy import Policy
from mcpo_cli.backends.local.update import GradedBatch, Updater
from mcpo_cli.config.load import load
from mcpo_cli.config.schema import Compute, RunSpec, Train
from mcpo_cli.methods import Method, Step, get
from tests.policies import G, T, new_policy, stock_log_probs


def graded(rollouts: Rollouts, method: Method) -> GradedBatch:
    """Groups of every class: all incorrect, mixed, mastered."""
    correct_PG = torch.tensor(
        [[0, 0, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1], [1, 1, 0, 0]]
    ).bool()
    return batch_of(rollouts, correct_PG, method)


def batch_of(rollouts: Rollouts, correct_PG: Tensor, method: Method) -> GradedBatch:
    """The rollouts with these verdicts, and the method's signals."""
    index_P = torch.arange(len(correct_PG))
    step = Step(
        correct_PG.double(), correct_PG, rollouts.length_PG, index_P, max_response=T, logp_PGT=rollouts.logp_PGT
    )
    signals, _ = method.signals(step, {})
    return GradedBatch(rollouts, correct_PG, signals, index_P, rollouts.drawn_PG)


def updater_of(policy: Policy, method: Method, train: Train, **compute: int) -> Updater:
    return Updater(policy, method, train, Compute(**compute), seed=0)


def updated(
    spec: RunSpec, rollouts: Rollouts, micro_batch: int, steps: int = 2, threads: int = 1
) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Weights and metrics after two global steps of two mini-batches on the same rollouts."""
    policy = new_policy()
    updater = updater_of(policy, spec.method, spec.train, micro_batch=micro_batch, threads=threads)
    metrics: dict[str, float] = {}
    for step in range(1, steps + 1):
        metrics, _ = updater.global_step(graded(rollouts, spec.method), step)
    return {name: value.detach() for name, value in policy.model.named_parameters()}, metrics


SPEC = load(["scale=smoke", "train.prompts=6", "train.mini_batch=3", "train.lr=1e-3"])[0]


@pytest.mark.parametrize(
    "method",
    [get("mcpo"), get("mcpo", anchor="previous_step"), get("mcpo", aggregation="token-mean"), get("grpo_kl")],
    ids=lambda method: f"{method.label}-{getattr(method, 'anchor', '')}-{method.aggregation}",
)
def test_updates_do_not_depend_on_micro_batches(rollouts: Rollouts, method: Method) -> None:
    spec = dataclasses.replace(SPEC, method=method)
    one, metrics_one = updated(spec, rollouts, micro_batch=6)
    many, metrics_many = updated(spec, rollouts, micro_batch=1)
    for name, value in one.items():
        assert torch.allclose(value, many[name], atol=1e-6), name
    assert metrics_one == pytest.approx(metrics_many, abs=1e-6)


@pytest.mark.parametrize(("every", "moves_at"), [(0, []), (1, [2, 3]), (2, [3])])
def test_the_reference_is_the_base_policy_until_it_moves(rollouts: Rollouts, every: int, moves_at: list[int]) -> None:
    """A state that is read again also continues with the same bits."""
    method = get("grpo_kl", kl_beta=1.0, reference_every=every)
    policy, expected, other = new_policy(), new_policy(), new_policy()
    updater = updater_of(policy, method, SPEC.train)
    for step in (1, 2, 3):
        if step in moves_at:
            expected = policy.copy()
        saved = {file: {name: value.clone() for name, value in part.items()} for file, part in updater.state().items()}
        metrics, _ = updater.global_step(graded(rollouts, method), step)
        assert updater.reference is not None
        kept, wanted = updater.reference.named_parameters(), expected.named_parameters()
        assert all(torch.equal(value, wanted[name]) for name, value in kept.items())
        # At a move it is the policy itself before the first of two gradient steps.
        assert metrics["kl/reference"] > 0
    resumed = updater_of(other, method, SPEC.train)
    resumed.load_state(saved)
    again, _ = resumed.global_step(graded(rollouts, method), 3)
    assert again == metrics
    assert all(torch.equal(value, other.named_parameters()[name]) for name, value in policy.named_parameters().items())


@pytest.mark.parametrize(("setting", "pulled"), [("penalised", True), ("free", False)])
def test_groups_without_an_advantage_are_pulled_to_the_reference_or_not(
    rollouts: Rollouts, setting: str, pulled: bool
) -> None:
    method = get("grpo_kl", without_advantage=setting)
    policy = new_policy()
    updater = updater_of(policy, method, dataclasses.replace(SPEC.train, mini_batch=6))
    # A policy that has moved from its reference, and a batch of which no group has an advantage.
    policy.model.model.embed_tokens.weight.data += 0.02
    dead = batch_of(rollouts, torch.zeros(6, G, dtype=torch.bool), method)
    means = updater.mini_batch(dead, 2, 1).means()
    assert (means["train/grad_norm"] > 0) == pulled
    assert means.get("kl/without_advantage", 0) == pulled


@pytest.fixture
def single_threaded() -> Iterator[None]:
    """torch with one thread, as in a run with `compute.threads=1`, because more threads round differently."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("single_threaded")
def test_updates_are_the_same_to_the_last_bit_for_any_number_of_threads(rollouts: Rollouts) -> None:
    spec = dataclasses.replace(SPEC, method=get("mcpo"))
    one, metrics_one = updated(spec, rollouts, micro_batch=1)
    two, metrics_two = updated(spec, rollouts, micro_batch=1, threads=2)
    assert all(torch.equal(value, two[name]) for name, value in one.items())
    assert metrics_one == metrics_two


def test_leaving_out_weightless_sequences_changes_no_gradient(rollouts: Rollouts) -> None:
    """All sequences through the stock forward pass and a loss written out by hand give the same gradient."""
    method = get("mcpo")
    spec = dataclasses.replace(SPEC, method=method, train=dataclasses.replace(SPEC.train, mini_batch=6, grad_clip=1e9))
    ours, stock = new_policy(), new_policy()
    for policy in (ours, stock):
        # Away from the rollout policy: otherwise every ratio is 1 and the hinge inactive.
        policy.model.model.embed_tokens.weight.data += 0.02
    batch = graded(rollouts, method)
    updater = updater_of(ours, method, spec.train, micro_batch=2)
    # Not the first mini-batch, so the policy is not the one that sampled.
    sums = updater.mini_batch(batch, 1, 1)

    logp = stock_log_probs(stock, rollouts)
    total = torch.zeros((), dtype=torch.float64)
    mastered_P = batch.correct_PG.all(-1)
    mastered = int(mastered_P.sum()) * G
    for p in range(6):
        for g in range(G):
            n = int(rollouts.length_PG[p, g])
            d = (logp - rollouts.logp_PGT)[p, g, :n]
            a = batch.signals.advantage[p, g]
            total = total - torch.minimum(d.exp() * a, d.exp().clamp(0.8, 1.28) * a).mean() / (6 * G)
            if mastered_P[p]:
                k3 = d.exp() - d - 1
                edge = torch.where(d > 0, 0.01, -0.01)
                total = total + torch.where(d.abs() > 0.01, k3 - (edge.exp() - edge - 1), 0.0).mean() / mastered
    measured = sums.pairs["train/policy_loss"][0] + sums.pairs["train/hinge_loss"][0]
    assert measured == pytest.approx(float(total.detach()), rel=1e-5)
    total.backward()
    for (name, mine), (_, theirs) in zip(ours.model.named_parameters(), stock.model.named_parameters(), strict=True):
        assert mine.grad is not None
        assert theirs.grad is not None
        assert torch.allclose(mine.grad, theirs.grad, atol=1e-4 * float(theirs.grad.abs().max())), name


def test_a_batch_in_which_no_prompt_bears_a_gradient_does_not_crash(rollouts: Rollouts) -> None:
    before = {name: value.detach().clone() for name, value in new_policy().model.named_parameters()}
    policy = new_policy()
    updater = updater_of(policy, get("mcpo"), SPEC.train, micro_batch=2)
    nothing = batch_of(rollouts, torch.zeros(6, G, dtype=torch.bool), get("mcpo"))
    metrics, (first, second) = updater.global_step(nothing, 1)
    assert first["sums"]["train/policy_loss"] == second["sums"]["train/policy_loss"] == [0, 1]
    assert metrics["train/grad_norm"] == 0
    for name, value in policy.model.named_parameters():
        assert torch.equal(value, before[name])


@pytest.mark.parametrize("micro_batch", [1, 6])
def test_the_rows_of_gradient_steps_add_up_to_the_metrics(rollouts: Rollouts, micro_batch: int) -> None:
    """Prompts 1 and 4 are mastered, one in each mini-batch; only the second one's policy has moved."""
    policy, method = new_policy(), get("mcpo", delta=0.001)
    updater = updater_of(policy, method, SPEC.train, micro_batch=micro_batch)
    metrics, rows = updater.global_step(graded(rollouts, method), 5)
    assert [(row["step"], row["mini_batch"]) for row in rows] == [(5, 1), (5, 2)]
    first, second = (row["sums"] for row in rows)
    assert (first["train/hinge_loss"], first["hinge/prompts_felt"], second["hinge/prompts_felt"]) == (
        [0, 1],
        [0, 1],
        [1, 1],
    )
    for sums, prompt in zip((first, second), (1, 4), strict=True):
        active, tokens = sums["hinge/tokens_active"]
        assert 0 <= active <= tokens == int(rollouts.length_PG[prompt].sum())
    assert first["hinge/tokens_active"][0] == 0 < second["hinge/tokens_active"][0]
    for name in metrics.keys() - {"train/lr"}:
        pairs = [sums[name] for sums in (first, second) if name in sums]
        assert metrics[name] == pytest.approx(sum(pair[0] for pair in pairs) / sum(pair[1] for pair in pairs))
    assert {"train/hinge_loss", "train/policy_loss", "hinge/tokens_active", "hinge/prompts_felt"} <= metrics.keys()


def test_sampler_and_trainer_are_compared_before_the_policy_moves(rollouts: Rollouts) -> None:
    """Even at a step size that changes the policy for the second mini-batch, the difference is only rounding."""
    spec = dataclasses.replace(SPEC, method=get("dapo"), train=dataclasses.replace(SPEC.train, lr=0.1))
    assert updated(spec, rollouts, 2, steps=1)[1]["sanity/logp_difference"] < 1e-5
    other = dataclasses.replace(rollouts, logp_PGT=rollouts.logp_PGT + 0.25)
    assert updated(spec, other, 2, steps=1)[1]["sanity/logp_difference"] == pytest.approx(0.25, abs=1e-5)
