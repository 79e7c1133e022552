"""`mcpo claim`: what a published pair of numbers can support, without the logs behind it."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mcpo_cli.commands.reply import Part, Reply, table, verb
from mcpo_cli.paths import named

if TYPE_CHECKING:
    from mcpo_cli.compare.claim import PublishedClaim
    from mcpo_cli.compare.support import Support

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
    typer.Argument(metavar="'A vs B, n=...'|FILE.yaml", help="Two published numbers, or a file of rows of them."),
]
Csv = Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Also write every interval to a CSV file.")]


@verb("title, names, margin, assumed, rows, cases, notes")
def claim(what: What, csv: Csv = None) -> Reply:
    """Say what a published pair of numbers can support, under stated assumptions."""
    from mcpo_cli.compare.claim import read
    from mcpo_cli.compare.support import support
    from mcpo_cli.runs.journal import write_atomic

    asked = read(what)
    found = support(asked)
    if csv:
        cases = found.cases.drop(columns="row", errors="ignore")
        write_atomic(named(csv), cases.to_csv(index=False, lineterminator="\n", float_format="%.10g"))
    document = {
        "title": asked.title,
        "names": asked.names,
        "margin": asked.margin,
        "assumed": vars(asked.assume),
        "rows": found.rows,
        "cases": found.cases.to_dict("records"),
        "notes": found.notes,
    }
    return Reply(document, _page(asked, found))


def _page(asked: "PublishedClaim", found: "Support") -> Iterator[Part]:
    if len(found.rows) == 1:
        yield from _one(asked, found)
    else:
        yield from _several(asked, found)
    yield from (f"\nnote: {note}" for note in found.notes)
    spread, correlation, run_sd = (
        f"{low:g} to {high:g} (plausible {middle:g})" for low, middle, high in vars(asked.assume).values()
    )
    yield (
        f"\nassumed: problems account for {spread} of the variance of a sample; the correlation of both over problems "
        f"is {correlation}; training runs of one recipe differ by a standard deviation of {run_sd}"
    )


def _one(asked: "PublishedClaim", found: "Support") -> Iterator[Part]:
    """The page of a single pair: its intervals for each scope and case, and what would decide."""
    (row,) = found.rows
    counts = " x ".join(
        f"{row[name]} {word}{'s' * (row[name] > 1)}"
        for name, word in (("problems", "problem"), ("samples", "sample"), ("seeds", "run"))
    )
    a, b = (f"{row[side] * 100:.4g} %" if asked.percent else f"{row[side]:.4g}" for side in "ab")
    problems = "the same problems" if row["paired"] else "other problems"
    yield f"{a} vs {b}: {_points(asked, row['difference'])} ({row['metric']} of {counts} each, {problems})"
    if found.cases.empty:
        return
    yield "\n95 % interval of the difference, if what is not published is"
    cases = [f"{_interval(asked, case)} {case['verdict']}" for case in found.cases.to_dict("records")]
    lines = [[words, *cases[3 * at : 3 * at + 3]] for at, words in enumerate(SCOPE_WORDS)]
    yield table(["about", "best", "plausible", "worst"], lines)
    lacking = _listed(row["without"].split("; "))
    why = f"; it cannot be decided without {lacking}" if lacking else ", whatever is assumed"
    yield f"\nverdict: {row['verdict']}{why}"
    reach = _points(asked, row["detectable"]).removeprefix("+")
    yield f"the smallest difference that such a design finds with a chance of .8, plausible case: {reach}"
    if row["verdict"] == "undecided" and row["problems_needed"]:
        ways = [f"{number} with {seeds}" for seeds, number in row["problems_needed"].items() if number]
        effect = _points(asked, asked.margin or abs(row["difference"]))
        yield f"problems that would find {effect}: {_listed(ways) + ' seeds' if ways else 'no number'}"


def _several(asked: "PublishedClaim", found: "Support") -> Iterator[Part]:
    """The page of a file of rows: a line for each."""
    if asked.title:
        yield f"{asked.title}\n"
    by = {(case["row"], case["scope"], case["case"]): case for case in found.cases.to_dict("records")}
    names = ["benchmark", "model", "against", "metric"]
    lines = []
    for at, row in enumerate(found.rows):
        shown = ["-"] * 3
        if row["verdict"] != "not testable":
            z = " to ".join(f"{by[at, 'answers', case]['z']:.1f}" for case in ("best", "worst"))
            shown = [f"z {z}", *(_interval(asked, by[at, "trainings", case]) for case in ("plausible", "worst"))]
        label = [row[name] or "-" for name in names]
        lines.append([*label, _points(asked, row["difference"]), *shown, row["verdict"]])
    columns = ["answers: best to worst", "trainings: plausible", "trainings: worst"]
    yield table([*names, "difference", *columns, "verdict"], lines)
    if lacking := dict.fromkeys(row["without"] for row in found.rows if row["without"]):
        yield "\nwhat would decide: " + "; ".join(lacking)


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words[:-1]) + (" and " if len(words) > 1 else "") + words[-1]


def _points(asked: "PublishedClaim", value: float) -> str:
    return f"{value * 100:+.1f} points" if asked.percent else f"{value:+.4f}"


def _interval(asked: "PublishedClaim", case: Mapping[Any, Any]) -> str:
    scale, digits = (100, 1) if asked.percent else (1, 3)
    return f"{case['low'] * scale:+.{digits}f} to {case['high'] * scale:+.{digits}f}"
