"""The files of a comparison, its picture and its page, and the page of an evaluation."""

import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from mcpo_cli.compare import evaluation_page, forest, output
from mcpo_cli.compare.comparison import Comparison, Question, records
from mcpo_cli.compare.log import Side, checked
from mcpo_cli.compare.logs import of_logs
from mcpo_cli.compare.subjects import Answer
from tests.evaluations import graded, made_up


def of_scores(benchmark: str, *right: int, number: int = 40, question: Question | None = None) -> Answer:
    """A comparison of sides that answer the first so many of `number` problems correctly."""
    problems = [f"q{at}" for at in range(number)]
    frames = [
        pd.DataFrame({"benchmark": benchmark, "problem": problems, "correct": np.arange(number) < each})
        for each in right
    ]
    sides = [Side(f"s{at}", (checked(Path(f"s{at}"), frame),)) for at, frame in enumerate(frames)]
    return Answer(of_logs(sides, question or Question()), question or Question(), sides=sides)


def layout(found: Comparison) -> dict[str, Any]:
    return forest.layout(found, records(found.differences))


def test_places_are_linear_in_the_numbers() -> None:
    found = of_scores("sums", 20, 30, question=Question(margin=0.5)).comparison
    drawn = layout(found)
    # The axis runs from -.6 to +.6 in steps of .2 over the 360 pixels between both edges.
    assert drawn["ticks"] == [
        (20.0, "-.600"), (80.0, "-.400"), (140.0, "-.200"), (200.0, "0"), (260.0, "+.200"), (320.0, "+.400"),
        (380.0, "+.600"),
    ]  # fmt: skip
    assert drawn["zero"] == 200
    assert drawn["band"] == (50.0, 350.0)
    (row,), (line,) = records(found.differences), drawn["lines"]
    for name, key in (("at", "difference"), ("low", "low"), ("high", "high")):
        assert line[name] == pytest.approx(200 + 300 * row[key], abs=0.01)


def test_sides_that_do_not_differ_are_in_the_middle() -> None:
    drawn = layout(of_scores("sums", 20, 20).comparison)
    assert drawn["zero"] == 200
    assert len(drawn["ticks"]) == 3


def test_the_file_is_xml_whatever_a_benchmark_is_called(tmp_path: Path) -> None:
    name = '<sums> & "more" </svg>'
    output.write(of_scores(name, 20, 30, 10), tmp_path, "mcpo compare")
    texts = [each.text for each in ElementTree.parse(tmp_path / "forest.svg").iter() if each.tag.endswith("text")]
    assert texts[:4] == [f"{name}, s1", "better", f"{name}, s2", "worse"]


def test_the_page_names_every_problem_that_changed(tmp_path: Path) -> None:
    output.write(of_scores("sums", 100, 900, 50, number=1000), tmp_path, "mcpo compare")
    _, page = (tmp_path / "comparison.html").read_text().split('id="flips"')
    assert page.count("<th scope=row") == output.MOST
    assert sorted(re.findall(r"\bq\d+\b", page)) == sorted([f"q{at}" for at in (*range(100, 900), *range(50, 100))])
    assert len(re.findall("<strong>(sums, s1, gained|sums, s2, lost):</strong>", page)) > 0


def test_of_lower_scores_the_page_says_gained(tmp_path: Path) -> None:
    output.write(of_scores("loss", 100, 900, number=1000, question=Question(lower=True)), tmp_path, "mcpo compare")
    page = (tmp_path / "comparison.html").read_text()
    assert "<strong>loss, s1, lost:</strong>" in page
    assert "gained:</strong>" not in page


def test_files_of_an_earlier_comparison_do_not_stay(tmp_path: Path) -> None:
    of_training = {f"{name}.csv" for name in ("runs", "before", "gains", "paths", "final")}
    for name in ("gate.md", "curves.png", "mine.md", *of_training):
        (tmp_path / name).write_text("earlier")
    output.write(of_scores("sums", 20, 30), tmp_path, "mcpo compare")
    left = {path.name for path in tmp_path.iterdir()}
    assert left & {"gate.md", "curves.png", "mine.md", "forest.svg"} == {"mine.md", "forest.svg"}
    assert not left & of_training


# evaluations


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
