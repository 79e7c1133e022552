"""Logs of lm-evaluation-harness 0.4.13, verifiers, prime-rl, NeMo Evaluator and OpenCompass, as each writes them."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mcpo_cli.compare.comparison import Question
from mcpo_cli.compare.log import Side
from mcpo_cli.compare.logs import of_logs
from mcpo_cli.compare.readers import Options, lm_eval, read
from tests.errors import refused
from tests.unit.test_readers import DATE, lines

# --- lm-evaluation-harness --------------------------------------------------------------------------------------------


def row(number: int, correct: float, name: str = "none", **more: Any) -> dict[str, Any]:
    """A row of samples_*.jsonl."""
    return {
        "doc_id": number,
        "doc": {"q": f"{number} + 2 ="},
        "target": str(number + 2),
        "arguments": {"gen_args_0": {"arg_0": f"{number} + 2 =", "arg_1": {"until": ["\n"]}}},
        "resps": [[f" {number}", " 7"]],
        "filtered_resps": [f"{number}"],
        "filter": name,
        "metrics": ["exact_match"],
        "doc_hash": f"{number:064x}",
        "prompt_hash": f"{number + 1:064x}",
        "target_hash": f"{number + 2:064x}",
        "exact_match": correct,
    } | more


def written(folder: Path, rows: Sequence[dict[str, Any]], task: str = "sums", date: str = DATE) -> Path:
    lines(folder / f"samples_{task}_{date}.jsonl", rows)
    settings = {"generation_kwargs": {"temperature": 1.0}}
    document = {"configs": {task: settings}, "versions": {task: 1.0}, "n-shot": {task: 5}, "lm_eval_version": "0.4.13"}
    (folder / f"results_{date}.json").write_text(json.dumps(document))
    return folder


def test_a_folder_is_read_task_by_task_and_filter_by_filter(tmp_path: Path) -> None:
    written(tmp_path / "out" / "model", [row(i, i % 2, name) for name in ("strict", "flexible") for i in range(3)])
    written(tmp_path / "out" / "model", [row(i, 1.0) for i in range(2)], task="other_task")
    assert lm_eval.READER.recognises(tmp_path / "out")
    (log,) = read(tmp_path / "out", Options())
    counts = log.samples.groupby("benchmark", observed=True)["correct"].agg(["size", "sum"])
    assert {str(name): tuple(values) for name, *values in counts.itertuples()} == {
        "sums (strict)": (3, 1),
        "sums (flexible)": (3, 1),
        "other_task": (2, 2),
    }
    facts = log.facts["other_task"]
    assert (facts["examples"], facts["task version"], facts["lm_eval"]) == ("5", "1.0", "0.4.13")
    assert facts["generation"] == '{"temperature": 1.0}'
    first = log.samples.iloc[0]
    assert (first["response"], first["answer"], first["gold"]) == (" 0", "0", "2")


def test_prompts_are_compared_over_the_problems_that_both_have(tmp_path: Path) -> None:
    """A log of fewer problems has other prompts only if one of those differs."""
    rows = [row(i, i % 2) for i in range(4)]
    logs = {"a": rows, "b": rows[:3], "c": [*rows[:2], row(2, 1.0, prompt_hash="f" * 64)]}
    sides = {name: Side(name, tuple(read(written(tmp_path / name, of), Options()))) for name, of in logs.items()}
    found = {name: of_logs([sides["a"], sides[name]], Question()).warnings for name in "bc"}
    assert not [warning for warning in found["b"] if "prompts" in warning]
    assert "sums: prompts differ on 1 of the 3 problems that both have" in found["c"]


def test_a_column_that_the_user_names_takes_the_place_of_the_readers(tmp_path: Path) -> None:
    """Document numbers and hashes shift between revisions of a set; its questions stay."""
    old = written(tmp_path / "old", [row(i, i % 2) for i in range(4)])
    new = written(tmp_path / "new", [row(i, i % 3 == 0, doc_id=i + 7, doc_hash="ab" * 32) for i in range(4)])
    sides = [Side(path.name, tuple(read(path, Options({"problem": ["q"]})))) for path in (old, new)]
    assert sides[0].scores("sums").problems == sides[1].scores("sums").problems == tuple(f"{i} + 2 =" for i in range(4))
    with refused("bad_data", "'question'", " q,"):
        read(old, Options({"problem": ["question"]}))


def test_a_task_without_a_known_metric_leaves_the_others(tmp_path: Path) -> None:
    written(tmp_path, [row(i, 1.0) for i in range(3)])
    written(tmp_path, [row(i, 0, metrics=["bleu"], bleu=3.5) for i in range(3)], task="translate")
    (log,) = read(tmp_path, Options())
    assert log.samples["benchmark"].unique().tolist() == ["sums"]
    assert [note for note in log.notes if "samples_translate" in note and "bleu" in note]
    assert read(tmp_path, Options(benchmark="sums"))[0].notes == ()
    with refused("bad_data", "bleu"):
        read(tmp_path, Options(benchmark="translate"))
    (translated,) = read(tmp_path, Options({"correct": ["bleu"]}, "translate"))
    assert translated.samples["correct"].tolist() == [3.5] * 3


def test_settings_are_of_the_same_date_and_the_older_log_is_named(tmp_path: Path) -> None:
    written(tmp_path, [row(i, 0.0) for i in range(3)], date="2026-11-23T10-00-00.000001")
    written(tmp_path, [row(i, 1.0) for i in range(3)])
    newer = json.loads((tmp_path / f"results_{DATE}.json").read_text())
    (tmp_path / f"results_{DATE}.json").write_text(json.dumps({**newer, "n-shot": {"sums": 0}}))
    (log,) = read(tmp_path, Options())
    assert (log.samples["correct"].tolist(), log.facts["sums"]["examples"]) == ([1.0] * 3, "0")
    assert [note for note in log.notes if "2026-11-23" in note and "left out" in note]
    (older,) = read(tmp_path / "samples_sums_2026-11-23T10-00-00.000001.jsonl", Options())
    assert older.facts["sums"]["examples"] == "5"


def test_folders_of_one_model_are_its_tasks_or_its_seeds_and_two_models_in_a_folder_are_two_logs(
    tmp_path: Path,
) -> None:
    def of_model(folder: Path, model: str, task: str, date: str = DATE) -> None:
        written(folder, [row(i, 1.0) for i in range(3)], task, date)
        document = json.loads((folder / f"results_{date}.json").read_text())
        (folder / f"results_{date}.json").write_text(json.dumps({**document, "model_name": model}))

    of_model(tmp_path / "tasks" / "sums", "m", "sums")
    of_model(tmp_path / "tasks" / "other", "m", "other")
    (log,) = read(tmp_path / "tasks", Options())
    assert (log.path, log.model, set(log.samples["benchmark"])) == (tmp_path / "tasks", "m", {"sums", "other"})
    for seed in ("s0", "s1"):
        of_model(tmp_path / "seeds" / seed, "m", "sums")
    assert [log.path.name for log in read(tmp_path / "seeds", Options())] == ["s0", "s1"]
    of_model(tmp_path / "both", "m", "sums", "2026-11-23T10-00-00.000001")
    of_model(tmp_path / "both", "n", "sums")
    assert [(log.model, log.notes) for log in read(tmp_path / "both", Options())] == [("m", ()), ("n", ())]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (Options({"correct": ["exact_macth"]}), "did you mean 'exact_match'"),
        (Options(benchmark="smus"), "did you mean 'sums'"),
    ],
)
def test_a_name_that_is_not_there_is_refused_with_the_nearest(tmp_path: Path, options: Options, words: str) -> None:
    with refused("bad_data", words):
        read(written(tmp_path, [row(0, 1.0)]), options)


def test_repeats_of_a_task_are_one_sample_with_the_score_that_the_harness_gives(tmp_path: Path) -> None:
    """`repeats: 3` in a task: a row for each document and filter, whose responses are a list for each request."""
    repeats = {"resps": [["7", "8", "7"]], "metrics": ["exact_match"]}
    voted = [row(i, float(i % 2), "maj@3", filtered_resps=["7"], **repeats) for i in range(3)]
    kept = [row(i, 2 / 3, "all", filtered_resps=[["7", "8", "7"]], **repeats) for i in range(3)]
    (log,) = read(written(tmp_path, voted + kept), Options())
    of_all = log.samples[log.samples["benchmark"] == "sums (all)"]
    assert of_all["correct"].tolist() == [2 / 3] * 3
    assert of_all[["response", "answer", "sample"]].to_numpy().tolist() == [["7", "7", 0]] * 3
    assert log.samples["benchmark"].value_counts().to_dict() == {"sums (maj@3)": 3, "sums (all)": 3}
    assert log.tasks == {"sums (maj@3)": "sums", "sums (all)": "sums"}


def test_rows_that_name_their_repeat_are_samples_of_a_problem(tmp_path: Path) -> None:
    (log,) = read(written(tmp_path, [row(i, float(k < i), repeat=k) for i in range(3) for k in range(4)]), Options())
    counts = log.samples.groupby("problem", observed=True)["correct"].agg(["size", "sum"]).to_numpy().tolist()
    assert counts == [[4, 0], [4, 1], [4, 2]]


def test_a_group_adds_nothing_to_its_tasks(tmp_path: Path) -> None:
    for task in ("sums_one", "sums_two"):
        written(tmp_path, [row(i, i % 2) for i in range(4)], task)
    path = tmp_path / f"results_{DATE}.json"
    grouped = {"results": {"sums": {"exact_match,none": 0.5}}, "groups": {"sums": {"exact_match,none": 0.5}}}
    grouped |= {"group_subtasks": {"sums": ["sums_one", "sums_two"]}}
    path.write_text(json.dumps(json.loads(path.read_text()) | grouped))
    (log,) = read(tmp_path, Options())
    assert log.samples["benchmark"].value_counts().to_dict() == {"sums_one": 4, "sums_two": 4}
    with refused("bad_data", "sums_one"):
        read(tmp_path, Options(benchmark="sums"))


def test_a_filter_is_compared_with_the_same_filter_of_another_log(tmp_path: Path) -> None:
    """A log of two filters and logs of one of them each: their only filters are no benchmark that both have."""
    filters = {"both": ("strict", "flexible"), "strict": ("strict",), "flexible": ("flexible",)}
    sides = {}
    for name, of in filters.items():
        folder = written(tmp_path / name, [row(i, i % 2, each) for each in of for i in range(4)])
        sides[name] = Side(name, tuple(read(folder, Options())))
    found = of_logs([sides["both"], sides["strict"]], Question())
    assert found.differences["benchmark"].tolist() == ["sums (strict)"]
    assert [warning for warning in found.warnings if "sums (flexible) was left out" in warning]
    three = of_logs([sides["both"], sides["strict"], replace(sides["both"], name="again")], Question())
    assert set(three.differences["benchmark"]) == {"sums (strict)"}, "of both pairs the filter that all have"
    with refused("nothing_pairs", "sums (strict)", "sums (flexible)"):
        of_logs([sides["strict"], sides["flexible"]], Question())
    (log,) = read(tmp_path / "strict", Options(benchmark="sums"))
    assert log.samples["benchmark"].unique().tolist() == ["sums (strict)"]


def test_a_row_without_a_score_is_named_even_if_it_is_the_first(tmp_path: Path) -> None:
    rows = [{**row(i, 1.0), "exact_match": None if i == 0 else 1.0} for i in range(3)]
    with refused("bad_data", "is empty (1 of 3"):
        read(written(tmp_path, rows), Options())


# --- rollouts and evaluations of other tools --------------------------------------------------------------------------


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


def test_rollouts_of_verifiers_before_0_4_of_which_one_without_a_reward_is_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "outputs" / "evals" / "sums--model" / "0a1b2c3d"
    rows: list[dict[str, Any]] = [
        {"example_id": example, "prompt": [{"role": "user", "content": f"{example} + 1"}], "reward": float(example % 2),
         "completion": [{"role": "assistant", "content": "2"}], "answer": str(example + 1), "format": 1.0}
        for example in range(4) for _ in range(2)
    ]  # fmt: skip
    lines(folder / "results.jsonl", [*rows, {**rows[0], "reward": None}])
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
    (note,) = log.notes
    assert "1 of 9 samples have no score" in note
    assert set(read(tmp_path, Options({"correct": ["format"]}))[0].samples["correct"]) == {1.0}
