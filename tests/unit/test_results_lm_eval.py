"""Folders of lm-evaluation-harness, in the form that 0.4.13 writes."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mcpo_cli.compare.readers import lm_eval
from mcpo_cli.compare.readers.base import Options
from tests.errors import refused

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
    (log,) = lm_eval.read(tmp_path / "out", Options())
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


def test_prompts_that_differ_have_another_fact(tmp_path: Path) -> None:
    same = [row(i, 1.0) for i in range(3)]
    other = [*same[:2], row(2, 1.0, prompt_hash="f" * 64)]
    found = [
        lm_eval.read(written(tmp_path / name, rows), Options())[0].facts["sums"]["prompts"]
        for name, rows in (("a", same), ("b", list(same)), ("c", other))
    ]
    assert found[0] == found[1] != found[2]


def test_the_newest_file_of_a_task_counts_and_each_model_is_a_log(tmp_path: Path) -> None:
    written(tmp_path / "a", [row(0, 0.0), row(1, 0.0)], date="2026-11-23T10-00-00.000001")
    written(tmp_path / "a", [row(0, 1.0), row(1, 1.0)])
    written(tmp_path / "b", [row(0, 0.0), row(1, 1.0)])
    found = {log.path.name: log.samples["correct"].tolist() for log in lm_eval.read(tmp_path, Options())}
    assert found == {"a": [1.0, 1.0], "b": [0.0, 1.0]}


@pytest.mark.parametrize(
    ("rows", "options", "words"),
    [
        ([row(0, 1.0)], Options({"correct": ["exact_macth"]}), "did you mean 'exact_match'"),
        ([row(0, 1.0)], Options(benchmark="smus"), "did you mean 'sums'"),
        ([row(0, 1.0, metrics=["perplexity"], perplexity=3.1)], Options({"correct": ["perplexity"]}), "3.1"),
    ],
)
def test_a_name_that_is_not_there_is_refused_with_the_nearest(
    tmp_path: Path, rows: list[dict[str, Any]], options: Options, words: str
) -> None:
    with refused("bad_data", words):
        lm_eval.read(written(tmp_path, rows), options)
