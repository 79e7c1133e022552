"""What moved between two reports: intervals of differences by hand, verdicts, the order of the moves."""

import math

import pytest

from mcpo_cli.analysis.moved import Comparison, Move, Number

NAN = math.nan


def move(old: tuple[float, float, float], new: tuple[float, float, float], *verdicts: str) -> Move:
    before, after = verdicts or ("", "")
    return Move("table1", "measured, toy-s", Number(*old, before), Number(*new, after))


@pytest.mark.parametrize(
    ("old", "new", "beyond"),
    [
        # The bounds that face each other count: reaches of .03 and .04 make .05.
        ((0.50, 0.40, 0.53), (0.551, 0.511, 0.9), True),
        ((0.50, 0.40, 0.53), (0.549, 0.509, 0.9), False),
        ((0.551, 0.511, 0.9), (0.50, 0.40, 0.53), True),
        ((0.549, 0.509, 0.9), (0.50, 0.40, 0.53), False),
        # Intervals that overlap can still lie beyond: 0.06 apart, each .04 wide to a side, .057 together.
        ((0.50, 0.46, 0.54), (0.56, 0.52, 0.60), True),
        ((0.50, NAN, NAN), (0.90, 0.8, 1.0), None),
    ],
)
def test_beyond_the_intervals(old: tuple[float, float, float], new: tuple[float, float, float], beyond: bool) -> None:
    assert move(old, new).beyond is beyond


def test_a_row_without_interval_is_plain_data() -> None:
    document = move((0.5, NAN, NAN), (0.9, 0.8, 1.0), "unresolved", "supported").to_json()
    assert document["old"] == {"value": 0.5, "low": None, "high": None, "verdict": "unresolved"}
    assert document["beyond"] is None


@pytest.mark.parametrize(
    ("apart", "said"),
    [
        ({}, "The runs of both were trained with the same packages on the same kind of machine."),
        (
            {"torch": ("2.12.0", "2.13.0"), "machine": ("", "x")},
            "The runs were trained with: torch 2.12.0, now 2.13.0; machine not recorded, now x.",
        ),
    ],
)
def test_the_sentence_and_the_table_count_the_same(
    tmp_path_factory: pytest.TempPathFactory, apart: dict[str, tuple[str, str]], said: str
) -> None:
    moves = [
        move((0.1, 0.0, 0.2), (0.3, 0.2, 0.4), "unresolved", "supported"),
        move((0.1, 0.0, 0.2), (0.11, 0.01, 0.21), "unresolved", "unresolved"),
    ]
    found = Comparison(tmp_path_factory.mktemp("old"), {"commit": "a" * 40, "dirty": False}, apart, 7, 1, moves)
    assert found.sentence == (
        "Of 7 numbers that both reports have, 2 moved, 1 by more than the intervals; 1 verdicts changed; "
        f"1 rows stand in one report only. {said}"
    )
    assert [row[-2:] for row in found.grid().rows] == [["yes", "unresolved -> supported"], ["no", "unresolved"]]
