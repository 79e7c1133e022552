"""Evaluations without a model: numbers derived from rows, files on the disk, names of results."""

import gzip
import math
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from mcpo_cli import tasks
from mcpo_cli.compare import regrade
from mcpo_cli.compare.readers import Options
from mcpo_cli.compare.readers.evaluations import of_evaluation
from mcpo_cli.config.class_options import settings
from mcpo_cli.config.evaluation import Evaluation, Grading
from mcpo_cli.data.base import Problem
from mcpo_cli.evaluation import asking, gradings, metrics, protocol, run, scope
from mcpo_cli.evaluation.asking import Benchmark
from mcpo_cli.evaluation.engines import Sample
from mcpo_cli.evaluation.gradings import Graders, Samples
from mcpo_cli.model_facts import ModelFacts, resolve
from mcpo_cli.records import GradeRow, Results
from mcpo_cli.tasks import Task
from tests.errors import refused
from tests.evaluations import made_up
from tests.models import wordy


@dataclass(frozen=True)
class Known(ModelFacts):
    """Facts of a model without files."""

    digest: str = "0123456789ab"
    stop_tokens: tuple[str, ...] = ("<a>", "<b>")


MODEL = Known(
    name="some/model",
    folder=Path(),
    revision=None,
    tokens=3,
    window=32768,
    stop_ids=(1, 2),
    chat_template=True,
    dtype="float32",
    weights={},
)


def row(statuses: str, answers: str | None = None, **changes: Any) -> GradeRow:
    """A row whose samples have these statuses: c(orrect), w(rong), u(nparsable), i(nfra_error)."""
    names = {"c": "correct", "w": "wrong", "u": "unparsable", "i": "infra_error", "t": "timeout"}
    made = GradeRow(
        problem="p",
        gold="1",
        n=len(statuses) - statuses.count("i"),
        c=statuses.count("c"),
        statuses=[names[letter] for letter in statuses],
        answers=[None if letter in "u-" else letter for letter in answers or statuses],
        details=[""] * len(statuses),
        tokens=[10] * len(statuses),
        finishes=["stop"] * len(statuses),
        copies=0,
        long_copies=0,
    )
    return cast(GradeRow, {**made, **changes})


def test_metrics_by_hand() -> None:
    found = metrics.summarize([row("ccww"), row("wwww"), row("cccc")], 4)
    assert found["pass_at_1"] == pytest.approx(0.5)
    assert found["pass_at_2"] == pytest.approx((5 / 6 + 0 + 1) / 3)  # of 6 pairs of ccww one has no c
    assert found["pass_at_4"] == pytest.approx(2 / 3)
    assert found["best_at_4"] == pytest.approx((1 - 0.5**4 + 0 + 1) / 3)
    assert found["maj_at_4"] == pytest.approx((0.5 + 0 + 1) / 3)  # 2 right, 2 equal wrong ones: half a vote
    # Over samples: var = .5 * .5 / 3 / 9; over problems: var of (.5, 0, 1) / 3.
    assert found["pass_at_1_samples_low"] == pytest.approx(0.5 - half_width(0.5, 0.25 / 27, 1.959964), abs=1e-6)
    assert found["pass_at_1_problems_high"] == pytest.approx(0.5 + half_width(0.5, 0.25 / 3, 4.302653), abs=1e-6)


def half_width(mean: float, variance: float, t: float) -> float:
    """Wilson's half-width at a mean of one half, where its center stays."""
    trials = mean * (1 - mean) / variance
    return math.sqrt(t**2 * mean * (1 - mean) / trials + (t**2 / 2 / trials) ** 2) / (1 + t**2 / trials)


def test_one_problem_has_no_interval_over_problems() -> None:
    found = metrics.summarize([row("cw")], 2)
    assert math.isnan(found["pass_at_1_problems_low"])
    assert found["pass_at_1_samples_low"] < 0.5


def test_what_could_not_be_graded_is_in_no_score_and_makes_pass_at_n_undefined() -> None:
    found = metrics.summarize([row("ccci"), row("wwww")], 4)
    assert found["pass_at_1"] == pytest.approx(0.5)  # 3 of 3, and 0 of 4
    assert math.isnan(found["pass_at_4"])
    assert math.isnan(found["maj_at_4"])
    assert found["pass_at_3"] == pytest.approx(0.5)
    assert found["infra_error"] == 1 / 8


def test_unparsable_and_timed_out_answers_are_wrong_and_have_no_vote() -> None:
    found = metrics.summarize([row("cuut")], 4)
    assert found["pass_at_1"] == 0.25
    assert found["maj_at_4"] == 1.0
    assert (found["unparsable"], found["timeout"]) == (0.5, 0.25)


def test_shares_of_samples() -> None:
    cut = row("cw", finishes=["length", "stop"], tokens=[100, 50])
    full = row("uu", finishes=["no_room", "no_room"], tokens=[0, 0], copies=1)
    found = metrics.summarize([cut, full], 2)
    assert (found["truncated"], found["no_room"], found["copies"]) == (0.25, 0.5, 0.25)
    assert found["mean_tokens"] == 37.5


def test_a_seed_that_was_used_for_all_samples_is_noticed() -> None:
    same = [row("ccc", copies=2), row("www", copies=2)]
    assert any("every problem are the same" in text for text in metrics.suspicions(same, 3, 0.7))
    assert metrics.suspicions([row("ccc", copies=2), row("www", copies=1)], 3, 0.7) == []
    assert metrics.suspicions(same, 3, 0.0) == []
    long = [row("ccc", copies=1, long_copies=1), row("www")]
    assert any("equal samples" in text for text in metrics.suspicions(long, 3, 0.7))


def test_samples_that_mark_no_answer_are_noticed_if_they_are_most() -> None:
    blank = {**row("www"), "statuses": ["unparsable"] * 3}
    (text,) = metrics.suspicions([blank, blank, row("ccc")], 3, 0.0)
    assert text.startswith("6 of 9 responses")
    assert metrics.suspicions([blank, row("ccc")], 3, 0.0) == []


def test_reasons_for_which_samples_could_not_be_graded_are_counted() -> None:
    failed = row("iic", details=["no gold", "no gold", ""])
    told = metrics.suspicions([failed, row("iww", details=["it died", "", ""])], 3, 0.0)
    assert told == ["not graded: 2 responses: no gold", "not graded: 1 responses: it died"]


def test_samples_come_back_whole_or_not_at_all(tmp_path: Path) -> None:
    samples, problem = Samples(tmp_path / "aime"), Problem("1 + 1?", "2")
    drawn = [Sample("two \ud800 \x00", 3, "stop", 7), Sample("", 9, "length", 8)]
    assert samples.read(problem.id) is None
    samples.write(problem, drawn, "engine 1")
    found = samples.read(problem.id)
    assert found is not None
    assert (found.problem, found.samples, found.engine) == (problem, drawn, "engine 1")
    assert samples.has(problem, 2)
    assert not samples.has(problem, 3)
    assert not samples.has(Problem("1 + 1?", "3"), 2)  # the gold was mended since
    (path,) = (tmp_path / "aime").iterdir()
    before = path.read_bytes()
    samples.write(problem, drawn, "engine 1")
    assert path.read_bytes() == before
    for broken in (before[:-5], before[:20] + b"\xff" + before[21:], b"", gzip.compress(b"{}")):
        path.write_bytes(broken)
        assert samples.read(problem.id) is None
    with refused("damaged", "1 of 1 problems"):
        samples.read_all([problem.id])


def made(*overrides: str, **model: Any) -> protocol.Protocol:
    return protocol.Protocol(settings(Evaluation, overrides), replace(MODEL, **model))


def test_the_defaults_are_the_default_protocol() -> None:
    assert made().deviations() == []
    assert made().label == "mean@8, T=0.7, at most 20480 tokens"


@pytest.mark.parametrize(
    ("overrides", "model", "deviation"),
    [
        (["n=4"], {}, "n=4 instead of 8"),
        (["top_p=0.9"], {}, "top_p=0.9 instead of 1"),
        (["max_tokens=1048576"], {}, "max_tokens=1048576 instead of 20480"),
        (["prompt=plain"], {}, "prompt=plain instead of dapo"),
        (["chat=off"], {}, "chat=off instead of auto"),
        ([], {"window": 4096}, "holds 4096 tokens"),
    ],
)
def test_another_protocol_is_not_the_default(overrides: list[str], model: dict[str, int], deviation: str) -> None:
    assert any(deviation in found for found in made(*overrides, **model).deviations())
    protocol.check(made(*overrides, **model))


def test_many_greedy_samples_are_refused() -> None:
    with refused("contradiction") as caught:
        protocol.check(made("temperature=0"))
    assert caught.value.fix
    assert "n=1" in caught.value.fix


def test_identity_is_what_changes_a_sample() -> None:
    base = made().eval_id
    for same in (made("data.path=x", "compute.threads=2"), made(name="some/model", tokens=2)):
        assert same.eval_id == base
    for other in (made("n=4"), made("seed=1"), made("prompt=boxed"), made("engine=vllm"), made("chat=off")):
        assert other.eval_id != base
    assert made(digest="x").eval_id != base
    assert made(stop_ids=(1,)).eval_id != base
    assert made(name="../../a b").eval_id.startswith("a-b-")


def test_comparing_and_grading_again_take_the_benchmarks_of_all_gradings(tmp_path: Path) -> None:
    first = made_up(tmp_path)
    shutil.copytree(tmp_path / "samples" / "sums", tmp_path / "samples" / "more")
    second = {**first, "grading": 2, "benchmarks": {"more": first["benchmarks"]["sums"]}, "shortfalls": ["stale"]}
    gradings.write(tmp_path, cast(Results, second), {"more": gradings.rows(tmp_path, 1, "sums")})
    (tmp_path / "protocol.json").write_text('{"n": 2, "temperature": 0.7}')
    assert set(of_evaluation(tmp_path, Options()).samples["benchmark"]) == {"sums", "more"}

    @contextmanager
    def progress(title: str, count: int) -> Iterator[run.Advance]:
        yield lambda: None

    with Graders(Grading(workers=1)) as graders:
        again = run.grade_again(tmp_path, None, graders, progress)
    assert list(again["benchmarks"]) == ["sums", "more"]
    assert {one["problems"] for one in again["benchmarks"].values()} == {3}
    assert (again["deviations"], again["shortfalls"]) == (first["deviations"], [])


def test_an_evaluation_is_found_by_the_beginning_of_its_id(mcpo_home: Path) -> None:
    made_up(mcpo_home / "evals" / "mine-1")
    assert gradings.find("mine").name == "mine-1"
    for word in ("", "yours"):
        with refused("not_found"):
            gradings.find(word)


def test_gradings_are_numbered_past_one_that_was_cut_short(tmp_path: Path) -> None:
    assert gradings.next_number(tmp_path) == 1
    (tmp_path / "gradings" / "9").mkdir(parents=True)
    (tmp_path / "gradings" / "10").mkdir(parents=True)
    assert gradings.next_number(tmp_path) == 11
    assert gradings.all_of(tmp_path) == []


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ('{"response": "1"}', "'gold'"),
        ('{"gold": {"a": 1}, "response": "1"}', "gold is dict"),
        ('{"gold": "1", "response": null}', "response is NoneType"),
        ("[1]", "list"),
    ],
)
def test_what_cannot_be_graded_is_named_with_its_line(tmp_path: Path, line: str, named: str) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text('{"gold": "1", "prediction": "1"}\n' + line)
    with refused("bad_data", "answers.jsonl", "line 2", named):
        regrade.read(path)


def test_answers_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    lines = ('{"id": "a", "gold": 27, "response": "27"}', "", '{"gold": "x", "prediction": "y"}')
    path.write_text("\n".join([*lines, '{"gold": [1, 2], "response": "2"}']))
    assert regrade.read(path).to_numpy().tolist() == [
        ["a", "27", "27", False],
        ["line 3", "x", "y", True],
        ["line 4", '["1", "2"]', "2", False],
    ]


def test_benchmarks_are_named_once_and_training_sets_are_none() -> None:
    assert scope.split(" aime24, amc23,") == ["aime24", "amc23"]
    for names, named in (
        (["dapo_math_17k"], "aime24, aime25"),
        (["aime42"], "'aime24'"),
        (["arithmetic"] * 2, "--benchmarks arithmetic,arithmetic"),
    ):
        with refused("bad_input", named):
            scope.benchmarks(names, scope.EvaluatedModel(MODEL), Evaluation(), 2)
    with refused("bad_input"):
        scope.split(" , ")
    for file in ("math.jsonl", "my problems.jsonl"):
        with refused("bad_input", file) as caught:
            scope.benchmarks([file], scope.EvaluatedModel(MODEL), Evaluation())
        assert caught.value.fix == f"--benchmarks {shlex.quote(f'NAME={file}')}"


def test_a_limit_is_a_part_of_the_benchmark_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "aime24.jsonl"
    path.write_text("".join(f'{{"problem": "{i} + 1?", "answer": "{i + 1}"}}\n' for i in range(30)))
    chosen = settings(Evaluation, [f"data.path={tmp_path}"])
    (whole,) = scope.benchmarks(["aime24"], scope.EvaluatedModel(MODEL), chosen)
    (part,) = scope.benchmarks(["aime24"], scope.EvaluatedModel(MODEL), chosen, 4)
    (bare,) = scope.benchmarks([str(path)], scope.EvaluatedModel(MODEL), Evaluation())
    assert (bare.name, bare.digest) == ("aime24", whole.digest)
    assert part.problems == whole.problems[:4]
    assert part.digest != whole.digest
    assert "4 of 30 problems" in part.notes
    with path.open("a") as file:
        file.write(r'{"problem": "1/?", "answer": "\\frac{1}{"}')
    (doubtful,) = scope.benchmarks([f"mine={path}"], scope.EvaluatedModel(MODEL), Evaluation())
    assert f"mcpo components check data {path}" in doubtful.notes[-1]


def asked(facts: ModelFacts, name: str, *overrides: str, task: Task | None = None, longest: int = 0) -> list[Benchmark]:
    model = scope.EvaluatedModel(facts, task, longest)
    return scope.benchmarks([name], model, settings(Evaluation, overrides), 2)


def planned(facts: ModelFacts, benchmarks: list[Benchmark]) -> protocol.Protocol:
    return protocol.Protocol(Evaluation(), facts, None, asking.of_tasks(benchmarks))


def test_tasks_that_generate_problems_are_benchmarks_asked_as_in_training() -> None:
    assert {"arithmetic", "sums", "word_problems", "gym"} <= set(scope.evaluable())
    assert "math" not in scope.evaluable()
    found = asked(MODEL, "sums")
    assert [one.name for one in found] == ["1plus1", "2plus1", "2plus2", "1plus1plus1"]
    assert {one.grader for one in found} == {"integer"}
    task = tasks.get("sums")
    for one in found:
        assert one.asking.stops == ("\n",)
        assert one.asking.max_tokens == asking.TASK_TOKENS
        assert [one.asking.messages(problem) for problem in one.problems] == list(map(task.messages, one.problems))


def test_the_options_and_the_longest_response_are_those_of_the_runs_own_task() -> None:
    trained = tasks.get("sums", sorts=("1+1",), style="chat")
    (own,) = asked(MODEL, "sums", task=trained, longest=8)
    assert own.asking == asking.Asking(trained.messages, (), 8, "sums")
    assert own.asking.messages(own.problems[0])[-1]["content"] == f"What is {own.problems[0].text}?"
    (own,) = asked(MODEL, "sums", "task_max_tokens=30", task=trained, longest=8)
    assert own.asking.max_tokens == 30
    other = asked(MODEL, "word_problems", task=trained, longest=8)
    assert {one.asking.max_tokens for one in other} == {asking.TASK_TOKENS}


def test_samples_of_different_ways_of_asking_are_never_mixed() -> None:
    ways = [
        asked(MODEL, "sums"),
        asked(MODEL, "sums", "task_max_tokens=9"),
        *(
            asked(MODEL, "sums", task=tasks.get("sums", **options), longest=256)
            for options in ({"style": "chat"}, {"examples": 1}, {"stop": (".",)}, {"template": "{question} is"})
        ),
        asked(MODEL, "word_problems"),
        [*asked(MODEL, "word_problems"), *asked(MODEL, "sums")],
        asked(MODEL, "arithmetic"),
    ]
    assert len({planned(MODEL, way).eval_id for way in ways}) == len(ways)
    # Options that do not change prompts, or that have a single value, do not change the id.
    sorts = tasks.get("sums", sorts=("1+1",))
    assert planned(MODEL, asked(MODEL, "sums", task=sorts, longest=256)).eval_id == planned(MODEL, ways[0]).eval_id
    assert planned(MODEL, asked(MODEL, "arithmetic")).eval_id == planned(MODEL, []).eval_id == made().eval_id
    told = planned(MODEL, ways[0])
    assert told.document()["tasks"]["sums"]["stops"] == ["\n"]
    assert told.label == "mean@8, T=0.7, at most 20480 tokens, sums at most 256"
    assert any("task=sums" in deviation for deviation in told.deviations())
    assert "at most 256 tokens" in told.lines()["task=sums"]


def test_a_chat_prompt_needs_a_chat_template() -> None:
    chat = tasks.get("sums", style="chat")
    with refused("bad_model", "task=sums"):
        asked(replace(MODEL, chat_template=False), "sums", task=chat, longest=8)


def test_prompts_as_they_stand_as_turns_or_as_a_task_asks(tmp_path: Path) -> None:
    bare, chat = (resolve(str(wordy(tmp_path / name, chat=name == "chat"))) for name in ("bare", "chat"))
    problem, sums = Problem("3 + 4", "7"), tasks.get("sums", style="auto", examples=0)

    def prompt(facts: ModelFacts, way: asking.Asking) -> str:
        return str(facts.tokenizer.decode(asking.encoded(way, problem, facts)))

    for facts, turn in ((bare, "{}"), (chat, "<user>{}\n<assistant>")):
        boxed = asking.by_settings(settings(Evaluation, ["prompt=plain"]), facts)
        assert prompt(facts, boxed) == turn.format("3 + 4")
        assert prompt(facts, asking.by_settings(settings(Evaluation, ["prompt=plain", "chat=off"]), facts)) == "3 + 4"
        assert prompt(facts, asking.by_task(sums, facts, 8)) == turn.format("What is 3 + 4?")
        assert prompt(facts, asking.by_task(tasks.get("sums", examples=0), facts, 8)) == "3 + 4 ="
        assert prompt(facts, asking.by_task(tasks.get("arithmetic"), facts, 8)) == "3 + 4"
