"""The audit of the published numbers: what is printed, and what brute force and simulation say that it can be."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from mcpo_cli.analysis.tables import comparison as tables
from mcpo_cli.config import load
from mcpo_cli.config.reading import read_yaml
from mcpo_cli.experiments import audit
from mcpo_cli.statistics import stats

PAPER = read_yaml(load.EXPERIMENTS / "paper.yaml")
PRINTED = {
    "table1": """
        Qwen3-8B-Base DAPO 0.4000 0.6483 0.3083 0.4824 0.8438 0.9706
        Qwen3-8B-Base MCPO 0.4458 0.7012 0.3333 0.5073 0.8656 0.9837
        Qwen3-14B-Base DAPO 0.5292 0.7620 0.4041 0.5980 0.8937 0.9880
        Qwen3-14B-Base MCPO 0.5583 0.7753 0.4292 0.6440 0.9094 0.9806
    """,
    "table2": """
        Qwen3-8B-Base MCPO 0.4458 0.7012 0.3333 0.5073 0.8656 0.9837
        Qwen3-8B-Base w/o Hinge-KL 0.4042 0.6563 0.3167 0.4881 0.8406 0.9716
        Qwen3-8B-Base w/o ReWeight 0.4417 0.6812 0.3375 0.5071 0.8625 0.9751
        Qwen3-8B-Base DAPO 0.4000 0.6483 0.3083 0.4824 0.8438 0.9706
    """,
}
"""Both tables as the paper prints them, columns from left to right."""
COLUMNS = [(name, metric) for name in ("AIME24", "AIME25", "AMC23") for metric in ("pass@1", "pass@8")]


@pytest.mark.parametrize("table", PRINTED)
def test_the_published_tables_come_out_unchanged(table: str) -> None:
    found = [
        " ".join([model, arm, *(f"{numbers[column]:.4f}" for column in COLUMNS)])
        for model, arm, numbers in tables.published_rows(PAPER, table)
    ]
    assert found == [line.strip() for line in PRINTED[table].strip().splitlines()]


def verl_best(correct: list[int]) -> float:
    """`bootstrap_metric` of verl 0.9.1 with the reduction max, written as there."""
    np.random.seed(42)  # noqa: NPY002
    indices = np.random.choice(len(correct), size=(1000, len(correct)), replace=True)  # noqa: NPY002
    return float(np.mean([max(correct[i] for i in row) for row in indices]))


def test_verls_draws_are_verls() -> None:
    """All orders of one and of six right samples of eight, and the error of a mean over 30 problems."""
    mean_V, variance_V = audit.drawn(8)
    for right in (1, 6):
        drawn = [verl_best([int(i in chosen) for i in range(8)]) for chosen in itertools.combinations(range(8), right)]
        assert mean_V[right] == pytest.approx(np.mean(drawn))
        assert variance_V[right] == pytest.approx(np.var(drawn))
    closed = stats.best_at_k(8, np.arange(9), 8)
    assert np.abs(mean_V - closed).max() < 0.0013
    assert math.sqrt(variance_V.max() / 30) < 0.003


def test_verdicts_of_planted_differences() -> None:
    def verdict(value: float) -> str:
        return audit.Difference("", "", "", "", value, 0.3, (0.1, 0.2), (0.3, 0.4)).verdict

    assert [verdict(value) for value in (-0.05, 0.15, 0.25, -0.35, 0.5)] == [
        "within sampling noise",
        "sampling noise may suffice",
        "within problem noise",
        "problem noise may suffice",
        "beyond both",
    ]


@pytest.mark.parametrize(("problems", "samples", "right"), [(4, 8, 13), (4, 8, 22), (5, 4, 10), (3, 8, 0), (3, 8, 24)])
def test_arrangements_are_all_multisets(problems: int, samples: int, right: int) -> None:
    expected = sorted(
        (
            float(np.mean(stats.best_at_k(samples, list(counts), samples))),
            float(np.mean(np.square(stats.best_at_k(samples, list(counts), samples)))),
            float(np.mean(np.square(counts)) / samples**2),
            *(float(column[list(counts)].mean()) for column in audit.drawn(samples)),
        )
        for counts in itertools.combinations_with_replacement(range(samples + 1), problems)
        if sum(counts) == right
    )
    found = audit.arrangements(problems, samples, right)
    ours = sorted(map(tuple, found.T.tolist()))
    assert np.array(ours) == pytest.approx(np.array(expected), abs=1e-12)


def test_a_number_of_another_kind_is_recognised() -> None:
    """A mean over three runs is no whole number of samples; 20 of 30 problems are any of 8."""
    mean = audit.PlannedRun("", "", "", 30, 8, round(float(Fraction(289, 720)), 4), 0.5)
    assert audit.audit(mean).right is None
    any_of_8 = audit.audit(audit.PlannedRun("", "", "", 30, 8, 0.4, 0.6667))
    assert (any_of_8.right, any_of_8.estimator) == (96, "any of 8")
    impossible = audit.audit(audit.PlannedRun("", "", "", 30, 8, 0.4, 0.99))
    assert impossible.estimator == "none of these"
    assert math.isnan(impossible.problem[0])


def test_ranges_hold_what_made_the_cell() -> None:
    """Counts whose standard errors are known, hidden behind two printed numbers."""
    rng = np.random.default_rng(0)
    for _ in range(3):
        c = rng.binomial(8, rng.beta(0.6, 0.8, size=30))
        best = stats.best_at_k(8, c, 8)
        found = audit.audit(
            audit.PlannedRun("", "", "", 30, 8, round(float(c.mean() / 8), 4), round(float(np.mean(best)), 4))
        )
        assert found.estimator == "best@8"
        share = c / 8
        for (low, high), value in [
            (found.problem, share.std(ddof=1) / math.sqrt(30)),
            (found.problem_at_8, np.std(best, ddof=1) / math.sqrt(30)),
            (found.sampling, math.sqrt((share * (1 - share) / 7).sum()) / 30),
        ]:
            assert low - 1e-9 <= value <= high + 1e-9


def test_the_pooled_errors_are_those_of_simulated_arms() -> None:
    """Two arms of known accuracies on the same problems: the standard error over other samples, and other problems."""
    rng, N = np.random.default_rng(3), 30
    theta = rng.beta(0.6, 0.8, size=(2, N))
    theta[1] = 0.7 * theta[0] + 0.3 * theta[1]
    r = float(np.corrcoef(theta)[0, 1])
    c = rng.binomial(8, theta)

    def of_arm(arm: str, counts: np.ndarray) -> audit.Audit:
        share = counts / 8
        cell = audit.PlannedRun("m", arm, "b", N, 8, float(share.mean()), float(stats.best_at_k(8, counts, 8).mean()))
        q = float(np.mean(share**2))
        return audit.Audit(cell, int(counts.sum()), square=(q, q))

    arms = [of_arm("MCPO", c[0]), of_arm("DAPO", c[1])]
    samples = rng.binomial(8, theta, size=(4000, 2, N)).mean(-1) / 8
    assert audit.pool(arms)[0].error[0] == pytest.approx((samples[:, 0] - samples[:, 1]).std(), rel=0.25)
    # Other problems, drawn with their pairing from the same thirty.
    index = rng.integers(N, size=(4000, N))
    drawn = rng.binomial(8, theta[:, index]).mean(-1) / 8
    found = math.sqrt(audit.variance([(arms[0], arms[1])], r)[0])
    assert found == pytest.approx((drawn[0] - drawn[1]).std(), rel=0.3)


def test_the_committed_rows_are_those_of_the_audit() -> None:
    table = audit.table([audit.audit(cell) for cell in audit.cells(PAPER)])
    assert table["block"].value_counts().to_dict() == {"difference": 24, "cell": 18, "pooled": 6}
    committed = pd.read_csv(load.EXPERIMENTS / "results" / "audit.csv")
    pd.testing.assert_frame_equal(committed, table, check_dtype=False, rtol=1e-6)
    pooled = table[table["block"] == "pooled"]
    by_hand = [0.4458 - 0.4, 0.3333 - 0.3083, 0.8656 - 0.8438, 0.5583 - 0.5292, 0.4292 - 0.4041, 0.9094 - 0.8937]
    assert pooled["difference"].tolist() == pytest.approx([np.mean(by_hand)] * 6)
    # The more alike the arms find the problems, the less other problems can explain.
    assert pooled["pooled_se_high"].iloc[1:].is_monotonic_decreasing
