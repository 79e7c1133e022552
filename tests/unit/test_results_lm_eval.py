"""Folders of lm-evaluation-harness, in the form that 0.4.13 writes."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mcpo_cli.compare.comparison import Question
from mcpo_cli.compare.log import Side
from mcpo_cli.compare.logs import of_logs
from mcpo_cli.compare.readers import lm_eval
from mcpo_cli.compare.readers.columns import Options
from tests.errors import refused

read = lm_eval.READER.read
DATE = "2026-11-24T11-56-16.205499"


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
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"samples_{task}_{date}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
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
    ("rows", "options", "words"),
    [
        ([row(0, 1.0)], Options({"correct": ["exact_macth"]}), "did you mean 'exact_match'"),
        ([row(0, 1.0)], Options(benchmark="smus"), "did you mean 'sums'"),
    ],
)
def test_a_name_that_is_not_there_is_refused_with_the_nearest(
    tmp_path: Path, rows: list[dict[str, Any]], options: Options, words: str
) -> None:
    with refused("bad_data", words):
        read(written(tmp_path, rows), options)


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
