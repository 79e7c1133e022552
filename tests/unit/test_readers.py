"""Readers of logs: the choice of a reader, the data that each finds, and refusals of bad logs with one message."""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mcpo_cli.compare.comparison import Question
from mcpo_cli.compare.log import Side
from mcpo_cli.compare.logs import of_logs
from mcpo_cli.compare.readers import Options, read, readers
from mcpo_cli.config import plan
from mcpo_cli.config.plan import Plan
from mcpo_cli.evaluation import gradings
from mcpo_cli.home import run_dir
from mcpo_cli.records import Results
from mcpo_cli.runs.journal import Journal
from tests import evaluations, store_runs
from tests.errors import refused

DATE = "2026-11-24T11-56-16.205499"
Write = Callable[[Path], Path]


def lines(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def verl(number: int, score: float = 1.0, **more: Any) -> dict[str, Any]:
    """A row of a validation dump, as verl 0.9.1 writes it."""
    row = {"input": f"user\n{number} + 2", "output": f"{number}", "gts": str(number + 2), "score": score, "step": 20}
    return row | {"reward": score} | more


def trl(folder: Path, step: int, rows: list[tuple[str, float]], **more: Any) -> Path:
    """A file of completions, as TRL 1.16 writes it, of prompts and rewards."""
    turns = [[{"role": "user", "content": prompt}] for prompt, _ in rows]
    said = [[{"role": "assistant", "content": f"of {prompt}"}] for prompt, _ in rows]
    table = {"step": step, "prompt": turns, "completion": said, "right": [reward for _, reward in rows]}
    path = folder / "completions" / f"completions_{step:05d}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame({**table, **more, "advantage": 0.5}).to_parquet(path)
    return path


def lighteval(folder: Path, scores: list[float], date: str = DATE, **more: Any) -> Path:
    """Details and results of one task, as lighteval 0.13 writes them."""
    details = folder / "details" / "org" / "model" / date / f"details_gsm8k|5_{date}.parquet"
    details.parent.mkdir(parents=True, exist_ok=True)
    docs = [
        {"query": f"Q{i}", "id": str(i), "choices": [f"gold {i}", "x"], "gold_index": [0], "generation_size": 256}
        for i in range(len(scores))
    ]
    responses = [{"text": [f"A{i}"], "input": f"5 examples, Q{i}"} for i in range(len(scores))]
    columns = {"doc": docs, "metric": [{"extractive_match": score} for score in scores], "model_response": responses}
    pd.DataFrame({**columns, **more}).to_parquet(details)
    results = folder / "results" / "org" / "model" / f"results_{date}.json"
    results.parent.mkdir(parents=True, exist_ok=True)
    model = {"generation_parameters": {"temperature": 0.6}}
    general = {"lighteval_sha": "abc", "model_config": model}
    tasks = {"gsm8k|5": {"num_fewshots": 5}}
    results.write_text(
        json.dumps({"config_general": general, "config_tasks": tasks, "versions": {"gsm8k|5": 0}}, indent=2)
    )
    return folder


# --- choice of the reader ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return {}['q']", "odd.py:5: KeyError: 'q'"),
        ("return 'samples'", "`read` returned str, not a list of Log"),
        ("return ['samples']", "`read` returned list, not a list of Log"),
    ],
)
def test_a_plug_in_that_reads_wrongly_is_blamed(tmp_path: Path, plugin_folder: Path, body: str, said: str) -> None:
    (plugin_folder / "odd.py").write_text(
        "from mcpo_cli.compare.readers import Reader\n\n\n"
        f"def read(path, options):\n    {body}\n\n\n"
        "READER = Reader('odd', 'odd: files *.odd', lambda path: path.suffix == '.odd', read)\n"
    )
    (tmp_path / "log.odd").touch()
    with refused("bad_function", said):
        read(tmp_path / "log.odd", Options())


def test_a_plug_in_reads_its_own_files(tmp_path: Path, plugin_folder: Path) -> None:
    """The example of docs/readers.md, unchanged."""
    page = (Path(__file__).parents[2] / "docs" / "readers.md").read_text(encoding="utf-8")
    (plugin_folder / "mine.py").write_text(page.partition("```python\n")[2].partition("```")[0])
    (tmp_path / "eval.mine").write_text("q1 1\nq2 0\nq2 1\n")
    (log,) = read(tmp_path / "eval.mine", Options(benchmark="sums"))
    assert [plugin.name for plugin in readers().plugins.values()] == ["mine.py"]
    found = log.samples[["benchmark", "problem", "correct"]].to_numpy().tolist()
    assert found == [["sums", "q1", 1.0], ["sums", "q2", 0.0], ["sums", "q2", 1.0]]
    assert log.facts == {"sums": {"tool": "mine 1.0"}}


def test_a_plug_in_that_fails_at_a_file_leaves_it_to_the_others(
    tmp_path: Path, plugin_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (plugin_folder / "odd.py").write_text(
        "from mcpo_cli.compare.readers import Reader\nREADER = Reader('odd', 'odd', lambda path: 1 / 0, None)\n"
    )
    assert read(lines(tmp_path / "20.jsonl", [verl(1)]), Options())
    assert "the reader odd failed at" in capsys.readouterr().err


def test_a_reader_can_be_named_and_a_table_is_read_where_no_tool_wrote_it(tmp_path: Path) -> None:
    file = lines(tmp_path / "20.jsonl", [verl(number) for number in range(3)])
    (found,) = read(file, Options())
    (table,) = read(file, Options({"problem": ["input"], "correct": ["score"]}), "table")
    assert found.facts["validation"]["step"] == "20"
    assert table.samples["problem"].tolist() == found.samples["prompt"].tolist()


# --- data of each reader ----------------------------------------------------------------------------------------------


def test_of_verl_the_last_step_counts_and_the_last_turn_of_a_rollout(tmp_path: Path) -> None:
    turns = [verl(1, -1.0, step=100, acc=False, uid="u_0_0"), verl(1, 1.0, step=100, acc=True, uid="u_0_1")]
    lines(tmp_path / "s1" / "100.jsonl", turns)
    lines(tmp_path / "s1" / "20.jsonl", [verl(1, -1.0, acc=False)])
    lines(tmp_path / "s2" / "20.jsonl", [verl(1, 1.0, acc=True), verl(1, -1.0, acc=False)])
    first, second = read(tmp_path, Options())
    assert (first.samples["correct"].tolist(), first.facts) == ([1.0], {"validation": {"metric": "acc", "step": "100"}})
    side = Side("arm", (first, second)).scores("validation")
    assert (side.seeds, side.samples_SP.tolist(), side.sum_SP.tolist()) == (("1", "2"), [[1], [2]], [[1], [1]])


def test_of_trl_the_last_step_counts_and_the_only_reward(tmp_path: Path) -> None:
    trl(tmp_path, 2, [("a", 0.0)])
    trl(tmp_path, 10, [("a", 1.0), ("a", 0.0), ("b", 1.0)])
    (log,) = read(tmp_path, Options())
    assert log.facts == {"completions": {"metric": "right", "step": "10"}}
    assert sorted(log.samples.groupby("problem", observed=True)["correct"].mean()) == [0.5, 1.0]
    assert log.samples["response"].tolist() == ["of a", "of a", "of b"]
    several = trl(tmp_path / "two", 1, [("a", 1.0)], length=0.25)
    with refused("bad_data", "right", "length"):
        read(several, Options())
    assert read(several, Options({"correct": ["length"]}))[0].samples["correct"].tolist() == [0.25]


def test_of_lighteval_the_newest_details_count_with_the_settings_beside_them(tmp_path: Path) -> None:
    lighteval(tmp_path, [0.0, 0.0], "2026-11-23T10-00-00.000001")
    (log,) = read(lighteval(tmp_path, [1.0, 0.0]), Options())
    assert (log.model, log.samples["correct"].tolist()) == ("model", [1.0, 0.0])
    assert (log.samples["gold"][0], log.samples["response"][1], log.samples["prompt"][0]) == (
        "gold 0",
        "A1",
        "5 examples, Q0",
    )
    facts = log.facts["gsm8k|5"]
    assert (facts["metric"], facts["examples"], facts["lighteval"]) == ("extractive_match", "5", "abc")
    assert (facts["generation"], facts["max tokens"]) == ('{"temperature": 0.6}', "256")


def test_a_table_has_a_log_per_model_and_its_seeds(tmp_path: Path) -> None:
    table = pd.DataFrame(
        {"id": ["p", "p", "q"], "model": ["a", "b", "a"], "seed": [3, 3, 4], "ok": [True, False, True], "prompt": "x"}
    )
    table.to_csv(tmp_path / "t.csv", index=False)
    first, second = read(tmp_path / "t.csv", Options({"problem": ["id"], "correct": ["ok"]}, "mine"))
    assert (first.model, first.samples["correct"].tolist(), first.samples["seed"].tolist()) == ("a", [1, 1], ["3", "4"])
    assert (second.model, second.samples["correct"].tolist(), set(second.facts)) == ("b", [0], set())


def test_other_prompts_under_the_same_names_are_a_warning(tmp_path: Path) -> None:
    sides = []
    for name, prompt in (("a", "Q: {}"), ("b", "Q: {}"), ("c", "Answer {}")):
        rows = {"problem": range(8), "correct": [1, 0] * 4, "prompt": [prompt.format(number) for number in range(8)]}
        pd.DataFrame(rows).to_csv(tmp_path / f"{name}.csv", index=False)
        sides.append(Side(name, tuple(read(tmp_path / f"{name}.csv", Options()))))
    assert of_logs(sides[:2], Question()).warnings == ()
    (warning,) = of_logs(sides[1:], Question()).warnings
    assert warning == "results: prompts differ on 8 of the 8 problems that both have"


# --- mcpo's own -------------------------------------------------------------------------------------------------------


SUITE = """\
title: Mine
arms:
  plain: [method=dapo, scale=smoke]
  hinged: [method=mcpo, scale=smoke]
sweep:
  seed: [0, 1]
"""


@pytest.fixture
def suite(plugin_folder: Path, home: Path) -> Plan:
    """A suite of four runs that were not trained."""
    (plugin_folder / "suites").mkdir()
    (plugin_folder / "suites" / "mine.yaml").write_text(SUITE)
    return plan.from_suite("mine", [], "mcpo train mine")


def test_of_a_run_the_last_evaluation_counts(suite: Plan) -> None:
    store_runs.made_up(suite)
    spec = suite.runs[1].spec
    (log,) = read(Path(spec.run_id), Options())
    rows = [row for row in Journal(run_dir(spec.run_id)).eval() if row["step"] == spec.train.steps]
    scores = Side("arm", (log,)).scores(rows[0]["tier"])
    own = {row["problem"]: row for row in rows if row["tier"] == rows[0]["tier"]}
    assert scores.seeds == (str(spec.seed),) == ("1",)
    assert dict(zip(scores.problems, scores.sum_SP[0], strict=True)) == {name: row["c"] for name, row in own.items()}
    assert set(scores.samples_SP[0]) == {rows[0]["n"]}
    assert log.facts[rows[0]["tier"]]["temperature"] == str(spec.eval.temperature)
    (again,) = read(run_dir(spec.run_id), Options())
    assert again.samples.equals(log.samples)


def test_of_a_suite_each_run_is_a_log_of_its_arm(suite: Plan) -> None:
    with refused("missing_runs", "4 of 4", *(run.spec.run_id for run in suite.runs)):
        read(Path("mine"), Options())
    store_runs.made_up(suite)
    found = [(log.model, *log.samples["seed"].unique()) for log in read(Path("mine"), Options())]
    assert found == [("plain", "0"), ("plain", "1"), ("hinged", "0"), ("hinged", "1")]


def test_of_an_evaluation_the_newest_grading_counts(tmp_path: Path) -> None:
    first = evaluations.made_up(tmp_path)
    _, second, third = gradings.rows(tmp_path, 1, "sums")
    second |= {"statuses": ["unparsable", "correct"]}
    third |= {"statuses": ["infra_error", "wrong"], "n": 1}
    about = {"grading": 2, "protocol": {**first["protocol"], "temperature": 0.7, "max_tokens": 64}}
    about |= {"benchmarks": {"sums": {**first["benchmarks"]["sums"], "grader": "final 2"}}}
    gradings.write(tmp_path, cast(Results, {**first, **about}), {"sums": [second, third]})
    (log,) = read(tmp_path, Options())
    found = log.samples[["sample", "correct", "response", "gold", "prompt"]].to_numpy().tolist()
    three = "3 + <b>3</b>"
    assert found == [
        [0, 0.0, "it is 4", "4", "2 + 2"],
        [1, 1.0, "it is 5", "4", "2 + 2"],
        [1, 0.0, "it is 8", "6", three],
    ]
    facts = {"grader": "final 2", "engine": "engine", "temperature": "0.7", "max_tokens": "64"}
    assert (log.model, log.facts) == ("mine", {"sums": facts})
    assert log.notes == (f"{tmp_path}: 1 of 4 samples could not be graded, and were left out",)


# --- bad logs ---------------------------------------------------------------------------------------------------------


def lm_eval(*rows: dict[str, Any]) -> Write:
    first = {"doc_id": 0, "filter": "none", "metrics": ["exact_match"], "doc_hash": "a", "exact_match": 1.0}
    return lambda folder: lines(folder / f"samples_sums_{DATE}.jsonl", [first | row for row in rows])


def dump(*rows: dict[str, Any]) -> Write:
    return lambda folder: lines(folder / "20.jsonl", list(rows))


def raw(content: bytes, name: str = "table.csv") -> Write:
    def write(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return write


def completions(folder: Path) -> Path:
    return trl(folder, 1, [("a", 1.0)])


def old_lighteval(folder: Path) -> Path:
    path = folder / f"details_gsm8k_{DATE}.parquet"
    pd.DataFrame({"example": ["Q"], "metrics": [{"em": 1.0}]}).to_parquet(path)
    return path


def of_two_tools(folder: Path) -> Path:
    dump(verl(1))(folder)
    return completions(folder).parents[1]


def latin_1(folder: Path) -> Path:
    metrics = folder / "0a1b" / "metrics"
    metrics.mkdir(parents=True)
    (metrics.parent / "meta.yaml").write_text("run_id: 0a1b")
    (metrics / "loss").write_bytes("1 é 0".encode("latin-1"))
    return folder


def bomb(folder: Path) -> Path:
    """A small file of 30 million rows."""
    nothing = pa.nulls(30_000_000)
    pq.write_table(pa.table({"problem": nothing, "correct": nothing}), folder / "table.parquet", compression="zstd")
    assert (folder / "table.parquet").stat().st_size < 200_000
    return folder / "table.parquet"


BAD: dict[str, tuple[str, Write]] = {
    "of no tool": ("no reader recognises it", raw(b"42", "notes.txt")),
    "of two tools": ("several readers", of_two_tools),
    "empty JSONL": ("no rows", raw(b"", f"samples_sums_{DATE}.jsonl")),
    "empty CSV": ("cannot be read", raw(b"")),
    "no rows": ("no samples", raw(b"problem,correct\n")),
    "truncated JSONL": ("line 2", raw(b'{"problem": "a", "correct": 1}\n{"problem": "b", "corr', "a.jsonl")),
    "a Parquet file without its end": ("cannot be read", raw(b"PAR1 is how it begins", "table.parquet")),
    "not UTF-8": ("not UTF-8", raw(b'{"doc_id": "\xff"}\n', f"samples_sums_{DATE}.jsonl")),
    "no object": ("item 1", raw(b"[1]\n", f"samples_sums_{DATE}.jsonl")),
    "two tasks in a file": ("document 0 twice", lm_eval({}, {"doc_hash": "b"})),
    "a sample twice": ("sample twice", raw(b"problem,sample,correct\np,0,1\np,0,1\n")),
    "no name": ("column problem is empty", raw(b"problem,correct\n,1\nq,1\n")),
    "other version": ("'filter'", raw(b'{"doc_id": 0, "metrics": []}\n', f"samples_sums_{DATE}.jsonl")),
    "other version of lighteval": ("'doc'", old_lighteval),
    "NaN": ("is empty (1 of 2", dump(verl(1), verl(2, float("nan")))),
    "null": ("is empty (1 of 2", dump(verl(1, acc=1.0), verl(2, acc=None))),
    "infinite": ("inf", raw(b"problem,correct\np,1\nq,inf\n")),
    "too large for a float": ("inf, not a number", raw(b'{"problem": "a", "correct": 1%s}' % (b"0" * 400), "a.jsonl")),
    "a word": ("maybe", raw(b"problem,correct\np,1\nq,maybe\n")),
    "Latin-1 in what MLflow wrote": ("UnicodeDecodeError", latin_1),
    "a database that is none": ("DatabaseError", raw(b"not a database", "runs.db")),
    "parts of other types": ("expects other data", lambda to: lighteval(to, [1.0], metric=[1.0])),
    "a Parquet file with more rows than memory holds": ("20000000 are the most", bomb),
    "inspect_ai is not installed": ("inspect_ai", raw(b"PK", "log.eval")),
}
"""Kind of damage -> words of the message, and the function that writes it."""


@pytest.mark.parametrize("case", BAD)
def test_bad_logs_are_refused_in_one_message(tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "inspect_ai.log", None)
    words, write = BAD[case]
    path = write(tmp_path)
    with refused("not_installed" if path.suffix == ".eval" else "bad_data", words, str(path)):
        read(path, Options())


def test_a_path_without_a_file_is_not_found(tmp_path: Path) -> None:
    with refused("not_found", "no such file or folder", *readers()):
        read(tmp_path / "nothing", Options())


def test_an_empty_folder_is_called_empty(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    with refused("bad_data", f"{tmp_path}: there is no file in this folder"):
        read(tmp_path, Options())


def test_a_reader_that_is_named_finds_nothing_in_files_of_others(tmp_path: Path) -> None:
    with refused("bad_data", "verl finds no samples"):
        read(completions(tmp_path), Options(), "verl")
