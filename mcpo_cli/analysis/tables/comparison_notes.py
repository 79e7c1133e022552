"""The notes below the tables of a comparison, which explain them."""

from collections.abc import Iterator, Mapping
from typing import Any

from mcpo_cli.analysis.comparison import Comparison, K, records
from mcpo_cli.analysis.equal_cost import COLLAPSED, UNITS
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.statistics import power
from mcpo_cli.statistics.power import ALPHA, POWER
from mcpo_cli.statistics.stats import LEAST

SAMPLED = "sampling/prompts"


def notes(comparison: Comparison, runs: Runs, paper: Mapping[str, Any] | None) -> list[str]:
    """Unusual facts about these runs, then what each table shows. paper: published numbers."""
    trees = set(comparison.runs["tree"])
    return [
        *_about_runs(comparison),
        *_sampled(runs),
        *_about_tables(comparison),
        *(["*: trained from a working tree with uncommitted changes."] if "dirty" in trees else []),
        *(["?: the state of the working tree was not recorded."] if "unknown" in trees else []),
        *([f"{_about_published(comparison)}: {paper['source']['url']}."] if paper else []),
    ]


def brief(comparison: Comparison) -> Iterator[str]:
    """Notes that the first table needs, and unusual facts about these runs."""
    *unusual, costs = _about_runs(comparison)
    yield from unusual
    if not comparison.headline.empty:
        yield (
            f"±: half of the 95% t-interval over {_seeds(comparison)}. p Holm: adjusted over the differences of this "
            f"table. better, worse: it is at most {ALPHA:g}; undecided is not equal. <: below before training."
        )
        for one in records(comparison.aggregates, metric=comparison.metric, at=comparison.axes[0]):
            if one["difference_half_width"] > 0:
                reach = power.detectable_effect(one["difference_sd"], int(one["difference_seeds"]))
                yield f"{one['arm']}: these seeds find a difference of {reach:.3f} with probability {POWER:g}."
    yield costs
    for tree, words in (("dirty", "uncommitted changes"), ("unknown", "changes that nothing recorded")):
        if runs := len(records(comparison.runs, tree=tree)):
            yield f"{runs} of {len(comparison.runs)} runs were trained from a working tree with {words}."


def _seeds(comparison: Comparison) -> str:
    least, most = (int(end(comparison.headline["seeds"])) for end in (min, max))
    return f"{most} seeds" if least == most else f"{least} to {most} seeds"


def _about_runs(comparison: Comparison) -> Iterator[str]:
    """Unusual facts about the runs; last, the costs at which they are compared."""
    failed, collapsed = (records(comparison.runs, outcome=name) for name in ("failed", "collapsed"))
    if failed:
        named = "; ".join("{arm}, {model}, seed {seed} ({run_id}): {error}".format(**run) for run in failed)
        yield (
            f"Failed runs are outcomes of their arms and have no score: {named}. Scores are means over the other runs, "
            "and a difference is over the pairs of which both runs have a score, which favours an arm that fails where "
            "it does badly. A run whose error has nothing to do with its method can be continued: "
            f"{comparison.plan.command}"
        )
    if collapsed:
        named = ", ".join("{arm}, {model}, seed {seed}".format(**run) for run in collapsed)
        yield f"Collapsed runs, which count like any other: {named}."
    if failed or collapsed:
        yield (
            "Where runs of an arm collapse or fail, intervals over few seeds cover too little, whether or not that "
            "occurs among them: if each run collapses from .4 to .1 with probability .2, the 95% interval of the arm's "
            "mean covers 48 to 73% with 3 seeds, 73% with 6 and 92% with 12."
        )
    if comparison.k < K:
        yield f"k = {comparison.k} in place of {K}: some problem has only {comparison.k} graded samples."
    if min(comparison.headline["seeds"], default=LEAST) < LEAST:
        yield f"Fewer than {LEAST} seeds give no interval and no p (-)."
    if comparison.ungraded:
        yield f"{comparison.ungraded} samples could not be graded and are excluded."
    costs = [f"{cost:,.0f} {UNITS[at]} ({model})" for (at, model), cost in comparison.where.items()]
    yield (
        f"Compared at the largest cost that all runs of a model reach: {'; '.join(costs)}. Between two evaluations a "
        "score is interpolated; nothing is extrapolated."
    )


def _about_tables(comparison: Comparison) -> Iterator[str]:
    k = comparison.k
    yield "Scores: mean over seeds and its 95% interval (Wilson's form with Student's t, which stays within 0..1)."
    yield (
        "before training: the base policies, evaluated at step 0. <: the arm's mean over tiers ends below theirs; <<: "
        "so does the whole 95% interval of end minus before, which is paired by base policy and seed and not adjusted "
        f"for the number of arms. collapsed: runs whose pass@1 ends below {COLLAPSED:.0%} of their base policy's."
    )
    yield (
        f"best@{k} = 1 - (1 - c/n)^{k}: {k} draws with replacement from the n samples, the expectation of verl's "
        f"best@{k}/mean. The paper's pass@8 is this estimator (best@8): its values are not multiples of 1/30. "
        f"pass@{k} = 1 - C(n-c, {k}) / C(n, {k}): the unbiased estimator (Chen et al. 2021)."
    )
    headline, others = (_counted(comparison, family) for family in ("headline", "others"))
    yield (
        "Differences: paired by base policy and seed, with 95% Student t-interval and the p of the paired t-test. "
        "They hold for these problems and base policies; the table of variances says what others would add. "
        f"p Holm: adjusted over a family: that of the headline has {headline} (each model, arm and axis), that of "
        f"the tables by tier {others}. better, worse: p Holm is at most {ALPHA:g}. undecided: it is not, which does "
        "not show that there is no difference."
    )
    yield (
        "IQM: mean of the middle half of all scores; its interval covers 90% with 3 seeds and 92% with 5. "
        "P(better): probability that a run of the arm beats one of the baseline, a tie counts half (Agarwal et al. "
        f"2021). detectable: the difference that these seeds find with probability {POWER:g} at level {ALPHA:g}. "
        "seeds for: the seeds that find the named difference, over the 80% interval of the standard deviation."
    )
    yield (
        "Variances: of the headline's difference at equal steps, by analysis of variance (base: between base "
        "policies; seed: between runs of one; problem: between problems; rest: problem by run, and samples). buy "
        "more: what divides the largest part. sd base is - where each base policy has one seed: sd seed has both."
    )


def _counted(comparison: Comparison, family: str) -> str:
    """`2 differences`, or `2 distinct differences of 4`."""
    of_family = comparison.differences.loc[comparison.differences["family"] == family, "test"]
    tests, shown = of_family.nunique(), len(of_family)
    return f"{tests} differences" if tests == shown else f"{tests} distinct differences of {shown}"


def _about_published(comparison: Comparison) -> str:
    if comparison.spec.scale == "paper":
        return "The published numbers come from one run each, without error bars"
    return (
        "The published numbers come from other models, data and lengths (8B and 14B on AIME and AMC, one run each, "
        "no error bars); the rows measured here are not expected to match them"
    )


def _sampled(runs: Runs) -> Iterator[str]:
    """A note if some arms sampled more prompts per global step than others, as with DAPO's filter."""
    steps = runs.steps()
    if SAMPLED not in steps:
        return
    means = {pair: float(rows.mean()) for pair, rows in steps.groupby(["model", "arm"], sort=False)[SAMPLED]}
    if len(set(means.values())) > 1:
        counts = ", ".join(f"{arm} {prompts:.0f} ({model})" for (model, arm), prompts in means.items())
        yield (
            f"Prompts sampled per global step, {runs.cells[0].spec.train.rollouts} rollouts each: {counts}. An arm "
            "with a filter samples until its batch is full of prompts with 0 < p < 1, so at equal steps it has seen "
            "more rollouts, as in the paper."
        )
