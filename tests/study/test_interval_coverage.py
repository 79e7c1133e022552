"""The page on coverage shows the committed records of the simulation."""

import pandas as pd
import pytest
from mcpo_study.analysis.interval_coverage import __main__ as coverage


@pytest.fixture(scope="module")
def records() -> pd.DataFrame:
    return pd.read_csv(coverage.RECORDS).set_index("name")


def test_the_page_shows_the_records_of_designs(records: pd.DataFrame) -> None:
    shown = coverage.PAGE.read_text(encoding="utf-8").partition(coverage.BEGIN)[2]
    assert shown.strip() == coverage.page(records.reset_index()).strip()
    assert [name for name in coverage.tasks() if name in records.index] == list(records.index)
