"""Writes tests/golden/oracles.json: numbers of other libraries, which tests compare our statistics with.

mcpo does not install these libraries. In a separate environment:

    python -m venv build/oracles && build/oracles/bin/pip install scipy==1.17.1 statsmodels==0.15.0 lifelines==0.30.3
    build/oracles/bin/python .ci/oracles.py
"""

import json
import math
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import statsmodels.api as sm
from lifelines import KaplanMeierFitter
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower
from statsmodels.stats.proportion import proportion_confint
from statsmodels.stats.weightstats import DescrStatsW

TARGET = Path(__file__).resolve().parents[1] / "tests" / "golden" / "oracles.json"
RNG = np.random.default_rng(20261124)


def rounded(count: int, scale: float = 1.0, shift: float = 0.0) -> list[float]:
    """Normal numbers with four decimals, which can be typed."""
    return [round(float(value), 4) for value in shift + scale * RNG.standard_normal(count)]


def paired_t() -> list[dict[str, Any]]:
    found = []
    for seeds in (3, 5, 12):
        diff = rounded(seeds, 0.05, 0.02)
        low, high = DescrStatsW(diff).tconfint_mean()
        found.append({"diff": diff, "low": low, "high": high, "p": stats.ttest_1samp(diff, 0).pvalue})
    return found


def holm() -> list[dict[str, Any]]:
    families = [[0.01, 0.04, 0.03, 0.2], [0.5, 0.0001, 0.02, 0.02, 0.9, 0.013]]
    return [{"p": p, "adjusted": multipletests(p, method="holm")[1].tolist()} for p in families]


def power() -> list[dict[str, Any]]:
    test = TTestPower()
    cases = [(0.02, 0.015, 3), (0.02, 0.03, 8), (0.01, 0.04, 50)]
    return [
        {
            "effect": effect,
            "sd": sd,
            "seeds": seeds,
            "power": float(test.power(effect / sd, seeds, 0.05)),
            "detectable": float(test.solve_power(None, seeds, 0.05, 0.8)) * sd,
            "needed": math.ceil(float(test.solve_power(effect / sd, None, 0.05, 0.8))),
        }
        for effect, sd, seeds in cases
    ]


def survival() -> list[dict[str, Any]]:
    found = []
    for count in (8, 40):
        duration = RNG.integers(1, 12, count)
        observed = RNG.random(count) < 0.7
        fitted = KaplanMeierFitter().fit(duration, observed)
        times = sorted({*duration.tolist()})
        bounds = fitted.confidence_interval_.loc[times].to_numpy()
        share = fitted.survival_function_.loc[times].to_numpy()[:, 0]
        inside = (share > 0) & (share < 1)
        found.append(
            {
                "duration": duration.tolist(),
                "observed": observed.tolist(),
                "time": np.array(times)[inside].tolist(),
                "share": share[inside].tolist(),
                "low": bounds[inside, 0].tolist(),
                "high": bounds[inside, 1].tolist(),
            }
        )
    return found


def cluster_mean() -> dict[str, Any]:
    """Clusters of equal size, for which CR2 of the mean is CR1."""
    value, cluster = rounded(20), np.repeat(np.arange(5), 4).tolist()
    fitted = sm.OLS(value, np.ones(20)).fit(cov_type="cluster", cov_kwds={"groups": cluster}, use_t=True)
    return {"value": value, "cluster": cluster, "mean": fitted.params[0], "error": fitted.bse[0]}


def variance() -> dict[str, Any]:
    """Crossed random effects of runs and problems, fitted by restricted maximum likelihood."""
    runs, problems = 6, 15
    run = RNG.standard_normal(runs) * 0.2
    problem = RNG.standard_normal(problems) * 0.3
    diff = np.round(run[:, None] + problem + 0.25 * RNG.standard_normal((runs, problems)), 4)
    frame = pd.DataFrame(
        [(r, q, diff[r, q], 1) for r in range(runs) for q in range(problems)],
        columns=["run", "problem", "diff", "all"],
    )
    parts = {"run": "0 + C(run)", "problem": "0 + C(problem)"}
    model = sm.MixedLM.from_formula("diff ~ 1", frame, groups="all", re_formula="0", vc_formula=parts)
    fitted = model.fit(reml=True, method="lbfgs", gtol=1e-10)
    of = dict(zip(model.exog_vc.names, fitted.vcomp, strict=True))
    rest = float(fitted.scale)
    error = math.sqrt(of["run"] / runs + of["problem"] / problems + rest / (runs * problems))
    squares = {"seed": of["run"], "problem": of["problem"], "rest": rest}
    return {"diff": diff.tolist(), **{name: math.sqrt(square) for name, square in squares.items()}, "error": error}


def improvement() -> dict[str, Any]:
    arm, baseline = ([round(float(v), 2) for v in RNG.uniform(low, low + 0.4, 7)] for low in (0.4, 0.3))
    wins = stats.mannwhitneyu(arm, baseline).statistic
    return {"arm": arm, "baseline": baseline, "value": wins / 49}


def wilson() -> list[dict[str, Any]]:
    found = []
    for correct, n in ((3, 30), (60, 100), (127, 128)):
        low, high = proportion_confint(correct, n, method="wilson")
        found.append({"correct": correct, "n": n, "low": low, "high": high})
    return found


ORACLES = (paired_t, holm, power, survival, cluster_mean, variance, improvement, wilson)


def main() -> None:
    """Compute and write all numbers."""
    document: dict[str, Any] = {name: version(name) for name in ("scipy", "statsmodels", "lifelines")}
    document |= {oracle.__name__: oracle() for oracle in ORACLES}
    TARGET.write_text(json.dumps(document, indent=1, default=float) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
