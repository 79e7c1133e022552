"""Components of variance by hand."""

import numpy as np
import pytest

from mcpo_cli.statistics import variance


def test_base_policies_by_hand() -> None:
    """Runs .0 .2 of one base policy and .4 .6 of another, the same on both problems: nothing but bases and seeds."""
    found = variance.components(np.repeat([[0.0], [0.2], [0.4], [0.6]], 2, axis=1), [0, 0, 1, 1])
    # Mean squares: seeds 2 (4 * .1^2) / 2 = .04, bases 2 (4 * .2^2) / 1 = .32.
    assert (found.rest, found.problem) == pytest.approx((0, 0))
    assert found.seed**2 == pytest.approx(0.04 / 2)
    assert found.base**2 == pytest.approx((0.32 - 0.04) / (2 * 2))
    assert found.parts["base"] == pytest.approx(0.07 / 2)


@pytest.mark.parametrize("diff_RQ", [np.zeros((1, 5)), np.zeros((3, 1)), np.full((3, 3), np.nan), np.zeros(4)])
def test_what_has_no_components_is_refused(diff_RQ: np.ndarray) -> None:
    with pytest.raises(ValueError, match="at least 2 runs and 2 problems"):
        variance.components(diff_RQ, range(len(diff_RQ)))
