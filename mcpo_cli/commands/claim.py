"""`mcpo claim`: what a published pair of numbers can support, without the logs behind it."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mcpo_cli.commands.reply import Part, Reply, table, verb
from mcpo_cli.paths import named

if TYPE_CHECKING:
    from mcpo_cli.compare.published_pairs import PublishedPair

EXAMPLES = """\
\b
Examples:
  mcpo claim "54.2 vs 51.7, n=30, 32 samples"              one run each, 32 samples per problem
  mcpo claim "54.2 vs 51.7, n=500, 3 seeds, sd 1.2 vs 0.9" with the standard deviation over runs
  mcpo claim "66.7 vs 60.0 pass@8, n=30" --json            another metric: avg@k, pass@k, best@k, maj@k
  mcpo claim claims.yaml                                   several benchmarks, and assumptions of your own"""
SCOPE_WORDS = ("other answers to the same problems", "and other problems of the kind", "and other training runs")
What = Annotated[
    str,
    typer.Argument(metavar="'A vs B, n=...'|FILE.yaml", help="Two published numbers, or a file of lines of them."),
]
Csv = Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Also write every interval to a CSV file.")]


@verb("assumed, rows, cases, notes")
def claim(what: What, csv: Csv = None) -> Reply:
    """Say what a published pair of numbers can support, under stated assumptions."""
    from mcpo_cli.compare.published_pairs import read
    from mcpo_cli.compare.published_support import support
    from mcpo_cli.runs.journal import write_atomic

    pairs, assumed = read(what)
    answer = support(pairs, assumed)
    if csv:
        text = answer.cases.drop(columns="row").to_csv(index=False, lineterminator="\n", float_format="%.10g")
        write_atomic(named(csv), text)
    cases = answer.cases.to_dict("records")
    document = {"assumed": vars(assumed), "rows": answer.rows, "cases": cases, "notes": answer.notes}
    parts: list[Part] = []
    for at, (pair, row) in enumerate(zip(pairs, answer.rows, strict=True)):
        parts += _page(pair, row, [case for case in cases if case["row"] == at])
    spread, correlation, run_sd = (
        f"{low:g} to {high:g} (plausible {middle:g})" for low, middle, high in vars(assumed).values()
    )
    end = (
        f"\nassumed: problems account for {spread} of the variance of a sample; the correlation of both over problems "
        f"is {correlation}; training runs of one recipe differ by a standard deviation of {run_sd}"
    )
    return Reply(document, [*parts, *(f"\nnote: {note}" for note in answer.notes), end])


def _page(pair: "PublishedPair", row: Mapping[str, Any], cases: Sequence[Mapping[Any, Any]]) -> Iterator[Part]:
    """The answer for a pair: its intervals for each scope and case, and what would decide."""
    counts = " x ".join(
        f"{row[name]} {word}{'s' * (row[name] > 1)}"
        for name, word in (("problems", "problem"), ("samples", "sample"), ("seeds", "run"))
    )
    a, b = (f"{side.value * 100:.4g} %" if pair.percent else f"{side.value:.4g}" for side in (pair.a, pair.b))
    problems = "the same problems" if pair.paired else "other problems"
    label = f"\n{pair.label}: " if pair.label else ""
    yield f"{label}{a} vs {b}: {_points(pair, row['difference'])} ({pair.metric} of {counts} each, {problems})"
    yield "\n95 % interval of the difference, if what is not published is"
    scale, digits = (100, 1) if pair.percent else (1, 3)
    cells = [
        f"{case['low'] * scale:+.{digits}f} to {case['high'] * scale:+.{digits}f} {case['verdict']}" for case in cases
    ]
    lines = [[words, *cells[3 * at : 3 * at + 3]] for at, words in enumerate(SCOPE_WORDS)]
    yield table(["about", "best", "plausible", "worst"], lines)
    *others, last = row["without"].split("; ")
    gaps = f"{', '.join(others)} and {last}" if others else last
    reason = f"; it cannot be decided without {gaps}" if gaps else ", whatever is assumed"
    yield f"\nverdict: {row['verdict']}{reason}"
    reach = _points(pair, row["detectable"]).removeprefix("+")
    yield f"the smallest difference that such a design finds with a chance of .8, plausible case: {reach}"


def _points(pair: "PublishedPair", difference: float) -> str:
    return f"{difference * 100:+.1f} points" if pair.percent else f"{difference:+.4f}"
