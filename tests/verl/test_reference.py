"""A penalty on the divergence from a reference policy under verl: the right reference, also after a kill."""

import pytest

from mcpo_cli.runs.journal import Journal
from tests.verl.conftest import PATIENCE, TOY, Runs, nobody_is_left, phase, wait

pytestmark = [pytest.mark.verl, pytest.mark.slow]


def test_the_reference_is_the_base_policy_until_it_moves_and_survives_a_kill(runs: Runs) -> None:
    method = ("method=grpo_kl", "method.kl_beta=0.1", "method.reference_every=2", "train.lr=1e-3")
    settings = (*TOY, *method, "train.steps=3", "compute.checkpoint_every=1")
    first = runs.start("train", *settings)
    folder = runs.begun("grpo_kl", first)
    wait(lambda: "step 2 of" in phase(folder), first)
    first.kill()
    first.wait(PATIENCE)
    wait(lambda: nobody_is_left(folder))
    again = runs("train", *settings)
    assert again.returncode == 0, again.stdout

    divergence: dict[int, list[float]] = {}
    for row in Journal(folder).rows("mini_batches"):
        total, count = row["sums"]["kl/reference"]
        divergence.setdefault(row["step"], []).append(total / count)
    # In the first gradient step of step 1, and of step 3 where it moved, the policy is the reference itself.
    assert divergence[1][0] == pytest.approx(0, abs=1e-9)
    assert divergence[3][0] == pytest.approx(0, abs=1e-9)
    # A run that was resumed from step 1 still has the base policy in step 2.
    assert min(divergence[1][1], divergence[2][0], divergence[2][1], divergence[3][1]) > 1e-6
