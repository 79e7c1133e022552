"""`mcpo claim`: what a published pair of numbers can support, without the logs behind it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mcpo_cli.commands.reply import Reply, verb
from mcpo_cli.paths import named

if TYPE_CHECKING:
    from mcpo_cli.compare.claim import Claim
    from mcpo_cli.compare.support import Support

EXAMPLES = """\
\b
Examples:
  mcpo claim "54.2 vs 51.7, n=30, 32 samples"              one run each, 32 samples per problem
  mcpo claim "54.2 vs 51.7, n=500, 3 seeds, sd 1.2 vs 0.9" with the standard deviation over runs
  mcpo claim "66.7 vs 60.0 pass@8, n=30" --json            another metric: avg@k, pass@k, best@k, maj@k
  mcpo claim claims.yaml                                   several benchmarks, and assumptions of your own"""
SCOPE_WORDS = {
    "answers": "other answers to the same problems",
    "problems": "and other problems of the kind",
    "trainings": "and other training runs",
}
What = Annotated[
    str,
    typer.Argument(metavar="'A vs B, n=...'|FILE.yaml", help="Two published numbers, or a file of rows of them."),
]
Csv = Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Also write every interval to a CSV file.")]


@verb
def claim(what: What, csv: Csv = None) -> Reply:
    """Say what a published pair of numbers can support, under stated assumptions."""
    from mcpo_cli.compare.claim import read
    from mcpo_cli.compare.support import support
    from mcpo_cli.runs.journal import write_atomic

    asked = read(what)
    found = support(asked)
    if csv:
        write_atomic(named(csv), found.cases.to_csv(index=False, lineterminator="\n", float_format="%.10g"))
    return Reply(_document(asked, found), [partial(_show, asked, found)])


def _document(asked: "Claim", found: "Support") -> dict[str, Any]:
    return {
        "title": asked.title,
        "names": asked.names,
        "margin": asked.margin,
        "assumed": asdict(asked.assumed),
        **{
            name: [{key: value for key, value in row.items() if _is_known(value)} for row in frame.to_dict("records")]
            for name, frame in (("rows", found.rows), ("cases", found.cases))
        },
        "notes": found.notes,
    }


def _is_known(value: Any) -> bool:
    return not (value is None or (isinstance(value, float) and math.isnan(value)))


def _show(asked: "Claim", found: "Support") -> None:
    from mcpo_cli.commands import console

    rows = found.rows.to_dict("records")
    if len(rows) == 1:
        _show_one(asked, found, rows[0])
    else:
        _show_rows(asked, found, rows)
    for note in found.notes:
        console.print_text(f"\nnote: {note}")
    console.print_text("\n" + _assumptions(asked))


def _show_one(asked: "Claim", found: "Support", row: Mapping[Any, Any]) -> None:
    from mcpo_cli.commands import console

    counts = " x ".join(
        f"{row[name]} {word}{'s' if row[name] > 1 else ''}"
        for name, word in (("problems", "problem"), ("samples", "sample"), ("seeds", "run"))
    )
    console.print_text(
        f"{_share(asked, row['a'])} vs {_share(asked, row['b'])}: {_points(asked, row['difference'])} "
        f"({row['metric']} of {counts} each, "
        f"{'the same problems' if row['paired'] else 'other problems'})"
    )
    if not len(found.cases):
        return
    table = []
    for scope, words in SCOPE_WORDS.items():
        own = found.cases[found.cases["scope"] == scope].to_dict("records")
        table.append([words, *(f"{_interval(asked, one)} {one['verdict']}" for one in own)])
    console.print_text("\n95 % interval of the difference, if what is not published is")
    console.print_table(["about", "best", "plausible", "worst"], table)
    console.print_text(f"\nverdict: {row['verdict']}{_without(row)}")
    reach = _points(asked, row["detectable"]).removeprefix("+")
    console.print_text(f"the smallest difference that such a design finds with a chance of .8, plausible case: {reach}")
    if row["verdict"] == "undecided" and (row["difference"] or asked.margin):
        console.print_text(f"what would find {_points(asked, asked.margin or abs(row['difference']))}: {_needed(row)}")


def _show_rows(asked: "Claim", found: "Support", rows: list[dict[Any, Any]]) -> None:
    from mcpo_cli.commands import console

    if asked.title:
        console.print_text(f"{asked.title}\n")
    columns = ["benchmark", "model", "against", "metric", "difference"]
    columns += ["answers: best to worst", "trainings: plausible", "trainings: worst", "verdict"]
    table = []
    for row in rows:
        own = found.cases
        for name in ("benchmark", "model", "against", "metric"):
            own = own[own[name] == row[name]]
        by = {(one["scope"], one["case"]): one for one in own.to_dict("records")}
        shown = ["-"] * 3
        if by:
            z = " to ".join(f"{by['answers', case]['z']:.1f}" for case in ("best", "worst"))
            shown = [f"z {z}", *(_interval(asked, by["trainings", case]) for case in ("plausible", "worst"))]
        label = [str(row[name]) or "-" for name in columns[:4]]
        table.append([*label, _points(asked, row["difference"]), *shown, str(row["verdict"])])
    console.print_table(columns, table)
    if lacking := dict.fromkeys(str(row["without"]) for row in rows if row["without"]):
        console.print_text("\nwhat would decide: " + "; ".join(lacking))


def _without(row: Mapping[Any, Any]) -> str:
    if not row["without"]:
        return ", whatever is assumed" if row["verdict"] != "not testable" else ""
    return f"; it cannot be decided without {_listed(row['without'].split('; '))}"


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words[:-1]) + (" and " if len(words) > 1 else "") + words[-1]


def _needed(row: Mapping[Any, Any]) -> str:
    """Numbers of problems, seeds or samples that would each find the difference, and of problems with more runs."""
    alone = [
        f"{row[f'needed_{name}']:.0f} {name}"
        for name in ("problems", "seeds", "samples")
        if _is_known(row[f"needed_{name}"])
    ]
    designs = {int(name.split("_")[2]): value for name, value in row.items() if str(name).startswith("problems_with")}
    both = [
        f"{value:.0f} with {seeds}" for seeds, value in designs.items() if _is_known(value) and seeds > row["seeds"]
    ]
    first = f"{' or '.join(alone)}, all else equal" if alone else "neither problems, seeds nor samples alone"
    return first + (f"; problems with more training runs: {_listed(both)} seeds" if both else "")


def _assumptions(asked: "Claim") -> str:
    spread, correlation, run_sd = (
        f"{low:g} to {high:g} (plausible {middle:g})"
        for low, middle, high in (asked.assumed.spread, asked.assumed.correlation, asked.assumed.run_sd)
    )
    return (
        f"assumed: problems account for {spread} of the variance of a sample; the correlation of both over problems is "
        f"{correlation}; training runs of one recipe differ by a standard deviation of {run_sd}"
    )


def _share(asked: "Claim", value: float) -> str:
    return f"{value * 100:.4g} %" if asked.percent else f"{value:.4g}"


def _points(asked: "Claim", value: float) -> str:
    return f"{value * 100:+.1f} points" if asked.percent else f"{value:+.4f}"


def _interval(asked: "Claim", case: Mapping[Any, Any]) -> str:
    low, high = case["low"], case["high"]
    return f"{low * 100:+.1f} to {high * 100:+.1f}" if asked.percent else f"{low:+.3f} to {high:+.3f}"
