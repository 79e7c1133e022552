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


def one(line: str) -> dict[str, Any]:
    """The only row of an answer."""
    (row,) = support(read(line)).rows.to_dict("records")
    return {str(key): value for key, value in row.items()}


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
    found = read(line)
    (pair,) = found.pairs
    said = (str(pair.metric), pair.problems, pair.a.samples, pair.a.seeds, pair.paired, found.unit)
    assert (pair.a.value, pair.b.value) == pytest.approx(expected[:2])
    assert said[:-1] == expected[2:-1]
    assert said[-1] == pytest.approx(expected[-1])


def test_deviations_and_margins_have_the_unit_of_the_numbers() -> None:
    found = read("54.2 vs 51.7, n=500, 5 runs, sd 1.2 vs 0.9, margin 2")
    assert found.margin == pytest.approx(0.02)
    assert [number.sd for number in (found.pairs[0].a, found.pairs[0].b)] == pytest.approx([0.012, 0.009])
    both = read("0.93 vs 0.90, n=1319, se 0.007").pairs[0]
    assert (both.a.se, both.b.se) == (0.007, 0.007)


def test_files_give_rows_what_they_leave_out(tmp_path: Path) -> None:
    found = read(
        written(
            tmp_path,
            """
            names: [ours, theirs]
            problems: 30
            samples: 8
            assume: {run_sd: [0, 0, 0.01]}
            rows:
              - {benchmark: x, a: {pass@1: 45.83, pass@8: 70.0}, b: {pass@1: 40.00, pass@8: 63.3}}
              - {benchmark: y, problems: 50, a: 20, b: {value: 10, seeds: 3, sd: 1}}
            """,
        )
    )
    assert [(pair.problems, str(pair.metric), pair.against) for pair in found.pairs] == [
        (30, "pass@1", "theirs"),
        (50, "avg@8", "theirs"),
    ]
    assert found.pairs[0].a.second is not None
    assert (str(found.pairs[0].a.second[0]), found.pairs[0].a.second[1]) == ("pass@8", pytest.approx(0.7))
    assert (found.pairs[1].b.seeds, found.pairs[1].b.sd, found.unit) == (3, 0.01, pytest.approx(1e-4))
    assert found.assumed.run_sd == (0.0, 0.0, 0.01)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("54 x 2", "bad_input"),
        ("n=30", "bad_input"),
        ("54 vs 52", "bad_input"),
        ("54 vs 52, n=30, n=40", "bad_input"),
        ("54 vs 52, n=30, sd 1", "contradiction"),
        ("54 vs 52, n=30, 4 samples, pass@8", "contradiction"),
        ("54 vs 52, n=1", "out_of_bounds"),
        ("nowhere.yaml", "not_found"),
    ],
)
def test_lines_that_say_too_little_or_too_much_are_refused(text: str, code: str) -> None:
    with refused(code):
        read(text)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("rows: []", "bad_input"),
        ("{rows: [{a: 1, b: 2}]}", "bad_input"),
        ("{problems: 30, rows: [{a: x, b: 2}]}", "bad_input"),
        ("{problems: 30, rows: [{a: {avg@8: 1, ad: 2}, b: 2}]}", "unknown_key"),
        ("{problems: 30, row: []}", "unknown_key"),
        ("{problems: 30, metric: avg, rows: [{a: 1, b: 2}]}", "out_of_bounds"),
        ("{problems: 30, metric: pass@8, rows: [{a: {pass@4: 1}, b: 2}]}", "bad_input"),
        ("{problems: 30, assume: {spread: [0.5, 0.2, 0.8]}, rows: [{a: 1, b: 2}]}", "out_of_bounds"),
    ],
)
def test_files_that_are_wrong_are_refused(tmp_path: Path, text: str, code: str) -> None:
    with refused(code):
        read(written(tmp_path, text))


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ("60 vs 50, n=10000", "better"),
        ("50 vs 60, n=10000", "worse"),
        ("50 vs 50, n=30", "undecided"),
        ("54.2 vs 51.7, n=30, 32 samples", "undecided"),
        ("54.2 vs 54.1, n=20000, 8 samples, 30 seeds, margin 5", "equivalent"),
        ("154 vs 51.7, n=30", "not testable"),
    ],
)
def test_verdicts_are_words_of_the_list(line: str, verdict: str) -> None:
    assert one(line)["verdict"] == verdict


def test_what_would_decide_is_named() -> None:
    assert one("50 vs 50, n=30")["without"] == ""  # undecided under every assumption
    lacking = one("0.93 vs 0.90, n=1319, se 0.007 vs 0.0083")
    assert (lacking["verdict"], lacking["without"]) == ("undecided", "the standard deviation over training runs")
    # Over 20 runs with a known deviation, only the correlation over problems is unknown.
    problems = one("54.2 vs 51.7, n=600, 64 samples, 20 seeds, sd 0.5")
    assert problems["without"] == "the scores of both on each problem"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("54.2 vs 51.7, n=30, 1 samples", "54.2"),
        ("66.7 vs 61.0 pass@8, n=30", "0.61 is no multiple of 1/30"),
        ("50.0 vs 40.0, n=30, se 20.0 vs 9.0", "above the largest"),
        ("50.0 vs 40.0, n=30, se 3.0 vs 9.0", "below that of one sample"),
    ],
)
def test_numbers_that_cannot_be_are_named(line: str, words: str) -> None:
    notes = support(read(line)).notes
    assert any(words.replace("54.2", "0.542") in note for note in notes), notes


@pytest.mark.parametrize(
    "line", ["66.7 vs 60.0 pass@8, n=30", "54.2 vs 51.7, n=30, 32 samples", "50 vs 40, n=10", "0.93 vs 0.90, n=1319"]
)
def test_numbers_that_can_be_are_not(line: str) -> None:
    assert support(read(line)).notes == ()


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
    assert found.rows["benchmark"].tolist() == ["x0", "x1", "x2", ALL]
    mean = found.rows.iloc[-1]
    assert (mean["difference"], mean["pairs"], mean["positive"]) == (pytest.approx(0.11), 3, 3)
    own = found.cases[(found.cases["scope"] == "problems") & (found.cases["case"] == "plausible")]
    own = own[own["benchmark"] != ALL]
    assert own["p_adjusted"].min() == pytest.approx(3 * own["p"].min())


def test_the_command_prints_a_table_or_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from mcpo_cli.commands.claim import claim

    claim(what="54.2 vs 51.7, n=30, 32 samples", csv=tmp_path / "x.csv", as_json=False, debug=False)
    shown = capsys.readouterr().out
    assert "verdict: undecided" in shown
    assert "assumed:" in shown
    assert len((tmp_path / "x.csv").read_text().splitlines()) == 1 + 9
    claim(what="54.2 vs 51.7, n=30, 32 samples", csv=None, as_json=True, debug=False)
    document = json.loads(capsys.readouterr().out)
    assert (document["rows"][0]["verdict"], len(document["cases"])) == ("undecided", 9)
    claim(what="140 vs 20, n=30", csv=None, as_json=False, debug=False)
    assert "note: 1.4 is not a share" in capsys.readouterr().out


def test_all_right_and_all_wrong_have_a_variance_and_a_sentence() -> None:
    found = support(read("1 vs 0, n=30"))
    assert len(found.notes) == 2
    assert all("shows no variance" in note for note in found.notes)
    assert (found.cases["error"] > 0.01).all()
