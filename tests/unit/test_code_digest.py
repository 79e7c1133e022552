"""The hash of a Python file changes with the code, but not with comments and docstrings."""

from pathlib import Path

import pytest

from mcpo_cli.code_digest import digest, without_words

SOURCE = '''\
"""A file."""
import math  # of Python


class Area:
    """Of a circle with radius é."""

    radius: float = 1.0
    """In metres."""
    unit = """m

# no comment
"""

    def of(self): "Squared."; return 'é' * 2  # twice
'''
CODE = '''\
import math
class Area:
    radius: float = 1.0
    unit = """m

# no comment
"""
    def of(self):           ; return 'é' * 2'''


def test_comments_texts_and_empty_lines_are_left_out() -> None:
    assert without_words(SOURCE) == CODE
    assert without_words(SOURCE.replace("\n", "\r\n")) == CODE


@pytest.mark.parametrize(
    ("old", "new", "is_same"),
    [
        ("A file.", "Another file, of\nmore lines.", True),
        ("# of Python", "", True),
        ("\n\nclass", "\n# A class.\n\n\n\nclass", True),
        ("In metres.", "In feet.", True),
        ("1.0", "2.0", False),
        ("m\n\n#", "m\n#", False),
        ("# no comment", "# a comment", False),
        ("    def of", "def of", False),
    ],
)
def test_what_changes_the_hash(old: str, new: str, is_same: bool, tmp_path: Path) -> None:
    one, two = tmp_path / "one.py", tmp_path / "two.py"
    assert SOURCE.count(old) == 1
    one.write_text(SOURCE, encoding="utf-8")
    two.write_text(SOURCE.replace(old, new), encoding="utf-8")
    assert (digest(one) == digest(two)) == is_same


@pytest.mark.parametrize("first", ["x = 1  # a\ny = __doc__", "x = (", "x: 1"])
def test_other_files_count_as_they_are(first: str, tmp_path: Path) -> None:
    suffix = ".yaml" if first == "x: 1" else ".py"
    one, two = tmp_path / f"one{suffix}", tmp_path / f"two{suffix}"
    one.write_text(f'"""One."""\n{first}')
    two.write_text(f'"""Two."""\n{first}')
    assert digest(one) != digest(two)
