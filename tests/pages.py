"""The commands in the console blocks of a page, and the output below each."""

import doctest
import re

NUMBER = re.compile(r"-[0-9a-f]{12}\b|[-+]?\d*\.?\d+")
"""The hash of a run's id, or a number."""


def sessions(text: str) -> list[list[tuple[str, str]]]:
    """Each console block with output, as its commands in order, with the output below each."""
    blocks = re.findall(r"^```console\n(.*?)\n```", text, re.DOTALL | re.MULTILINE)
    typed = [re.split(r"^\$ ", block, flags=re.MULTILINE)[1:] for block in blocks]
    found = [
        [(command, shown.strip()) for command, _, shown in (one.partition("\n") for one in each)] for each in typed
    ]
    return [session for session in found if any(shown for _, shown in session)]


def shows(shown: str, printed: str, *, numbers: bool) -> bool:
    """True if a page shows a command's output, with any line breaks; `...` replaces text that the page leaves out.

    Without `numbers` they may differ, for numbers that depend on rounding in training or on a machine's speed.
    """
    want, got = (text if numbers else NUMBER.sub("0", text) for text in (shown, printed))
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return doctest.OutputChecker().check_output(want.strip() + "\n", got.strip() + "\n", options)
