"""Corrections for an inexact sampler: weights and masks by hand and by TRL's function, and a run with one."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from mcpo_cli.backends import corrections
from mcpo_cli.backends.local import BACKEND
from mcpo_cli.config.load import load
from mcpo_cli.config.schema import Train
from mcpo_cli.methods import Term, TokenLoss, get, reduce
from mcpo_cli.runs.attempts import Attempt
from mcpo_cli.runs.journal import Journal
from tests.errors import refused
from tests.golden.literature import f2

TRAINER = torch.tensor([[-1.0, -2.0, -0.5], [-1.0, -1.0, 0.0]], dtype=torch.float64)
SAMPLER = torch.tensor([[-2.5, -2.0, -0.7], [-0.1, -1.0, 9.0]], dtype=torch.float64)
MASK = torch.tensor([[1, 1, 1], [1, 1, 0]]).bool()
"""log w: 1.5, 0, .2 and -.9, 0; of the responses 1.7 and -.9."""
E = math.exp


@pytest.mark.parametrize(
    ("correction", "low", "high", "expected"),
    [
        ("none", 0.0, 3.0, [[1, 1, 1], [1, 1, 0]]),
        ("token-truncate", 0.0, 3.0, [[3, 1, E(0.2)], [E(-0.9), 1, 0]]),
        ("token-mask", 0.5, 5.0, [[E(1.5), 1, E(0.2)], [0, 1, 0]]),
        ("token-mask", 0.0, 2.0, [[0, 1, E(0.2)], [E(-0.9), 1, 0]]),
        ("sequence-truncate", 0.0, 3.0, [[3, 3, 3], [E(-0.9), E(-0.9), 0]]),
        ("sequence-mask", 0.0, 3.0, [[0, 0, 0], [E(-0.9), E(-0.9), 0]]),
    ],
)
def test_weights_by_hand(correction: Any, low: float, high: float, expected: list[list[float]]) -> None:
    train = Train(correction=correction, correction_low=low, correction_high=high)
    found = corrections.columns(train, TRAINER, SAMPLER, MASK)
    torch.testing.assert_close(found[corrections.WEIGHT], torch.tensor(expected, dtype=torch.float64))
    assert not found[corrections.SAMPLER][~MASK].any()


@pytest.mark.slow
@pytest.mark.parametrize("threshold", [0.01, 0.1, 0.3])
def test_the_off_policy_mask_is_that_of_trl(threshold: float) -> None:
    from trl import GRPOTrainer

    batch = f2()
    sampler_BT = (batch.logp_old_BT + 0.05) * batch.mask_BT
    ours = corrections.off_policy(batch.replace(columns={corrections.SAMPLER: sampler_BT}), threshold)
    kept = GRPOTrainer.get_off_policy_mask(
        batch.advantage_BT, batch.logp_BT, sampler_BT, batch.mask_BT.double(), threshold
    )
    assert (~ours).tolist() == kept[:, 0].bool().tolist()


def test_the_policy_term_alone_is_weighted_and_dropped() -> None:
    """Sequences 1 and 3 have A < 0; of sequence 3 the drift from the sampler is .2 - (.17/3), of 1 it is -.15."""
    batch, method = f2(columns={"mastered": [1, 1, 1, 1]}), get("mcpo")
    shift_BT = torch.tensor([[0.0], [0.0], [0.0], [0.2]]).double() * batch.mask_BT
    weight_BT = torch.tensor([[0.5], [1.0], [0.0], [2.0]]).double() * batch.mask_BT
    sampler = {corrections.SAMPLER: batch.logp_old_BT + shift_BT, corrections.WEIGHT: weight_BT}
    batch = batch.replace(columns={**batch.columns, **sampler})
    plain = method.token_loss(batch)
    found = corrections.applied(Train(off_policy_mask=0.1), plain, batch)
    (policy, hinge), (before, hinge_before) = found.terms, plain.terms
    factor_B1 = torch.tensor([[0.5], [1.0], [0.0], [0.0]]).double()
    torch.testing.assert_close(policy.value_BT * batch.mask_BT, before.value_BT * batch.mask_BT * factor_B1)
    assert hinge is hinge_before
    exact = batch.replace(columns={})
    assert corrections.applied(Train(off_policy_mask=0.1), plain, exact) is plain
    assert reduce(found, batch.mask_BT) != reduce(plain, batch.mask_BT)


def test_a_loss_without_the_weighted_term_is_refused() -> None:
    batch = f2(columns={corrections.WEIGHT: [1, 1, 1, 1]})
    with refused("run_failed"):
        corrections.applied(Train(), TokenLoss((Term("mine", batch.logp_BT, torch.ones(1)),)), batch)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["train.correction=token-mask"], "train.correction=token-mask"),
        (["train.off_policy_mask=0.5"], "train.off_policy_mask"),
        (["train.sampler_rounding=0.1", "train.correction_high=5"], "train.correction_high"),
        (["scale=verl-cpu", "train.sampler_rounding=0.1"], "train.sampler_rounding"),
        (["scale=verl-cpu", "train.correction_low=0.5"], "train.correction_low"),
    ],
)
def test_what_would_have_no_effect_is_refused(words: list[str], name: str) -> None:
    with refused("contradiction", name):
        load(words)


@pytest.mark.slow
def test_a_run_with_an_inexact_sampler(mcpo_home: Path) -> None:
    """Trainer and sampler differ by the rounding; the trainer's ratio at the first gradient step is still 1."""
    quick = ("scale=smoke", "train.steps=2", "eval.every=2", "train.sampler_rounding=0.5", "method=grpo")
    (spec,) = load([*quick, "train.correction=token-mask", "train.correction_low=0.9"])
    folder = mcpo_home / "runs" / spec.run_id
    attempt = Attempt(folder, spec, 0)
    BACKEND.run(spec, attempt, lambda: False)
    attempt.end("done")
    for row in Journal(folder).steps():
        metrics = row["metrics"]
        assert 0.01 < metrics["rollout_corr/logp_difference"] < 0.5
        assert metrics["sanity/logp_difference"] < 1e-5
        assert metrics["rollout_corr/weight"] != 1
        assert metrics["rollout_corr/masked"] > 0
