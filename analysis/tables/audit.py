"""Audit of the published tables: what their numbers can be, and which differences noise alone can explain."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from mcpo_cli.analysis import pooled, published
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.pooled import BASELINE, Noise, Pooled
from mcpo_cli.analysis.product import Artifact, Product
from mcpo_cli.analysis.published import DRAWS, METHOD, NEAR, Audit, Difference, Range, Z
from mcpo_cli.analysis.render import Grid
from mcpo_cli.config import load
from mcpo_cli.config.reading import read_yaml

NOTES = (
    "right: right samples behind pass@1, out of problems x samples. The pass@1 of one run always has such a count; a "
    "mean over seeds has one only by chance. digits: whether pass@1 is printed rounded or cut (truncated).",
    "x problems: pass@8 times the number of problems; a whole number if pass@8 is the share of problems with a right "
    "answer among 8 samples.",
    "best@8: 8 draws with replacement from the 8 samples, 1 - (1 - c/8)^8 with c right samples. nearest best@8: the "
    "value closest to pass@8 over all counts per problem that give the pass@1. reachable: share of the four-digit "
    f"numbers within {NEAR:g} of the pass@8 that some counts give; near 1, agreement to the digit is no evidence. verl "
    f"estimates best@8 from {DRAWS} draws with one seed, the same for every problem; draw error: the standard "
    "deviation that this leaves over the unknown order of the samples. pass@8 is called best@8 if some counts come "
    "within two of these: that it can be, not that it is. What is evidence: a share of problems with a right sample "
    "would be a multiple of 1/problems.",
    "Counts per problem are not published. Ranges cover all counts that give the cell's pass@1 and, within the error "
    "of verl's draws, its pass@8. Half-widths belong to 95% normal intervals around the difference.",
    "binomial: noise if all problems were equally hard, the most that other samples can change. sampling: other "
    "samples of the same problems and checkpoints. problems: other problems of the same kind, drawn separately "
    "for each arm; arms that find the same problems hard differ by less, at best by sampling alone. None includes the "
    "noise between training seeds, which can only add to it.",
    "may suffice: the difference lies inside the widest interval of the range but outside the narrowest. That each "
    "difference lies inside its noise does not mean that all of them together do: see the pooled difference.",
    f"Pooled: {METHOD} minus {BASELINE} in pass@1, mean over both models and the benchmarks. Both arms, and both "
    "models, answer the same problems. correlation: of the two arms' true accuracies over problems; the paper does "
    "not publish it. Ranges: over the counts that fit, and over models whose differences on a benchmark are unrelated "
    "or the same. z: difference in standard errors; p: two-sided. The noise between training seeds is in none of them.",
)


def build(data: Mapping[str, Runs]) -> Product:
    """Audit the numbers in `experiments/paper.yaml`; needs no runs."""
    paper = read_yaml(load.EXPERIMENTS / "paper.yaml")
    audits = [published.audit(cell) for cell in published.cells(paper)]
    differences = published.differences(audits)
    together = pooled.pool(audits)
    rows = [*map(_audit_row, audits), *map(_difference_row, differences)]
    rows += [_pooled_row(together, one) for one in together.noises]
    grids = [_cells(audits), _differences(differences), _pooled(together)]
    notes = [*NOTES, f"Source: {paper['source']['title']}, {paper['source']['url']}."]
    return Product("Audit of the published numbers", _sentence(audits, together), pd.DataFrame(rows), grids, notes)


def _sentence(audits: Sequence[Audit], together: Pooled) -> str:
    whole, shares = sum(one.right is not None for one in audits), sum(one.any_of_8 for one in audits)
    fits = sum(one.estimator == "best@8" for one in audits)
    by_chance = sum(one.reachable for one in audits)
    ratio = pooled.likelihood_ratio(audits, 2)
    return (
        f"{whole} of {len(audits)} published pass@1 are a whole number of samples of one run, {ratio:.3g} times as "
        f"likely as for means over two runs. {shares} of {len(audits)} pass@8 are a share of problems; {fits} can be "
        f"best@8, as {by_chance:.1f} of {len(audits)} numbers near them could to the digit. {_conclusion(together)}"
    )


def _conclusion(together: Pooled) -> str:
    """What the pooled difference shows, in words that follow from its z."""
    same, *others = together.noises
    says = {
        (True, True): "is more than other samples of the same problems give, whatever the counts",
        (False, True): "is more than other samples of the same problems give for some counts, not for all",
        (False, False): "is no more than other samples of the same problems give",
    }[abs(same.z[0]) > Z, abs(same.z[1]) > Z]
    beyond = [one for one in others if abs(one.z[0]) > Z]
    general = (
        f"it is more than other problems give if the arms' accuracies correlate by {beyond[0].correlation:g} or more"
        if beyond
        else "no correlation of the arms makes it more than other problems could give, whatever the counts"
    )
    apart, alike = others[0].z, others[-1].z
    return (
        f"Pooled over {together.cells} cells, {METHOD} minus {BASELINE} is {together.difference:+.4f}, positive in "
        f"{together.positive}: it {says} (z {_shown(same.z, 2)}); {general} (z {_shown(apart, 2)} uncorrelated, "
        f"{_shown(alike, 2)} fully correlated). One run an arm: differences that vary by a standard deviation of "
        f"{_shown(together.seed_sd)} from one training seed to another would bring it inside the noise on the same "
        "problems, too."
    )


def _pooled(together: Pooled) -> Grid:
    rows = [
        [
            *(one.source, "-" if math.isnan(one.correlation) else f"{one.correlation:g}"),
            *(_shown(one.error, 4), _shown(one.z, 2), _shown(one.p, 4)),
        ]
        for one in together.noises
    ]
    title = f"{METHOD} minus {BASELINE} pooled over {together.cells} cells: {together.difference:+.4f}"
    return Grid(title, ["against", "correlation", "standard error", "z", "p"], rows, labels=2)


def _pooled_row(together: Pooled, one: Noise) -> dict[str, Any]:
    about = {"block": "pooled", "arm": BASELINE, "metric": "pass@1", "difference": together.difference}
    ranges = {"pooled_se": one.error, "z": one.z, "p": one.p}
    return about | {"verdict": one.source, "correlation": one.correlation} | _bounds(ranges)


def _cells(audits: Sequence[Audit]) -> Grid:
    header = ["model", "arm", "benchmark", "pass@1", "right", "digits", "pass@8", "x problems"]
    rows = [
        [
            *(one.cell.model, one.cell.arm, one.cell.benchmark),
            f"{one.cell.pass_at_1:.4f}",
            "none" if one.right is None else f"{one.right}/{one.cell.problems * one.cell.samples}",
            "cut" if one.cut else "rounded",
            f"{one.cell.pass_at_8:.4f}",
            f"{one.cell.pass_at_8 * one.cell.problems:.3f}",
            f"{one.nearest:.5f}",
            f"{one.draw_error:.4f}",
            f"{one.reachable:.2f}",
            one.estimator,
        ]
        for one in audits
    ]
    return Grid(
        "What each number can be", [*header, "nearest best@8", "draw error", "reachable", "can be"], rows, labels=3
    )


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


def _shown(bounds: Range, digits: int = 3) -> str:
    return " to ".join(f"{bound:.{digits}f}" for bound in bounds)


def _audit_row(one: Audit) -> dict[str, Any]:
    cell = one.cell
    about = {"block": "cell", "model": cell.model, "arm": cell.arm, "benchmark": cell.benchmark}
    numbers = {"pass_at_1": cell.pass_at_1, "pass_at_8": cell.pass_at_8, "right": one.right}
    derived = {"arrangements": one.arrangements, "nearest_best_at_8": one.nearest, "reachable": one.reachable}
    derived |= {"draw_error": one.draw_error}
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
