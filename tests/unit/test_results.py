"""Samples of any tool: tables, comparisons of sides, and verdicts on cases with a known truth."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import special
from scipy import stats as scipy_stats

from mcpo_cli.compare import page, verdicts
from mcpo_cli.compare.comparison import Comparison, Question
from mcpo_cli.compare.equal_cost import AVERAGE
from mcpo_cli.compare.log import Log, Side
from mcpo_cli.compare.logs import of_logs
from mcpo_cli.render.markup import share
from mcpo_cli.statistics import crossed, stats
from tests import sides
from tests.errors import refused
from tests.sides import side


def log(path: str, rows: list[tuple[str, str, float]], **facts: str) -> Log:
    """A log of (benchmark, problem, correct)."""
    return sides.log(path, pd.DataFrame(rows, columns=["benchmark", "problem", "correct"]), **facts)


def drawn(name: str, shift: float, seeds: int = 4, problems: int = 60, samples: int = 8, **facts: str) -> Side:
    """A side whose accuracy is logistic in `shift`; all sides have the same problems."""
    logit_P = np.random.default_rng(0).normal(0, 1.5, problems)
    logs = []
    for seed in range(seeds):
        random = np.random.default_rng([seed, len(name)])
        chance_P = special.expit(logit_P + shift + random.normal(0, 0.1))
        rows = [
            ("gsm" if problem % 3 else "math", f"q{problem}", float(correct))
            for problem in range(problems)
            for correct in random.random(samples) < chance_P[problem]
        ]
        logs.append(log(f"logs/{name}-s{seed + 8}/samples", rows, **facts))
    return Side(name, tuple(logs))


def only(found: Comparison, **where: object) -> dict[str, object]:
    """The one row of the differences with these values."""
    rows = found.differences
    for name, value in where.items():
        rows = rows[rows[name] == value]
    (row,) = rows.to_dict("records")
    return row


def answered(name: str, cells: dict[tuple[str, str], str]) -> Side:
    """A side by its answers: one letter per sample for each seed and problem; `r` is correct, `.` is no answer."""
    rows = [(seed, problem, letter) for (seed, problem), letters in cells.items() for letter in letters]
    columns = {
        "seed": [seed for seed, _, _ in rows],
        "problem": [problem for _, problem, _ in rows],
        "correct": [float(letter == "r") for _, _, letter in rows],
        "answer": [None if letter == "." else f" {letter}" for _, _, letter in rows],
    }
    return side(name, columns)


# --- logs and sides ---------------------------------------------------------------------------------------------------


def test_cells_count_what_the_samples_say() -> None:
    first = log("s0", [("b", "p1", 1), ("b", "p1", 0), ("b", "p2", 1)])
    second = log("s1", [("b", "p2", 0.5), ("b", "p2", 0.0)])
    scores = Side("arm", (first, second)).scores("b")
    assert scores.samples_SP.tolist() == [[2, 1], [0, 2]]
    np.testing.assert_array_equal(scores.score_SP, [[0.5, 1.0], [math.nan, 0.25]])
    # Sample variances with n - 1: of (1, 0) and of (.5, 0); one sample has none.
    np.testing.assert_allclose(scores.noise_SP, [[0.5, math.nan], [math.nan, 0.125]])
    assert not scores.binary


@pytest.mark.parametrize(
    ("paths", "seeds"),
    [
        (["runs/a-s0/x.jsonl", "runs/a-s1/x.jsonl"], ["0", "1"]),
        (["a10", "a11", "a12"], ["10", "11", "12"]),
        (["a/9/b", "a/19/b"], ["19", "9"]),
        (["only"], ["0"]),
    ],
)
def test_seeds_are_named_by_where_the_paths_differ(paths: list[str], seeds: list[str]) -> None:
    arm = Side("arm", tuple(log(path, [("b", "p", 1)]) for path in paths))
    assert list(arm.scores("b").seeds) == seeds


def test_a_sample_counts_once() -> None:
    row = {"problem": ["p"], "seed": ["0"], "correct": [1.0]}
    twice = Side("arm", tuple(sides.log(path, row) for path in "ab"))
    with refused("bad_input", "'p'"):
        _ = twice.samples


# --- comparisons ------------------------------------------------------------------------------------------------------


def test_a_comparison_has_the_numbers_of_its_parts() -> None:
    base, arm = drawn("base", 0.0), drawn("arm", 0.5)
    found = of_logs([base, arm], Question(metrics=("pass@1", "pass@4")))
    one, other = arm.scores("gsm"), base.scores("gsm")
    for k in (1, 4):
        values = [stats.pass_at_k(each.samples_SP, each.sum_SP.astype(int), k) for each in (one, other)]
        expected = crossed.difference(np.asarray(values[0]), np.asarray(values[1]), same_seeds=True).test
        row = only(found, benchmark="gsm", k=k)
        assert (row["difference"], row["low"]) == pytest.approx((expected.mean, expected.interval().low))
        assert row["p"] == pytest.approx(2 * min(expected.p_above(), expected.p_below()))
    whole, parts = only(found, benchmark=AVERAGE, k=1), [only(found, benchmark=name, k=1) for name in ("gsm", "math")]
    assert whole["difference"] == pytest.approx(sum(float(part["difference"]) for part in parts) / 2)
    assert found.sources.groupby(["benchmark", "arm"])["share"].sum().tolist() == pytest.approx([1, 1])


def test_aggregates_are_over_the_benchmarks_that_all_sides_have() -> None:
    def side(name: str, *benchmarks: tuple[str, int], first: int = 0) -> Side:
        rows = [(each, f"q{at}", float(at < right)) for each, right in benchmarks for at in range(8)]
        return Side(name, tuple(log(f"{name}-{first + seed}/x", rows) for seed in range(3)))

    base = side("base", ("gsm", 4), ("math", 2), ("old", 0))
    arm = side("arm", ("math", 3), ("new", 8), ("gsm", 4))
    found = of_logs([base, arm], Question())
    expected = {"mean": 3.5 / 8, "better": (1 / 2 + 1) / 2, "difference_mean": 1 / 16}
    aggregate = found.aggregates.set_index("arm").loc["arm"]
    assert aggregate[[*expected]].to_dict() == pytest.approx(expected)
    means = found.arms[found.arms["benchmark"] == AVERAGE].set_index("arm")["mean"].to_dict()
    assert means == pytest.approx({"base": 3 / 8, "arm": 3.5 / 8})
    # Seeds of logs are named by their paths: some equal names among others do not pair.
    others = of_logs([base, side("arm", ("gsm", 4), ("math", 3), first=1)], Question()).aggregates
    assert others.set_index("arm").loc["arm", ["better", "difference_mean"]].isna().tolist() == [False, True]


def test_a_metric_that_is_named_in_two_ways_counts_once() -> None:
    found = of_logs([drawn("base", 0.0), drawn("arm", 0.5)], Question(metrics=("pass@1", "pass@01")))
    assert len(found.differences) == 3


def test_seeds_that_share_no_cell_of_a_problem_are_not_paired() -> None:
    cells = {(seed, problem): "ra" for seed in "012" for problem in ("p", "q", "s")}
    base = answered("base", {**cells, ("0", "only"): "rr"})
    arm = answered("arm", {**cells, ("1", "only"): "rr"})
    row = only(of_logs([base, arm], Question()))
    assert (row["paired_by_seed"], row["problems"]) == (False, 4)
    assert only(of_logs([answered("base", cells), answered("arm", cells)], Question()))["paired_by_seed"]


def test_scores_that_one_side_lacks_count_on_neither() -> None:
    cells = {(seed, problem): "ra" for seed in "0123" for problem in ("p", "q", "s")}
    base = answered("base", {**cells, ("0", "p"): "rr"})
    arm = answered("arm", {key: letters for key, letters in cells.items() if key != ("0", "p")})
    found = of_logs([base, arm], Question())
    row = only(found)
    assert (row["paired_by_seed"], row["mean"], row["baseline_mean"], row["difference"]) == (True, 0.5, 0.5, 0)
    assert found.flips.empty
    assert "b: 1 scores of a problem by a seed were left out: only arm or the baseline has them" in found.warnings


def test_p_values_are_adjusted_over_two_families() -> None:
    """The means of the first metric over benchmarks are the headline; all other differences are the other family."""
    arms = [drawn(name, shift) for name, shift in (("base", 0.0), ("one", 0.3), ("other", 0.4))]
    rows = of_logs(arms, Question(metrics=("pass@1", "pass@2"))).differences
    headline = (rows["k"] == 1) & (rows["benchmark"] == AVERAGE)
    for family, size in ((rows[headline], 2), (rows[~headline], 10)):
        assert len(family) == size
        assert family["p_adjusted"].to_numpy() == pytest.approx(stats.holm(family["p"].to_numpy()))


def test_majority_of_k_is_that_of_all_subsets() -> None:
    base = answered("base", {("0", "p"): "rab", ("0", "q"): "raa.", ("0", "s"): "..r"})
    arm = answered("arm", {("0", "p"): "rra", ("0", "q"): "rrr", ("0", "s"): "aab"})
    found = of_logs([base, arm], Question(metrics=("pass@1", "maj@1", "maj@3")))
    means = {(row["arm"], row["metric"]): row["mean"] for row in found.arms.to_dict("records")}
    # Of raa. three of four subsets hold both a, and one of them no right answer; raa, ra., ra.: 0, 1/2, 1/2; aa.: 0.
    assert means["base", "maj@3"] == pytest.approx((1 / 3 + 1 / 4 + 1) / 3)
    assert means["arm", "maj@3"] == pytest.approx(2 / 3)
    # A single vote is correct as often as a sample, except that a sample without an answer has no vote.
    assert means["arm", "maj@1"] == pytest.approx(means["arm", "pass@1"])
    row = only(found, metric="maj@3")
    assert row["difference"] == pytest.approx(means["arm", "maj@3"] - means["base", "maj@3"])
    assert "needed_samples" not in row or math.isnan(float(row["needed_samples"]))


def test_majority_is_of_the_problems_that_both_have() -> None:
    base = answered("base", {("0", "p"): "ra", ("0", "q"): "rr", ("0", "only"): "rr"})
    arm = answered("arm", {("0", "p"): "rr", ("0", "q"): "aa"})
    row = only(of_logs([base, arm], Question(metrics=("maj@2",))), metric="maj@2")
    assert row["difference"] == pytest.approx((1 - 1 / 2 + 0 - 1) / 2)


@pytest.mark.parametrize(
    ("arm", "question", "code", "metric"),
    [
        (answered("x", {("0", "p"): "ra", ("0", "q"): "ra"}), Question(metrics=("maj@3",)), "out_of_bounds", "maj@3"),
        (side("x", {"problem": ["p", "q"], "correct": [1, 0]}), Question(metrics=("maj@1",)), "bad_input", "maj@1"),
    ],
)
def test_majority_needs_answers_and_samples(arm: Side, question: Question, code: str, metric: str) -> None:
    with refused(code, metric):
        of_logs([answered("base", {("0", "p"): "ra", ("0", "q"): "ra"}), arm], question)


def test_a_look_has_the_level_that_is_spent_at_it() -> None:
    base, arm = drawn("base", 0.0), drawn("arm", 0.4)
    early, late = (only(of_logs([base, arm], Question(look=(look, 3))), benchmark="gsm") for look in (1, 3))
    whole = only(of_logs([base, arm], Question()), benchmark="gsm")
    assert 0.001 < float(whole["p_adjusted"]) < 0.03
    assert (whole["verdict"], late["verdict"], early["verdict"]) == ("better", "better", "undecided")
    widths = [float(row["high"]) - float(row["low"]) for row in (whole, late, early)]
    assert widths[0] < widths[1] < widths[2]
    for what in ("detectable", "needed_problems", "needed_seeds"):
        assert float(whole[what]) < float(early[what])


def test_what_differs_besides_the_scores_is_said() -> None:
    base = Side("base", (log("x", [("b", f"p{i}", i % 2) for i in range(4)] + [("c", "p", 1)], temperature="0"),))
    arm = Side("arm", (log("y", [("b", f"p{i}", 1) for i in range(1, 6)], temperature="1"),))
    said = "\n".join(of_logs([base, arm], Question()).warnings)
    assert "temperature differs: arm 1; base 0" in said
    assert "b: 3 problems that only arm or base has were left out" in said
    assert "c was left out" in said


@pytest.mark.parametrize(
    ("seeds", "problems", "differing", "words"),
    [
        (5, 20, 15, ["are few: the interval is wider"]),
        (3, 60, 15, ["3 training seeds show little of their spread"]),
        (1, 20, 15, []),
        (1, 60, 0, []),
        (4, 10, 4, ["4 training seeds", "are few", "only 4 of 10 problems differ"]),
    ],
)
def test_limits_of_an_interval_are_said(seeds: int, problems: int, differing: int, words: list[str]) -> None:
    cells = {(str(seed), f"p{at}"): "ra"[at % 2] for seed in range(seeds) for at in range(problems)}
    others = {key: "ar"[int(key[1][1:]) % 2] for key in cells if int(key[1][1:]) < differing}
    warnings = of_logs([answered("base", cells), answered("arm", {**cells, **others})], Question()).warnings
    assert len(warnings) == len(words)
    assert all(word in said for word, said in zip(words, warnings, strict=True))


def test_pass_at_k_needs_right_and_wrong() -> None:
    halves = {"problem": ["p1", "p1", "p2", "p2"], "correct": [0.5, 0.5, 1, 1]}
    with refused("out_of_bounds", "pass@2"):
        of_logs([side(name, halves) for name in "ab"], Question(metrics=("pass@2",)))


@pytest.mark.parametrize(
    ("arm", "verdict", "why"),
    [
        ([1, 0, 1], "identical", "the same score on every problem"),
        ([1, 1, 1], "not testable", "no variance"),
        ([1, 1], "not testable", "2 problems have no interval"),
    ],
)
def test_degenerate_sides_get_a_sentence(arm: list[int], verdict: str, why: str) -> None:
    problems = ["p0", "p1", "p2"][: len(arm)]
    base = arm if verdict == "identical" else [0] * len(arm)
    both = [side(name, {"problem": problems, "correct": scores}) for name, scores in (("a", base), ("b", arm))]
    row = only(of_logs(both, Question()))
    assert row["verdict"] == verdict
    assert math.isnan(row["p"])
    assert why in str(row["why"])


# --- verdicts ---------------------------------------------------------------------------------------------------------


def test_p_values_of_a_margin_are_the_shifted_t_tests() -> None:
    diff_P = np.random.default_rng(3).normal(0.02, 0.1, 50)
    found = verdicts.judged(crossed.mean(diff_P[None]), 0.05, 0.05)
    greater = scipy_stats.ttest_1samp(diff_P, -0.05, alternative="greater").pvalue
    less = scipy_stats.ttest_1samp(diff_P, 0.05, alternative="less").pvalue
    assert found["p"] == pytest.approx(scipy_stats.ttest_1samp(diff_P, 0).pvalue)
    assert (found["p_not_worse"], found["p_equivalent"]) == pytest.approx((greater, max(greater, less)))


# --- tables of samples ------------------------------------------------------------------------------------------------


def test_prompts_that_several_problems_share_are_named() -> None:
    samples = {"problem": [f"q{i}" for i in range(6)], "correct": [0.0, 1.0] * 3}
    base = side("base", {**samples, "prompt": ["x", "x", "y", "z", "z", "z"]})
    found = of_logs([base, side("new", samples)], Question())
    assert [line for line in found.warnings if "prompt of another" in line] == [
        "b: 3 of 6 problems have the prompt of another one and count as independent of it: the interval is too narrow. "
        "A column `cluster` says which problems belong together"
    ]


def test_a_page_says_that_intervals_are_about_clusters() -> None:
    table = {"problem": [f"q{i}" for i in range(12)], "correct": [0.0, 1.0] * 6, "cluster": [i // 3 for i in range(12)]}
    (line,) = page.pairing(of_logs([side(name, table) for name in ("base", "new")], Question()))
    assert "intervals are about other clusters of problems (4 here)" in line


def test_names_that_several_prompts_share_are_named() -> None:
    table = {"problem": ["1", "2", "2", "3"], "correct": [0.0, 1.0, 0.0, 1.0], "prompt": list("wxyz")}
    found = of_logs([side(name, table) for name in ("base", "new")], Question())
    assert [line for line in found.warnings if "several prompts" in line] == [
        f"b: 1 of 3 problems have several prompts in {name}, and count as one problem each: if their names repeat, "
        "--columns problem=prompt tells them apart"
        for name in ("base", "new")
    ]


def test_benchmarks_without_a_right_answer_are_named_in_one_line() -> None:
    wrong = {"benchmark": list("aabbccdd"), "problem": ["1", "2"] * 4, "correct": [0.0] * 7 + [1.0]}
    warnings = of_logs([side(name, wrong) for name in ("base", "new")], Question()).warnings
    assert [line for line in warnings if "no answer of" in line] == [
        "a, b, c: no answer of new or base is correct: either the grader found no answer in the responses, or the "
        "golds have another form than it compares (mcpo components check data FILE)"
    ]


def test_a_verdict_of_one_or_two_seeds_is_about_these_models() -> None:
    for seeds, word in ((1, "better (these two models) on"), (2, "better (these models) on"), (3, "better on")):
        found = of_logs([drawn("base", 0.0, seeds), drawn("new", 2.0, seeds)], Question())
        assert word in " ".join(page.sentences(found))


@pytest.mark.parametrize("names", [("p", "change"), ("verdict", "benchmark"), ("arm", "arm's"), ("base", "new")])
def test_sides_named_like_a_column_keep_their_own(names: tuple[str, str]) -> None:
    found = of_logs([drawn(names[0], 0.0), drawn(names[1], 2.0)], Question())
    grid = page.main_grid(found)
    assert len(set(grid.header)) == len(grid.header) == 8
    assert len(page.flips_grid(found).header) == 6
    answered = replace(found, flips=found.flips.assign(answer="1", baseline_answer="2"))
    assert len(set(page.flips_grid(answered).header)) == 8
    row = only(found, benchmark="average")
    shown = dict(zip(grid.header, grid.rows[0], strict=True))
    quoted = [name if name in ("base", "new") else f"'{name}'" for name in names]
    assert [shown[name] for name in quoted] == [share(row["baseline_mean"]), share(row["mean"])]


def test_a_slower_model_is_no_percentage() -> None:
    names, pace_P = [f"q{i}" for i in range(40)], 1 + np.arange(40) / 40
    both = [side(name, {"problem": names, "correct": least * pace_P}) for name, least in (("base", 0.3), ("new", 20.0))]
    row = only(of_logs(both, Question(lower=True)))
    assert float(row["mean"]) > 20
    assert row["verdict"] == "worse"
