"""Our forward pass and sampler against the stock Qwen3."""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from mcpo_cli import tasks
from mcpo_cli.backends.local import initial_policy
from mcpo_cli.backends.local import policy as policies
from mcpo_cli.backends.local import tokenizer as tokenizers
from mcpo_cli.backends.local import tree as trees
from mcpo_cli.backends.local.encoding import Language, encode
from mcpo_cli.backends.local.generate import Rollouts, draw, sample
from mcpo_cli.backends.local.policy import Policy
from mcpo_cli.backends.local.tree import Tree
from mcpo_cli.backends.local.update import log_probs, log_probs_and_entropies
from mcpo_cli.config.load import load
from mcpo_cli.config.schema import Model
from mcpo_cli.seeds import stream
from tests.policies import EOS, TOKENIZER, G, T, new_policy, prompts, stock_log_probs, stock_logits


@pytest.fixture(scope="module")
def alike() -> Rollouts:
    """Responses of the same policy at a low temperature, which mostly share prefixes."""
    return sample(new_policy(), prompts(6), G, T, 0.1, EOS, seed=3)


def distinct(rollouts: Rollouts) -> int:
    """Number of distinct proper prefixes of the responses, which are the rows that are computed."""
    return len(
        {
            (p, *rollouts.token_PGT[p, g, :n].tolist())
            for p, length_G in enumerate(rollouts.length_PG.tolist())
            for g, length in enumerate(length_G)
            for n in range(1, length)
        }
    )


def grown(rollouts: Rollouts, row_cost: int) -> Tree:
    return trees.grow(rollouts.prompt_PS, rollouts.token_PGT, rollouts.mask_PGT, len(TOKENIZER), row_cost)


def test_each_beginning_is_one_row_that_sees_its_own_beginnings(alike: Rollouts) -> None:
    tree, S = grown(alike, 10**9), alike.prompt_PS.shape[1]
    assert len(tree.token_N) == alike.prompt_PS.numel() + distinct(alike)
    assert distinct(alike) < int((alike.length_PG - 1).sum()) / 2
    found = set()
    for sequence, slot in zip(tree.sequence_N.tolist(), tree.slot_N.tolist(), strict=True):
        seen = tree.row_BL[sequence, tree.seen_BLL[sequence, slot]]
        # A path from the root: one row per position, ending with the row itself.
        assert tree.position_N[seen].tolist() == list(range(len(seen)))
        assert seen[-1] == tree.row_BL[sequence, slot]
        found.add((sequence, *tree.token_N[seen].tolist()))
    assert len(found) == len(tree.token_N)
    for p, length_G in enumerate(alike.length_PG.tolist()):
        for g, length in enumerate(length_G):
            assert (p, *alike.prompt_PS[p].tolist(), *alike.token_PGT[p, g, : length - 1].tolist()) in found
    assert tree.silent == len(alike.prompt_PS) * (S - 1)


def test_cutting_a_group_into_parts_changes_nothing(rollouts: Rollouts) -> None:
    sequences, found = [], []
    for row_cost in (10**9, 0):
        sequences.append(len(grown(rollouts, row_cost).row_BL))
        found.append(differentiated(rollouts, row_cost))
    assert sequences[0] == 6 < sequences[1] < 6 * G
    for whole, cut in zip(*found, strict=True):
        assert torch.allclose(whole, cut, rtol=0, atol=1e-12 * float(whole.abs().max()))


def differentiated(rollouts: Rollouts, row_cost: int) -> list[Tensor]:
    """Log-probabilities of the tokens, and the gradient of their sum of squares for every weight."""
    policy = new_policy()
    policy.row_cost = row_cost
    logp_PGT = log_probs(policy, rollouts)
    return [logp_PGT.detach(), *torch.autograd.grad((logp_PGT**2).sum(), policy.parameters())]


def plain_samples(policy: Policy, prompt_PS: Tensor, temperature: float, seed: int) -> tuple[Tensor, Tensor]:
    """token_PGT and logp_PGT by the stock forward pass over the whole prefix, token by token and response by response.

    They are arbitrary after the end of a response.
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


@pytest.mark.parametrize(("init_std", "temperature"), [(0.02, 1.0), (0.2, 0.3)])
@torch.no_grad()
def test_the_same_responses_come_of_the_same_random_numbers_as_by_the_stock_forward_pass(
    init_std: float, temperature: float
) -> None:
    """In float32, for policies of high and of low entropy.

    A quantile on the border of two tokens, up to rounding, may give either one.
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
    collision_PGT = new_policy().collisions(rollouts.prompt_PS, rollouts.token_PGT, mask_PGT).detach()
    assert torch.allclose(collision_PGT[mask_PGT], logp.exp().square().sum(-1)[mask_PGT].detach(), atol=1e-6)
    assert not collision_PGT[~mask_PGT].any()


def test_responses_end_at_the_end_token_and_nowhere_else(rollouts: Rollouts) -> None:
    assert rollouts.ended_PG.any()
    for token_T, length, ended in zip(
        rollouts.token_PGT.view(-1, T), rollouts.length_PG.view(-1), rollouts.ended_PG.view(-1), strict=True
    ):
        assert (token_T[: length - 1] != EOS).all()
        assert bool(token_T[length - 1] == EOS) == bool(ended)
        assert ended or length == T


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_draws_follow_the_distribution(temperature: float) -> None:
    logits = torch.tensor([0.0, 1.0, -1.0, 2.0])
    uniform = (torch.arange(100_000) + 0.5) / 100_000
    share = draw(logits.expand(100_000, 4), temperature, uniform).bincount(minlength=4) / 100_000
    assert torch.allclose(share, (logits / temperature).softmax(-1), atol=1e-4)
    assert int(draw(logits[None], temperature, torch.ones(1))) <= 3


@pytest.mark.parametrize("vocabulary", [129, 1000, 49152])
def test_draws_from_a_large_vocabulary_are_at_the_quantile(vocabulary: int) -> None:
    """Against float64 sums over the whole vocabulary; if rounding could decide, the neighbours count as correct."""
    generator = torch.Generator().manual_seed(0)
    logits_MV = 4 * torch.randn(64, vocabulary, generator=generator)
    logits_MV[:, 5] = float("-inf")
    uniform_M = torch.rand(64, generator=generator)
    token_M = draw(logits_MV, 1.0, uniform_M)
    edge_MV = logits_MV.double().softmax(-1).cumsum(-1)
    above_M = edge_MV.gather(1, token_M[:, None]).squeeze(1)
    below_M = above_M - logits_MV.double().softmax(-1).gather(1, token_M[:, None]).squeeze(1)
    assert ((below_M - 1e-6 <= uniform_M) & (uniform_M <= above_M + 1e-6)).all()
    assert (token_M != 5).all()
    last = draw(logits_MV, 1.0, torch.ones(64))
    assert (last < vocabulary).all()


@pytest.mark.slow
def test_the_warm_up_expects_what_sampled_rollouts_show(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = load(["scale=smoke", "task.max_ops=2"])[0]
    policy = Policy(policies.build(spec.model, TOKENIZER, 0), torch.device("cpu"))
    task = spec.task
    longest = task.answer_length
    optimizer = torch.optim.AdamW(policy.parameters(), lr=spec.warmup.lr)
    for step in range(60):
        optimizer.zero_grad()
        problems = task.demonstrations(0, step, 32)
        initial_policy.cross_entropy(policy, encode(TOKENIZER, problems, longest)).backward()
        optimizer.step()
    problems = task.training(stream(spec.seed, "probe"), 0, spec.warmup.probe_prompts)
    batch = encode(TOKENIZER, problems, longest)
    rollouts = sample(policy, batch.prompt_PS, 64, longest, 1.0, EOS, stream(spec.seed, "rollout"))
    p_P = Language(task, TOKENIZER, closed=True).grade(problems, rollouts).correct_PG.double().mean(-1)
    error = float((p_P * (1 - p_P) / 64).sum().sqrt()) / len(p_P)
    assert 0 < error < 0.01
    expected = initial_policy.measured_accuracy(spec, policy, TOKENIZER)
    assert abs(expected - float(p_P.mean())) < 4 * error
    # The same problems, as if they had other correct responses that only sampling finds.
    monkeypatch.setattr(type(task), "one_right_response", False)
    sampled = initial_policy.measured_accuracy(spec, policy, TOKENIZER)
    assert sampled == initial_policy.measured_accuracy(spec, policy, TOKENIZER) != expected
    assert abs(sampled - expected) < 4 * error * math.sqrt(64 / initial_policy.PROBE_ROLLOUTS)


def test_stock_classes_load_a_saved_policy_and_generate_the_same_tokens(tmp_path: Path) -> None:
    """Its folder has the files for transformers, vLLM and verl."""
    for name in ("toy-s", "toy-m"):
        (spec,) = load([f"model={name}"])
        task = tasks.closed(spec.task)
        tokenizer = tokenizers.build(task.vocabulary)
        policy = Policy(policies.build(spec.model, tokenizer, 0), torch.device("cpu"))
        policy.save(tmp_path / name, tokenizer)

        model = AutoModelForCausalLM.from_pretrained(tmp_path / name, dtype="float32")
        loaded = AutoTokenizer.from_pretrained(tmp_path / name)
        # verl masks tokens beyond the tokenizer only in some places; vLLM's CPU attention takes 32.
        assert model.config.vocab_size == len(loaded) == len(tokenizer)
        assert model.config.head_dim == 32

        problems = task.training(0, 0, 4)
        batch = encode(tokenizer, problems, 16)
        prompt_PS = batch.prompt_PS
        again = loaded([problem.text for problem in problems], return_tensors="pt")["input_ids"]
        assert torch.equal(again, prompt_PS)
        for gold_T, length, problem in zip(batch.gold_PT, batch.length_P, problems, strict=True):
            assert gold_T[:length].tolist() == [*loaded(problem.gold)["input_ids"], loaded.eos_token_id]
        # Close to temperature 0 sampling is greedy.
        ours = sample(policy, prompt_PS, 1, 8, 1e-4, tokenizer.eos_token_id, seed=0).token_PGT[:, 0]
        stock = model.generate(prompt_PS, attention_mask=torch.ones_like(prompt_PS), max_new_tokens=8, do_sample=False)
        theirs = stock[:, prompt_PS.shape[1] :]
        assert torch.equal(ours[:, : theirs.shape[1]], theirs)
