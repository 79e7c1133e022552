"""Recomputes the numbers on the pages from committed rows: `make check-findings`.

`findings.yaml` has one entry per quoted text. The numbers in the quote, in order, must equal the results of its queries
over the studies' `results/*.csv`, or over rows of speed (`benchmarks/rows.py`), with as many digits as the page shows.
Texts whose numbers cannot be computed from committed rows are listed as `unverified`, and their paragraph on the page
must say so. Tables of effects (`analysis/findings`) are made again and compared as a whole.
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from mcpo_cli.config import branching
from mcpo_cli.config.reading import read_yaml
from mcpo_cli.convert import convert
from mcpo_cli.errors import ConfigError, McpoError, nearest
from mcpo_cli.report import branching as branch_tables
from mcpo_cli.report import claims_table as claims

from . import effects
from .tables import BLOCK, filled

ROOT = Path(__file__).resolve().parents[2]
"""The checkout."""
ENTRIES = "experiments/findings/findings.yaml"
MARK = "not recomputable from committed rows"
"""Words that the paragraph of an unverified number must contain."""
NUMBER = re.compile(r"(?<![\w@.,-])([+-]?(?:\d{1,3}(?:,\d{3})+|\d*\.?\d+))(?![\w@])( %)?")
"""A number in a quote; not the digits of `pass@1`, `toy-s` or `5e-4`."""
RESULT = re.compile(r"(?<![\w.])[+-]?(?:\.\d+|\d[\d.]* ± [\d.]+)")
"""A number that a page must not show outside of quotes: a decimal without a leading 0, or one with an interval.
Pages write settings with a leading 0 or as `5e-4`, so that the two can be distinguished."""
CONTEXT = 40
"""Characters that a message shows before an unlisted number."""
HALF_WIDTH = "half_width"
"""Used as a column: half of the distance between the bounds of an interval; `x_half_width` of that of `x`."""
BOUNDS = (("low", "high"), ("t_low", "t_high"))


@dataclass(frozen=True)
class Query:
    """One statistic of committed rows."""

    of: tuple[str, ...] = ()
    """Columns, or the names of the parts of the statistic: a query gives one number for each."""
    csv: tuple[str, ...] = ()
    """Files in the folders `results` of studies, whose rows are taken together. Of a file of lines of JSON, to which
    measurements are appended, the newest matching row counts."""
    statistic: Literal["value", "mean", "least", "most", "difference", "branch", "estimate"] = "value"
    where: Mapping[str, Any] = field(default_factory=dict)
    """Value of each column. Of `branch` it selects a row of the tables that `mcpo fork` makes of a branch study:
    `{arm: NAME}` or `{claim: ID}`; of `estimate` an effect of `effects.yaml`: `{effect: ID}`, and with `size: true` the
    number without its sign."""
    arm: str = ""
    baseline: str = ""


@dataclass(frozen=True)
class Finding:
    """A text on a page, and the source of its numbers."""

    id: str
    pages: tuple[str, ...]
    """Files, by their paths in the checkout; each has the quote exactly once."""
    quote: str
    values: tuple[Query, ...] = ()
    """The queries for the numbers in the quote, in order."""
    reason: str = ""
    """The reason why no committed row gives these numbers; only of unverified texts."""
    test: str = ""
    """The file of the test that makes this text again and compares it; only of tested ones."""


@dataclass(frozen=True)
class Entries:
    """The entries of `findings.yaml`."""

    findings: tuple[Finding, ...]
    unverified: tuple[Finding, ...] = ()
    tested: tuple[Finding, ...] = ()
    """Sessions on a page, whose output a test compares with the program's."""

    @property
    def all(self) -> tuple[Finding, ...]:
        """Every entry."""
        return (*self.findings, *self.unverified, *self.tested)

    @property
    def pages(self) -> list[str]:
        """All pages that an entry names."""
        return sorted({page for finding in self.all for page in finding.pages})


def read(root: Path = ROOT) -> Entries:
    """The entries of the checkout `root`.

    Raises:
        ConfigError: an entry has an unknown key or a wrong type, an id is used twice, or an entry gives no source of
            its numbers, or several.
    """
    entries = convert(Entries, read_yaml(root / ENTRIES), "")
    ids = [finding.id for finding in entries.all]
    if twice := {name for name in ids if ids.count(name) > 1}:
        raise ConfigError(f"ids are used twice: {', '.join(sorted(twice))}", fix=f"edit {ENTRIES}")
    kinds = {"values": entries.findings, "reason": entries.unverified, "test": entries.tested}
    wrong = [
        finding.id
        for kind, listed in kinds.items()
        for finding in listed
        if [name for name in kinds if getattr(finding, name)] != [kind]
        or (finding.test and not (root / finding.test).is_file())
    ]
    if wrong:
        raise ConfigError(
            f"{', '.join(wrong)}: a finding needs values, an unverified text a reason, a tested one its test",
            fix=f"edit {ENTRIES}",
        )
    return entries


def read_pages(entries: Entries) -> dict[str, str]:
    """The text of each page.

    Raises:
        ConfigError: a page does not exist.
    """
    if gaps := [page for page in entries.pages if not (ROOT / page).is_file()]:
        raise ConfigError(f"there is no page {', '.join(gaps)}", fix=f"edit {ENTRIES}")
    return {page: (ROOT / page).read_text(encoding="utf-8") for page in entries.pages}


def compute(entries: Entries, root: Path = ROOT) -> dict[str, list[float] | str]:
    """The numbers of each finding by its id, or the message of the error that its queries raise."""
    committed = Committed(root / "experiments")
    computed: dict[str, list[float] | str] = {}
    for finding in entries.findings:
        try:
            computed[finding.id] = [number for query in finding.values for number in committed.numbers(query)]
        except ConfigError as error:
            computed[finding.id] = error.message
    return computed


def check(entries: Entries, computed: Mapping[str, list[float] | str], pages: Mapping[str, str]) -> list[str]:
    """One line for each number that differs, each quote missing on a page, each missing mark, each unlisted result."""
    lines = [line for finding in entries.findings for line in _differing(finding, computed[finding.id])]
    for page, text in pages.items():
        flat = _flat(text)
        quoted = [finding for finding in entries.all if page in finding.pages]
        for finding in quoted:
            count = flat.count(_flat(finding.quote))
            if count != 1:
                lines.append(
                    f"{page}, {finding.id}: the page has {count or 'no'} text {finding.quote!r}; it must have one"
                )
        unmarked = [finding for finding in quoted if finding.reason and not _marked(text, finding.quote)]
        lines += [f"{page}, {finding.id}: the paragraph does not say {MARK!r}" for finding in unmarked]
        full_text = filled(text)
        lines += [] if full_text == text else [f"{page}: a table of effects is not that of the rows: make findings"]
        tables = [_flat(block[0]) for block in BLOCK.finditer(text)]
        lines += _unlisted(page, flat, [*(_flat(finding.quote) for finding in quoted), *tables])
    return lines


def written_like(example: str, value: float) -> str:
    """`value` as `example` is written: decimals, sign, leading 0, thousands separators."""
    decimals = len(example.partition(".")[2])
    sign = "+" if example[0] in "+-" else ""
    # `z`: a number that rounds to zero has no sign.
    text = f"{value:{sign}z{',' if ',' in example else ''}.{decimals}f}"
    return text if "0." in example or not decimals else re.sub(r"^([+-]?)0\.", r"\1.", text)


def _differing(finding: Finding, computed: list[float] | str) -> Iterator[str]:
    place = f"{', '.join(finding.pages)}, {finding.id}"
    if isinstance(computed, str):
        yield f"{place}: {computed}"
        return
    numbers = NUMBER.findall(finding.quote)
    if len(numbers) != len(computed):
        yield f"{place}: the quote has {len(numbers)} numbers, its values are {len(computed)}"
        return
    for (text, percent), value in zip(numbers, computed, strict=True):
        expected = written_like(text, value * 100 if percent else value)
        if text != expected:
            yield f"{place}: the page says {text}{percent}, the rows give {expected}{percent} ({finding.quote!r})"


def _unlisted(page: str, flat: str, quotes: Sequence[str]) -> Iterator[str]:
    """Results on the page that no quote contains."""
    spans = [(start, start + len(quote)) for quote in quotes if (start := flat.find(quote)) >= 0]
    for match in RESULT.finditer(flat):
        if not any(low <= match.start() and match.end() <= high for low, high in spans):
            context = flat[max(0, match.start() - CONTEXT) : match.end()]
            yield f"{page}: no entry of findings.yaml has '...{context}'"


def _marked(text: str, quote: str) -> bool:
    """True if the paragraph or list item of the quote has the mark."""
    parts = [_flat(part) for part in re.split(r"\n\s*\n|\n- ", text)]
    return any(_flat(quote) in part and MARK in part.lower() for part in parts)


def _flat(text: str) -> str:
    """The text with each run of spaces and line breaks as one space."""
    return " ".join(text.split())


class Committed:
    """The committed rows of a checkout, whose folder `experiments` is given; each file is read once."""

    def __init__(self, experiments: Path) -> None:
        self._experiments = experiments
        self._frames: dict[object, pd.DataFrame] = {}
        self.effects = effects.declared()

    def numbers(self, query: Query) -> list[float]:
        """The numbers that `query` asks for.

        Raises:
            ConfigError: a file, column, arm or part does not exist, or the number of matching rows is wrong.
        """
        return STATISTICS[query.statistic](self, query)

    def rows(self, query: Query, **conditions: Any) -> pd.DataFrame:
        """The rows of the query's files that match its `where` and `conditions`."""
        return _select(pd.concat([self._frame(name) for name in query.csv]), {**query.where, **conditions})

    def table(self, study: str, csv: tuple[str, ...], *, hypotheses: bool) -> pd.DataFrame:
        """The table of hypotheses, or of arms, of a branch study from the rows of `csv`; made once."""
        if (key := (hypotheses, csv)) not in self._frames:
            rows, definition = self.rows(Query(csv=csv)), branching.read(study)
            tested = branch_tables.tested(definition.hypotheses, rows, definition.curve) if hypotheses else ()
            self._frames[key] = claims.frame(tested) if hypotheses else branch_tables.numbers(definition.curve, rows)
        return self._frames[key]

    def _frame(self, name: str) -> pd.DataFrame:
        if name not in self._frames:
            files = [*self._experiments.glob(f"*/results/{name}")]
            if len(files) != 1:
                fix = f"ls {self._experiments}/*/results"
                raise ConfigError(f"{len(files)} studies have results/{name}, not one", fix=fix)
            is_csv = files[0].suffix == ".csv"
            rows = pd.read_csv(files[0]) if is_csv else pd.read_json(files[0], lines=True)
            self._frames[name] = rows.assign(file=name)
        return self._frames[name]


def _select(frame: pd.DataFrame, where: Mapping[str, Any]) -> pd.DataFrame:
    for name, value in where.items():
        frame = frame[_column(frame, name) == value]
    return frame


def _column(frame: pd.DataFrame, name: str) -> pd.Series:
    if name not in frame:
        raise ConfigError(f"unknown column '{name}': {nearest(name, map(str, frame))}")
    return frame[name]


def _value(committed: Committed, query: Query) -> list[float]:
    rows = committed.rows(query)
    if all(name.endswith(".jsonl") for name in query.csv):
        rows = rows.tail(1)
    if len(rows) != 1:
        raise ConfigError(f"{', '.join(query.csv)}: {len(rows)} rows match {dict(query.where)}, not one")
    return [_cell(rows, name) for name in query.of]


def _cell(rows: pd.DataFrame, name: str) -> float:
    if name.endswith(HALF_WIDTH) and name not in rows:
        prefix = name.removesuffix(HALF_WIDTH)
        low, high = next((f"{prefix}{low}", f"{prefix}{high}") for low, high in BOUNDS if f"{prefix}{low}" in rows)
        return (_cell(rows, high) - _cell(rows, low)) / 2
    return float(_column(rows, name).iloc[0])


def _mean(committed: Committed, query: Query) -> list[float]:
    rows = committed.rows(query)
    return [float(_column(rows, name).mean()) for name in query.of]


def _difference(committed: Committed, query: Query) -> list[float]:
    """An arm's value minus the baseline's. It has no interval, because these rows are means over runs."""
    rows = [committed.rows(query, arm=arm) for arm in (query.arm, query.baseline)]
    if [len(part) for part in rows] != [1, 1]:
        raise ConfigError(f"{', '.join(query.csv)}: not one row of each arm matches {dict(query.where)}")
    return [_cell(rows[0], name) - _cell(rows[1], name) for name in query.of]


def _least(committed: Committed, query: Query) -> list[float]:
    rows = committed.rows(query)
    return [float(_column(rows, name).min()) for name in query.of]


def _most(committed: Committed, query: Query) -> list[float]:
    rows = committed.rows(query)
    return [float(_column(rows, name).max()) for name in query.of]


def _estimate(committed: Committed, query: Query) -> list[float]:
    """Numbers of an effect, from the rows per run."""
    effect = committed.effects.get(str(query.where["effect"]))
    if effect is None:
        raise ConfigError(f"there is no effect {nearest(str(query.where['effect']), committed.effects)}")
    estimate = effects.estimate(effect)
    numbers = {**asdict(estimate), **estimate.more}
    if effect.family:
        numbers["p_adjusted"] = effects.adjusted(effect.family, committed.effects)[effect.id]
    sign = abs if query.where.get("size") else float
    return [sign(float(numbers[name])) for name in query.of]


def _branch(committed: Committed, query: Query) -> list[float]:
    """Numbers of an arm or hypothesis in the tables of a branch study, whose name is that of the file of its rows."""
    table = committed.table(Path(query.csv[0]).stem, query.csv, hypotheses="claim" in query.where)
    row = _select(table, query.where)
    if len(row) != 1:
        raise ConfigError(f"{query.csv[0]}: {len(row)} rows of its tables match {dict(query.where)}, not one")
    return [_cell(row, name) for name in query.of]


STATISTICS: Mapping[str, Callable[[Committed, Query], list[float]]] = {
    "value": _value,
    "mean": _mean,
    "least": _least,
    "most": _most,
    "difference": _difference,
    "branch": _branch,
    "estimate": _estimate,
}


def main() -> int:
    """Print every difference and how many numbers are verified; the exit code is 1 if there is a difference."""
    try:
        entries = read()
        lines = check(entries, compute(entries), read_pages(entries))
    except McpoError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    for line in lines:
        print(line)
    counted = sum(len(NUMBER.findall(finding.quote)) for finding in entries.findings)
    print(
        f"{len(entries.pages)} pages: {counted} numbers in {len(entries.findings)} texts recomputed from committed "
        f"rows, {len(entries.unverified)} texts marked as {MARK}, {len(lines)} problems"
    )
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
