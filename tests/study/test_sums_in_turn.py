"""Sorts of sums one after the other: which sort comes when, from pools that return."""

from collections import Counter
from pathlib import Path

from mcpo_study.analysis.measures.in_turn import MEASURE
from mcpo_study.analysis.tasks.sums_in_turn import SumsInTurn

from mcpo_cli.config.load import load
from mcpo_cli.tasks.base import GeneratedTask
from tests import rows

PER_TURN, POOL = 200, 40


def in_turn(again: int = 10) -> GeneratedTask:
    return SumsInTurn(sorts=("2+1", "2-1", "1+1+1"), change_every=PER_TURN, pool=POOL, again=again)


def trained(start: int, count: int, again: int = 10) -> list[str]:
    return [problem.text for problem in in_turn(again).training(3, start, count)]


def sorts(texts: list[str]) -> Counter[str]:
    return Counter(map(in_turn().tier_of, texts))


def test_a_sort_comes_alone_then_every_tenth_problem_is_of_an_earlier_one() -> None:
    assert sorts(trained(0, PER_TURN)) == {"2plus1": PER_TURN}
    assert sorts(trained(PER_TURN, PER_TURN)) == {"2minus1": 180, "2plus1": 20}
    assert sorts(trained(2 * PER_TURN, PER_TURN, again=5)) == {"1plus1plus1": 160, "2plus1": 20, "2minus1": 20}
    assert sorts(trained(9 * PER_TURN, PER_TURN)) == {"1plus1plus1": 180, "2plus1": 10, "2minus1": 10}


def test_the_problems_of_each_sort_return() -> None:
    first, last = trained(0, PER_TURN), trained(PER_TURN, 2 * PER_TURN)
    assert len(set(first)) == POOL
    assert {text for text in last if in_turn().tier_of(text) == "2plus1"} < set(first)
    assert len({text for text in last if in_turn().tier_of(text) == "2minus1"}) == POOL


def test_a_seed_has_its_own_problems() -> None:
    other = [problem.text for problem in in_turn().training(4, 0, PER_TURN)]
    assert set(other) != set(trained(0, PER_TURN))


def test_what_is_kept_is_the_mean_after_the_last_change(mcpo_home: Path) -> None:
    task = ["task=sums_in_turn", "task.pool=96", "task.change_every=96"]
    train = ["train.prompts=24", "train.mini_batch=12", "train.steps=12", "method.dynamic_sampling=false"]
    spec = load(["scale=laptop", "model=smollm2-135m", *task, *train])[0]
    scores = {0: ([1], [0]), 4: ([8, 4], [0, 2]), 8: ([4, 4], [4, 4]), 12: ([2, 6], [8, 8])}
    every = [
        row
        for step, (first, last) in scores.items()
        for row in rows.evaluation(step, {"2plus1": first, "2minus1": last})
    ]
    found = MEASURE.measure(spec, rows.journal(spec, {"eval": every}))
    assert found.values == {"kept": 0.5, "learned": 0.75, "lost": 0.25, "average": 0.625}
