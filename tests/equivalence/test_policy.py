"""Our forward pass and sampler against the stock Qwen3, and an update against the same update without shortcuts."""

import dataclasses
import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from mcpo_cli import tasks
from mcpo_cli.backends.local import policy as policies
from mcpo_cli.backends.local import tokenizer as tokenizers
from mcpo_cli.backends.local import tree as trees
from mcpo_cli.backends.local import warmup
from mcpo_cli.backends.local.encoding import encode, judge
from mcpo_cli.backends.local.policy import Policy
from mcpo_cli.backends.local.sampler import Rollouts, draw, sample
from mcpo_cli.backends.local.tree import Tree
from mcpo_cli.backends.local.update import GradedBatch, Updater, log_probs, log_probs_and_entropies
from mcpo_cli.config.load import load
from mcpo_cli.config.schema import Compute, Model, RunSpec, Train
from mcpo_cli.methods import Method, Step, get
from mcpo_cli.methods.mcpo import drift_bins, drift_names
from mcpo_cli.seeds import stream
from mcpo_cli.tasks.arithmetic import Arithmetic

TOKENIZER = tokenizers.build(Arithmetic().vocabulary)
EOS = TOKENIZER.eos_token_id
G, T = 4, 9


def new_policy(seed: int = 0) -> Policy:
    """A random policy in float64; the stock norm still computes in float32, hence the tolerances."""
    model = policies.build(Model(layers=2), TOKENIZER, seed).double()
    # Larger than a fresh model's, so that attention matters to the result.
    for parameter in model.model.layers.parameters():
        parameter.data *= 4
    return Policy(model, torch.device("cpu"))


def prompts(count: int) -> Tensor:
    spec = load(["scale=smoke"])[0]
    return encode(TOKENIZER, tasks.closed(spec.task).training(0, 0, count), T).prompt_PS


def stock_logits(policy: Policy, rollouts: Rollouts) -> Tensor:
    """logits_PGTV by the model's own forward pass over prompt and response written out."""
    P, S = rollouts.prompt_PS.shape
    full = torch.cat([rollouts.prompt_PS[:, None].expand(P, G, S), rollouts.token_PGT], -1).reshape(P * G, -1)
    logits: Tensor = policy.model(full).logits[:, S - 1 : -1]
    return logits.reshape(P, G, rollouts.token_PGT.shape[-1], -1)


def stock_log_probs(policy: Policy, rollouts: Rollouts) -> Tensor:
    """logp_PGT of the tokens by the stock forward pass."""
    logp = stock_logits(policy, rollouts).log_softmax(-1)
    return logp.gather(-1, rollouts.token_PGT[..., None]).squeeze(-1)


@pytest.fixture(scope="module")
def rollouts() -> Rollouts:
    """Responses that soon part: of a random policy."""
    return sample(new_policy(), prompts(6), G, T, 1.0, EOS, seed=3)


@pytest.fixture(scope="module")
def alike() -> Rollouts:
    """Responses that mostly begin alike: of the same policy at a low temperature."""
    return sample(new_policy(), prompts(6), G, T, 0.1, EOS, seed=3)


def distinct(rollouts: Rollouts) -> int:
    """Beginnings that are read, each counted once: of every response the first tokens, but for all of them."""
    return len(
        {
            (p, *rollouts.token_PGT[p, g, :n].tolist())
            for p, length_G in enumerate(rollouts.length_PG.tolist())
            for g, length in enumerate(length_G)
            for n in range(1, length)
        }
    )


def grown(rollouts: Rollouts) -> Tree:
    return trees.grow(rollouts.prompt_PS, rollouts.token_PGT, rollouts.mask_PGT, len(TOKENIZER))


def test_each_beginning_is_one_row_that_sees_its_own_beginnings(
    alike: Rollouts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "ROW", 1e9)
    tree, S = grown(alike), alike.prompt_PS.shape[1]
    assert len(tree.token_N) == alike.prompt_PS.numel() + distinct(alike)
    assert distinct(alike) < int((alike.length_PG - 1).sum()) / 2
    found = set()
    for sequence, slot in zip(tree.sequence_N.tolist(), tree.slot_N.tolist(), strict=True):
        seen = tree.row_BL[sequence, tree.seen_BLL[sequence, slot]]
        # A way from the root: one row a position, the row itself last.
        assert tree.position_N[seen].tolist() == list(range(len(seen)))
        assert seen[-1] == tree.row_BL[sequence, slot]
        found.add((sequence, *tree.token_N[seen].tolist()))
    assert len(found) == len(tree.token_N)
    for p, length_G in enumerate(alike.length_PG.tolist()):
        for g, length in enumerate(length_G):
            assert (p, *alike.prompt_PS[p].tolist(), *alike.token_PGT[p, g, : length - 1].tolist()) in found
    assert tree.silent == len(alike.prompt_PS) * (S - 1)


@pytest.mark.parametrize("which", ["rollouts", "alike"])
def test_log_probabilities_and_gradients_equal_the_stock_forward_pass(
    which: str, request: pytest.FixtureRequest
) -> None:
    rollouts: Rollouts = request.getfixturevalue(which)
    ours, stock, mask_PGT = new_policy(), new_policy(), rollouts.mask_PGT
    logp_PGT, expected_PGT = log_probs(ours, rollouts), stock_log_probs(stock, rollouts)
    assert torch.allclose(logp_PGT[mask_PGT], expected_PGT[mask_PGT], atol=5e-5)
    assert not logp_PGT[~mask_PGT].any()
    weight_PGT = torch.randn(mask_PGT.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    (logp_PGT * weight_PGT)[mask_PGT].sum().backward()
    (expected_PGT * weight_PGT)[mask_PGT].sum().backward()
    for (name, mine), (_, theirs) in zip(ours.model.named_parameters(), stock.model.named_parameters(), strict=True):
        assert mine.grad is not None
        assert theirs.grad is not None
        assert torch.allclose(mine.grad, theirs.grad, atol=1e-4 * float(theirs.grad.abs().max())), name


@pytest.mark.parametrize("which", ["rollouts", "alike"])
def test_sharing_changes_no_log_probability_and_no_gradient(which: str, request: pytest.FixtureRequest) -> None:
    """Groups against the same rollouts each in a group of its own, to the rounding of float64."""
    rollouts: Rollouts = request.getfixturevalue(which)
    alone = Rollouts(
        rollouts.prompt_PS.repeat_interleave(G, dim=0),
        **{name: value.flatten(0, 1)[:, None] for name, value in vars(rollouts).items() if name != "prompt_PS"},
    )
    assert len(grown(rollouts).token_N) < len(grown(alone).token_N)
    for mine, theirs in zip(differentiated(rollouts), differentiated(alone), strict=True):
        assert torch.allclose(mine.flatten(), theirs.flatten(), rtol=0, atol=1e-12 * float(theirs.abs().max()))


def test_cutting_a_group_into_parts_changes_nothing(rollouts: Rollouts, monkeypatch: pytest.MonkeyPatch) -> None:
    sequences, found = [], []
    for row in (1e9, 0):
        monkeypatch.setattr(trees, "ROW", row)
        sequences.append(len(grown(rollouts).row_BL))
        found.append(differentiated(rollouts))
    assert sequences[0] == 6 < sequences[1] < 6 * G
    for whole, cut in zip(*found, strict=True):
        assert torch.allclose(whole, cut, rtol=0, atol=1e-12 * float(whole.abs().max()))


def differentiated(rollouts: Rollouts) -> list[Tensor]:
    """Log-probabilities of the tokens, and the gradient of their sum of squares by every weight."""
    policy = new_policy()
    logp_PGT = log_probs(policy, rollouts)
    return [logp_PGT.detach(), *torch.autograd.grad((logp_PGT**2).sum(), policy.parameters())]


def plain_samples(policy: Policy, prompt_PS: Tensor, temperature: float, seed: int) -> tuple[Tensor, Tensor]:
    """token_PGT and logp_PGT by the stock forward pass over everything so far, token by token and response by response.

    After the end of a response they are whatever comes.
    """
    P = len(prompt_PS)
    uniform_TPG = torch.rand(T, P, G, generator=torch.Generator().manual_seed(seed))
    token_BS, logps = prompt_PS.repeat_interleave(G, dim=0), []
    for uniform_PG in uniform_TPG:
        logits_BV = policy.model(token_BS).logits[:, -1]
        edge_BV = (logits_BV / temperature).softmax(-1).cumsum(-1)
        token_B = (edge_BV < uniform_PG.view(-1, 1)).sum(-1).clamp(max=len(TOKENIZER) - 1)
        logps.append(logits_BV.log_softmax(-1)[torch.arange(P * G), token_B])
        token_BS = torch.cat([token_BS, token_B[:, None]], dim=1)
    return token_BS[:, -T:].view(P, G, T), torch.stack(logps, -1).view(P, G, T)


@pytest.mark.parametrize(("init_std", "temperature"), [(0.02, 1.0), (0.2, 1.0), (0.2, 0.3)])
@torch.no_grad()
def test_the_same_responses_come_of_the_same_random_numbers_as_by_the_stock_forward_pass(
    init_std: float, temperature: float
) -> None:
    """In float32, of policies that are undecided or decided.

    A quantile that falls within rounding of two tokens may give the other one.
    """
    policy = Policy(policies.build(Model(init_std=init_std), TOKENIZER, 1), torch.device("cpu"))
    prompt_PS = prompts(80)
    ours = sample(policy, prompt_PS, G, T, temperature, EOS, seed=5)
    token_PGT, logp_PGT = plain_samples(policy, prompt_PS, temperature, seed=5)
    mask_PGT = ours.mask_PGT
    same_PG = ((ours.token_PGT == token_PGT) | ~mask_PGT).all(-1)
    assert same_PG.double().mean() >= 0.99
    assert (ours.logp_PGT - logp_PGT)[mask_PGT & same_PG[..., None]].abs().max() < 2e-4


def test_sampler_records_exact_log_probabilities_and_entropies(rollouts: Rollouts) -> None:
    mask_PGT = rollouts.mask_PGT
    logp = stock_logits(new_policy(), rollouts).log_softmax(-1)
    taken = stock_log_probs(new_policy(), rollouts)
    assert torch.allclose(rollouts.logp_PGT[mask_PGT], taken[mask_PGT], atol=5e-5)
    entropy = -(logp.exp() * logp).sum(-1)
    assert torch.allclose(rollouts.entropy_PGT[mask_PGT], entropy[mask_PGT], atol=5e-5)
    assert not rollouts.logp_PGT[~mask_PGT].any()
    logp_PGT, entropy_PGT = log_probs_and_entropies(new_policy(), rollouts)
    assert torch.equal(logp_PGT, log_probs(new_policy(), rollouts))
    assert torch.allclose(logp_PGT[mask_PGT], rollouts.logp_PGT[mask_PGT], atol=1e-12)
    assert torch.allclose(entropy_PGT[mask_PGT], rollouts.entropy_PGT[mask_PGT], atol=1e-12)
    assert logp_PGT.requires_grad
    assert not entropy_PGT.requires_grad
    assert not entropy_PGT[~mask_PGT].any()


def test_responses_end_at_the_end_token_and_nowhere_else(rollouts: Rollouts) -> None:
    assert rollouts.ended_PG.any()
    for token_T, length, ended in zip(
        rollouts.token_PGT.view(-1, T), rollouts.length_PG.view(-1), rollouts.ended_PG.view(-1), strict=True
    ):
        assert (token_T[: length - 1] != EOS).all()
        assert bool(token_T[length - 1] == EOS) == bool(ended)
        assert ended or length == T


def test_a_group_does_not_depend_on_the_groups_beside_it() -> None:
    policy, prompt_PS = new_policy(), prompts(6)
    whole = sample(policy, prompt_PS, G, T, 1.0, EOS, seed=3)
    changed = prompt_PS.clone()
    changed[1:] = changed[1:].flip(0)
    beside = sample(policy, changed, G, T, 1.0, EOS, seed=3)
    assert torch.equal(whole.token_PGT[0], beside.token_PGT[0])


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_draws_follow_the_distribution(temperature: float) -> None:
    logits = torch.tensor([0.0, 1.0, -1.0, 2.0])
    uniform = (torch.arange(100_000) + 0.5) / 100_000
    share = draw(logits.expand(100_000, 4), temperature, uniform).bincount(minlength=4) / 100_000
    assert torch.allclose(share, (logits / temperature).softmax(-1), atol=1e-4)
    assert int(draw(logits, temperature, torch.tensor(1.0))) <= 3


def graded(rollouts: Rollouts, method: Method) -> GradedBatch:
    """Groups of every class: all wrong, mixed, mastered."""
    correct_PG = torch.tensor(
        [[0, 0, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1], [1, 1, 0, 0]]
    ).bool()
    return batch_of(rollouts, correct_PG, method)


def batch_of(rollouts: Rollouts, correct_PG: Tensor, method: Method) -> GradedBatch:
    """The rollouts with these verdicts, and the method's signals."""
    place_P = torch.arange(len(correct_PG))
    step = Step(correct_PG.double(), correct_PG, rollouts.length_PG, place_P, limit=T, logp_PGT=rollouts.logp_PGT)
    signals, _ = method.signals(step, method.initial_state())
    return GradedBatch(rollouts, correct_PG, signals, place_P)


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
    [get("dapo"), get("mcpo"), get("mcpo", anchor="previous_step"), get("mcpo", aggregation="token-mean")],
    ids=lambda method: f"{method.label}-{getattr(method, 'anchor', '')}-{method.aggregation}",
)
def test_updates_do_not_depend_on_micro_batches(rollouts: Rollouts, method: Method) -> None:
    spec = dataclasses.replace(SPEC, method=method)
    one, metrics_one = updated(spec, rollouts, micro_batch=6)
    many, metrics_many = updated(spec, rollouts, micro_batch=1)
    for name, value in one.items():
        assert torch.allclose(value, many[name], atol=1e-6), name
    assert metrics_one == pytest.approx(metrics_many, abs=1e-6)


@pytest.fixture
def single_threaded() -> Iterator[None]:
    """torch's own threads off, as in a run with `compute.threads=1`: they round differently."""
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
        # Away from the rollout policy, or every ratio is 1 and the hinge idle.
        policy.model.model.embed_tokens.weight.data += 0.02
    batch = graded(rollouts, method)
    updater = updater_of(ours, method, spec.train, micro_batch=2)
    # A mini-batch that is not the first: the policy is not the one that sampled.
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


def test_hinge_with_rollout_anchor_is_silent_in_the_first_mini_batch_only(rollouts: Rollouts) -> None:
    alone = dataclasses.replace(SPEC.train, mini_batch=6)
    whole = dataclasses.replace(SPEC, method=get("mcpo", delta=0.0), train=alone)
    assert updated(whole, rollouts, 6, steps=1)[1]["hinge/tokens_active"] == 0
    halves = dataclasses.replace(SPEC, method=get("mcpo", delta=0.0))
    # Prompts 1 and 4 are mastered, one in each mini-batch: only the second one is felt.
    metrics = updated(halves, rollouts, 6, steps=1)[1]
    assert metrics["hinge/prompts_felt"] == pytest.approx(0.5)
    assert metrics["train/hinge_loss"] > 0


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
        counts = [sums[name] for name in drift_names()]
        assert tokens == sum(count for count, _ in counts) == int(rollouts.length_PG[prompt].sum())
        assert {denominator for _, denominator in counts} == {0}
        outside = [
            count for (low, high), (count, _) in zip(drift_bins(), counts, strict=True) if low >= 1 or high <= -1
        ]
        assert active == sum(outside)
    assert first["hinge/tokens_active"][0] == 0 < second["hinge/tokens_active"][0]
    for name in metrics.keys() - {"train/lr"}:
        pairs = [sums[name] for sums in (first, second) if name in sums]
        assert metrics[name] == pytest.approx(sum(pair[0] for pair in pairs) / sum(pair[1] for pair in pairs))
    assert {"train/hinge_loss", "train/policy_loss", "hinge/tokens_active", "hinge/prompts_felt"} <= metrics.keys()
    assert metrics["train/policy_loss"] == pytest.approx(
        (first["train/policy_loss"][0] + second["train/policy_loss"][0]) / 2
    )
    assert not metrics.keys() & set(drift_names())


def test_sampler_and_trainer_are_compared_before_the_policy_moves(rollouts: Rollouts) -> None:
    """At a step size at which the second mini-batch sees another policy the difference stays one of rounding."""
    spec = dataclasses.replace(SPEC, method=get("dapo"), train=dataclasses.replace(SPEC.train, lr=0.1))
    assert updated(spec, rollouts, 2, steps=1)[1]["sanity/logp_difference"] < 1e-5
    other = dataclasses.replace(rollouts, logp_PGT=rollouts.logp_PGT + 0.25)
    assert updated(spec, other, 2, steps=1)[1]["sanity/logp_difference"] == pytest.approx(0.25, abs=1e-5)


def test_the_warm_up_expects_what_sampled_rollouts_show(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = load(["scale=smoke"])[0]
    policy = Policy(policies.build(spec.model, TOKENIZER, 0), torch.device("cpu"))
    task = spec.task
    longest = task.answer_length
    optimizer = torch.optim.AdamW(policy.parameters(), lr=spec.warmup.lr)
    for step in range(60):
        optimizer.zero_grad()
        problems = task.demonstrations(0, step, 32)
        warmup.cross_entropy(policy, encode(TOKENIZER, problems, longest)).backward()
        optimizer.step()
    problems = task.training(stream(spec.seed, "probe"), 0, spec.warmup.probe_prompts)
    batch = encode(TOKENIZER, problems, longest)
    rollouts = sample(policy, batch.prompt_PS, 64, longest, 1.0, EOS, stream(spec.seed, "rollout"))
    p_P = judge(task, TOKENIZER, problems, rollouts).correct_PG.double().mean(-1)
    error = float((p_P * (1 - p_P) / 64).sum().sqrt()) / len(p_P)
    assert 0 < error < 0.01
    expected = warmup.measured_accuracy(spec, policy, TOKENIZER)
    assert abs(expected - float(p_P.mean())) < 4 * error
    # The same problems, as if there were other right responses that only sampling finds.
    monkeypatch.setattr(type(task), "one_right_response", False)
    sampled = warmup.measured_accuracy(spec, policy, TOKENIZER)
    assert sampled == warmup.measured_accuracy(spec, policy, TOKENIZER) != expected
    assert abs(sampled - expected) < 4 * error * math.sqrt(64 / warmup.PROBE_ROLLOUTS)
