"""Properties of every task that draws its problems, and the correct answers of each by an independent rule."""

import asyncio
import itertools
import operator
import re
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mcpo_cli import tasks
from mcpo_cli.backends.local import tokenizer as tokenizers
from mcpo_cli.backends.local.encoding import Language, encode, words_of
from mcpo_cli.backends.local.generate import Rollouts
from mcpo_cli.backends.verl import reward
from mcpo_cli.config.load import load
from mcpo_cli.data.base import Problem
from mcpo_cli.grading.simple import COUNTDOWN, FINAL, PALINDROME
from mcpo_cli.tasks.drawn import RandomTask
from tests.errors import refused

NAMES = [name for name, kind in tasks.closed_registry().items() if issubclass(kind, RandomTask)]
T = 20


def task(name: str, **options: object) -> RandomTask:
    found = tasks.get(name, **options)
    assert isinstance(found, RandomTask)
    return found


def rollouts(words: list[list[list[str]]], one: RandomTask) -> Rollouts:
    """Responses of these words, T tokens at most, each with an end token where there is room for it."""
    tokenizer = tokenizers.build(one.vocabulary)
    ids, eos = tokenizer.get_vocab(), tokenizer.eos_token_id
    rows = [[[ids[word] for word in response] + [eos] * (len(response) < T) for response in group] for group in words]
    length_PG = torch.tensor([[len(row) for row in group] for group in rows])
    token_PGT = torch.tensor([[row + [eos] * (T - len(row)) for row in group] for group in rows])
    nothing = torch.zeros(token_PGT.shape)
    return Rollouts(torch.zeros(len(rows), 1), token_PGT, length_PG, length_PG < T, nothing, nothing)


@pytest.mark.parametrize("name", NAMES)
def test_demonstrations_are_right_and_everything_fits_what_the_task_says(name: str) -> None:
    # By default the warm-up of arithmetic stops short of the longest chains.
    one = task(name, **{"warmup_max_ops": 8} if name == "arithmetic" else {})
    tokenizer, longest = tokenizers.build(one.vocabulary), one.answer_length
    shown = one.demonstrations(0, 0, 500)
    batch = encode(tokenizer, shown, longest)
    assert batch.prompt_PS.shape == (500, one.prompt_length)
    assert int(batch.length_P.max()) == longest
    golds = {problem.text: problem.gold for problem in graded_problems(one, shown)}
    responses = [[problem.gold.split()] for problem in shown]
    problems = [Problem(problem.text, golds[problem.text]) for problem in shown]
    assert Language(one, tokenizer, closed=True).grade(problems, rollouts(responses, one)).correct_PG.all()
    evaluated = [problem for tier in one.tiers(100).values() for problem in tier]
    assert {len(problem.text.split()) for problem in [*evaluated, *one.training(0, 0, 100)]} == {one.prompt_length}
    assert {word for problem in evaluated for word in problem.text.split()} <= set(one.vocabulary)
    assert longest <= one.held_out_answer_length <= load([f"task={name}"])[0].train.max_response
    assert one.expected_tokens(T)[0] == one.prompt_length
    assert one.expected_tokens(T)[1] <= longest


def graded_problems(one: RandomTask, shown: list[Problem]) -> list[Problem]:
    """Problems of training, with correct answers by an independent rule for each task."""
    golds = {
        "arithmetic": lambda problem: " = ".join(trace(problem.text)),
        "scratchpad": lambda problem: trace(problem.text)[-1],
        "countdown": lambda problem: " ".join(word for word in problem.text.split() if word not in "_="),
        "palindrome": lambda problem: " ".join(word for word in problem.text.split() if word not in "_="),
    }
    return [Problem(problem.text, golds[one.name](problem)) for problem in shown]


def trace(prompt: str) -> list[str]:
    """The running values of a chain, by Python's own arithmetic from left to right."""
    words = [word for word in prompt.split() if word not in "_="]
    turn = "ABC".index(words.pop(0)) if words[0] in "ABC" else 0
    value, values = int(words[0]), []
    for sign, operand in zip(words[1::2], words[2::2], strict=True):
        meaning = (operator.add, operator.sub, operator.mul)[("+-*".index(sign) + turn) % 3]
        value = meaning(value, int(operand)) % 11
        values.append(str(value))
    return values


@pytest.mark.parametrize(("name", "options"), [*((name, {}) for name in NAMES), ("arithmetic", {"skills": 3})])
def test_golds_of_training_and_of_tiers_are_those_of_the_rule(name: str, options: dict[str, Any]) -> None:
    one = task(name, **options)
    for problems in (one.training(3, 0, 200), *one.tiers(60).values()):
        assert problems == graded_problems(one, problems)
        if name in ("arithmetic", "scratchpad"):
            assert all(re.fullmatch(r"([ABC] )?\d+( [-+*] \d+)+( _)* =", problem.text) for problem in problems)


@pytest.mark.parametrize(
    ("name", "least", "most", "low"),
    [
        ("scratchpad", "min_ops", "max_ops", 5),
        ("countdown", "min_numbers", "max_numbers", 5),
        ("palindrome", "min_letters", "max_letters", 9),
    ],
)
def test_difficulty_is_an_option_and_is_checked(name: str, least: str, most: str, low: int) -> None:
    with refused("contradiction"):
        load([f"task={name}", f"task.{least}={low}", f"task.{most}={low - 1}"])
    with refused("contradiction"):
        load([f"task={name}", "train.max_response=5", "train.overlong_cache=0"])
    one = task(name, **{least: low, most: low})
    sizes = {len([word for word in problem.text.split() if word != "_"]) for problem in one.training(0, 0, 50)}
    assert len(sizes) == 1


@pytest.mark.parametrize("name", NAMES)
def test_both_backends_judge_alike_and_see_the_words_that_were_sampled(name: str) -> None:
    one = task(name)
    problems = one.training(0, 0, 20)
    tokenizer = tokenizers.build(one.vocabulary)
    generator = torch.Generator().manual_seed(0)
    shown = {problem.text: problem.gold.split() for step in range(40) for problem in one.demonstrations(0, step, 128)}
    problems = graded_problems(one, [Problem(text, " ".join(gold)) for text, gold in list(shown.items())[:20]])
    groups = []
    for problem in problems:
        right = shown[problem.text]
        lengths = torch.randint(0, T, (6,), generator=generator).tolist()
        drawn = [torch.randint(1, len(one.vocabulary), (n,), generator=generator).tolist() for n in lengths]
        noise = [[one.vocabulary[index] for index in row] for row in drawn]
        groups.append([right, right[::-1], right[:-1], ["_", *right], *noise])
    batch = rollouts(groups, one)
    judged = Language(one, tokenizer, closed=True).grade(problems, batch)
    for p, problem in enumerate(problems):
        for g, words in enumerate(groups[p]):
            verdict = asyncio.run(reward.grade(one.grader, problem.gold, " ".join(words)))
            assert bool(judged.correct_PG[p, g]) == (verdict.status == "correct")
            assert judged.answers[p][g] == verdict.answer
    assert judged.correct_PG[:, 0].all()
    assert not judged.correct_PG.all()
    texts = words_of(batch, tokenizer)
    for token_GT, length_G, text_G in zip(batch.token_PGT, batch.length_PG, texts, strict=True):
        assert text_G == [tokenizer.decode(row[:n]) for row, n in zip(token_GT, length_G, strict=True)]


# scratchpad


def test_the_answer_is_what_follows_the_last_marker() -> None:
    """What is correct is in answers.csv."""
    answers = {"7 = 2 #### 4": "4", "#### 4 #### 5": "5", "#### 4 4": "4 4", "7 = 2 ####": "", "7 = 2 = 4": None}
    assert {response: FINAL.grade("4", response, False).answer for response in answers} == answers


def test_what_demonstrations_write_are_the_running_values() -> None:
    for problem in task("scratchpad", warmup_reasoning=0.8).demonstrations(0, 0, 200):
        reasoning, _, _ = problem.gold.partition("####")
        values, words = reasoning.split(" = ") if reasoning else [], problem.text.split()
        assert [one.strip() for one in values] == trace(" ".join(words))[: len(values)]


# countdown

SYMBOLS = st.sampled_from("+-*/")


@st.composite
def expressions(draw: st.DrawFn) -> str:
    """Text that is mostly an expression: balanced or not, with and without needless parentheses."""
    depth = draw(st.integers(0, 3))

    def one(level: int) -> str:
        if level == 0 or draw(st.booleans()):
            return str(draw(st.integers(1, 12)))
        inner = f"{one(level - 1)} {draw(SYMBOLS)} {one(level - 1)}"
        return draw(st.sampled_from([f"( {inner} )", inner, f"(({inner}))"]))

    return one(depth)


@given(expressions(), st.integers(1, 60))
def test_the_checker_computes_what_python_does(expression: str, target: int) -> None:
    numbers = re.findall(r"\d+", expression)
    gold = f"{' '.join(numbers)} : {target}"
    try:
        exact = eval(re.sub(r"\d+", lambda number: f"Fraction({number[0]})", expression), {"Fraction": Fraction})
    except ZeroDivisionError:
        exact = None
    assert COUNTDOWN.grade(gold, expression, False).status == ("correct" if exact == target else "wrong")
    if exact is not None and exact.denominator == 1:
        reached = f"{' '.join(numbers)} 99 : {exact}"
        assert COUNTDOWN.grade(reached, expression, False).status == "correct"
        assert COUNTDOWN.grade(reached, expression.replace(" ", ""), False).status == "correct"
        # One number fewer than the expression needs.
        fewer = f"{' '.join(numbers[1:])} : {exact}"
        assert COUNTDOWN.grade(fewer, expression, False).status == "wrong"


def test_problems_of_countdown_have_several_answers_of_several_lengths() -> None:
    """By brute force: all values of two or three of the numbers, joined in either order."""
    several = 0
    for problem in task("countdown", max_numbers=3).training(0, 0, 40):
        numbers, _, target = problem.gold.partition(":")
        forms = set()
        for size in (2, 3):
            for order in itertools.permutations(numbers.split(), size):
                for symbols in itertools.product("+-*/", repeat=size - 1):
                    plain = " ".join(itertools.chain(*itertools.zip_longest(order, symbols, fillvalue="")))
                    last = f"( {order[0]} {symbols[0]} {order[1]} ) {symbols[-1]} {order[-1]}" if size == 3 else plain
                    first = f"{order[0]} {symbols[0]} ( {order[1]} {symbols[-1]} {order[-1]} )" if size == 3 else plain
                    forms |= {
                        text
                        for text in (plain, last, first)
                        if COUNTDOWN.grade(problem.gold, text, False).status == "correct"
                    }
        assert forms
        assert int(target) not in map(int, numbers.split())
        several += len({len(form.split()) for form in forms}) > 1
    assert several > 10


# palindrome


@given(st.lists(st.sampled_from("ab"), min_size=2, max_size=7))
def test_a_palindrome_by_brute_force(letters: list[str]) -> None:
    gold = " ".join(sorted(letters))
    right = [order for order in set(itertools.permutations(letters)) if list(order) == list(reversed(order))]
    judged = [
        order
        for order in itertools.product("ab", repeat=len(letters))
        if PALINDROME.grade(gold, " ".join(order), False).status == "correct"
    ]
    assert sorted(right) == sorted(judged)
