"""What lasts is out of the garbage collector's sight, and nothing else is."""

import gc
from typing import Any

import pytest

from mcpo_cli.collector import lasting


def is_searched(wanted: list[Any]) -> bool:
    """Whether the collector looks at this list when it searches for garbage."""
    return any(one is wanted for one in gc.get_objects())


def test_only_what_the_block_makes_is_left_alone() -> None:
    with lasting():
        assert not gc.isenabled()
        kept: list[Any] = [[]]
    later: list[Any] = [[]]
    assert (is_searched(kept), is_searched(later)) == (False, True)
    gc.unfreeze()


def test_the_collector_goes_on_after_an_error() -> None:
    with pytest.raises(KeyError), lasting():
        raise KeyError
    assert gc.isenabled()
    gc.unfreeze()
