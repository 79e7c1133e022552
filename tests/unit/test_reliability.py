"""docs/reliability.md is what the fault tests wrote, all of them, and nothing in it was lost or wrong."""

from pathlib import Path

from tests.faults import reliability
from tests.faults.reliability import Injection, Report

FAULTS = Path(reliability.__file__).parent


def injection(fault: str, test: str, lost: int = 0, seconds: tuple[float, ...] = ()) -> Injection:
    return Injection(fault=fault, test=test, times=2, lost=lost, wrong=0, seconds=list(seconds))


def test_the_page_adds_up_what_tests_recorded_beside_its_data(tmp_path: Path) -> None:
    found = [injection("b", "x::1", seconds=(4.0, 1.0)), injection("a", "y::2"), injection("b", "y::3", 1, (2.0,))]
    report = Report(date="2026-01-02", command="make -- tests", machine="2 cores", injections=found)
    path = tmp_path / "docs" / "page.md"
    reliability.write(report, path)
    text = path.read_text(encoding="utf-8")
    assert "| a | 2 | 0 | 0 | - |" in text
    assert "| b | 4 | 1 | 0 | 2.0 |" in text
    assert "Measured on 2026-01-02 by `make -- tests` on 2 cores." in text
    assert reliability.read(path) == report
    assert reliability.page(report) == text


def test_the_page_was_written_by_the_tests_that_there_are() -> None:
    """Not by hand, and after the last fault test was added: `make test-faults` writes it again."""
    text = reliability.PAGE.read_text(encoding="utf-8")
    report = reliability.read(reliability.PAGE)
    assert reliability.page(report) == text
    assert {one["test"] for one in report["injections"]} == reliability.recording(FAULTS)
    assert all(one["times"] > 0 for one in report["injections"])
    assert [one for one in report["injections"] if one["lost"] or one["wrong"]] == []
