"""Scores that are not independent: filters of a task, shared problems, clusters; and categories."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats

from mcpo_cli.compare.comparison import Comparison, Question, records
from mcpo_cli.compare.log import Side
from mcpo_cli.compare.logs import of_logs
from mcpo_cli.compare.readers import Options, read
from mcpo_cli.statistics import clusters
from tests.sides import side
from tests.unit.test_tool_readers import row, written


def compared(base: Mapping[str, Any], new: Mapping[str, Any]) -> Comparison:
    """The comparison of two logs with these columns."""
    return of_logs([side("base", base), side("new", new)], Question())


def test_filters_of_a_task_count_once_and_are_shown_below_it(tmp_path: Path) -> None:
    """The p-value of a task is that of a t-test of the problems' means over its filters."""
    random = np.random.default_rng(3)
    strict_SP = random.integers(0, 2, (2, 60))
    loose_SP = np.maximum(strict_SP, random.random((2, 60)) < 0.2)
    sides = []
    for at, name in enumerate(("base", "new")):
        both = {"strict": strict_SP[at], "loose": loose_SP[at]}
        rows = [row(i, float(score), kind) for kind, scores in both.items() for i, score in enumerate(scores)]
        folder = written(tmp_path / name, rows)
        written(folder, [row(i, float(i % 3 == at), doc_hash=f"{i + 99:064x}") for i in range(30)], "other")
        sides.append(Side(name, tuple(read(folder, Options()))))
    found = of_logs(sides, Question())
    by_name = {row["benchmark"]: row for row in records(found.differences)}
    assert {name: (row["part_of"], row["family"]) for name, row in by_name.items()} == {
        "other": ("", "others"),
        "sums": ("", "others"),
        "average": ("", "headline"),
        "sums (strict)": ("sums", "others"),
        "sums (loose)": ("sums", "others"),
    }
    mean_P = (strict_SP[1] + loose_SP[1] - strict_SP[0] - loose_SP[0]) / 2
    expected = scipy_stats.ttest_1samp(mean_P, 0)
    assert by_name["sums"]["p"] == pytest.approx(expected.pvalue, rel=1e-9)
    assert by_name["sums (strict)"]["p"] == pytest.approx(
        scipy_stats.ttest_1samp(strict_SP[1] - strict_SP[0], 0).pvalue, rel=1e-9
    )
    # Two tasks of equal weights: the filters do not give a task more of it.
    of_tasks = [by_name[name]["difference"] for name in ("sums", "other")]
    assert by_name["average"]["difference"] == pytest.approx(sum(of_tasks) / 2)


def test_benchmarks_that_share_problems_give_the_test_of_the_means_per_problem() -> None:
    """Copies of one benchmark say what one of them says."""
    random = np.random.default_rng(5)
    right_P, left_P = random.integers(0, 2, (2, 80))
    names = [f"p{at}" for at in range(80)]
    several = {"benchmark": np.repeat(["x", "y", "z"], 80), "problem": names * 3}
    found = compared(*({**several, "correct": np.tile(score_P, 3)} for score_P in (right_P, left_P)))
    (mean,) = records(found.headline)
    expected = scipy_stats.ttest_rel(left_P, right_P)
    assert (mean["benchmark"], mean["p"]) == ("average", pytest.approx(expected.pvalue, rel=1e-9))
    bounds = expected.confidence_interval()
    assert (mean["low"], mean["high"]) == pytest.approx((bounds.low, bounds.high), rel=1e-9)


def test_a_cluster_column_gives_the_cluster_robust_interval_of_the_difference() -> None:
    random = np.random.default_rng(7)
    passage_P = np.repeat(np.arange(20), random.integers(1, 9, 20))
    effect_C = random.normal(0, 1, 20)
    score_SP = [(random.random(len(passage_P)) < 0.5 + 0.2 * new * effect_C[passage_P]) for new in (0, 1)]
    table = {"problem": [f"p{at}" for at in range(len(passage_P))], "cluster": passage_P}
    found = compared(*({**table, "correct": score_P.astype(float)} for score_P in score_SP))
    (row,) = records(found.differences)
    change_P = score_SP[1].astype(float) - score_SP[0]
    expected = clusters.mean(change_P, np.ones(len(change_P)), passage_P)
    interval = expected.interval()
    assert (row["low"], row["high"]) == pytest.approx((interval.low, interval.high), rel=1e-9)
    (plain,) = records(
        compared(*({"problem": table["problem"], "correct": score_P.astype(float)} for score_P in score_SP)).differences
    )
    assert plain["high"] - plain["low"] < row["high"] - row["low"]


def test_one_cluster_has_no_test() -> None:
    table = {"problem": list("pqrs"), "cluster": "one passage"}
    (row,) = records(compared({**table, "correct": [0, 0, 0, 1]}, {**table, "correct": [1, 1, 0, 1]}).differences)
    assert row["verdict"] == "not testable"


def test_categories_are_lines_of_their_own_adjusted_among_themselves() -> None:
    """Of three categories two gain 9 of 30 problems, and Holm's factor is 3 and then 2."""
    kinds = np.repeat(["algebra", "geometry", "logic"], 30)
    base_P = np.tile(np.arange(30) < 10, 3).astype(float)
    new_P = base_P + (np.tile(np.arange(30) >= 21, 3) & (kinds != "logic"))
    table = {"problem": [f"p{at}" for at in range(90)], "category": kinds}
    found = compared({**table, "correct": base_P}, {**table, "correct": new_P})
    rows = {row["benchmark"]: row for row in records(found.differences, family="categories")}
    assert list(rows) == ["b: algebra", "b: geometry", "b: logic"]
    p = 2 / 2**9  # of the signs of 9 problems, which is above that of the t-test
    assert rows["b: algebra"]["p"] == pytest.approx(p, rel=1e-9)
    # The third has the same score everywhere, so it has no p-value and does not count.
    assert rows["b: algebra"]["p_adjusted"] == pytest.approx(2 * p, rel=1e-9)
    assert [row["verdict"] for row in rows.values()] == ["better", "better", "identical"]
    (headline,) = records(found.headline)
    assert headline["p_adjusted"] == headline["p"]
