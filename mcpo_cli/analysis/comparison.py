"""Compares arms with a baseline at equal cost: the numbers of a comparison, as tidy frames.

A run's score is its mean over the problems of a tier; `average` is the mean over the tiers. Everything after that is
about runs: a pair is one seed from one base policy, trained once by each arm.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from mcpo_cli.analysis import equal_cost
from mcpo_cli.analysis.equal_cost import AVERAGE, AXES, Scores, at_equal, by_run
from mcpo_cli.analysis.frames import PAIR, Runs, tree
from mcpo_cli.config.plan import Plan
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.statistics import effects, stats, variance
from mcpo_cli.statistics.effects import Estimate
from mcpo_cli.statistics.power import ALPHA
from mcpo_cli.statistics.stats import Effect
from mcpo_cli.statistics.variance import Components

K = 8
"""The paper's k; a comparison uses fewer if a problem has fewer graded samples."""
EFFECT = ("mean", "low", "high", "half_width", "sd", "p", "seeds")
KEY = ("at", "model", "arm", "tier", "metric")
DIFFERENCE = (*KEY, *EFFECT, "by_seed", "above", "p_holm", "test", "family", "verdict")
UNKNOWN = Estimate(np.nan, np.nan, np.nan)
Row = dict[str, Any]
"""One row of a frame, by column."""
Verdict = Literal["better", "worse", "undecided"]


@dataclass(frozen=True)
class Choice:
    """The choices of a comparison; an empty field means the suite's choice, or else the default."""

    baseline: str = ""
    """The arm that the others are compared with; by default the first."""
    metric: str = ""
    """The metric of the headline; by default pass@1."""
    at: tuple[str, ...] = ()
    """Names of AXES; by default those of `equal_cost.DEFAULT` that the runs recorded."""


@dataclass(frozen=True)
class Comparison:
    """Scores of all arms of one plan and their differences from `baseline`.

    An effect has the columns mean, low, high, half_width (of the 95 % t-interval over pairs of base policy and seed),
    sd, p and seeds; numbers that are unknown are NaN. The column `at` is the cost held equal, one of AXES.
    """

    plan: Plan
    baseline: str
    metric: str
    """The metric of the headline."""
    spec: RunSpec
    """Any run of the plan, for the settings that all runs share."""
    k: int
    """k of best@k and pass@k."""
    ungraded: int
    """Samples without a verdict, summed over all runs."""
    sizes: dict[str, int]
    """Number of problems by held-out tier, in evaluation order."""
    metrics: list[str]
    where: dict[tuple[str, str], float]
    """By axis and model: the largest cost that all its runs reach, at which they are compared."""
    runs: pd.DataFrame
    """model, arm, base_seed, seed, run_id, tree (`frames.Tree`), outcome (done, collapsed or failed), error. A failed
    run has no score; one that collapsed counts like any other."""
    scores: pd.DataFrame
    """at, model, arm, tier, metric, mean, low, high, seeds: of each arm, over its runs."""
    before: pd.DataFrame
    """The same of the base policies; `arm` is BEFORE, with names of arms where not all share them."""
    gains: pd.DataFrame
    """at, model, arm, metric, before, an effect, mark: the arm's average minus that of its base policies, in each
    metric at the first axis and in the headline's metric at the others. mark: see `_mark`."""
    differences: pd.DataFrame
    """at, model, arm, tier, metric, an effect, by_seed, above (pairs with a positive difference), p_holm, test (equal
    for differences that are one comparison), family, verdict. The family `headline` is what the comparison is about:
    the headline's metric averaged over tiers; `others` are all other differences at the first axis."""
    aggregates: pd.DataFrame
    """at, metric, arm, and over tiers and models: mean, iqm, better (probability of improvement over the baseline), and
    each of these with _low and _high; difference_ and an effect. The last two are NaN for the baseline."""
    components: dict[tuple[str, str], Components]
    """By model and arm: the sources of the variance of the headline's difference, at equal steps."""
    curves: pd.DataFrame
    """The headline's metric averaged over tiers, of each run along each axis: at, x, model, arm, seed, value."""
    paths: pd.DataFrame
    """The same as a figure draws it: `equal_cost.curves`."""
    final: pd.DataFrame
    """The headline's metric of each run and tier at the first axis: model, arm, tier, seed, value."""

    @property
    def axes(self) -> list[str]:
        """The names of AXES at which arms are compared."""
        return list(dict.fromkeys(at for at, _ in self.where))

    @property
    def shown_axes(self) -> list[str]:
        """The `axes` at which some headline difference is not the same as at an earlier axis."""
        tests = {at: {row["test"] for row in records(self.headline, at=at)} for at in self.axes}
        before: set[int] = set()
        shown: list[str] = []
        for at in self.axes:
            if not shown or tests[at] - before:
                shown.append(at)
            before |= tests[at]
        return shown

    @property
    def models(self) -> list[str]:
        """The models in the order of the plan."""
        return list(dict.fromkeys(self.runs["model"]))

    @property
    def arms(self) -> list[str]:
        """The arms in the order of the plan."""
        return list(dict.fromkeys(self.runs["arm"]))

    @property
    def headline(self) -> pd.DataFrame:
        """The differences that the comparison is about."""
        return self.differences[self.differences["family"] == "headline"]

    def scored(self, model: str, *arms: str) -> pd.DataFrame:
        """The runs of these arms on this model that have a score."""
        runs = self.runs
        return runs[(runs["model"] == model) & runs["arm"].isin(arms) & (runs["outcome"] != "failed")]

    def gain(self, at: str, model: str, arm: str, metric: str = "") -> Row:
        """The gain of an arm over its base policies. metric: by default the headline's."""
        wanted = {"at": at, "model": model, "arm": arm, "metric": metric or self.metric}
        (row,) = records(self.gains, **wanted)
        return row

    def in_words(self, one: Mapping[str, Any]) -> str:
        """A difference of the headline in words that say whether the arms gain or lose over their base policies."""
        mine, theirs = (self.gain(one["at"], one["model"], arm)["mark"] for arm in (one["arm"], self.baseline))
        return compared(one["verdict"], bool(mine), bool(theirs), self.baseline)


def records(frame: pd.DataFrame, **wanted: Any) -> list[Row]:
    """The rows of a frame whose columns have these values."""
    rows: Any = frame.to_dict("records")
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def compared(verdict: Verdict, loses: bool, baseline_loses: bool, baseline: str) -> str:
    """A difference in words: `loses less than DAPO`."""
    if verdict == "undecided":
        return f"does not differ significantly from {baseline}"
    if loses != baseline_loses:
        does = ("loses", "gains") if loses else ("gains", "loses")
        return f"{does[0]} where {baseline} {does[1]}"
    more = (verdict == "better") != loses
    return f"{'loses' if loses else 'gains'} {'more' if more else 'less'} than {baseline}"


def compare(data: Runs, choice: Choice) -> Comparison:
    """Score every arm and compare each with the baseline.

    Failed runs (`Runs.failed`) are outcomes of their arms: they are listed, and differences leave out their pairs.

    Raises:
        ConfigError: no such arm, metric or axis.
        McpoError: arms were evaluated with different seeds or problems, the runs did not record the cost asked for, or
            failures leave an arm without a pair of runs.
    """
    arms = list(dict.fromkeys(cell.arm for cell in data.plan.cells))
    wanted = data.plan.same.get(choice.baseline, choice.baseline)
    baseline = equal_cost.check_name("baseline", wanted or arms[0], arms)
    equal_cost.check_failed(data, baseline)
    last = _last(data)
    spec, k = data.cells[0].spec, min(K, int(last["n"].min()))
    metrics = list(dict.fromkeys(["pass@1", f"best@{k}", f"pass@{k}"]))
    metric = equal_cost.check_name("metric", choice.metric or metrics[0], metrics)
    equal_cost.check_pairs(last, data.plan)
    scores = data.scores(k)
    axes = equal_cost.axes(choice.at, scores, data.plan)
    tables = {at: at_equal(scores, AXES[at], metrics) for at in axes}
    runs = {at: by_run(table) for at, table in tables.items()}
    asked = {at: metrics if at == axes[0] else [metric] for at in axes}
    sizes = {str(tier): int(rows["problem"].nunique()) for tier, rows in last.groupby("tier", sort=False)}
    problems = {**sizes, AVERAGE: sum(sizes.values())}
    starts, began = equal_cost.base_policies(scores, data.plan.cells, metrics)
    before = by_run(began)
    paths = pd.concat([equal_cost.curves(at, scores, metric) for at in axes], ignore_index=True)
    return Comparison(
        plan=data.plan,
        baseline=baseline,
        metric=metric,
        spec=spec,
        k=k,
        ungraded=len(last) * spec.eval.samples - int(last["n"].sum()),
        sizes=sizes,
        metrics=metrics,
        where={(at, model): cost for at, table in tables.items() for model, cost in table.attrs["where"].items()},
        runs=pd.DataFrame(_runs(data, equal_cost.collapsed(runs[axes[0]], starts, before))),
        scores=pd.DataFrame(row for at in axes for row in _scores(at, runs[at], problems)),
        before=pd.DataFrame(_before(axes[0], began, problems)),
        gains=pd.DataFrame(row for at in axes for row in _gains(at, asked[at], runs[at], starts, before)),
        differences=_families([row for at in axes for row in differences(at, runs[at], baseline)], metric),
        aggregates=pd.DataFrame(
            row for at in axes for name in asked[at] for row in _aggregates(at, name, runs[at], baseline)
        ),
        components=dict(_components(last, baseline, metric)),
        curves=paths[paths["shared"]].drop(columns=["measured", "shared"]).reset_index(drop=True),
        paths=paths,
        final=tables[axes[0]].drop(index=AVERAGE, level="tier")[metric].rename("value").reset_index(),
    )


def _last(data: Runs) -> pd.DataFrame:
    """The rows of each run's latest evaluation within the number of steps that all runs have: arms may train longer."""
    rows, most = data.eval(step="all"), min(cell.spec.train.steps for cell in data.cells)
    within = rows[rows["step"] <= most]
    return within[within["step"] == within.groupby("run_id")["step"].transform("max")].reset_index(drop=True)


def _runs(data: Runs, collapsed: set[tuple[str, str, int, int]]) -> Iterator[Row]:
    """All runs of the plan, in its order."""
    failed = {one.cell.spec.run_id: one.error for one in data.failed}
    for cell in data.plan.cells:
        spec = cell.spec
        key = (spec.model.name, cell.arm, spec.seed_of_base, spec.seed)
        error = failed.get(spec.run_id)
        outcome = "done" if error is None else "failed"
        yield dict(zip(("model", "arm", *PAIR), key, strict=True)) | {
            "run_id": spec.run_id,
            "tree": tree(cell),
            "outcome": "collapsed" if key in collapsed else outcome,
            "error": error or "",
        }


def _gains(
    at: str, metrics: Sequence[str], scores: Scores, starts: Mapping[tuple[str, str], str], before: Scores
) -> Iterator[Row]:
    for model, arm, metric, end, start in equal_cost.ends(scores, starts, before):
        if metric in metrics:
            effect = stats.paired_t((end - start).tolist())
            about = {"at": at, "model": model, "arm": arm, "metric": metric, "before": float(start.mean())}
            yield {**about, **_columns(effect), "mark": _mark(effect)}


def _mark(gain: Effect) -> str:
    """`<` if the mean ends below that before training, `<<` if the whole 95 % interval does."""
    if gain.mean >= -stats.ROUNDING:
        return ""
    return "<<" if gain.high < 0 else "<"


def _columns(effect: Effect) -> Row:
    values = (effect.mean, effect.low, effect.high, effect.half_width, effect.sd, effect.p, effect.n)
    return dict(zip(EFFECT, values, strict=True))


def _scores(at: str, scores: Scores, problems: Mapping[str, int]) -> Iterator[Row]:
    for key, runs in scores.items():
        about = dict(zip(KEY, (at, *key), strict=True))
        found = effects.mean([runs.to_numpy()[:, None]], problems[about["tier"]])
        yield about | {"mean": found.value, "low": found.low, "high": found.high, "seeds": len(runs)}


def _before(at: str, before: pd.DataFrame, problems: Mapping[str, int]) -> Iterator[Row]:
    for _, rows in before.groupby(["model", "arm"], sort=False):
        for _, here in rows.groupby("tier", sort=False):
            yield from _scores(at, by_run(here), problems)


def differences(at: str, scores: Scores, baseline: str) -> Iterator[Row]:
    """The differences of all arms from `baseline`, by model, tier and metric: one paired t-test each.

    Each difference is tested with its own standard deviation. A deviation pooled over arms would find more with three
    seeds (with 3 arms .73 in place of .46 of the differences of two standard deviations), but only if all arms vary
    alike: where one arm varies two or three times as much, it finds a difference that is not there in 8 to 19 % of the
    cases (`tests/unit/test_pooled_deviation.py`). Deviations do differ: from .01 to .17 in `methods-baselines`.

    Args:
        at: one of AXES.
        scores: of the runs at that axis. Pairs with a run without a score are left out.
    """
    for (model, arm, tier, metric), runs in scores.items():
        if arm != baseline:
            diff_S = (runs - scores[model, baseline, tier, metric]).dropna().to_numpy()
            row: Row = dict(zip(KEY, (at, model, arm, tier, metric), strict=True))
            above = int((diff_S > stats.ROUNDING).sum())
            yield row | _columns(stats.paired_t(diff_S)) | {"by_seed": tuple(diff_S.tolist()), "above": above}


def _families(found: Sequence[Row], metric: str) -> pd.DataFrame:
    """The differences of the headline, then the others at the first axis, each family adjusted by itself."""
    headline = [row for row in found if (row["tier"], row["metric"]) == (AVERAGE, metric)]
    others = [row for row in found if row["at"] == found[0]["at"] and (row["tier"], row["metric"]) != (AVERAGE, metric)]
    if len({row["tier"] for row in found}) == 2:
        # The average over a single tier is the tier again.
        others = [row for row in others if row["tier"] != AVERAGE]
    return pd.DataFrame([*adjusted(headline, "headline"), *adjusted(others, "others")], columns=DIFFERENCE)


def adjusted(rows: Sequence[Row], family: str) -> list[Row]:
    """The differences with p adjusted over the family by Holm's method. Those that repeat each other count once."""
    tests: list[Row] = []
    indices = []
    for row in rows:
        same = next((index for index, test in enumerate(tests) if _repeats(row, test)), len(tests))
        tests += [row] if same == len(tests) else []
        indices.append(same)
    p_holm = stats.holm([test["p"] for test in tests])
    return [_decided(row, float(p_holm[index]), index, family) for row, index in zip(rows, indices, strict=True)]


def _decided(row: Row, p_holm: float, test: int, family: str) -> Row:
    return row | {"p_holm": p_holm, "test": test, "family": family, "verdict": verdict(row["mean"], p_holm)}


def _repeats(row: Row, other: Row) -> bool:
    """True if both are one comparison, such as equal steps and equal rollouts that end at the same scores."""
    same = all(row[key] == other[key] for key in ("model", "arm", "tier", "metric"))
    return same and np.allclose(row["by_seed"], other["by_seed"], rtol=0, atol=stats.ROUNDING)


def verdict(difference: float, p_holm: float, level: float = ALPHA) -> Verdict:
    """The word for a mean difference, as in a comparison of logs. p_holm: p adjusted over the family; NaN: no test."""
    if not p_holm <= level:
        return "undecided"
    return "better" if difference > 0 else "worse"


def _aggregates(at: str, metric: str, scores: Scores, baseline: str) -> Iterator[Row]:
    tiers: dict[str, dict[str, list[pd.Series]]] = {}
    for (model, arm, tier, name), runs in scores.items():
        if name == metric and tier != AVERAGE:
            tiers.setdefault(arm, {}).setdefault(model, []).append(runs)
    # By arm and model: runs x tiers.
    strata = {arm: {model: pd.concat(runs, axis=1) for model, runs in own.items()} for arm, own in tiers.items()}
    theirs = strata[baseline]
    for arm, mine in strata.items():
        matrices = [one.to_numpy() for one in mine.values()]
        found = {"mean": effects.mean(matrices), "iqm": effects.interquartile_mean(matrices), "better": UNKNOWN}
        effect: Row = dict.fromkeys(EFFECT, np.nan)
        if arm != baseline:
            found["better"] = effects.probability_of_improvement(matrices, [theirs[model].to_numpy() for model in mine])
            diff = [mine[model].mean(axis=1) - theirs[model].mean(axis=1) for model in mine]
            # A seed of several models is one value, as the models may share what the seed decides.
            diff_S = pd.concat(diff, axis=1).mean(axis=1, skipna=False).dropna().to_numpy()
            effect = _columns(stats.paired_t(diff_S)) if diff_S.size else effect
        row: Row = {"at": at, "metric": metric, "arm": arm}
        for name, one in found.items():
            row |= {name: one.value, f"{name}_low": one.low, f"{name}_high": one.high}
        yield row | {f"difference_{name}": value for name, value in effect.items()}


def _components(last: pd.DataFrame, baseline: str, metric: str) -> Iterator[tuple[tuple[str, str], Components]]:
    at_k = stats.best_at_k if metric.startswith("best") else stats.pass_at_k
    shares = at_k(last["n"].to_numpy(), last["c"].to_numpy(), int(metric.partition("@")[2]))
    value = last.assign(value=shares, problem=last["tier"] + "\n" + last["problem"])
    for model, rows in value.groupby("model", sort=False):
        by_arm = {
            arm: here.pivot(index=PAIR, columns="problem", values="value")
            for arm, here in rows.groupby("arm", sort=False)
        }
        for arm, mine in by_arm.items():
            diff = (mine - by_arm[baseline]).dropna(how="all")
            if arm != baseline and len(diff) > 1 and diff.shape[1] > 1 and not diff.isna().to_numpy().any():
                bases = diff.index.get_level_values("base_seed").to_numpy()
                yield (str(model), str(arm)), variance.components(diff.to_numpy(), bases)
