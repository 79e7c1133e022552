"""The check of numbers on pages: it passes on this checkout, and finds a changed digit on either side."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from mcpo_study.experiments.findings import check as findings
from mcpo_study.experiments.findings.check import MARK, NUMBER, ROOT, Committed, Entries, Finding, Query, written_like
from scipy import stats as scipy_stats

CONTROL = "DAPO w/o filter"


@pytest.fixture(scope="module")
def entries() -> Entries:
    return findings.read()


@pytest.fixture(scope="module")
def computed(entries: Entries) -> dict[str, list[float] | str]:
    return findings.compute(entries)


@pytest.mark.slow
def test_every_quoted_number_follows_from_committed_rows(
    entries: Entries, computed: dict[str, list[float] | str]
) -> None:
    """The same as `make check-findings`."""
    assert findings.check(entries, computed, findings.read_pages(entries)) == []


def test_a_changed_digit_on_a_page_is_noticed(entries: Entries, computed: dict[str, list[float] | str]) -> None:
    flat = {page: " ".join(text.split()) for page, text in findings.read_pages(entries).items()}
    for one in entries.findings[::10]:
        page, alone = one.pages[0], replace(entries, findings=(one,))
        for match in NUMBER.finditer(one.quote):
            place = match.end(1) - 1
            changed = one.quote[:place] + str((int(one.quote[place]) + 1) % 10) + one.quote[place + 1 :]
            lines = findings.check(alone, computed, {page: flat[page].replace(one.quote, changed)})
            assert any(f"{page}, {one.id}: the page has no text" in line for line in lines), (one.id, changed)
            # The same change on the page and in the entry, as by somebody who edits both.
            edited = replace(entries, findings=(replace(one, quote=changed),))
            lines = findings.check(edited, computed, {})
            assert any(f"{one.id}: the page says" in line for line in lines), (one.id, changed)


def small(quote: str) -> Entries:
    return Entries((Finding("a", ("page.md",), quote, (Query(("mean",), ("rows.csv",)),)),))


def test_what_is_missing_is_named() -> None:
    entries, numbers = small("it is +.012 here"), {"a": [0.012]}
    assert findings.check(entries, numbers, {"page.md": "So\nit is  +.012\nhere."}) == []
    (line,) = findings.check(entries, {"a": [0.0134]}, {"page.md": "it is +.012 here"})
    assert "page.md, a: the page says +.012, the rows give +.013" in line
    twice = findings.check(entries, numbers, {"page.md": "it is +.012 here, it is +.012 here"})
    assert "the page has 2 text" in twice[0]
    (error,) = findings.check(entries, {"a": "no row"}, {"page.md": "it is +.012 here"})
    assert error == "page.md, a: no row"
    (count,) = findings.check(entries, {"a": [0.012, 1.0]}, {"page.md": "it is +.012 here"})
    assert "the quote has 1 numbers, its values are 2" in count


def test_a_result_in_no_entry_is_named_and_a_setting_is_none() -> None:
    for text, named in {
        "+.123 ± .045": True,
        "-.001": True,
        "learning rate 5e-4": False,
        "arXiv 2604.16972": False,
    }.items():
        page = {"page.md": f"it is +.012 here, {text}"}
        assert bool(findings.check(small("it is +.012 here"), {"a": [0.012]}, page)) == named, text


def test_an_unverified_text_says_so_in_its_own_paragraph() -> None:
    entries = Entries((), (Finding("b", ("page.md",), "took 3.7 s", reason="a timing"),))
    assert findings.check(entries, {}, {"page.md": f"It took 3.7 s ({MARK}).\n\nMore."}) == []
    for apart in ("It took 3.7 s.\n\n", "- It took 3.7 s.\n- "):
        (line,) = findings.check(entries, {}, {"page.md": f"{apart}{MARK}"})
        assert f"does not say '{MARK}'" in line


@pytest.mark.parametrize(
    ("shown", "value", "expected"),
    [
        (".395", 0.39468, ".395"),
        ("-.086", -0.0858, "-.086"),
        ("-.086", 0.0858, "+.086"),
        ("+.002", 0.00248, "+.002"),
        ("0.5", 0.475, "0.5"),
        ("3.4", 3.3655, "3.4"),
        ("17,920", 17920.0, "17,920"),
        ("36", 36.0, "36"),
        ("+1.2", -0.25, "-.2"),
    ],
)
def test_a_value_is_written_as_the_page_does(shown: str, value: float, expected: str) -> None:
    assert written_like(shown, value) == expected


# Queries


@pytest.fixture
def committed(tmp_path: Path) -> Committed:
    folder = tmp_path / "study" / "results"
    folder.mkdir(parents=True)
    rows = [
        ("curve", "A", 0, 0.30, None, None), ("curve", "B", 0, 0.30, None, None), ("curve", "A", 20, 0.20, None, None),
        ("measured", "A", 20, 0.20, 0.15, 0.29), ("measured", "B", 20, 0.50, 0.40, 0.60),
    ]  # fmt: skip
    suite = pd.DataFrame(rows, columns=["block", "arm", "cost", "mean", "low", "high"])
    suite.assign(model="toy-s", tier="average", metric="pass@1", at="steps").to_csv(folder / "suite.csv", index=False)
    points = []
    for point in range(8):
        about = {"point": point, "base_seed": point % 2, "seed": point // 4, "train.lr": (point + 1) * 1e-4}
        about |= {"train.mini_batch": 64 if point < 4 else 16}
        score = 0.5 - 0.04 * point
        points.append({**about, "arm": CONTROL, "pass@1": score, "next-step gap": 0.01 * point})
        points.append({**about, "arm": "hinge", "pass@1": score + 0.01 * point**2, "next-step gap": 0.0})
    pd.DataFrame(points).to_csv(folder / "design.csv", index=False)
    for name, seeds in {"first.csv": (1, 2), "second.csv": (1, 2, 3)}.items():
        rows = [("test", "hinge", None, None, 9.0)]
        rows += [
            ("run", arm, 0, seed, seed**2 + seed * (arm != CONTROL)) for seed in seeds for arm in (CONTROL, "hinge")
        ]
        frame = pd.DataFrame(rows, columns=["block", "arm", "base_seed", "seed", "pass@1"])
        frame.to_csv(folder / name, index=False)
    return Committed(tmp_path)


MEANS = [0.01 * (a**2 + b**2) / 2 for a, b in ((0, 2), (1, 3), (4, 6), (5, 7))]
"""Means of the four clusters of base policy and seed, of two points each."""
HALF = scipy_stats.t.ppf(0.975, 3) * np.std(MEANS, ddof=1) / 2
RATES = {"from": 2e-4, "below": 4e-4}
OF_A = {"block": "measured", "arm": "A"}
PAIR: dict[str, Any] = {"csv": ("design.csv",), "arm": "hinge", "baseline": CONTROL}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (
            Query(("mean", "half_width", "cost"), ("suite.csv",), where={"block": "measured", "arm": "A"}),
            [0.2, 0.07, 20],
        ),
        # Points 1 and 2.
        (Query(("pass@1",), ("design.csv",), "mean", {"arm": CONTROL, "train.lr": RATES}), [(0.46 + 0.42) / 2]),
        (Query(("mean",), ("suite.csv",), "difference", {"block": "measured"}, arm="B", baseline="A"), [0.3]),
        (Query((), ("suite.csv",), "below_base"), [1, 2]),
        (Query(("pass@1",), statistic="effect", **PAIR), [np.mean(MEANS), HALF]),
        (Query((), statistic="points", **PAIR), [8]),
        (Query((), statistic="points", where={"control": {"below": 0.31}}, **PAIR), [3]),
        # Drift: 1e-4 to 4e-4 with two mini-batches, 7 x 5e-4 to 7 x 8e-4 with eight.
        (Query((), statistic="points", where={"drift": {"from": 3.5e-3, "below": 5.0e-3}}, **PAIR), [3]),
    ],
)
def test_queries_by_hand(committed: Committed, query: Query, expected: list[float]) -> None:
    assert committed.numbers(query) == pytest.approx(expected)


def test_runs_without_a_design_are_paired_by_file_base_policy_and_seed(committed: Committed) -> None:
    """Seeds 1 and 2 of one file are not those of the other; a file's rows of tests are no runs."""
    query = Query(("pass@1",), ("first.csv", "second.csv"), "effect", arm="hinge", baseline=CONTROL)
    differences = [1, 2, 1, 2, 3]
    assert committed.numbers(query)[0] == pytest.approx(np.mean(differences))


def test_new_runs_are_predicted_by_the_first(tmp_path: Path) -> None:
    """By hand: the mean of n new runs is in m ± t s sqrt(1/N + 1/n), with Bonferroni's t for six hypotheses."""
    results = ROOT / "experiments" / "smollm2-one-step" / "results"
    rows = pd.read_csv(results / "smollm2.csv", keep_default_na=False, na_values=["nan"])
    held_out = rows[rows["cohort"] == "held_out"]
    by_run = held_out.groupby(["seed", "arm", "step"])["change"].mean().groupby(["seed", "arm"]).mean().unstack()
    difference_S = (by_run["lr 5, MCPO"] - by_run["lr 5"]).to_numpy()
    folder = tmp_path / "study" / "results"
    folder.mkdir(parents=True)
    rows.to_csv(folder / "smollm2.csv", index=False, na_rep="nan")
    rows[rows["seed"] >= 5].to_csv(folder / "new.csv", index=False, na_rep="nan")
    files, parts = ("smollm2.csv", "new.csv"), ("value", "low", "high")
    query = Query(of=parts, csv=files, statistic="predicted", where={"claim": "S8"})
    value, low, high = Committed(tmp_path).numbers(query)
    half = scipy_stats.t.ppf(1 - 0.05 / 12, 7) * difference_S.std(ddof=1) * (1 / 8 + 1 / 3) ** 0.5
    assert value == pytest.approx(difference_S[5:].mean())
    assert (low, high) == pytest.approx((difference_S.mean() - half, difference_S.mean() + half))
