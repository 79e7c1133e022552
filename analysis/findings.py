"""Whether the numbers on the pages are those of the committed rows: `make check-findings`.

`experiments/findings.yaml` has one entry per quoted text. The numbers in the quote, in order, must equal what its
queries give (`committed.py`), with as many digits as the page shows. Texts whose numbers no committed row can give are
listed as `unverified`, and their paragraph on the page must say so.
"""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mcpo_cli.analysis.committed import Committed, Query
from mcpo_cli.config.load import EXPERIMENTS
from mcpo_cli.config.reading import read_yaml
from mcpo_cli.convert import convert
from mcpo_cli.errors import ConfigError, McpoError

ROOT = EXPERIMENTS.resolve().parent
"""The checkout: pages are not installed."""
MARK = "not recomputable from committed rows"
"""Words that the paragraph of an unverified number has."""
NUMBER = re.compile(r"(?<![\w@.,-])([+-]?(?:\d{1,3}(?:,\d{3})+|\d*\.?\d+))(?![\w@])( %)?")
"""A number in a quote; not the digits of `pass@1`, `toy-s` or `5e-4`."""
RESULT = re.compile(r"(?<![\w.])[+-]?(?:\.\d+|\d[\d.]* ± [\d.]+)")
"""A number that a page must not show outside of quotes: a decimal without a leading 0, or one with an interval.
Pages write settings with a leading 0 or as `5e-4`, so that the two can be distinguished."""
CONTEXT = 40
"""Characters before an unlisted number that a message shows."""


@dataclass(frozen=True)
class Finding:
    """A text on a page and where its numbers come from."""

    id: str
    pages: tuple[str, ...]
    """Files, by their paths in the checkout; each has the quote exactly once."""
    quote: str
    values: tuple[Query, ...] = ()
    """Give one number for each in the quote, in order."""
    reason: str = ""
    """Why no committed row gives these numbers; only of unverified texts."""


@dataclass(frozen=True)
class Entries:
    """The entries of `experiments/findings.yaml`."""

    findings: tuple[Finding, ...]
    unverified: tuple[Finding, ...] = ()

    @property
    def pages(self) -> list[str]:
        """All pages that an entry names."""
        return sorted({page for one in (*self.findings, *self.unverified) for page in one.pages})


def read(root: Path = ROOT) -> Entries:
    """The entries of the checkout `root`.

    Raises:
        ConfigError: an entry has an unknown key or a wrong type, an id is used twice, or it has both or neither of
            values and a reason.
    """
    found = convert(Entries, read_yaml(root / "experiments" / "findings.yaml"), "")
    ids = [one.id for one in (*found.findings, *found.unverified)]
    if twice := {name for name in ids if ids.count(name) > 1}:
        raise ConfigError(f"ids are used twice: {', '.join(sorted(twice))}", fix="edit experiments/findings.yaml")
    wrong = [one.id for one in found.findings if not one.values or one.reason]
    wrong += [one.id for one in found.unverified if one.values or not one.reason]
    if wrong:
        raise ConfigError(
            f"{', '.join(wrong)}: a finding needs values, an unverified text a reason",
            fix="edit experiments/findings.yaml",
        )
    return found


def read_pages(found: Entries, root: Path = ROOT) -> dict[str, str]:
    """The text of each page.

    Raises:
        ConfigError: a page does not exist.
    """
    if missing := [page for page in found.pages if not (root / page).is_file()]:
        raise ConfigError(f"there is no page {', '.join(missing)}", fix="edit experiments/findings.yaml")
    return {page: (root / page).read_text(encoding="utf-8") for page in found.pages}


def compute(found: Entries, root: Path = ROOT) -> dict[str, list[float] | str]:
    """The numbers of each finding by its id, or the message of the error that its queries end in."""
    committed = Committed(root / "experiments")
    computed: dict[str, list[float] | str] = {}
    for one in found.findings:
        try:
            computed[one.id] = [number for query in one.values for number in committed.numbers(query)]
        except ConfigError as error:
            computed[one.id] = error.message
    return computed


def check(found: Entries, computed: Mapping[str, list[float] | str], pages: Mapping[str, str]) -> list[str]:
    """One line for each number that differs, quote that a page lacks, missing mark, and result in no entry."""
    lines = [line for one in found.findings for line in _differing(one, computed[one.id])]
    for page, text in pages.items():
        flat = _flat(text)
        here = [one for one in (*found.findings, *found.unverified) if page in one.pages]
        for one in here:
            count = flat.count(_flat(one.quote))
            if count != 1:
                lines.append(f"{page}, {one.id}: the page has {count or 'no'} text {one.quote!r}; it must have one")
        unmarked = [one for one in here if one.reason and not _marked(text, one.quote)]
        lines += [f"{page}, {one.id}: the paragraph does not say {MARK!r}" for one in unmarked]
        lines += _unlisted(page, flat, [_flat(one.quote) for one in here])
    return lines


def written_like(shown: str, value: float) -> str:
    """`value` as `shown` is written: decimals, sign, leading 0, thousands separators."""
    decimals = len(shown.partition(".")[2])
    sign = "+" if shown[0] in "+-" else ""
    text = f"{value:{sign}{',' if ',' in shown else ''}.{decimals}f}"
    return text if "0." in shown or not decimals else re.sub(r"^([+-]?)0\.", r"\1.", text)


def _differing(one: Finding, computed: list[float] | str) -> Iterator[str]:
    where = f"{', '.join(one.pages)}, {one.id}"
    if isinstance(computed, str):
        yield f"{where}: {computed}"
        return
    shown = NUMBER.findall(one.quote)
    if len(shown) != len(computed):
        yield f"{where}: the quote has {len(shown)} numbers, its values are {len(computed)}"
        return
    for (text, percent), value in zip(shown, computed, strict=True):
        expected = written_like(text, value * 100 if percent else value)
        if text != expected:
            yield f"{where}: the page says {text}{percent}, the rows give {expected}{percent} ({one.quote!r})"


def _unlisted(page: str, flat: str, quotes: Sequence[str]) -> Iterator[str]:
    """Results on the page that no quote contains."""
    spans = [(start, start + len(quote)) for quote in quotes if (start := flat.find(quote)) >= 0]
    for match in RESULT.finditer(flat):
        if not any(low <= match.start() and match.end() <= high for low, high in spans):
            context = flat[max(0, match.start() - CONTEXT) : match.end()]
            yield f"{page}: no entry of findings.yaml has '...{context}'"


def _marked(text: str, quote: str) -> bool:
    """Whether the paragraph or list item of the quote has the mark."""
    parts = [_flat(part) for part in re.split(r"\n\s*\n|\n- ", text)]
    return any(_flat(quote) in part and MARK in part.lower() for part in parts)


def _flat(text: str) -> str:
    """The text with each run of spaces and line breaks as one space."""
    return " ".join(text.split())


def main() -> int:
    """Print every difference and how many numbers are verified; the exit code is 1 if there is a difference."""
    try:
        found = read()
        lines = check(found, compute(found), read_pages(found))
    except McpoError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    for line in lines:
        print(line)
    counted = sum(len(NUMBER.findall(one.quote)) for one in found.findings)
    print(
        f"{len(found.pages)} pages: {counted} numbers in {len(found.findings)} texts recomputed from committed rows, "
        f"{len(found.unverified)} texts marked as {MARK}, {len(lines)} problems"
    )
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
