"""Tasks for existing models: exact prompts, drawing and holding out, shares, graders, contradictions of options."""

import math
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpo_cli import grading, tasks
from mcpo_cli.config.load import load
from mcpo_cli.data.base import Problem
from mcpo_cli.grading.simple import ANSWER, INTEGER
from mcpo_cli.tasks.base import Messages
from mcpo_cli.tasks.sums import WORKED
from mcpo_cli.tasks.text import DrawnTextTask, fitting, unescaped
from tests.errors import refused

NAMES = [name for name, kind in tasks.registry().items() if issubclass(kind, DrawnTextTask)]
SUM = Problem("3 + 4", "7")


def task(name: str, **options: object) -> DrawnTextTask:
    found = tasks.get(name, **options)
    assert isinstance(found, DrawnTextTask)
    return found


# prompts


def test_prompts_of_sums() -> None:
    plain, chat = task("sums"), task("sums", style="chat", system="Be brief.", examples=1)
    assert plain.messages(SUM) == [{"role": "text", "content": "2 + 5 = 7\n13 + 4 = 17\n3 + 4 ="}]
    assert plain.stops == ("\n",)
    assert not plain.needs_chat_template
    assert chat.messages(SUM) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is 2 + 5?"},
        {"role": "assistant", "content": "2 + 5 = 7"},
        {"role": "user", "content": "What is 3 + 4?"},
    ]
    assert chat.stops == ()
    assert chat.needs_chat_template
    assert not task("sums", style="auto").needs_chat_template


def test_prompts_of_word_problems() -> None:
    problem = Problem("Anna has 2 toys. Anna buys 3 more toys. How many toys does Anna have now?", "5")
    plain, chat = task("word_problems", examples=1), task("word_problems", style="chat", examples=0)
    assert plain.messages(problem) == [
        {
            "role": "text",
            "content": "Question: Olga has 4 pens. Olga buys 3 more pens. How many pens does Olga have now?\n"
            "Calculation: 4 + 3 = 7. The answer is 7.\n\n"
            "Question: Anna has 2 toys. Anna buys 3 more toys. How many toys does Anna have now?\n"
            "Calculation:",
        }
    ]
    assert plain.stops == ("\n",)
    assert chat.messages(problem) == [{"role": "user", "content": problem.text}]
    assert chat.stops == ()


def test_templates_and_stops_have_line_breaks_as_two_characters() -> None:
    own = task("sums", template=r"Q: {question}\nA:", stop=(r"\n\n", "Q:"), examples=1)
    assert own.messages(SUM) == [{"role": "text", "content": "Q: 2 + 5\nA: 7\nQ: 3 + 4\nA:"}]
    assert own.stops == ("\n\n", "Q:")
    assert task("sums", stop=()).stops == ()
    assert unescaped(r"\\n \boxed{} \\boxed{} \n") == "\\n \\boxed{} \\boxed{} \n"
    (spec,) = load(["task=sums", r"task.stop=[\n\n,END]", "train.max_prompt=40"])
    assert spec.task.stops == ("\n\n", "END")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("style", ["auto", "chat", "plain"])
def test_worked_examples_are_correct_answers_that_end_at_the_stop(name: str, style: str) -> None:
    one = task(name, style=style)
    assert one.worked
    grader = grading.loaded(one.grader)
    for question, response in one.worked:
        gold = str(eval(question)) if name == "sums" else re.findall(r"\d+", response)[-1]
        assert grader.grade(gold, response, False).status == "correct"
        assert not any(stop in response for stop in one.stops)
        for equation, value in re.findall(r"([\d+*/ -]+) = (\d+)", response):
            assert eval(equation) == int(value)


# problems


def test_first_problems_stay_what_they_are() -> None:
    """Records of runs name these problems."""
    assert [problem.text for problem in task("sums").training(0, 0, 4)] == ["7 + 4", "6 + 2", "6 + 7", "5 + 4 + 6"]
    assert task("sums").tiers(2)["2plus1"] == [Problem("37 + 1", "38"), Problem("30 + 4", "34")]
    assert task("word_problems").training(0, 0, 1) == [
        Problem("Yusuf has 4 bags with 2 oranges in each bag. How many oranges does Yusuf have?", "8")
    ]


def test_a_tier_has_at_most_the_sums_that_exist() -> None:
    one = task("sums", sorts=("1+1", "2+2"))
    held = [f"{a} + {b}" for a in range(1, 10) for b in range(1, 10) if one.holds_out(Problem(f"{a} + {b}", ""))]
    held = [text for text in held if text not in WORKED]
    assert [problem.text for problem in one.tiers(200)["1plus1"]] == held
    assert one.tier_sizes(200) == {"1plus1": len(held), "2plus2": 200}
    for size in (3, len(held), 100):
        assert len(one.tiers(size)["1plus1"]) == one.tier_sizes(size)["1plus1"] == min(size, len(held))
    largest = task("sums", sorts=("6*6*6",))
    assert largest.tier_sizes(50) == {"6times6times6": 50}
    assert len(largest.tiers(50)["6times6times6"]) == 50


OPERATORS = st.lists(st.sampled_from("+-*"), min_size=1, max_size=4)


@given(OPERATORS, st.data())
def test_golds_of_sums_are_python_s(operators: list[str], data: st.DataObject) -> None:
    digits = [data.draw(st.integers(1, 3)) for _ in range(len(operators) + 1)]
    sort = str(digits[0]) + "".join(f"{sign}{count}" for sign, count in zip(operators, digits[1:], strict=True))
    one = task("sums", sorts=(sort,))
    (problem,) = one.training(data.draw(st.integers(0, 99)), 0, 1)
    assert int(problem.gold) == eval(problem.text)
    assert [len(number) for number in re.findall(r"\d+", problem.text)] == digits
    assert one.tier_of(problem.text) == one.tier_names[0]


@pytest.mark.parametrize("shares", [(), (8.0, 1.0, 1.0, 0.0)])
def test_shares_are_those_of_training(shares: tuple[float, ...]) -> None:
    one, count = task("sums", shares=shares), 4000
    drawn = Counter(one.tier_of(problem.text) for problem in one.training(0, 0, count))
    weights = shares or (1.0,) * 4
    for tier, weight in zip(one.tier_names, weights, strict=True):
        share = weight / sum(weights)
        assert drawn[tier] / count == pytest.approx(share, abs=5 * math.sqrt(share * (1 - share) / count))
    if shares:
        assert drawn[one.tier_names[-1]] == 0


@pytest.mark.parametrize("options", [{}, {"largest": 99, "largest_factor": 20}, {"largest": 4, "largest_factor": 4}])
def test_word_problems_have_positive_integer_golds_by_a_rule_written_apart(options: dict[str, int]) -> None:
    one, golds = task("word_problems", **options), dict[str, str]()
    for tier, problems in one.tiers(300).items():
        for problem in problems:
            assert int(problem.gold) == expected(problem.text) > 0
            assert golds.setdefault(problem.text, problem.gold) == problem.gold
            assert not re.search(r"[{}]", problem.text)
            assert one.tier_of(problem.text) == tier


RULES = {
    (2, "in total"): lambda a, b: a + b,
    (2, "Then"): lambda a, b: a + b,
    (2, "more"): lambda a, b: a + b,
    (2, "older"): lambda a, b: a + b,
    (2, "of them to"): lambda a, b: a - b,
    (2, "has walked"): lambda a, b: a - b,
    (2, "bags with"): lambda a, b: a * b,
    (2, "equally"): lambda a, b: a / b,
    (3, "finds"): lambda a, b, c: (a + b) / c,
    (3, "loses"): lambda a, b, c: a * b - c,
    (3, "gives"): lambda a, b, c: a + b - c,
    (3, "pay?"): lambda a, b, c: a * b + c,
    (4, "bus"): lambda a, b, c, d: a + b - c + d,
    (4, "get back"): lambda a, b, c, d: d - (a * b + c),
    (4, "finds"): lambda a, b, c, d: (a * b + c) / d,
    (4, "walk"): lambda a, b, c, d: a * b + c * d,
}
"""The correct answer as a function of the problem's numbers, by the problem's word."""


def expected(text: str) -> float:
    numbers = [int(number) for number in re.findall(r"\d+", text)]
    assert min(numbers) >= 2
    (rule,) = {rule for (count, word), rule in RULES.items() if count == len(numbers) and word in text}
    return rule(*numbers)


# graders


@given(st.text(), st.integers(-(10**17), 10**17))
def test_graders_take_any_text_and_any_gold(text: str, value: int) -> None:
    for grader, written in ((INTEGER, f"{text} = {value}."), (ANSWER, f"{text} The answer is {value:,}.")):
        assert grader.grade(str(value), written, False).status == "correct"
        assert grader.grade(str(value + 1), written, False).status == "wrong"
        assert grader.grade("0", text, False).status in {"correct", "wrong", "unparsable"}


# options


def test_prompts_must_fit() -> None:
    one = task("sums")
    (spec,) = load(["task=sums", "train.max_prompt=20"])
    assert one.problems(spec.train, lambda messages: 20).training(0, 0, 2) == one.training(0, 0, 2)

    def characters(messages: Messages) -> int:
        return len(messages[0]["content"])

    with refused("no_room", "train.max_prompt=20", "task=sums") as raised:
        one.problems(spec.train, characters)
    setting, _, rest = (raised.value.fix or "").partition(",")
    assert rest == " or fewer task.examples"
    one.problems(load(["task=sums", setting])[0].train, characters)
    with refused("no_room"):
        one.problems(
            load(["task=sums", f"train.max_prompt={int(setting.rpartition('=')[2]) - 1}"])[0].train, characters
        )


@pytest.mark.parametrize(
    ("lengths", "fix"),
    [
        ([9, 5, 7, 6], "train.max_prompt=9  (for all problems; 6 is enough for a batch)"),
        ([9, 9, 9], "train.max_prompt=9"),
        ([1], "train.prompts=1 train.mini_batch=1, or more problems"),
        ([], "other benchmarks, or more problems"),
    ],
)
def test_too_few_problems_that_fit_name_what_suffices(lengths: list[int], fix: str | None) -> None:
    (spec,) = load(["task=sums", "train.prompts=2", "train.mini_batch=2", "train.max_prompt=4"])
    problems = [Problem(str(place), "0") for place in range(len(lengths))]
    with refused("no_room") as raised:
        fitting(task("sums"), "mine", problems, spec.train, lambda messages: lengths[int(messages[0]["content"][-3])])
    assert raised.value.fix == fix
