"""Both sides graded again by one grader: changes, omitted samples, and the grader's part."""

from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest

from mcpo_cli.compare import regrade
from mcpo_cli.compare.comparison import Question
from mcpo_cli.compare.log import Side
from mcpo_cli.compare.logs import of_logs
from mcpo_cli.compare.regrade import Regraded
from mcpo_cli.grading import READS, Grade, loaded
from tests import sides
from tests.errors import refused
from tests.fakes import ThisProcess

ROWS = (
    # problem, gold, response, score of base's log, score of arm's log
    ("p1", "12", r"so \boxed{12}", 1, 1),
    ("p2", "0.5", r"so \boxed{\frac{1}{2}}", 0, 1),
    ("p3", "7", r"so \boxed{8}", 0, 1),
    ("p4", "3", r"so \boxed{3}", 1, 1),
)


def side(name: str, score: int, *more: tuple[str, str | None, str | None, float]) -> Side:
    """A side with the same responses as the other one, graded as its log has it."""
    rows = [(row[0], row[1], row[2], float(row[score])) for row in ROWS]
    samples = pd.DataFrame([*rows, *more], columns=["problem", "gold", "response", "correct"])
    return sides.side(name, samples, grader=name, temperature="1")


@pytest.fixture(scope="module")
def found() -> Regraded:
    """Three samples of base, two without a gold and one without a response, cannot be graded."""
    base = side("base", 3, ("p5", None, "no gold", 1.0), ("p6", "3", None, 1.0), ("p7", None, "none", 1.0))
    return regrade.regrade([base, side("arm", 4, ("p5", "1", r"\boxed{1}", 1.0))], "math_verify", workers=1)


@pytest.mark.slow
def test_a_difference_of_graders_goes_away(found: Regraded) -> None:
    # math-verify takes 1/2 for 0.5 and not 8 for 7: both sides answered the same.
    assert [one.scores("b").sum_SP.tolist() for one in found.sides] == [[[1, 1, 0, 1]], [[1, 1, 0, 1, 1]]]
    changes = found.changes[["side", "problem", "before", "after"]].to_numpy().tolist()
    assert changes == [["base", "p2", 0, 1], ["arm", "p3", 1, 0]]
    (row,) = found.shares(Question(), of_logs(found.sides, Question())).to_dict("records")
    assert (row["before"], row["after"], row["by_grader"], row["share"]) == pytest.approx((0.5, 0.0, 0.5, 1.0))
    facts = found.sides[0].facts("b")
    assert facts["temperature"] == "1"
    assert facts == found.sides[1].facts("b")
    assert facts["grader"].startswith("math_verify ")


def test_what_cannot_be_graded_is_left_out_on_both_counts_and_counted(found: Regraded) -> None:
    counts = found.counts.set_index("side")[["samples", "regraded", "up", "down", *regrade.LEFT_OUT]]
    assert counts.loc["base"].tolist() == [7, 4, 1, 0, 1, 2, 0]
    assert counts.loc["arm"].tolist() == [5, 5, 0, 1, 0, 0, 0]
    assert found.before[0].scores("b").problems == ("p1", "p2", "p3", "p4")
    said = "\n".join(found.sentences(found.shares(Question(), of_logs(found.sides, Question()))))
    assert "4 of 7 samples" in said
    assert "+.500 as logged, +.000 graded again; +.500 was the grader's (100% of it)" in said


def test_metrics_that_only_the_new_scores_have_are_compared(found: Regraded) -> None:
    """Rewards between 0 and 1 have no pass@1 but their mean, and logs without answers no majority."""
    samples = found.before[1].logs[0].samples
    rewards = replace(found.before[1].logs[0], samples=samples.assign(correct=samples["correct"] / 2))
    logged = replace(found, before=(found.before[0], Side("arm", (rewards,))))
    for metric, rows in (("maj@1", []), ("pass@1", [(0.0, 0.0)])):
        question = Question(metrics=(metric,))
        shares = logged.shares(question, of_logs(found.sides, question))
        assert list(zip(shares["before"], shares["after"], strict=True)) == rows


@pytest.mark.parametrize(("wrong", "right"), [(-1, 1), (0, 100)])
def test_rewards_and_percentages_are_no_changes_of_a_grader(wrong: float, right: float) -> None:
    samples = {"problem": list("pqr"), "correct": [right, wrong, wrong], "gold": "7"}
    samples["response"] = ["#### 7", "#### 7", "#### 8"]
    found = regrade.regrade([sides.side(name, samples) for name in ("base", "arm")], "final", workers=1)
    assert found.counts[["up", "down"]].to_numpy().tolist() == [[1, 0], [1, 0]]
    assert found.before[0].scores("b").sum_SP.tolist() == [[1, 0, 0]]


def test_failures_of_the_grader_are_no_wrong_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    fails = {"7"}

    def submit(gold: str, response: str, *, extracted: bool) -> Future[Grade]:
        return ThisProcess(1).submit(Grade, "infra_error" if gold in fails else "correct")

    pool = SimpleNamespace(version="1", submit=submit)
    monkeypatch.setattr(regrade, "Pool", lambda grader, workers: nullcontext(pool))
    both = [side("base", 3), side("arm", 4)]
    found = regrade.regrade(both, "exact")
    assert found.counts[regrade.FAILED].tolist() == [1, 1]
    assert found.sides[0].scores("b").problems == ("p1", "p2", "p4")
    fails.add("12")
    with refused("ungraded"):
        regrade.regrade(both, "exact")


def test_where_a_grader_finds_no_answer_there_is_no_verdict() -> None:
    """Boxes are no answers for `final`, which reads what follows `####`; one answer of four is not nearly none."""
    base, arm = side("base", 3), side("arm", 4)
    with refused("ungraded", "base: no answer is found in 4 of 4 responses (b); arm:", "final reads the text after"):
        regrade.regrade([base, arm], "final", workers=1)
    half = side("arm", 4, *[(f"q{k}", "1", "#### 1", 1.0) for k in range(4)])
    with refused("ungraded", "base: no answer", "final"):
        regrade.regrade([base, half], "final", workers=1)
    some = [side(name, 3, ("p5", "1", "#### 1", 1.0)) for name in ("base", "arm")]
    assert regrade.regrade(some, "final", workers=1).counts["unread"].tolist() == [4, 4]


def test_answers_that_are_found_and_all_incorrect_are_no_missing_answers() -> None:
    samples = {"problem": ["p", "q"], "correct": 1.0, "gold": "seven", "response": "#### 7"}
    found = regrade.regrade([sides.side(name, samples) for name in ("base", "arm")], "final", workers=1)
    said = "\n".join(found.sentences(found.shares(Question(), of_logs(found.sides, Question()))))
    assert "finds an answer in 4 of 4 responses of all sides and calls none correct: the golds may have another" in said


@pytest.mark.parametrize("name", READS)
def test_graders_that_look_for_a_mark_find_none_where_there_is_none(name: str) -> None:
    assert loaded(name).grade("1 : 1", "nothing of the kind", extracted=False).status == "unparsable"


def test_sides_without_responses_are_refused() -> None:
    with refused("bad_input", "bare"):
        regrade.regrade([side("base", 3), sides.side("bare", {"problem": ["p"], "correct": [1]})], "exact", workers=1)
