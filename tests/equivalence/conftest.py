"""Rollouts that several equivalence tests share."""

import pytest

from mcpo_cli.backends.local.generate import Rollouts, sample
from tests.policies import EOS, G, T, new_policy, prompts


@pytest.fixture(scope="module")
def rollouts() -> Rollouts:
    """Responses of a random policy, which soon diverge."""
    return sample(new_policy(), prompts(6), G, T, 1.0, EOS, seed=3)
