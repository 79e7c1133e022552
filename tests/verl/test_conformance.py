"""The check of the conformance kit that needs verl, on every registered method."""

import pytest

from mcpo_cli.methods import Method
from mcpo_cli.testing import CHECKS
from tests.unit.test_conformance import VARIANTS

pytestmark = pytest.mark.verl


@pytest.mark.parametrize("method", VARIANTS, ids=repr)
def test_loss_and_gradient_under_verl_are_the_methods_own(method: Method) -> None:
    CHECKS["verl computes the same loss"](method)
