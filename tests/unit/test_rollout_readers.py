"""Rollouts and evaluations of verifiers, prime-rl, NeMo Evaluator and OpenCompass, in the form that each writes."""

import json
from pathlib import Path
from typing import Any

import pytest

from mcpo_cli.compare.readers import Options, read
from tests.errors import refused
from tests.unit.test_readers import lines


def episode(number: int, reward: float | None, env: str = "sums", **agent: Any) -> dict[str, Any]:
    """A row that verifiers 0.4.0 writes, without what no reader looks at; without a reward it failed."""
    data = {"idx": number, "prompt": f"{number} + 1 =", "system_prompt": "Answer.", "answer": str(number + 1)}
    task = {"type": "Sums", "data": data, "key": f"k{number}", "hash": f"h{number}"}
    said = [("system", "Answer."), ("user", data["prompt"]), ("assistant", "2")]
    trace = {
        "version": 1,
        "verifiers": {"version": "0.4.0"},
        "task": task,
        "agent": {"config": {"model": "org/model", "sampling": {"temperature": 0.7}}, "name": "agent",
                  "trainable": True, **agent},
        "nodes": [{"message": {"role": role, "content": text}, "sampled": role == "assistant"} for role, text in said],
        "calls": [{"node": 2, "model": "org/model", "usage": {"prompt_tokens": 5, "completion_tokens": 1}}],
        "rewards": {"right": None if reward is None else {"score": reward, "weight": 1.0},
                    **({} if reward is None else {"form": {"score": 1.0, "weight": 0.5}})},
        "metrics": {} if reward is None else {"length": 3.0},
        "ok": reward is not None,
    }  # fmt: skip
    return {"id": "0a1b", "env": {"id": env}, "task": task, "ok": reward is not None, "errors": [], "traces": [trace]}


def test_episodes_of_verifiers(tmp_path: Path) -> None:
    judge = episode(1, 0.25, trainable=False)["traces"]
    rows = [*(episode(number, float(number % 2)) for number in range(3) for _ in range(2)), episode(2, None)]
    rows[0]["traces"] += judge
    rows.append({**episode(3, None), "traces": []})
    lines(tmp_path / "sums--model--null" / "0a1b" / "traces.jsonl", rows)
    (log,) = read(tmp_path, Options())
    facts = {"metric": "reward", "verifiers": "0.4.0", "sampling": '{"temperature": 0.7}'}
    assert (log.model, log.facts) == ("org/model", {"sums": facts})
    assert log.samples["correct"].tolist() == [0.5, 0.5, 1.5, 1.5, 0.5, 0.5]
    first = log.samples[["problem", "prompt", "response", "gold", "tokens"]].iloc[0]
    assert first.tolist() == ["k0", "Answer.\n0 + 1 =", "2", "1", 1]
    (note,) = log.notes
    assert note.endswith("2 of 8 samples were not scored, and were left out")
    (named,) = read(tmp_path, Options({"correct": ["right"], "problem": ["idx"]}))
    assert named.samples[["problem", "correct"]].to_numpy().tolist()[1:3] == [["0", 0.0], ["1", 1.0]]
    with refused("bad_data", "'length'"):
        read(tmp_path, Options({"correct": ["lenght"]}))


def test_of_a_run_of_prime_rl_the_last_evaluation_counts(tmp_path: Path) -> None:
    for run, right in (("s0", 0.0), ("s1", 1.0)):
        rollouts = tmp_path / run / "rollouts"
        for step, kind, subset, reward in (
            (10, "eval", "effective", right), (10, "eval", "all", -1.0), (9, "eval", "effective", -1.0),
            (12, "train", "effective", -1.0),
        ):  # fmt: skip
            rows = [episode(number, reward, env) for number in range(2) for env in ("sums", "words")]
            lines(rollouts / f"step_{step}" / kind / subset / "traces.jsonl", rows)
    logs = read(tmp_path, Options())
    assert [log.path for log in logs] == [tmp_path / "s0", tmp_path / "s1"]
    assert [log.samples["correct"].unique().tolist() for log in logs] == [[0.5], [1.5]]
    assert set(logs[0].samples["benchmark"]) == {"sums", "words"}
    (words,) = read(tmp_path / "s0", Options(benchmark="words"))
    assert words.samples["benchmark"].tolist() == ["words"] * 2
    with refused("bad_data", "'wrods'", "words"):
        read(tmp_path / "s0", Options(benchmark="wrods"))


def test_results_of_nemo_evaluator(tmp_path: Path) -> None:
    """The records of its docs/result-format.mdx, beside a bundle."""
    rewards = {0: ("arithmetic", [1.0, 1.0, 0.0]), 1: ("geography", [0.0, 0.0, 1.0])}
    rows = [
        {"problem_idx": number, "reward": reward, "repeat": at, "expected_answer": "42", "model_response": "It is 42.",
         "extracted_answer": "42", "prompt": "6 * 7?", "metadata": {"category": category}, "tokens": 4}
        for number, (category, given) in rewards.items() for at, reward in enumerate(given)
    ]  # fmt: skip
    for name in ("mmlu_pro", "gpqa"):
        lines(tmp_path / name / "results.jsonl", rows)
        bundle = {"sdk_version": "0.3.0", "timestamp": "2026-04-02T12:00:00+00:00", "benchmark": {"name": name},
                  "config": {"model": "nemotron", "temperature": 0.6}}  # fmt: skip
        (tmp_path / name / f"eval-20260402T120000Z-{name}.json").write_text(json.dumps(bundle))
    (log,) = read(tmp_path, Options())
    assert (log.model, set(log.samples["benchmark"])) == ("nemotron", {"mmlu_pro", "gpqa"})
    assert log.facts["gpqa"] == {"metric": "reward", "nemo-evaluator": "0.3.0", "temperature": "0.6"}
    means = log.samples.groupby(["benchmark", "problem"], observed=True)["correct"].mean()
    assert means["gpqa"].tolist() == pytest.approx([2 / 3, 1 / 3])
    assert log.samples.iloc[-1][["sample", "category", "answer"]].tolist() == [2, "geography", "42"]


def test_details_of_opencompass(tmp_path: Path) -> None:
    def written(date: str, model: str, dataset: str, details: object) -> None:
        path = tmp_path / date / "results" / model / f"{dataset}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"accuracy": 50.0, "details": details}, indent=4))

    runs = [{"example_abbr": f"gsm8k_{at}", "pred": ["7", "8"], "answer": ["7", "7"], "correct": [True, at == 1]}
            for at in range(2)]  # fmt: skip
    written("20261124_115616", "qwen", "gsm8k", runs)
    written("20261123_100000", "qwen", "gsm8k", [{**runs[0], "correct": [False, False]}])
    one = {"prompt": "Q", "origin_prediction": "so A", "predictions": "A", "references": "B", "correct": False}
    written("20261124_115616", "qwen", "mmlu", {"type": "GEN", "0": one, "1": {**one, "correct": True}})
    (log,) = read(tmp_path, Options())
    assert (log.model, log.facts["gsm8k"]) == ("qwen", {"metric": "correct"})
    found = log.samples[["benchmark", "problem", "sample", "correct", "answer", "gold"]].to_numpy().tolist()
    assert found == [
        ["gsm8k", "gsm8k_0", 0, 1.0, "7", "7"], ["gsm8k", "gsm8k_0", 1, 0.0, "8", "7"],
        ["gsm8k", "gsm8k_1", 0, 1.0, "7", "7"], ["gsm8k", "gsm8k_1", 1, 1.0, "8", "7"],
        ["mmlu", "0", 0, 0.0, "A", "B"], ["mmlu", "1", 0, 1.0, "A", "B"],
    ]  # fmt: skip
    (note,) = log.notes
    assert "20261123_100000" in note
    assert log.samples["response"].tolist()[-1] == "so A"


def test_rollouts_of_verifiers_before_0_4(tmp_path: Path) -> None:
    folder = tmp_path / "outputs" / "evals" / "sums--model" / "0a1b2c3d"
    rows = [
        {"example_id": example, "prompt": [{"role": "user", "content": f"{example} + 1"}], "reward": float(example % 2),
         "completion": [{"role": "assistant", "content": "2"}], "answer": str(example + 1), "format": 1.0}
        for example in range(4) for _ in range(2)
    ]  # fmt: skip
    lines(folder / "results.jsonl", rows)
    about = {"env_id": "sums", "model": "org/model", "sampling_args": {"temperature": 0.7}}
    (folder / "metadata.json").write_text(json.dumps(about))
    (log,) = read(tmp_path / "outputs", Options())
    assert (log.model, log.facts) == (
        "org/model",
        {"sums": {"metric": "reward", "sampling_args": '{"temperature": 0.7}'}},
    )
    assert log.samples.groupby("problem", observed=True)["correct"].agg(["size", "mean"]).to_numpy().tolist() == [
        [2, 0], [2, 1], [2, 0], [2, 1]
    ]  # fmt: skip
    assert log.samples[["prompt", "response", "gold"]].iloc[0].tolist() == ["0 + 1", "2", "1"]
    assert set(read(tmp_path, Options({"correct": ["format"]}))[0].samples["correct"]) == {1.0}


def test_rollouts_of_old_verifiers_without_a_reward_are_left_out(tmp_path: Path) -> None:
    row = {"prompt": "1 + 1", "completion": "2"}
    rows = [{**row, "example_id": at, "reward": reward} for at, reward in enumerate((None, 1.0, 0.0))]
    (log,) = read(lines(tmp_path / "results.jsonl", rows), Options())
    assert log.samples["correct"].tolist() == [1.0, 0.0]
    (note,) = log.notes
    assert "1 of 3 samples have no score" in note
