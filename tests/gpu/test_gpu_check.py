"""`make gpu-check`: each part completes, and its figures are inside their limits."""

import pytest

from tests.gpu.conftest import Check
from tests.gpu.parts import PARTS

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("letter", PARTS, ids=lambda letter: PARTS[letter].name)
def test_part(letter: str, check: Check) -> None:
    result = check.run(PARTS[letter])
    if result.state == "skipped":
        pytest.skip(result.reason)
    assert result.state == "measured", result.reason
