"""Shows an evaluation: its effective protocol before it starts, its results at the end."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mcpo_cli.commands import console
from mcpo_cli.commands.reply import Part, table
from mcpo_cli.evaluation import metrics
from mcpo_cli.evaluation.asking import BARE, Benchmark
from mcpo_cli.evaluation.gradings import writable
from mcpo_cli.evaluation.protocol import Protocol
from mcpo_cli.grading import STATUSES
from mcpo_cli.records import Results

ANSWER_WIDTH = 40


def announce(protocol: Protocol, benchmarks: Sequence[Benchmark], folder: str) -> None:
    """Print the effective protocol on stderr, before sampling starts."""
    lines = protocol.lines()
    for benchmark in benchmarks:
        notes = "".join(f"; {note}" for note in benchmark.notes)
        bare = ", without a template: the problem text is the prompt" if benchmark.asking is BARE else ""
        lines[benchmark.name] = (
            f"{len(benchmark.problems)} problems from {benchmark.source} ({benchmark.digest}), "
            f"graded by {benchmark.grader}{bare}{notes}"
        )
    lines["folder"] = folder
    console.talk_pairs(lines)


def page(results: Results) -> Iterator[Part]:
    """Results, for people."""
    n = results["protocol"]["n"]
    columns = ["benchmark", "problems", "pass@1", "95 % over samples", "95 % over problems"]
    columns += [f"pass@{n}", f"best@{n}", f"maj@{n}"] if n > 1 else []
    rows = [[name, str(row["problems"]), *_shown(row["metrics"], n)] for name, row in results["benchmarks"].items()]
    yield f"{results['eval_id']}, grading {results['grading']}: {results['label']}"
    yield table(columns, rows)
    yield ""
    shares = ["truncated", "no_room", "copies", "unparsable", "timeout", "infra_error"]
    per_status = [
        [name, *(_share(row["metrics"][key]) for key in shares), f"{row['metrics']['mean_tokens']:.0f}", row["grader"]]
        for name, row in results["benchmarks"].items()
    ]
    yield table(["of all samples", *(key.replace("_", " ") for key in shares), "tokens", "grader"], per_status)
    remarks = [f"not the default protocol: {deviation}" for deviation in results["deviations"]]
    remarks += results["shortfalls"]
    for name, result in results["benchmarks"].items():
        remarks += [f"{name}: {warning}" for warning in result["warnings"]]
        remarks += [f"{name}: {note}" for note in result["notes"]]
    yield "".join(f"\n{remark}" for remark in remarks)


def grading_page(document: Mapping[str, Any]) -> Iterator[Part]:
    """The outcome of `mcpo grade`: totals, and every answer on which graders disagree."""
    if "results" in document:
        yield from page(document["results"])
        yield ""
    total, totals = document["answers"], document["totals"]
    rows = [[status, str(totals[status]), f"{totals[status] / total:.1%}"] for status in STATUSES if totals[status]]
    yield table([document.get("grader", "all samples"), "answers", "share"], rows)
    graded = [(line["status"], line["detail"]) for line in document.get("lines", ())]
    yield from (f"\n{reason}" for reason in metrics.ungraded(graded))
    if text := metrics.unanswered([status for status, _ in graded]):
        yield f"\n{text} (whether others find one: --compare answer_is,integer,exact)"
    for comparison in document["comparisons"].values():
        head = f"{comparison['grader']}: {comparison['correct']} correct; agrees on {comparison['agree']} of {total}"
        yield f"\n{head}, disagrees on {comparison['disagree']}"
        if comparison["disagreements"]:
            columns = ["answer", "gold", "judged", "status", "other judged", "other status"]
            keys = ("name", "gold", "answer", "status", "other_answer", "other_status")
            cut = [[_cut(line[key]) for key in keys] for line in comparison["disagreements"]]
            yield table(columns, cut)


def _cut(text: str | None) -> str:
    """The first ANSWER_WIDTH characters of an answer."""
    words = "-" if text is None else " ".join(writable(text).split())
    return words if len(words) <= ANSWER_WIDTH else words[: ANSWER_WIDTH - 1] + "\u2026"


def _shown(metrics: Mapping[str, float], n: int) -> list[str]:
    bounds = [[metrics[f"pass_at_1_{scope}_{end}"] for end in ("low", "high")] for scope in ("samples", "problems")]
    keys = [f"pass_at_{n}", f"best_at_{n}", f"maj_at_{n}"] if n > 1 else []
    return [
        _number(metrics["pass_at_1"]),
        *(_interval(*ends) for ends in bounds),
        *(_number(metrics[key]) for key in keys),
    ]


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4f}"


def _interval(low: float, high: float) -> str:
    """An interval; one sample per problem, or one problem, yields none."""
    return "n=1" if math.isnan(low) else f"{low:.4f} to {high:.4f}"


def _share(value: float) -> str:
    return "-" if value == 0 else f"{value:.1%}"
