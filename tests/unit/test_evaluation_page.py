"""The page of an evaluation: metrics with standard errors by hand, and every sample with its verdict."""

import math
import re
from pathlib import Path

import pytest

from mcpo_cli.compare import evaluation_page
from tests.evaluations import graded, made_up


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return evaluation_page.write(tmp_path, made_up(tmp_path))


def test_a_metric_has_its_value_error_shots_and_version(page: Path) -> None:
    table = page.with_suffix(".md").read_text(encoding="utf-8")
    # Shares 1, 1/2, 0: mean 1/2, standard deviation 1/2, by the root of 3.
    assert "| sums | pass@1 | 0.5000 | 0.2887 | 0 | abc, graded by exact 1 |" in table
    assert "| sums | pass@2 | 0.6667 | - | 0 |" in table


def test_one_problem_has_no_standard_error() -> None:
    assert math.isnan(evaluation_page.standard_error([graded("1 + 1", ["2", "2"])]))


def test_texts_are_escaped_and_nothing_runs(page: Path) -> None:
    html = page.read_text(encoding="utf-8")
    assert "3 + &lt;b&gt;3&lt;/b&gt;" in html
    assert "<script" not in html
    assert re.findall(r'class="problem (\w+)"', html) == ["every", "some", "none"]
