"""Sets of reasoning-gym: drawn and held-out problems, and the answers that their verifiers accept."""

import json
import math
import re
import zlib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from mcpo_cli import data, extras, grading, tasks
from mcpo_cli.backends.local import tokenizer as tokenizers
from mcpo_cli.backends.local.encoding import prompts
from mcpo_cli.backends.verl.data import write
from mcpo_cli.backends.verl.overrides import planned
from mcpo_cli.config.load import load
from mcpo_cli.data.base import Problem, held_out
from mcpo_cli.reasoning_gym import draws, grader
from mcpo_cli.reasoning_gym import sets as gym
from mcpo_cli.reasoning_gym.task import Gym

pytest.importorskip("pycosat", reason="reasoning-gym needs it, and it takes a C compiler to build")
import reasoning_gym
from reasoning_gym.factory import DATASETS

from tests.errors import refused

WORDS = "reasoning_gym:spell_backward"
SHORT = ("max_word_len=4",)
COUNT = 300


@pytest.fixture(scope="module", autouse=True)
def shared_draws(module_home: Path) -> None:
    """The draws that tests of this file share, so that the package is loaded for each set once."""
    gym.drawn(WORDS, SHORT, COUNT)
    gym.drawn(WORDS)


def gold(name: str, answer: str | None, **metadata: object) -> str:
    entry = {"question": "?", "answer": answer, "metadata": metadata}
    return json.dumps({"set": name, "config": {}, "entry": entry})


def words(**options: object) -> Gym:
    task = tasks.get("gym", **{"data": WORDS, "config": SHORT, "draws": COUNT, "longest_question": 60, **options})
    assert isinstance(task, Gym)
    return task


def test_what_is_drawn_are_items_of_the_package_with_equal_questions_once() -> None:
    items = reasoning_gym.create_dataset("spell_backward", seed=0, size=4 * COUNT, max_word_len=4)
    expected: dict[str, str] = {}
    for item in items:
        expected.setdefault(item["question"], item["answer"])
    drawn = gym.drawn(WORDS, SHORT, COUNT)
    assert [(problem.text, gym.answer(problem)) for problem in drawn] == list(expected.items())[:COUNT]
    assert len({problem.text for problem in drawn}) == COUNT


def test_training_and_held_out_problems_share_no_question() -> None:
    training, held_out = data.load(WORDS), data.load(f"{WORDS}:held_out")
    trained, evaluated = ({problem.text for problem in loaded.problems} for loaded in (training, held_out))
    assert len(trained) == len(training.problems) > 2000
    assert len(evaluated) == len(held_out.problems) == 200
    assert not trained & evaluated
    assert {zlib.crc32(text.encode()) % 8 for text in evaluated} == {0}
    assert 0 not in {zlib.crc32(text.encode()) % 8 for text in trained}
    # Digests are in the records of runs.
    assert training.digest == data.load(WORDS, Path("no such folder")).digest


@pytest.mark.slow
def test_draws_depend_on_no_order_of_pythons_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package draws these strings in another order under another hash seed."""
    said = []
    for seed in ("1", "2"):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        said.append(
            gym._asked("isomorphic_strings", json.dumps({"set": "isomorphic_strings", "config": {}, "count": 12}))
        )
    assert said[0] == said[1]


def test_draws_are_made_once_unless_their_file_is_damaged(mcpo_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def answered(own: str, request: str) -> str:
        asked.append(request)
        return json.dumps([{"question": " Which? ", "answer": "one", "metadata": {}}])

    monkeypatch.setattr(gym, "_asked", answered)
    for _ in range(2):
        gym._draws.cache_clear()
        (problem,) = gym.drawn("reasoning_gym:mine", ["low=2", "name=x"], 5)
        assert (problem.text, gym.answer(problem)) == ("Which?", "one")
    assert [json.loads(request) for request in asked] == [
        {"set": "mine", "count": 5, "config": {"low": 2, "name": "x"}}
    ]
    (kept,) = mcpo_home.rglob("mine-*.json")
    whole = kept.read_bytes()
    damaged = [whole[:-3], b"", whole[65:], bytes([whole[0] ^ 1]) + whole[1:], whole.replace(b"one", b"ond")]
    damaged += [whole[:70] + b"\xff" + whole[71:]]
    for times, content in enumerate(damaged, 2):
        kept.write_bytes(content)
        gym._draws.cache_clear()
        assert gym.drawn("reasoning_gym:mine", ["low=2", "name=x"], 5) == [problem]
        assert (len(asked), kept.read_bytes()) == (times, whole)
    gym._draws.cache_clear()


@pytest.mark.parametrize(
    ("name", "config", "named"),
    [
        ("leg_counting", {"max_animal": 3}, "'max_animals'"),
        ("leg_counting", {"max_animals": 0}, "{'max_animals': 0}"),
        ("game_of_life_halting", {}, "takes any answer"),
        ("coin_flip", {}, "takes 0 for 0."),
        ("rearc", {}, "refuses its own answer"),
    ],
)
def test_why_a_set_cannot_be_used(name: str, config: dict[str, int], named: str) -> None:
    with pytest.raises(draws.Unusable, match=re.escape(named)):
        draws.entries(name, config, 24)


def test_the_package_is_needed_in_this_version(mcpo_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(package: str) -> str:
        raise PackageNotFoundError(package)

    monkeypatch.setattr(gym, "version", missing)
    with refused("not_installed") as caught:
        gym.drawn("reasoning_gym:leg_counting")
    assert caught.value.fix == extras.command("gym")
    monkeypatch.setattr(gym, "version", lambda package: "0.1.99")
    with refused("not_installed"):
        gym.drawn("reasoning_gym:leg_counting")


# grading


SLOW_TO_DRAW = {"knight_swap", "futoshiki", "sokoban", "zebra_puzzles"}
UNUSABLE = {"composite", "coin_flip", "game_of_life_halting", "arc_agi", "rearc"}


@pytest.mark.slow
def test_no_verifier_takes_nan_or_an_empty_answer() -> None:
    """Verifiers that test if a difference is too large would accept NaN; their code is not mcpo's."""
    texts = ["nan", "nanj", "NaN + NaNi", "inf", "[]", "{}", "null", "", '""']
    texts += [json.dumps([bad] * count) for bad in (math.nan, "nan", math.inf) for count in range(1, 11)]
    for name in sorted(set(DATASETS) - SLOW_TO_DRAW - UNUSABLE):
        (entry,) = json.loads(json.dumps([reasoning_gym.create_dataset(name, seed=1, size=1)[0]]))
        problem = json.dumps({"set": name, "config": {}, "entry": entry})
        assert {text for text in texts if grader.grade(problem, text, True).status == "correct"} <= {entry["answer"]}


@pytest.mark.parametrize(
    ("response", "status", "answer"),
    [
        ("sun", "correct", "sun"),
        ("SUN", "correct", "SUN"),
        (r"reversed: \boxed{sun}", "correct", "sun"),
        (r"\boxed{\text{sun}}", "correct", "sun"),
        ("It is\nAnswer: sun", "correct", "sun"),
        (r"\boxed{nus}, no: \boxed{sun}", "wrong", "sun"),
        ("The letters are s, u, n: sun", "wrong", "The letters are s, u, n: sun"),
        ("su", "wrong", "su"),
        ("", "wrong", ""),
    ],
)
def test_the_answer_is_what_is_marked_or_the_whole_response(response: str, status: str, answer: str) -> None:
    verdict = grader.grade(gold("spell_backward", "sun"), response, False)
    assert (verdict.status, verdict.answer) == (status, answer)


def test_only_the_full_score_is_right() -> None:
    entry = json.loads(gold("spell_backward", "noremopyh"))["entry"]
    score = reasoning_gym.create_dataset("spell_backward").score_answer("noremopyx", entry)
    assert 0 < score < 1
    assert grader.grade(gold("spell_backward", "noremopyh"), "noremopyx", True).status == "wrong"


@pytest.mark.parametrize("error", [ValueError("no grid"), KeyError("x"), ZeroDivisionError()])
def test_an_answer_on_which_a_verifier_fails_is_wrong(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        def score_answer(self, answer: str, entry: object) -> float:
            raise error

    monkeypatch.setattr(grader, "_verifier", lambda name, config: Failing())
    verdict = grader.grade(gold("mine", "1"), "2", False)
    assert (verdict.status, verdict.answer) == ("wrong", "2")
    assert type(error).__name__ in verdict.detail


def test_training_ends_where_answers_cannot_be_judged() -> None:
    right = [(problem.gold, gym.answer(problem) or "") for problem in gym.drawn(WORDS, SHORT, COUNT)[:20]]
    verdicts = grading.grades("reasoning_gym", [*right, (gold("nothing", "1"), "1")], apart=True)
    assert [verdict.status for verdict in verdicts] == ["correct"] * 20 + ["infra_error"]
    with refused("ungraded"):
        grading.grades("reasoning_gym", [*right, *[(gold("nothing", "1"), "1")] * 4], apart=True)


# existing models


def test_verl_gets_each_problem_with_the_grader_of_its_own_set(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    rows = "".join(json.dumps({"problem": f"How many are {i}?", "answer": i}) + "\n" for i in range(30))
    (tmp_path / "aime24.jsonl").write_text(rows)
    benchmarks = f"task.benchmarks=[{WORDS}:held_out,aime24]"
    sizes = ["train.steps=2", "train.prompts=4", "train.mini_batch=2", "probe.panel=4", f"task.data_path={tmp_path}"]
    (run,) = load(["scale=paper", f"task.data={WORDS}", benchmarks, "task.prompt=boxed", *sizes])
    paths = planned(run, tmp_path)
    run.task.check()
    write(run, lambda messages: [0], paths)
    held_out = pq.read_table(paths.held_out).to_pylist()
    graders = {(row["data_source"], row["extra_info"]["grader"]) for row in held_out}
    assert graders == {(f"{WORDS}:held_out", "reasoning_gym"), ("aime24", "math_verify")}
    assert run.task.tier_sizes(5) == {f"{WORDS}:held_out": 200, "aime24": 30}
    trained = pq.read_table(paths.train).to_pylist()
    assert {row["extra_info"]["grader"] for row in trained} == {"reasoning_gym"}
    assert not {row["extra_info"]["problem"] for row in trained} & {row["extra_info"]["problem"] for row in held_out}
    assert trained[0]["prompt"][0]["content"].endswith("put your final answer within \\boxed{}.")
    # Resampled problems are named by their reason.
    assert run.task.grader_of("mastered") == "reasoning_gym"


def test_a_set_is_training_or_a_benchmark() -> None:
    with refused("contradiction", WORDS):
        load(["scale=paper", f"task.benchmarks=[{WORDS}]"])
    with refused("contradiction", WORDS):
        load(["scale=paper", f"task.data={WORDS}:held_out"])


# models from scratch


def test_tokens_are_characters_and_come_back_as_they_were() -> None:
    task = words()
    tokenizer = tokenizers.build(task.vocabulary)
    assert len(tokenizer) == 97  # digits, letters and punctuation of ASCII, space and line break, the end
    problem = task.training(0, 0, 1)[0]
    (row,) = prompts(tokenizer, [problem])
    assert len(row) == len(problem.text) == task.prompt_length == 60
    assert tokenizer(problem.text)["input_ids"] == row.tolist()
    assert tokenizer.decode(row) == problem.text
    assert problem.text.lstrip("_").startswith("Spell this word backward")
    text = "a b\n_C<eos>"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_nothing_trained_on_is_evaluated_and_streams_do_not_depend_on_how_they_are_read() -> None:
    task = words()
    (tier,) = task.tiers(20).values()
    assert len({problem.text for problem in tier}) == 20
    stream = task.training(3, 0, 400)
    shown = [problem for step in range(10) for problem in task.demonstrations(3, step, 64)]
    assert not {problem.text for problem in tier} & {problem.text for problem in [*stream, *shown]}
    assert [*task.training(3, 0, 150), *task.training(3, 150, 250)] == stream
    assert task.training(4, 0, 400) != stream
    assert task.tier_of(stream[0].text) == "spell_backward"


def test_what_does_not_fit_is_left_out() -> None:
    longest = words(longest_question=51, longest_answer=3)
    assert {len(gym.answer(problem) or "") for problem in longest.training(0, 0, 50)} == {3}
    with refused("no_room"):
        words(longest_question=20).check()
    with refused("no_room", "eval.problems=900"):
        words().tiers(900)
    with refused("no_room", WORDS, "a batch has 4096"):
        words().problems(load(["train.prompts=4096", "train.mini_batch=4096"])[0].train, lambda messages: 1)
    assert gym.answer(Problem("", gold("x", None))) is None


def test_settings_that_contradict_each_other() -> None:
    with refused("contradiction", "train.max_prompt=32"):
        load(["task=gym", "task.longest_question=60"])
    with refused("contradiction", "task.data=aime24"):
        load(["task=gym", "task.data=aime24"])
    with refused("bad_input", "task.config"):
        load(["task=gym", "task.config=[max_word_len]"])


def test_an_existing_model_is_asked_in_the_set_s_own_words() -> None:
    task = words(form="words", examples=2)
    asked = task.problems(load(["train.prompts=4", "train.mini_batch=4"])[0].train, lambda messages: 1)
    drawn = gym.drawn(WORDS, SHORT, COUNT)
    trained = [problem for problem in drawn if not held_out(problem)]
    assert {problem.text for problem in asked.training(0, 0, COUNT)} == {problem.text for problem in trained[2:]}
    assert asked.tiers(20)["spell_backward"] == [problem for problem in drawn if held_out(problem)][:20]
    first, second, third = trained[:3]
    turns = [("user", first.text), ("assistant", gym.answer(first)), ("user", second.text)]
    turns += [("assistant", gym.answer(second)), ("user", third.text)]
    assert task.messages(third) == [{"role": role, "content": content} for role, content in turns]
    plain = words(form="words", style="plain", examples=1)
    text = f"Question: {first.text}\nAnswer: {gym.answer(first)}\n\nQuestion: {third.text}\nAnswer:"
    assert plain.messages(third) == [{"role": "text", "content": text}]
    assert plain.stops == ("\n\n", "\nQuestion:")
    assert task.judged_apart
    assert (task.grader_of(task.source), task.vocabulary, task.stops) == ("reasoning_gym", (), ())
    verdict = grader.grade(third.gold, f" {gym.answer(third)}", False)
    assert verdict.status == "correct"


def test_a_model_from_scratch_needs_characters() -> None:
    with refused("contradiction", "task=gym"):
        tasks.closed(words(form="words"))
    with refused("contradiction", "task.style=chat", "task.form=characters") as raised:
        load(["task=gym", "task.style=chat"])
    assert raised.value.fix == "task.form=words"
    with refused("contradiction", "task.examples=1", "task=gym"):
        load(["task=gym", "task.examples=1"])
