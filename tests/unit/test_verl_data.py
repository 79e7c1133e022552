"""Problems in verl's schema equal the local backend's training stream, in the same order."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from mcpo_cli import data, tasks
from mcpo_cli.backends.verl.data import prompt_ids, stops, stream_length, write
from mcpo_cli.backends.verl.overrides import planned
from mcpo_cli.config.load import load
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.runs.journal import read_json
from tests.models import existing, untrained

TINY = (
    "train.steps=2",
    "train.prompts=4",
    "train.mini_batch=2",
    "train.max_refills=2",
    "eval.problems=3",
    "probe.panel=5",
)


def spec(*overrides: str) -> RunSpec:
    return load(list(overrides))[0]


def written(run: RunSpec, home: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    paths = planned(run, home)
    write(run, lambda messages: range(run.train.max_prompt + ("too long" in messages[0]["content"])), paths)
    return pq.read_table(paths.train).to_pylist(), pq.read_table(paths.held_out).to_pylist()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Nine training problems, one of them too long, and a benchmark of 30."""
    path = tmp_path / "data"
    path.mkdir()
    rows = {
        "dapo_math_17k": [{"problem": f"What is {i}?", "answer": i} for i in range(8)]
        + [{"problem": "too long " * 9, "answer": 1}],
        "aime24": [{"problem": f"How many are {i}?", "answer": i} for i in range(30)],
    }
    for name, lines in rows.items():
        (path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def math(folder: Path, *overrides: str) -> RunSpec:
    return spec("scale=paper", "task.benchmarks=[aime24]", f"task.data_path={folder}", *TINY, *overrides)


@pytest.mark.parametrize("regime", ["drift", "skills-drift"])
def test_arithmetic_is_the_local_stream_row_by_row(regime: str, tmp_path: Path) -> None:
    run = spec("scale=verl-cpu", f"regime={regime}", "seed=3", *TINY)
    train, held_out = written(run, tmp_path)
    local = tasks.closed(spec("backend=local", "scale=verl-cpu", f"regime={regime}", "seed=3", *TINY).task)
    expected = local.training(3, 0, 8)
    assert [row["extra_info"]["problem"] for row in train] == [problem.text for problem in expected]
    assert [row["prompt"] for row in train] == [[{"role": "user", "content": problem.text}] for problem in expected]
    assert [row["reward_model"]["ground_truth"] for row in train] == [problem.gold for problem in expected]
    assert [row["extra_info"]["index"] for row in train] == list(range(8))
    tiers = local.tiers(3)
    assert [(row["data_source"], row["extra_info"]["problem"]) for row in held_out] == [
        (tier, problem.text) for tier, problems in tiers.items() for problem in problems
    ]
    assert {row["extra_info"]["grader"] for row in train + held_out} == {"trace"}


def test_there_are_problems_for_every_refill_and_place_of_the_panel(tmp_path: Path) -> None:
    run = spec("scale=verl-cpu", "method=dapo", *TINY)
    assert stream_length(run) == 2 * 4 * 3
    assert len(written(run, tmp_path)[0]) == 24
    assert stream_length(spec("scale=verl-cpu", "method=dapo", "method.dynamic_sampling=false", *TINY)) == 8
    by_position = spec("scale=verl-cpu", "method=dapo", "sampler=greso", "task.pool=64", *TINY)
    assert stream_length(by_position) == max(4, by_position.probe.panel)  # One batch; `queue.Rounds` asks for the rest.
    short = "train.steps=1", "train.prompts=4", "train.mini_batch=2"
    assert stream_length(spec("scale=verl-cpu", "method=mcpo", *short, "probe.panel=7")) == 7


def test_math_goes_round_in_epochs_and_leaves_out_what_is_too_long(folder: Path, tmp_path: Path) -> None:
    run = math(folder)
    run = replace(run, train=replace(run.train, steps=4))
    train, held_out = written(run, tmp_path)
    texts = [row["extra_info"]["problem"] for row in train]
    assert len(texts) == 16
    assert set(texts[:8]) == set(texts[8:]) == {f"What is {i}?" for i in range(8)}
    assert texts[:8] != texts[8:]
    first = train[0]
    assert first["prompt"][0]["content"].startswith("Solve the following math problem step by step.")
    assert first["extra_info"]["problem"] in first["prompt"][0]["content"]
    assert first["reward_model"]["ground_truth"] == first["extra_info"]["problem"][8:-1]
    assert {row["extra_info"]["grader"] for row in train + held_out} == {"math_verify"}
    assert [row["data_source"] for row in held_out] == ["aime24"] * 30
    assert {row["data_source"] for row in train} == {"dapo_math_17k"}
    expected = {problem.text for problem in data.load("aime24", folder).problems}
    assert {row["extra_info"]["problem"] for row in held_out} == expected


def test_a_run_records_what_its_data_were(folder: Path, tmp_path: Path) -> None:
    run = math(folder)
    written(run, tmp_path)
    found = read_json(tmp_path / "runs" / run.run_id / "data.json")
    loaded = data.load("dapo_math_17k", folder)
    assert found["dapo_math_17k"] == {
        "digest": loaded.digest, "source": "dapo_math_17k.jsonl", "problems": 9, "left_out": 1,
    }  # fmt: skip
    assert (found["aime24"]["problems"], found["aime24"]["left_out"]) == (30, 0)
    arithmetic = spec("scale=verl-cpu", *TINY)
    written(arithmetic, tmp_path)
    assert not (tmp_path / "runs" / arithmetic.run_id / "data.json").exists()


def test_a_later_attempt_finds_the_same_file(folder: Path, tmp_path: Path) -> None:
    run = math(folder)
    before = written(run, tmp_path)
    (folder / "dapo_math_17k.jsonl").unlink()
    assert written(run, tmp_path) == before


@pytest.mark.parametrize(("style", "found"), [("plain", ("\n",)), ("chat", ())])
def test_rows_have_the_tasks_stop_strings_if_there_are_any(style: str, found: tuple[str, ...], tmp_path: Path) -> None:
    model = existing(tmp_path / "model")
    run = spec("scale=verl-cpu", "task=sums", f"task.style={style}", f"model.path={model}", *TINY)
    train, held_out = written(run, tmp_path)
    assert {stops(row["extra_info"]) for row in train + held_out} == {found}
    assert all(("stops" in row["extra_info"]) == bool(found) for row in train + held_out)


def test_a_prompt_is_measured_in_the_models_own_tokens(tmp_path: Path) -> None:
    model = untrained(tmp_path / "model")
    ids = prompt_ids(model, tasks.get("sums"))
    counts = [len(ids([{"role": "user", "content": text}])) for text in ("1 + 2 =", "1 + 2 + 3 =")]
    assert counts == [4, 6]
