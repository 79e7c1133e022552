"""Forgetting of mastered prompts by component of MCPO, with verdicts."""

from collections.abc import Mapping, Sequence

import pandas as pd

from mcpo_cli.analysis import claims, numbers
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.product import Artifact, Product
from mcpo_cli.analysis.tables.claims import NOTES, verdict_grid, verdict_of
from mcpo_cli.analysis.verdicts import Outcome, outcomes

from .. import EXPERIMENTS

FORGETTING = "forgetting"
BASELINE = "DAPO w/o filter"
FORGETTING_CLAIMS = EXPERIMENTS / "forgetting" / "forgetting.yaml"
SHOWN = {
    "same-policy accuracy": "mastery.same_policy",
    "next-step accuracy": "mastery.accuracy_lag_1",
    "next-step gap": "mastery.gap",
    "deepest next-step gap": "mastery.deepest_gap",
    "next-step swings": "mastery.swings",
}


def build_forgetting(data: Mapping[str, Runs]) -> Product:
    """One row per regime, model, arm and statistic, and one per claim, regime and model."""
    runs = data[FORGETTING]
    found = outcomes(claims.read(FORGETTING_CLAIMS), data)
    of_runs = numbers.per_run(runs, SHOWN)
    rows = numbers.rows(of_runs, SHOWN, BASELINE)
    verdicts = [
        {"block": "verdict", "regime": one.regime, "model": one.model, "arm": one.claim.arm, "statistic": one.claim.id}
        | {"mean": one.effect.mean, "low": one.effect.low, "high": one.effect.high, "seeds": one.effect.n}
        | {"p": one.p, "p_holm": one.p_holm, "verdict": one.verdict}
        for one in found
    ]
    notes = [
        f"Means over seeds with 95% t-intervals; in brackets the difference to {BASELINE}, paired by seed.",
        *(f"{column}: {numbers.meaning(name)}." for column, name in SHOWN.items()),
        *NOTES,
    ]
    spec = runs.cells[0].spec
    title = f"Forgetting of mastered prompts (scale {spec.scale}, {spec.train.steps} global steps)"
    return Product(
        title, _sentence(found), pd.DataFrame([*rows, *verdicts]), [*numbers.grids(rows), verdict_grid(found)], notes
    )


def _sentence(found: Sequence[Outcome]) -> str:
    parts = "; ".join(f"{one.claim.id} {verdict_of(one)} in {one.regime} ({one.model})" for one in found)
    return f"Verdicts on forgetting, the hinge and the reweight against {BASELINE}: {parts}."


ARTIFACT = Artifact(
    FORGETTING, "Forgetting, by component of MCPO", "diagnostic", (FORGETTING,), build_forgetting, "Section 6.4",
    by_regime=True, source=FORGETTING_CLAIMS,
)  # fmt: skip
