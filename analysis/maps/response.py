"""Differences of a map's arms from its baseline as response surfaces over its settings: numbers, tables and figure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from numpy.typing import NDArray
from scipy.stats import qmc

from mcpo_cli.config import load
from mcpo_cli.config.plan import Plan, PlannedRun
from mcpo_cli.errors import RunFailed
from mcpo_cli.measures.frames import Runs
from mcpo_cli.render import markup
from mcpo_cli.render.figures import base
from mcpo_cli.render.markup import Grid
from mcpo_cli.render.product import Product
from mcpo_cli.report.numbers import WHOLE, of_run
from mcpo_cli.statistics import clusters
from mcpo_cli.statistics.stats import Floats, Interval

from . import surface
from .design import Design, Factor, Space
from .surface import TOGETHER, Calibration, Surface

NAMES = {"pass@1": "scores.pass@1", "next-step gap": "mastery.gap"}
"""Column -> number (`numbers.py`); one that the runs did not record is left out."""
METRICS = tuple(NAMES)
REST = 256
"""Number of places in a mean over settings."""
ALONG = 5
"""Number of places along a range in a frontier."""
SURE = 0.95
"""Probability of being above, or below, 0 at which a map draws its lines, for each place by itself (pointwise)."""
FINE = 21
"""Number of places along each axis of a panel."""
TICKS = (0.0, 0.5, 1.0)
"""Places of the ticks along a range."""
PROBABILITIES = (1 - SURE, 0.5, SURE)
TRACE = 1e-6
"""Least weight of a response, for one that is not predicted at all."""
NOTES = (
    "A point is one draw of all settings; the arms at a point share base policy and seed and differ in their method.",
    "Mean: over the points, with a 95 % t-interval clustered by base policy and seed (CR2), if there are three pairs. "
    "Noise: standard deviation of one difference around the surface. Predicted: share of the variance over points that "
    "a fifth of the points, held out in turn, had predicted from the others (0: no better than the mean). Within: "
    "share of these points within their 50 % and 95 % intervals.",
    "Surely above, below: share of the space in which the response is above, or below, 0 at all of these places "
    f"together, by a simultaneous band of level {TOGETHER:g} under the fitted Gaussian process. Maps of noise alone "
    "have such a place in 6 to 7 % of the cases.",
    "Sensitivity: share of the surface's variance that a setting accounts for with all its interactions (total Sobol "
    "index). A setting that an arm does not have is a control: its index should be near 0.",
    "Figure: the response over two settings, averaged over the others; lines where it is above 0 with mean probability "
    f"{', '.join(f'{one:g}' for one in PROBABILITIES)}, each place by itself (pointwise). Dots: the points, filled "
    "where the difference is above 0.",
    "Last panel: the arms along the setting that matters most, each averaged over the other settings by a surface of "
    "its own. A curve that lies further to the upper left keeps more for what it learns.",
)


@dataclass(frozen=True)
class Response:
    """The difference of one arm from the baseline in one metric."""

    arm: str
    metric: str
    factors: tuple[str, ...]
    """The design's settings. Those that concern neither arm are a control: the response must not depend on them."""
    place_NF: Floats
    """The points' settings, scaled to 0..1."""
    value_N: Floats
    """The arm's number minus the baseline's at each point."""
    cluster_N: NDArray[np.integer[Any]]
    """Number of the base policy and seed of each point."""

    @cached_property
    def surface(self) -> Surface:
        """The fitted response."""
        return Surface(self.place_NF, self.value_N)

    @cached_property
    def calibration(self) -> Calibration:
        """Quality of the predictions of points that were held out."""
        return surface.calibration(self.place_NF, self.value_N)

    @cached_property
    def sensitivity_F(self) -> Floats:
        """Dependence of the response on each setting."""
        return surface.sensitivity(self.surface)

    @property
    def mean(self) -> Interval:
        """Mean over the points, with an interval clustered by base policy and seed: the effect over the whole space."""
        return clusters.mean(self.value_N, np.ones(len(self.value_N)), self.cluster_N).interval()

    @cached_property
    def sure(self) -> tuple[float, float]:
        """Shares of the space where the response is above 0, and below, at simultaneous confidence over all places."""
        above_R, below_R = self.surface.sure(evenly(len(self.factors)))
        return float(np.mean(above_R)), float(np.mean(below_R))


def evenly(factors: int) -> Floats:
    """REST places, spread evenly over the space of that many settings."""
    return np.asarray(qmc.Sobol(factors, rng=0).random(REST), dtype=np.float64)


def _places(design: Design) -> Floats:
    """The settings of the design's points, scaled to 0..1, by the number of the point."""
    return design.positions(design.settings())


def frontier(rows: pd.DataFrame, space: Space, key: str) -> pd.DataFrame:
    """Each arm's metrics along one setting, averaged over the others by the arm's own surfaces.

    Args:
        rows: what `values` returns.
        key: the setting.

    Returns:
        One row per arm and place along the setting, in order: arm, `key` (its value) and the metrics.
    """
    factors, factor = space.design.factors, list(space.design.factors).index(key)
    place_PF = _places(space.design)
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


def values(space: Space, points: int = 0) -> pd.DataFrame:
    """One row per run: point, arm, run id, the settings that the design varies, and the METRICS that it recorded.

    points: only the first ones, as many as this; 0 for all.

    Raises:
        MissingCells: a run is not done.
    """
    found = [(point, PlannedRun(arm, load.load(overrides)[0])) for point, arm, overrides in space.runs(points)]
    runs = Runs(Plan("maps", "mcpo train SUITE", tuple(cell for _, cell in found)))
    settings, rows = space.design.settings(), []
    for point, cell in found:
        numbers = {column: of_run(runs, cell, name).get(WHOLE, np.nan) for column, name in NAMES.items()}
        seeds = {"base_seed": cell.spec.seed_of_base, "seed": cell.spec.seed}
        varied = {key: settings[point][key] for key in space.design.factors}
        rows.append({"point": point, "arm": cell.arm, "run_id": cell.spec.run_id, **seeds, **varied, **numbers})
    return pd.DataFrame(rows)


def responses(rows: pd.DataFrame, space: Space) -> list[Response]:
    """By arm, then by metric, over the points at which the arm and the baseline have a number.

    rows: what `values` returns.

    Raises:
        RunFailed: there are fewer than `surface.LEAST` such points.
    """
    baseline, place_PF = space.baseline, _places(space.design)
    by_arm = {arm: here.set_index("point") for arm, here in rows.groupby("arm", sort=False)}
    found = []
    for arm in space.arms:
        if arm == baseline or arm not in by_arm:
            continue
        here = by_arm[arm]
        for metric in METRICS:
            difference = (here[metric] - by_arm[baseline][metric]).dropna()
            if rows[metric].isna().all():
                continue
            if len(difference) < surface.LEAST:
                points = f"{len(difference)} points of {arm} and {baseline} have a {metric}"
                raise RunFailed(f"{points}; a surface needs {surface.LEAST}", fix="more points")
            value_N = difference.to_numpy(dtype=np.float64)
            cluster_N = (
                by_arm[arm].loc[difference.index].groupby(["base_seed", "seed"]).ngroup().to_numpy(dtype=np.int64)
            )
            place_NF = place_PF[difference.index]
            found.append(Response(arm, metric, tuple(space.design.factors), place_NF, value_N, cluster_N))
    return found


def product(space: Space, rows: pd.DataFrame) -> Product:
    """The map: tables and figure of the responses. rows: what `values` returns."""
    found = responses(rows, space)
    shown = _most_telling(found)
    notes = [f"{rows['point'].nunique()} of the design's {space.design.points} points, {len(rows)} runs.", *NOTES]
    along = frontier(rows, space, list(space.design.factors)[shown[0]])
    grids = [_effects(found, space), _sensitivities(found), _frontier(along)]
    figure = _figure(found, shown, space.design.factors, along)
    return Product(space.title, _sentence(found, space), rows, grids, notes, figure)


def _most_telling(found: Sequence[Response]) -> tuple[int, int]:
    """The two settings on which the responses depend most; each response is weighted by its predicted share."""
    predicted = [max(one.calibration.explained, TRACE) for one in found]
    total_F = np.nansum([one.sensitivity_F * much for one, much in zip(found, predicted, strict=True)], axis=0)
    first, second = np.argsort(-total_F, kind="stable")[:2]
    return int(first), int(second)


def _effects(found: Sequence[Response], space: Space) -> Grid:
    rows = []
    for one in found:
        mean, fit = one.mean, one.calibration
        rows.append(
            [
                one.arm,
                one.metric,
                markup.change(mean.mean, mean.half_width),
                f"{np.mean(one.value_N > 0):.0%}",
                f"{one.surface.noise:.3f}",
                f"{fit.explained:.2f}",
                f"{fit.coverage(0.5):.0%}, {fit.coverage(0.95):.0%}",
                *(f"{share:.0%}" for share in one.sure),
            ]
        )
    header = ["arm", "metric", "mean", "points above", "noise", "predicted", "within", "surely above", "surely below"]
    return Grid(f"Minus {space.baseline}, over the space", header, rows, labels=2)


def _sensitivities(found: Sequence[Response]) -> Grid:
    rows = [[one.arm, one.metric, *(f"{share:.2f}" for share in one.sensitivity_F)] for one in found]
    return Grid("Sensitivity: total Sobol indices", ["arm", "metric", *found[0].factors], rows, labels=2)


def _frontier(along: pd.DataFrame) -> Grid:
    key, metrics = along.columns[1], list(along.columns[2:])
    rows = [
        [str(arm), metric, *(f"{value:.3f}" for value in here[metric])]
        for arm, here in along.groupby("arm", sort=False)
        for metric in metrics
    ]
    header = ["arm", "metric", *(f"{value:g}" for value in along[key].unique())]
    return Grid(f"Each arm along {key}, averaged over the other settings", header, rows, labels=2)


def _sentence(found: Sequence[Response], space: Space) -> str:
    parts = [
        f"{one.arm} {markup.change(one.mean.mean, one.mean.half_width)} in {one.metric}, surely above 0 in "
        f"{one.sure[0]:.0%} and surely below in {one.sure[1]:.0%} of the space"
        for one in found
    ]
    return f"Minus {space.baseline}, mean over {len(found[0].value_N)} points: {'; '.join(parts)}."


def _figure(
    found: Sequence[Response], shown: tuple[int, int], factors: Mapping[str, Factor], along: pd.DataFrame
) -> Figure:
    """One row of panels per metric, with its own colour scale, one column per arm; below them, the frontier."""
    arms, metrics = (
        list(dict.fromkeys(names)) for names in zip(*((one.arm, one.metric) for one in found), strict=True)
    )
    keys = [list(factors)[factor] for factor in shown]
    with base.drawing():
        rows = len(metrics) + (len(metrics) == len(METRICS))
        figure, panels = base.canvas(rows, len(arms), width=base.PAGE, height=2.1, sharex="row", sharey="row")
        panel_RA = np.reshape(np.array(panels, dtype=object), (rows, len(arms)))
        for metric, row in zip(metrics, panel_RA, strict=False):
            here = [one for one in found if one.metric == metric]
            drawn = [(axes, one, _surface(one, shown)) for axes, one in zip(row, here, strict=True)]
            most = max(float(np.abs(mean_YX).max()) for *_, (mean_YX, _) in drawn)
            worse = "above" if metric == METRICS[-1] else "below"
            for axes, one, (mean_YX, above_YX) in drawn:
                image = _panel(axes, one, shown, mean_YX, above_YX, most, "RdBu_r" if worse == "above" else "RdBu")
                axes.set_title(one.arm)
            bar = figure.colorbar(image, ax=list(row), shrink=0.9)
            bar.set_label(f"{metric}, minus baseline\n(red, {worse} 0: worse)")
        for (row, column), axes in np.ndenumerate(panel_RA[: len(metrics)]):
            _ticks(axes, "x", keys[0], factors[keys[0]], shown=row == len(metrics) - 1)
            _ticks(axes, "y", keys[1], factors[keys[1]], shown=column == 0)
        if rows > len(metrics):
            for axes in panel_RA[-1]:
                axes.remove()
            _draw_frontier(figure.add_subplot(panel_RA[-1, 0].get_gridspec()[-1, :]), along)
    return figure


def _draw_frontier(axes: Axes, along: pd.DataFrame) -> None:
    """Learning of each arm against forgetting, with the setting's values written at the baseline's points."""
    key, (learned, forgotten) = along.columns[1], METRICS
    for index, (arm, look) in enumerate(base.looks(along["arm"].unique().tolist()).items()):
        here = along[along["arm"] == arm]
        axes.plot(
            here[forgotten], here[learned], color=look.color, linestyle=look.linestyle, marker=look.marker, label=arm
        )
        if index == 0:
            for _, row in here.iloc[[0, -1]].iterrows():
                label, at = f"{key} {row[key]:g}", (row[forgotten], row[learned])
                axes.annotate(label, at, xytext=(0, 6), textcoords="offset points", size=6, ha="right")
    axes.set_xlabel(forgotten)
    axes.set_ylabel(learned)
    axes.legend()


def _surface(one: Response, shown: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Mean response and mean probability above 0 on a grid of the two settings shown, by y, then x."""
    side = np.linspace(0, 1, FINE)
    place_MK = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    mean_M, above_M = one.surface.over(shown, place_MK, evenly(len(one.factors)))
    return mean_M.reshape(FINE, FINE), above_M.reshape(FINE, FINE)


def _panel(
    axes: Axes,
    one: Response,
    shown: tuple[int, int],
    mean_YX: np.ndarray,
    above_YX: np.ndarray,
    most: float,
    colors: str,
) -> AxesImage:
    image = axes.imshow(
        mean_YX, origin="lower", extent=(0, 1, 0, 1), aspect="auto", cmap=colors, vmin=-most, vmax=most,
        interpolation="bilinear",
    )  # fmt: skip
    side = np.linspace(0, 1, FINE)
    lines = axes.contour(side, side, above_YX, PROBABILITIES, colors="black", linewidths=0.7)
    axes.clabel(lines, fmt="%g", fontsize=5)
    x_N, y_N = (one.place_NF[:, factor] for factor in shown)
    filled = one.value_N > 0
    axes.scatter(x_N[filled], y_N[filled], s=5, color="black", linewidths=0)
    axes.scatter(x_N[~filled], y_N[~filled], s=5, facecolors="none", edgecolors="black", linewidths=0.5)
    axes.grid(visible=False)
    return image


def _ticks(axes: Axes, side: Literal["x", "y"], key: str, factor: Factor, *, shown: bool) -> None:
    """Ticks with the setting's values in place of 0..1; with labels if `shown`."""
    at = [factor.position(level) for level in factor.levels] if factor.levels else list(TICKS)
    texts = [f"{level:g}" for level in factor.levels] if factor.levels else [f"{factor.at(place):g}" for place in at]
    axis = axes.xaxis if side == "x" else axes.yaxis
    axis.set_ticks(at, texts)
    axes.tick_params(side, **{("labelbottom" if side == "x" else "labelleft"): shown})
    if shown:
        axis.set_label_text(key)
