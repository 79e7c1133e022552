"""Errors by their codes, which stay when wording changes; the wording itself is in `messages.snap`."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mcpo_cli.errors import McpoError


@contextmanager
def refused(code: str, *names: str) -> Iterator["pytest.ExceptionInfo[McpoError]"]:
    """The block raises an error with this code, whose message has the `names` of settings and files."""
    with pytest.raises(McpoError) as caught:
        yield caught
    assert caught.value.code == code, caught.value
    assert [name for name in names if name not in caught.value.message] == [], caught.value
