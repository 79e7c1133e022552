"""Names that become headings of tables, figures and pages; files of others choose them."""

from collections.abc import Iterable

LONGEST = 200
FIX = f"names of at most {LONGEST} printable characters"


def unfit(names: Iterable[str]) -> str:
    """The first of `names` that is too long for a heading or has characters that are not seen, in ASCII; else empty."""
    return next((ascii(name)[:60] for name in names if not name.isprintable() or len(name) > LONGEST), "")
