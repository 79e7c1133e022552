"""`mcpo claim`: the reading of lines and files, refusals, and results."""

import json
from pathlib import Path
from typing import Any

import pytest

from mcpo_cli.compare.published_pairs import read
from mcpo_cli.compare.published_support import Support, support
from tests.errors import refused


def written(folder: Path, text: str) -> str:
    path = folder / "claim.yaml"
    path.write_text(text)
    return str(path)


def answer(what: str) -> Support:
    return support(*read(what))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("54.2 vs 51.7, n=30, 32 samples", (0.542, 0.517, "avg@32", 30, 32, 1, True, 1e-3)),
        ("54.2% vs. 51.70 %, 30 problems, avg@32", (0.542, 0.517, "avg@32", 30, 32, 1, True, 1e-4)),
        (".54 vs .5, n = 100, 3 seeds, unpaired", (0.54, 0.5, "avg@1", 100, 1, 3, False, 1e-2)),
        ("66.7 against 60.0 pass@8, n=30", (0.667, 0.6, "pass@8", 30, 8, 1, True, 1e-3)),
        ("0.542 vs 0.517, n=30, margin 1%", (0.542, 0.517, "avg@1", 30, 1, 1, True, 1e-3)),
        ("0.5% vs 0.4%, n=1000", (0.005, 0.004, "avg@1", 1000, 1, 1, True, 1e-3)),
    ],
)
def test_lines_say_what_they_say(line: str, expected: tuple[Any, ...]) -> None:
    ((pair,), _) = read(line)
    assert (pair.metric, pair.problems, pair.a.samples, pair.a.seeds, pair.paired) == expected[2:-1]
    assert (pair.a.value, pair.b.value, pair.unit) == pytest.approx((*expected[:2], expected[-1]))


def test_a_number_is_of_both_sides_or_of_each() -> None:
    ((pair,), _) = read("54.2 vs 51.7, n=500, 5 vs 3 runs, sd 1.2 vs 0.9, se 2, margin 2")
    assert (pair.a.seeds, pair.b.seeds) == (5, 3)
    shares = (pair.margin, pair.a.sd, pair.b.sd, pair.a.se, pair.b.se)
    assert shares == pytest.approx((0.02, 0.012, 0.009, 0.02, 0.02))
    ((pair,), _) = read("0.542 vs 0.517, n=500, 3 seeds, sd 1.2%, se 0.02, margin 1%")
    assert (pair.margin, pair.a.sd, pair.a.se) == pytest.approx((0.01, 0.012, 0.02))
    ((pair,), _) = read("54.2 vs 51.7, n=500, 3 vs 1 seeds, sd 1.1 vs -")
    assert (pair.a.sd, pair.b.sd) == (pytest.approx(0.011), None)


def test_a_file_has_lines_by_name_and_assumptions(tmp_path: Path) -> None:
    text = "{assume: {run_sd: [0, 0, 0.01]}, rows: {x: '45.8 vs 40.0, n=30, avg@8', y: '0.2 vs 0.1, n=50'}}"
    pairs, assumed = read(written(tmp_path, text))
    assert [(pair.label, pair.problems, pair.metric, pair.percent) for pair in pairs] == [
        ("x", 30, "avg@8", True),
        ("y", 50, "avg@1", False),
    ]
    assert assumed.run_sd == (0.0, 0.0, 0.01)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("54 vs -, n=30", "bad_input"),
        ("54 vs 52, n=30, n=40", "bad_input"),
        ("154 vs 50, n=30", "out_of_bounds"),
        ("{rows: {x: '54 vs 52, n=30'}, title: x}", "unknown_key"),
        ("{rows: {x: 54 vs 52}}", "bad_input"),
        ("{assume: {spread: [0.5, 0.2, 0.8]}, rows: {x: '54 vs 52, n=30'}}", "bad_input"),
    ],
)
def test_claims_that_say_too_little_or_contradict_themselves_are_refused(tmp_path: Path, text: str, code: str) -> None:
    with refused(code):
        read(written(tmp_path, text) if "rows" in text else text)


@pytest.mark.parametrize(
    ("line", "verdict", "without"),
    [
        ("60 vs 50, n=10000", "better", ""),
        ("50 vs 60, n=10000", "worse", ""),
        ("50 vs 50, n=30", "undecided", ""),  # under every assumption
        ("0.93 vs 0.90, n=1319, se 0.007 vs 0.0083", "undecided", "the standard deviation over training runs"),
        # Over 20 runs with a known deviation, only the correlation over problems is unknown.
        ("54.2 vs 51.7, n=600, 64 samples, 20 seeds, sd 0.5", "undecided", "the scores of both on each problem"),
        ("54.2 vs 54.1, n=20000, 8 samples, 30 seeds, margin 5", "equivalent", ""),
    ],
)
def test_verdicts_name_what_would_decide(line: str, verdict: str, without: str) -> None:
    (row,) = answer(line).rows
    assert (row["verdict"], row["without"]) == (verdict, without)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("54.2 vs 51.7, n=30, 1 samples", "0.542 is not a number of correct samples out of 30"),
        ("66.7 vs 61.0 pass@8, n=30", "0.61 is no multiple of 1/30"),
        ("50.0 vs 40.0, n=30, se 20.0 vs 9.0", "0.2 is not in"),
        ("50.0 vs 40.0, n=30, se 3.0 vs 9.0", "0.03 is not in"),
        ("1 vs 0, n=30", "a mean of 0 shows no variance"),
        ("1 vs 0, n=30, 8 samples, se 0.1", "a mean of 0 shows no variance"),
        ("66.7 vs 60.0 pass@8, n=30", ""),
        ("54.2 vs 51.7, n=30, 32 samples", ""),
        ("0.93 vs 0.90, n=1319", ""),
    ],
)
def test_numbers_that_cannot_be_are_named(line: str, words: str) -> None:
    notes = answer(line).notes
    assert any(words in note for note in notes) if words else not notes


def test_an_interval_of_shares_ends_at_1() -> None:
    cases = answer("1 vs 0, n=30").cases
    assert (cases["high"] == 1).all()
    assert (cases["low"] > 0).all()


def test_rows_in_one_metric_are_adjusted_together(tmp_path: Path) -> None:
    rows = ", ".join(f"x{at}: '{60 + at}.0 vs 50.0, n=100, 4 samples'" for at in range(3))
    cases = answer(written(tmp_path, f"rows: {{{rows}, y: '60 vs 50 pass@4, n=100'}}")).cases
    of_metric = cases[(cases["scope"] == "problems") & (cases["case"] == "plausible") & (cases["metric"] == "avg@4")]
    assert len(of_metric) == 3
    assert of_metric["p_adjusted"].min() == pytest.approx(3 * of_metric["p"].min())


def test_the_command_prints_a_page_or_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from mcpo_cli.commands.claim import claim

    path = written(tmp_path, "rows: {AIME24: '54.2 vs 51.7, n=30, 32 samples', AMC23: '0.86 vs 0.84, n=40'}")
    claim(what=path, csv=tmp_path / "x.csv", as_json=False, debug=False)
    page = capsys.readouterr().out
    assert "\nAIME24: 54.2 % vs 51.7 %: +2.5 points (avg@32 of 30 problems" in page
    assert "\nAMC23: 0.86 vs 0.84: +0.0200 (avg@1 of 40 problems" in page
    assert page.count("verdict: undecided") == 2
    assert len((tmp_path / "x.csv").read_text().splitlines()) == 1 + 2 * 9
    claim(what="54.2 vs 51.7, n=30, 32 samples", csv=None, as_json=True, debug=False)
    document = json.loads(capsys.readouterr().out)
    assert (document["rows"][0]["verdict"], len(document["cases"])) == ("undecided", 9)
