"""The check of numbers on pages: it passes on this checkout, and finds a changed digit on either side."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from mcpo_study.analysis.findings import check as findings
from mcpo_study.analysis.findings.check import MARK, NUMBER, Committed, Entries, Finding, Query, written_like
from mcpo_study.analysis.interval_coverage import __main__ as coverage


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


def test_the_page_on_coverage_shows_the_committed_records_of_the_simulation() -> None:
    records = pd.read_csv(coverage.RECORDS)
    shown = coverage.PAGE.read_text(encoding="utf-8").partition(coverage.BEGIN)[2]
    assert shown.strip() == coverage.page(records).strip()
    assert [name for name in coverage.tasks() if name in [*records["name"]]] == [*records["name"]]


def test_a_changed_digit_on_a_page_is_noticed(entries: Entries, computed: dict[str, list[float] | str]) -> None:
    flat = {page: " ".join(text.split()) for page, text in findings.read_pages(entries).items()}
    for one in entries.findings[::40]:
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
    return Committed(tmp_path)


OF_A = {"block": "measured", "arm": "A"}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (Query(("mean", "half_width", "cost"), ("suite.csv",), where=OF_A), [0.2, 0.07, 20]),
        (Query(("mean",), ("suite.csv",), "mean", {"arm": "A", "cost": 20}), [0.2]),
        (Query(("mean",), ("suite.csv",), "least"), [0.2]),
        (Query(("mean",), ("suite.csv",), "most"), [0.5]),
        (Query(("mean",), ("suite.csv",), "difference", {"block": "measured"}, arm="B", baseline="A"), [0.3]),
    ],
)
def test_queries_by_hand(committed: Committed, query: Query, expected: list[float]) -> None:
    assert committed.numbers(query) == pytest.approx(expected)


def test_a_table_of_effects_that_is_not_that_of_the_rows_is_named() -> None:
    page = findings.ROOT / "experiments" / "findings" / "dapo.md"
    text = page.read_text(encoding="utf-8")
    changed = text.replace("14 of 14 |", "13 of 14 |")
    assert changed != text
    assert findings.check(Entries(()), {}, {"dapo.md": changed})[0].startswith("dapo.md: a table of effects is not")


def test_of_appended_rows_the_newest_that_matches_counts(tmp_path: Path) -> None:
    (tmp_path / "speed" / "results").mkdir(parents=True)
    lines = ['{"tokens": 4, "seconds": 3.5}', '{"tokens": 64, "seconds": 30}', '{"tokens": 4, "seconds": 1.5}']
    (tmp_path / "speed" / "results" / "cpu.jsonl").write_text("\n".join(lines) + "\n")
    assert Committed(tmp_path).numbers(Query(("seconds",), ("cpu.jsonl",), where={"tokens": 4})) == [1.5]
