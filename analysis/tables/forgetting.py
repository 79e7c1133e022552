"""Forgetting of mastered prompts by component of MCPO, in regimes that forget, with verdicts: suite `forgetting`."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from mcpo_cli.analysis import claims, words
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.measures import STATISTICS, WHOLE
from mcpo_cli.analysis.product import Artifact, Product
from mcpo_cli.analysis.render import Grid
from mcpo_cli.analysis.tables.claims import NOTES, verdict_grid, verdict_of
from mcpo_cli.analysis.verdicts import Outcome, outcomes
from mcpo_cli.statistics import stats
from mcpo_cli.study import EXPERIMENTS

SUITE = "forgetting"
BASELINE = "DAPO w/o filter"
PATH = EXPERIMENTS / "forgetting.yaml"
SHOWN = ("same-policy accuracy", "next-step accuracy", "next-step gap", "deepest next-step gap", "next-step swings")


def build(data: Mapping[str, Runs]) -> Product:
    """One row per regime, model, arm and statistic, and one per claim, regime and model."""
    runs = data[SUITE]
    found = outcomes(claims.read(PATH), data)
    rows = _rows(runs)
    grids = [_grid(rows, *setting) for setting in dict.fromkeys((row["regime"], row["model"]) for row in rows)]
    verdicts = [
        {"block": "verdict", "regime": one.regime, "model": one.model, "arm": one.claim.arm, "statistic": one.claim.id}
        | {"mean": one.effect.mean, "low": one.effect.low, "high": one.effect.high, "seeds": one.effect.n}
        | {"p": one.p, "p_holm": one.p_holm, "verdict": one.verdict}
        for one in found
    ]
    notes = [
        f"Means over seeds with 95% t-intervals; in brackets the difference to {BASELINE}, paired by seed.",
        *(f"{name}: {STATISTICS[name].meaning}." for name in SHOWN),
        *NOTES,
    ]
    spec = runs.cells[0].spec
    title = f"Forgetting of mastered prompts (scale {spec.scale}, {spec.train.steps} global steps)"
    return Product(title, _sentence(found), pd.DataFrame([*rows, *verdicts]), [*grids, verdict_grid(found)], notes)


def _rows(runs: Runs) -> list[dict[str, Any]]:
    values: dict[tuple[str, ...], dict[tuple[int, int], float]] = {}
    for cell in runs.cells:
        for name in SHOWN:
            numbers = STATISTICS[name].measure(runs, cell)
            if WHOLE in numbers:
                key = (cell.spec.regime, cell.spec.model.name, cell.arm, name)
                values.setdefault(key, {})[cell.spec.seed_of_base, cell.spec.seed] = numbers[WHOLE]
    rows = []
    for (regime, model, arm, name), by_seed in values.items():
        mean = stats.t_interval([*by_seed.values()])
        row = {"block": "measured", "regime": regime, "model": model, "arm": arm, "statistic": name, "seeds": mean.n}
        row |= {"mean": mean.mean, "low": mean.low, "high": mean.high}
        base = values.get((regime, model, BASELINE, name), {})
        if arm != BASELINE and (paired := [by_seed[seed] - base[seed] for seed in by_seed if seed in base]):
            difference = stats.t_interval(paired)
            row |= words.columns("difference", difference.mean, difference.low, difference.high)
        rows.append(row)
    return rows


def _grid(rows: Sequence[Mapping[str, Any]], regime: str, model: str) -> Grid:
    here = {(row["arm"], row["statistic"]): row for row in rows if (row["regime"], row["model"]) == (regime, model)}
    cells = [[arm, *(_shown(here.get((arm, name))) for name in SHOWN)] for arm in dict.fromkeys(arm for arm, _ in here)]
    return Grid(f"{regime}, {model}", ["arm", *SHOWN], cells, labels=1)


def _shown(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "-"
    text = words.change(row["mean"], (row["high"] - row["low"]) / 2, 4).removeprefix("+")
    if "difference" not in row:
        return text
    half = (row["difference_high"] - row["difference_low"]) / 2
    return f"{text} ({words.change(row['difference'], half, 4)})"


def _sentence(found: Sequence[Outcome]) -> str:
    parts = [f"{one.claim.id} {verdict_of(one)} in {one.regime} ({one.model})" for one in found]
    return words.caption(f"Verdicts on forgetting, the hinge and the reweight against {BASELINE}", parts)


TITLE = "Forgetting, by component of MCPO"
ARTIFACT = Artifact(SUITE, TITLE, "diagnostic", (SUITE,), build, "Section 6.4", by_regime=True, source=PATH)
