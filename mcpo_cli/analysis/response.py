"""Differences of a design's arms from its baseline, as response surfaces over the design's settings."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import qmc

from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.measures import STATISTICS, WHOLE
from mcpo_cli.config.design import Design
from mcpo_cli.config.plan import Suite
from mcpo_cli.errors import RunFailed
from mcpo_cli.statistics import clusters, surface
from mcpo_cli.statistics.stats import Floats, Interval
from mcpo_cli.statistics.surface import Calibration, Sensitivity, Surface

METRICS = ("pass@1", "next-step gap")
"""Statistics of `measures.py`; one that the runs did not record is left out."""
REST = 256
"""Places that a mean over settings is taken over."""
ALONG = 5
"""Places along a range that a frontier is shown at."""
SURE = 0.95
"""Probability of being above, or below, 0 at which a map has its lines: of each place by itself (pointwise)."""


@dataclass(frozen=True)
class Response:
    """The difference of one arm from the baseline in one metric."""

    arm: str
    metric: str
    factors: tuple[str, ...]
    """The design's settings. Those that concern neither arm are a control: nothing may depend on them."""
    place_NF: Floats
    """Where the points lie, in 0..1."""
    value_N: Floats
    """The arm's number minus the baseline's at each point."""
    cluster_N: NDArray[np.integer[Any]]
    """Which points share base policy and seed."""

    @cached_property
    def surface(self) -> Surface:
        """The fitted response."""
        return Surface(self.place_NF, self.value_N)

    @cached_property
    def calibration(self) -> Calibration:
        """How well points that were held out are predicted."""
        return surface.calibration(self.place_NF, self.value_N)

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """Which settings the response depends on."""
        return surface.sensitivity(self.surface)

    @property
    def mean(self) -> Interval:
        """Mean over the points, with an interval clustered by base policy and seed: the effect over the whole space."""
        return clusters.mean(self.value_N, np.ones(len(self.value_N)), self.cluster_N).interval()

    @cached_property
    def sure(self) -> tuple[float, float]:
        """Shares of the space where the response is above 0, and below, in all of these places together."""
        above_R, below_R = self.surface.sure(evenly(len(self.factors)))
        return float(np.mean(above_R)), float(np.mean(below_R))


def evenly(factors: int) -> Floats:
    """REST places, spread evenly over the space of that many settings."""
    return np.asarray(qmc.Sobol(factors, rng=0).random(REST), dtype=np.float64)


def _places(design: Design) -> Floats:
    """Where the design's points lie, by the number of the point."""
    return design.positions(design.settings())


def frontier(rows: pd.DataFrame, suite: Suite, key: str) -> pd.DataFrame:
    """Each arm's metrics along one setting, averaged over the others by the arm's own surfaces.

    Args:
        rows: what `values` returns.
        key: the setting.

    Returns:
        One row per arm and place along the setting, in order: arm, `key` (its value) and the metrics.
    """
    assert suite.design is not None
    factors, factor = suite.design.factors, list(suite.design.factors).index(key)
    place_PF = _places(suite.design)
    at = list(factors[key].levels) or [factors[key].at(place) for place in np.linspace(0, 1, ALONG)]
    place_M1 = np.array([[factors[key].position(value)] for value in at])
    rest = evenly(len(factors))
    found = []
    for arm, here in rows.groupby("arm", sort=False):
        place_NF = place_PF[here["point"]]
        means = {
            metric: Surface(place_NF, here[metric].to_numpy(dtype=np.float64)).over((factor,), place_M1, rest)[0]
            for metric in METRICS
            if here[metric].notna().all()
        }
        found.append(pd.DataFrame({"arm": arm, key: at, **means}))
    return pd.concat(found, ignore_index=True)


def values(runs: Runs, suite: Suite, metrics: Sequence[str] = METRICS) -> pd.DataFrame:
    """One row per run: point, arm, run id, the settings that the design varies, and the metrics that it recorded."""
    assert suite.design is not None
    settings = suite.design.settings()
    rows = []
    for cell in runs.cells:
        assert cell.point is not None
        numbers = {name: STATISTICS[name].measure(runs, cell).get(WHOLE, np.nan) for name in metrics}
        seeds = {"base_seed": cell.spec.seed_of_base, "seed": cell.spec.seed}
        varied = {key: settings[cell.point][key] for key in suite.design.factors}
        rows.append({"point": cell.point, "arm": cell.arm, "run_id": cell.spec.run_id, **seeds, **varied, **numbers})
    return pd.DataFrame(rows)


def responses(rows: pd.DataFrame, suite: Suite) -> list[Response]:
    """By arm, then by metric, over the points at which the arm and the baseline have a number.

    rows: what `values` returns.

    Raises:
        RunFailed: there are fewer than `surface.LEAST` such points.
    """
    assert suite.design is not None
    baseline, place_PF = suite.baseline or next(iter(suite.arms)), _places(suite.design)
    by_arm = {arm: here.set_index("point") for arm, here in rows.groupby("arm", sort=False)}
    found = []
    for arm in suite.arms:
        if arm == baseline or arm not in by_arm:
            continue
        here = by_arm[arm]
        for metric in METRICS:
            difference = (here[metric] - by_arm[baseline][metric]).dropna()
            if rows[metric].isna().all():
                continue
            if len(difference) < surface.LEAST:
                points = f"{len(difference)} points of {arm} and {baseline} have a {metric}"
                raise RunFailed(f"{points}; a surface needs {surface.LEAST}", fix="more points in the suite's design")
            value_N = difference.to_numpy(dtype=np.float64)
            cluster_N = (
                by_arm[arm].loc[difference.index].groupby(["base_seed", "seed"]).ngroup().to_numpy(dtype=np.int64)
            )
            place_NF = place_PF[difference.index]
            found.append(Response(arm, metric, tuple(suite.design.factors), place_NF, value_N, cluster_N))
    return found
