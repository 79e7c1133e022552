"""Signs of an unsound run: the metrics on made-up rollouts, the limits, and the warnings."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpo_cli.backends import measure
from mcpo_cli.backends.graded import Graded, equal_pairs
from mcpo_cli.backends.local import policy as policies
from mcpo_cli.backends.local.batch import Sampled
from mcpo_cli.backends.local.generate import sample
from mcpo_cli.backends.local.policy import Policy
from mcpo_cli.backends.local.tokenizer import build
from mcpo_cli.config.schema import Model
from mcpo_cli.data.base import Problem
from mcpo_cli.records import StepRow
from mcpo_cli.runs import sanity
from mcpo_cli.tasks.chains import Arithmetic

PAD = 0


def graded(token_PGT: torch.Tensor, logp_PG: torch.Tensor | None = None) -> Graded:
    """Responses padded with PAD; correct if the first token is 1, ended if the last one is PAD."""
    P = len(token_PGT)
    correct_PG = token_PGT[..., 0] == 1
    return Graded(
        problems=[Problem(f"{i}", "1") for i in range(P)],
        correct_PG=correct_PG,
        reward_PG=correct_PG.double(),
        length_PG=(token_PGT != PAD).sum(-1),
        ended_PG=token_PGT[..., -1] == PAD,
        same_P=equal_pairs(token_PGT),
        logp_PG=logp_PG,
    )


def rows(*values: float) -> list[StepRow]:
    metrics = [{"sanity/truncated": value} for value in values]
    return [StepRow(step=step, time=0.0, metrics=of_step) for step, of_step in enumerate(metrics, start=1)]


def drawn(probability: list[float], P: int, G: int, seed: int) -> Graded:
    """P groups of G independent draws of one of several responses, whose numbers are their lengths."""
    share_K = torch.tensor(probability, dtype=torch.float64)
    share_K /= share_K.sum()
    K = len(share_K)
    choice_PG = torch.multinomial(share_K.expand(P, K), G, replacement=True, generator=torch.manual_seed(seed))
    token_KT = torch.ones(K, K + 1, dtype=torch.long).tril()
    return graded(token_KT[choice_PG], share_K.log()[choice_PG])


def test_equal_pairs_by_hand() -> None:
    """One of three pairs is equal; a response that is a prefix of another is not equal to it."""
    a, b = [1, 2, 0], [1, 2, 3]
    assert equal_pairs(torch.tensor([[a, b, a], [a, a, a], [a, b, [1, 0, 0]]])).tolist() == [1 / 3, 1, 0]


def test_a_right_answer_with_reasoning_is_not_bare() -> None:
    token_PGT = torch.ones(1, 4, measure.BARE_TOKENS, dtype=torch.long)
    token_PGT[0, 0, -1] = PAD
    assert measure.sanity(graded(token_PGT), reasons=True)["sanity/bare_right"] == 0.25
    assert "sanity/bare_right" not in measure.sanity(graded(token_PGT + 1), reasons=True)
    assert "sanity/bare_right" not in measure.sanity(graded(token_PGT), reasons=False)


@settings(max_examples=30)
@given(st.lists(st.floats(0.05, 1), min_size=1, max_size=4), st.integers(2, 5), st.integers(0, 2**31))
def test_the_expected_duplicates_are_those_of_independent_draws(probability: list[float], G: int, seed: int) -> None:
    found = measure.sanity(drawn(probability, 2000, G, seed), reasons=False)
    share = torch.tensor(probability, dtype=torch.float64) / sum(probability)
    equal = float((share**2).sum())
    # Five standard errors of a mean of 2000 values in 0..1, whose standard deviation is 0.5 at most.
    assert found["sanity/duplicates"] == pytest.approx(equal, abs=0.056)
    assert found["sanity/duplicates_expected"] == pytest.approx(equal, abs=0.056)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_the_local_engine_knows_the_probability_of_its_responses_at_temperature_1(temperature: float) -> None:
    tokenizer = build(Arithmetic().vocabulary)
    policy = Policy(policies.build(Model(hidden=16, layers=1, mlp=16, init_std=0.2), tokenizer, 0), torch.device("cpu"))
    prompt_PS = torch.arange(3).repeat(40, 1)
    rollouts = sample(policy, prompt_PS, 8, 2, temperature, tokenizer.eos_token_id, seed=0)
    wrong_PG = torch.zeros(40, 8, dtype=torch.bool)
    problems = [Problem(f"{i}", "1") for i in range(40)]
    verdicts = (wrong_PG, torch.ones_like(wrong_PG), wrong_PG)
    sampled = Sampled(temperature, problems, rollouts, *verdicts, [], wrong_PG.double(), torch.arange(40))
    found = measure.sanity(sampled.graded, reasons=False)
    assert 0.02 < found["sanity/duplicates"] < 0.98
    if temperature == 1:
        assert found["sanity/duplicates_expected"] == pytest.approx(found["sanity/duplicates"], rel=0.2)
    else:
        assert "sanity/duplicates_expected" not in found
    assert (sampled.graded.entropy_PG - rollouts.entropy_PGT.mean(-1)).abs()[rollouts.length_PG == 2].max() < 1e-6


def test_seeds_that_repeat_are_told() -> None:
    """Half of each group copied from the other half."""
    sound = drawn([0.4, 0.3, 0.2, 0.1], 128, 16, seed=0)
    token_KT = torch.ones(4, 5, dtype=torch.long).tril()
    half_PGT = token_KT[sound.length_PG[:, :8] - 1]
    assert sound.logp_PG is not None
    broken = graded(torch.cat([half_PGT, half_PGT], 1), torch.cat([sound.logp_PG[:, :8]] * 2, 1))
    assert sanity.warnings([StepRow(step=1, time=0.0, metrics=measure.sanity(sound, reasons=False))]) == []
    (warned,) = sanity.warnings([StepRow(step=1, time=0.0, metrics=measure.sanity(broken, reasons=False))])
    assert warned["metric"] == "sanity/duplicates_excess"


def test_warnings_say_when_and_how_often() -> None:
    (warned,) = sanity.warnings(rows(0.1, 0.3, 0.25, 0.4, 0.35))
    limit = next(limit for limit in sanity.LIMITS if limit.metric == "sanity/truncated")
    assert warned == {
        "metric": limit.metric,
        "limit": 0.25,
        "says": limit.says,
        "steps": 3,
        "first_step": 2,
        "worst_step": 4,
        "worst": 0.4,
    }
    assert sanity.line(warned) == f"{limit.says} (sanity/truncated 0.4 at step 4, above 0.25)"


@pytest.mark.parametrize(("rollouts", "told"), [(32, False), (2048, True)])
def test_few_rollouts_exceed_a_share_by_chance(rollouts: int, told: bool) -> None:
    """With a limit of a quarter, 12 of 32 may be chance; 768 of 2048 cannot."""
    (row,) = rows(0.375)
    row["metrics"]["cost/rollouts"] = float(rollouts)
    assert bool(sanity.warnings([row])) is told
