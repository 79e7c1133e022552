"""`mcpo claim`: the reading of lines and files, refusals, and results."""

import json
from pathlib import Path
from typing import Any

import pytest

from mcpo_cli.compare.claim import read
from mcpo_cli.compare.support import ALL, support
from tests.errors import refused


def written(folder: Path, text: str) -> str:
    path = folder / "claim.yaml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("54.2 vs 51.7, n=30, 32 samples", (0.542, 0.517, "avg@32", 30, 32, 1, True, 1e-3)),
        ("54.2% vs. 51.70 %, 30 problems, avg@32", (0.542, 0.517, "avg@32", 30, 32, 1, True, 1e-4)),
        (".54 vs .5, n = 100, 3 seeds, unpaired", (0.54, 0.5, "avg@1", 100, 1, 3, False, 1e-2)),
        ("66.7 against 60.0 pass@8, n=30", (0.667, 0.6, "pass@8", 30, 8, 1, True, 1e-3)),
        ("0.5% vs 0.4%, n=1000", (0.005, 0.004, "avg@1", 1000, 1, 1, True, 1e-3)),
    ],
)
def test_lines_say_what_they_say(line: str, expected: tuple[Any, ...]) -> None:
    claim = read(line)
    (row,) = claim.rows
    assert (row.metric, row.problems, row.a.samples, row.a.seeds, row.paired) == expected[2:-1]
    assert (row.a.value, row.b.value, claim.unit) == pytest.approx((*expected[:2], expected[-1]))


def test_a_file_and_a_line_share_keys_and_units(tmp_path: Path) -> None:
    said = read("54.2 vs 51.7, n=500, 5 runs, sd 1.2 vs 0.9, se 2, margin 2")
    (row,) = said.rows
    assert (said.margin, row.a.sd, row.b.sd, row.a.se, row.b.se) == pytest.approx((0.02, 0.012, 0.009, 0.02, 0.02))
    text = """
      {names: [ours, theirs], problems: 30, samples: 8, assume: {run_sd: [0, 0, 0.01]}, rows: [
        {benchmark: x, a: {pass@1: 45.83, pass@8: 70.0}, b: {pass@1: 40.00, pass@8: 63.3}},
        {benchmark: y, problems: 50, a: 20, b: {value: 10, seeds: 3, sd: 1}}]}"""
    claim = read(written(tmp_path, text))
    assert [(row.problems, row.metric) for row in claim.rows] == [(30, "pass@1"), (50, "avg@8")]
    assert (claim.rows[0].a.second_metric, claim.rows[0].a.second) == ("pass@8", pytest.approx(0.7))
    assert (claim.rows[1].b.seeds, claim.rows[1].b.sd, claim.unit) == (3, 0.01, pytest.approx(1e-4))
    assert claim.assume.run_sd == (0.0, 0.0, 0.01)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("54 x 2", "bad_input"),
        ("54 vs 52", "bad_input"),
        ("54 vs 52, n=30, n=40", "bad_input"),
        ("54 vs 52, n=30, sd 1", "contradiction"),
        ("54 vs 52, n=30, 4 samples, pass@8", "contradiction"),
        ("54 vs 52, n=1", "out_of_bounds"),
        ("rows: []", "bad_input"),
        ("{problems: 30, rows: [{a: x, b: 2}]}", "bad_input"),
        ("{problems: 30, rows: [{a: {avg@8: 1, ad: 2}, b: 2}]}", "unknown_key"),
        ("{problems: 30, metric: pass@8, rows: [{a: {pass@4: 1}, b: 2}]}", "bad_input"),
        ("{problems: 30, assume: {spread: [0.5, 0.2, 0.8]}, rows: [{a: 1, b: 2}]}", "out_of_bounds"),
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
        ("154 vs 50, n=30", "not testable", "1.54 is not a share: it lies outside 0..1"),
    ],
)
def test_verdicts_name_what_would_decide(line: str, verdict: str, without: str) -> None:
    (row,) = support(read(line)).rows
    assert (row["verdict"], row["without"]) == (verdict, without)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("54.2 vs 51.7, n=30, 1 samples", "0.542 is not a number of correct samples out of 30"),
        ("66.7 vs 61.0 pass@8, n=30", "0.61 is no multiple of 1/30"),
        ("50.0 vs 40.0, n=30, se 20.0 vs 9.0", "0.2 is not in"),
        ("50.0 vs 40.0, n=30, se 3.0 vs 9.0", "0.03 is not in"),
        ("1 vs 0, n=30", "a mean of 0 shows no variance"),
        ("66.7 vs 60.0 pass@8, n=30", ""),
        ("54.2 vs 51.7, n=30, 32 samples", ""),
        ("0.93 vs 0.90, n=1319", ""),
    ],
)
def test_numbers_that_cannot_be_are_named(line: str, words: str) -> None:
    notes = support(read(line)).notes
    assert any(words in note for note in notes) if words else not notes


def test_a_second_number_narrows_the_interval(tmp_path: Path) -> None:
    """pass@8 far below that of equally hard problems shows that most are always or never solved."""
    errors = []
    for a in ("50.00", "{avg@8: 50.00, pass@8: 55.00}"):
        text = f"{{problems: 40, samples: 8, metric: avg@8, digits: 2, rows: [{{a: {a}, b: {a}}}]}}"
        cases = support(read(written(tmp_path, text))).cases
        errors.append(cases[(cases["scope"] == "answers") & (cases["case"] == "worst")]["error"].item())
    assert errors[1] < errors[0] / 1.5
    text = "{problems: 40, samples: 8, rows: [{a: {avg@8: 50.0, pass@8: 40.0}, b: {avg@8: 50.0, pass@8: 80.0}}]}"
    (note,) = support(read(written(tmp_path, text))).notes
    assert "no counts" in note


def test_rows_against_one_b_are_averaged_and_adjusted(tmp_path: Path) -> None:
    rows = ", ".join(f"{{benchmark: x{at}, a: {60 + at}.0, b: 50.0}}" for at in range(3))
    found = support(read(written(tmp_path, f"{{problems: 100, samples: 4, rows: [{rows}]}}")))
    mean = found.rows[-1]
    assert (mean["benchmark"], mean["difference"], mean["pairs"]) == (ALL, pytest.approx(0.11), 3)
    own = found.cases[(found.cases["scope"] == "problems") & (found.cases["case"] == "plausible")].iloc[:3]
    assert own["p_adjusted"].min() == pytest.approx(3 * own["p"].min())


def test_the_command_prints_a_table_or_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from mcpo_cli.commands.claim import claim

    claim(what="54.2 vs 51.7, n=30, 32 samples", csv=tmp_path / "x.csv", as_json=False, debug=False)
    assert "verdict: undecided; it cannot be decided without" in capsys.readouterr().out
    assert len((tmp_path / "x.csv").read_text().splitlines()) == 1 + 9
    claim(what="54.2 vs 51.7, n=30, 32 samples", csv=None, as_json=True, debug=False)
    document = json.loads(capsys.readouterr().out)
    assert (document["rows"][0]["verdict"], len(document["cases"])) == ("undecided", 9)
