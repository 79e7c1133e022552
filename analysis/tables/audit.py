"""Audit of the published tables: what their numbers can be, and which differences noise alone can explain."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from mcpo_cli.analysis import published
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.product import Artifact, Product
from mcpo_cli.analysis.published import DRAWS, METHOD, Audit, Difference, Range
from mcpo_cli.analysis.render import Grid
from mcpo_cli.config import load
from mcpo_cli.config.yaml_files import read_yaml

NOTES = (
    "right: right samples behind pass@1, out of problems x samples. The pass@1 of one run always has such a count; a "
    "mean over seeds has one only by chance. digits: whether pass@1 is printed rounded or cut (truncated).",
    "x problems: pass@8 times the number of problems; a whole number if pass@8 is the share of problems with a right "
    "answer among 8 samples.",
    "best@8: 8 draws with replacement from the 8 samples, 1 - (1 - c/8)^8 with c right samples. nearest best@8: the "
    "value closest to pass@8 over all counts per problem that give the pass@1. reachable: share of the four-digit "
    "numbers between the lowest and the highest such value that some counts give; near 1, agreement says little. verl "
    f"estimates best@8 from {DRAWS} random draws; 'drawn' means agreement within two standard deviations of that.",
    "Counts per problem are not published. Ranges cover all counts that give the cell's pass@1 and, within the noise "
    "of verl's draws, its pass@8. Half-widths belong to 95% normal intervals around the difference.",
    "binomial: noise if all problems were equally hard, the most that other samples can change. sampling: other "
    "samples of the same problems and checkpoints. problems: other problems of the same kind, drawn separately "
    "for each arm; arms that find the same problems hard differ by less, at best by sampling alone. None includes the "
    "noise between training seeds, which can only add to it.",
    "may suffice: the difference lies inside the widest interval of the range but outside the narrowest.",
)


def build(data: Mapping[str, Runs]) -> Product:
    """Audit the numbers in `experiments/paper.yaml`; needs no runs."""
    paper = read_yaml(load.EXPERIMENTS / "paper.yaml")
    audits = [published.audit(cell) for cell in published.cells(paper)]
    differences = published.differences(audits)
    rows = pd.DataFrame([*map(_audit_row, audits), *map(_difference_row, differences)])
    grids = [_cells(audits), _differences(differences)]
    notes = [*NOTES, f"Source: {paper['source']['title']}, {paper['source']['url']}."]
    return Product("Audit of the published numbers", _sentence(audits, differences), rows, grids, notes)


def _sentence(audits: Sequence[Audit], differences: Sequence[Difference]) -> str:
    whole = sum(one.right is not None for one in audits)
    estimators = Counter(one.estimator for one in audits)
    first = [one for one in differences if one.metric == "pass@1"]
    inside = sum(one.verdict == "within sampling noise" for one in first)
    outside = sum(one.verdict == "beyond both" for one in differences)
    fewest = min(one.cell.problems for one in audits)
    errors = [error for one in audits if one.cell.problems == fewest for error in one.problem]
    return (
        f"{whole} of {len(audits)} published pass@1 are a whole number of samples of one run. {estimators['any of 8']} "
        f"pass@8 are shares of problems, {estimators['best@8']} equal best@8 to the digit and "
        f"{estimators['best@8, drawn']} match it within the noise of its draws. Other samples of the same problems can "
        f"explain {inside} of {len(first)} differences in pass@1; {outside} of all {len(differences)} differences "
        f"exceed what other samples and other problems can explain. The choice of {fewest} problems alone gives "
        f"each pass@1 a standard error of {min(errors):.3f} to {max(errors):.3f}."
    )


def _cells(audits: Sequence[Audit]) -> Grid:
    header = ["model", "arm", "benchmark", "pass@1", "right", "digits", "pass@8", "x problems", "nearest best@8"]
    rows = [
        [
            *(one.cell.model, one.cell.arm, one.cell.benchmark),
            f"{one.cell.pass_at_1:.4f}",
            "none" if one.right is None else f"{one.right}/{one.cell.problems * one.cell.samples}",
            "cut" if one.cut else "rounded",
            f"{one.cell.pass_at_8:.4f}",
            f"{one.cell.pass_at_8 * one.cell.problems:.3f}",
            f"{one.nearest:.5f}",
            f"{one.reachable:.2f}",
            one.estimator,
        ]
        for one in audits
    ]
    return Grid("What each number can be", [*header, "reachable", "pass@8 is"], rows, labels=3)


def _differences(differences: Sequence[Difference]) -> Grid:
    header = [
        "model",
        "against",
        "benchmark",
        "metric",
        "difference",
        "binomial ±",
        "sampling ±",
        "problems ±",
        "verdict",
    ]
    rows = [
        [
            *(one.model, one.arm, one.benchmark, one.metric, f"{one.value:+.4f}"),
            "-" if one.metric != "pass@1" else f"{one.binomial:.3f}",
            "-" if one.metric != "pass@1" else _shown(one.sampling),
            _shown(one.problem),
            one.verdict,
        ]
        for one in differences
    ]
    return Grid(f"{METHOD} minus the other arms, and half-widths of 95% intervals", header, rows, labels=4)


def _shown(bounds: Range) -> str:
    return f"{bounds[0]:.3f} to {bounds[1]:.3f}"


def _audit_row(one: Audit) -> dict[str, Any]:
    cell = one.cell
    about = {"block": "cell", "model": cell.model, "arm": cell.arm, "benchmark": cell.benchmark}
    numbers = {"pass_at_1": cell.pass_at_1, "pass_at_8": cell.pass_at_8, "right": one.right}
    derived = {"arrangements": one.arrangements, "nearest_best_at_8": one.nearest, "reachable": one.reachable}
    ranges = {"best_at_8": one.best, "sampling_se": one.sampling, "problem_se": one.problem}
    return (
        about | numbers | derived | _bounds(ranges | {"problem_at_8_se": one.problem_at_8}) | {"verdict": one.estimator}
    )


def _difference_row(one: Difference) -> dict[str, Any]:
    about = {"block": "difference", "model": one.model, "arm": one.arm, "benchmark": one.benchmark}
    numbers = {"metric": one.metric, "difference": one.value, "binomial_half_width": one.binomial}
    ranges = {"sampling_half_width": one.sampling, "problem_half_width": one.problem}
    return about | numbers | _bounds(ranges) | {"verdict": one.verdict}


def _bounds(ranges: Mapping[str, Range]) -> dict[str, float]:
    return {
        f"{name}_{end}": value
        for name, bounds in ranges.items()
        for end, value in zip(("low", "high"), bounds, strict=True)
    }


ARTIFACT = Artifact("audit", "Audit of the published numbers", "audit", (), build, "Tables 1 and 2")
