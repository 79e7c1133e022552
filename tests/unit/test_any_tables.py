"""Tables as people write them: numbers of any unit and direction, runs without problems, columns of any name."""

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats

from mcpo_cli.commands.comparison import columns as parsed
from mcpo_cli.compare import figures, forest
from mcpo_cli.compare.comparison import Comparison, Question, records
from mcpo_cli.compare.page import sentences
from mcpo_cli.compare.readers import Options, read
from mcpo_cli.compare.subjects import Subject, answers
from mcpo_cli.errors import ConfigError
from mcpo_cli.render.markup import share, signed
from tests.errors import refused


def written(path: Path, table: Any) -> Path:
    """A CSV file of columns, or of this text."""
    path.write_text(table if isinstance(table, str) else pd.DataFrame(table).to_csv(index=False))
    return path


def compared(
    *paths: Path, columns: dict[str, list[str]] | None = None, benchmark: str = "", **asked: Any
) -> Comparison:
    """Files against the first, or the models in one file."""
    (answer,) = answers(
        Subject([str(path) for path in paths], columns=columns or {}, benchmark=benchmark), Question(**asked)
    )
    return answer.comparison


def of_runs(random: np.random.Generator, *, lift: float = 0.0, seeds: int = 5) -> dict[str, Any]:
    """A table of losses of two models whose runs share what their seeds decide."""
    seed_S = random.normal(0, 0.05, seeds)
    loss = np.concatenate([2.3 + lift * side + seed_S + random.normal(0, 0.03, seeds) for side in (0, 1)])
    return {"model": np.repeat(["base", "new"], seeds), "seed": np.tile(np.arange(seeds), 2), "loss": loss}


def test_a_table_of_runs_is_the_paired_t_test_and_unpaired_welchs(tmp_path: Path) -> None:
    table = of_runs(np.random.default_rng(1), lift=-0.1)
    path, columns = written(tmp_path / "runs.csv", table), {"correct": ["loss"]}
    base_S, new_S = table["loss"].reshape(2, -1)
    (row,) = records(compared(path, columns=columns).differences)
    expected = scipy_stats.ttest_rel(new_S, base_S)
    bounds = expected.confidence_interval()
    assert (row["p"], row["low"], row["high"]) == pytest.approx((expected.pvalue, bounds.low, bounds.high), rel=1e-9)
    assert (row["benchmark"], row["over"], row["verdict"]) == ("loss", "seeds", "worse")
    without = written(tmp_path / "unpaired.csv", {name: table[name] for name in ("model", "loss")})
    (row,) = records(compared(without, columns=columns).differences)
    welch = scipy_stats.ttest_ind(new_S, base_S, equal_var=False)
    bounds = welch.confidence_interval()
    assert (row["p"], row["low"], row["high"]) == pytest.approx((welch.pvalue, bounds.low, bounds.high), rel=1e-9)


def test_lower_is_better_turns_words_and_margins_round(tmp_path: Path) -> None:
    table = of_runs(np.random.default_rng(1), lift=-0.1)
    path, columns = written(tmp_path / "runs.csv", table), {"correct": ["loss"]}
    found = compared(path, columns=columns, lower=True)
    (row,) = records(found.differences)
    assert (row["verdict"], row["difference"] < 0) == ("better", True)
    assert "lower is better" in sentences(found)[0]
    worse = written(tmp_path / "worse.csv", of_runs(np.random.default_rng(2), lift=0.02, seeds=12))
    (row,) = records(compared(worse, columns=columns, margin=0.5, lower=True).differences)
    higher = scipy_stats.ttest_rel(*np.split(pd.read_csv(worse)["loss"].to_numpy(), 2)[::-1], alternative="greater")
    shifted = np.split(pd.read_csv(worse)["loss"].to_numpy(), 2)
    loses = scipy_stats.ttest_1samp(shifted[1] - shifted[0], 0.5, alternative="less")
    assert higher.pvalue < 0.5
    assert row["p_not_worse"] == pytest.approx(loses.pvalue, rel=1e-9)
    assert [text for text in compared(path, columns=columns).warnings if "--lower-is-better" in text]
    assert not [text for text in found.warnings if "--lower-is-better" in text]


def test_a_wide_table_has_a_benchmark_per_column_of_numbers(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    table = {
        "method": np.repeat(["grpo", "ours"], 4), "seed": [0, 1, 2, 3] * 2, "Steps": 300, "note": "x",
        "aime": random.normal(30, 1, 8), "amc": random.normal(60, 1, 8),
    }  # fmt: skip
    found = compared(written(tmp_path / "wide.csv", table), columns={"model": ["method"]})
    rows = {row["benchmark"]: row for row in records(found.differences)}
    assert set(rows) == {"aime", "amc", "average"}
    mean_S = (table["aime"] + table["amc"]).reshape(2, 4) / 2
    assert rows["average"]["p"] == pytest.approx(scipy_stats.ttest_rel(mean_S[1], mean_S[0]).pvalue, rel=1e-9)
    assert [text for text in found.warnings if "aime, amc" in text]
    one = compared(tmp_path / "wide.csv", columns={"model": ["method"]}, benchmark="amc")
    assert set(one.differences["benchmark"]) == {"amc"}
    with refused("bad_data", "amd", "'amc'"):
        compared(tmp_path / "wide.csv", columns={"model": ["method"]}, benchmark="amd")


def test_a_long_table_has_its_benchmarks_in_a_column_and_other_units_have_no_mean(tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    table = {
        "model": np.tile(np.repeat(["a", "b"], 3), 2), "seed": np.tile([0, 1, 2], 4),
        "benchmark": np.repeat(["accuracy", "latency"], 6),
        "value": [*random.uniform(0.4, 0.6, 6), *random.normal(900, 50, 6)],
    }  # fmt: skip
    found = compared(written(tmp_path / "long.csv", table))
    assert list(found.differences["benchmark"]) == ["accuracy", "latency"]
    assert [text for text in found.warnings if text.startswith("latency: higher counts as better")]


def test_what_a_table_of_runs_cannot_say_is_said_first(tmp_path: Path) -> None:
    table = {"model": ["a", "b"], "seed": [0, 0], "score": [0.4, 0.5]}
    found = compared(written(tmp_path / "one.csv", table))
    assert "not testable" in sentences(found)[0]
    assert "at least 3 are needed" in sentences(found)[0]
    with refused("bad_input", "seeds"):
        compared(tmp_path / "one.csv", over="problems")
    twice = {"model": ["a", "a", "b"], "seed": [0, 0, 0], "score": [0.4, 0.5, 0.5]}
    with refused("bad_data", "two values", "seed 0"):
        compared(written(tmp_path / "twice.csv", twice))
    with refused("bad_data", "no column names problems"):
        compared(written(tmp_path / "words.csv", {"prompt": ["a"], "text": ["b"]}))


def test_scores_of_problems_may_have_any_range(tmp_path: Path) -> None:
    random = np.random.default_rng(6)
    names = [f"p{at}" for at in range(30)]
    base_P = random.normal(1200, 300, 30)
    new_P = base_P - random.normal(100, 100, 30)
    paths = [
        written(tmp_path / f"{name}.csv", {"problem": names, "correct": score_P})
        for name, score_P in (("base", base_P), ("new", new_P))
    ]
    (row,) = records(compared(*paths, lower=True).differences)
    expected = scipy_stats.ttest_rel(new_P, base_P)
    assert (row["p"], row["verdict"]) == (pytest.approx(expected.pvalue, rel=1e-9), "better")
    arm = compared(*paths).arms.iloc[0]
    mean = scipy_stats.ttest_1samp(base_P, 0).confidence_interval()
    assert (arm["low"], arm["high"]) == pytest.approx((mean.low, mean.high), rel=1e-9)


def test_percentages_beside_shares_are_recognised_and_said(tmp_path: Path) -> None:
    names = [f"p{at}" for at in range(40)]
    shares = np.arange(40) % 2
    one = written(tmp_path / "one.csv", {"problem": names, "correct": shares})
    other = written(tmp_path / "other.csv", {"problem": names, "correct": np.roll(shares, 1) * 100})
    found = compared(one, other)
    (row,) = records(found.differences)
    assert (row["difference"], row["mean"]) == (0, 0.5)
    assert [text for text in found.warnings if "other were taken as percentages" in text]
    for path, score in ((one, 1), (other, 100)):
        written(path, {"problem": names * 2, "correct": [0] * 40 + [score] * 40, "answer": ["a"] * 40 + ["r"] * 40})
    (row,) = records(compared(one, other, metrics=("maj@2",)).differences)
    assert (row["difference"], row["mean"]) == (0, 0.5)
    written(tmp_path / "sign.csv", {"problem": names, "correct": [f"{50 + at}%" for at in range(40)]})
    assert read(tmp_path / "sign.csv", Options())[0].samples["correct"].max() == pytest.approx(0.89)


def test_percentages_are_told_from_small_numbers_by_their_size_alone(tmp_path: Path) -> None:
    names = [f"p{at}" for at in range(40)]
    rare = written(tmp_path / "rare.csv", {"problem": names, "correct": [1] + [0] * 39})
    none = written(tmp_path / "none.csv", {"problem": names, "correct": 0})
    often = written(tmp_path / "often.csv", {"problem": names, "correct": [100] * 30 + [0] * 10})
    for path, expected in ((rare, 0.75 - 0.025), (none, 0.75)):
        (row,) = records(compared(path, often).differences)
        assert row["difference"] == pytest.approx(expected)
    rated = written(tmp_path / "rated.csv", {"problem": names, "correct": [3, 0] * 20})
    found = compared(rare, rated)
    assert records(found.differences)[0]["mean"] == pytest.approx(1.5)
    assert [text for text in found.warnings if "reach 3, and those of rare lie within 0 and 1: is the unit" in text]


@pytest.mark.parametrize(
    ("value", "text", "change"),
    [
        (0.4123, ".412", "+.412"),
        (-0.0001, ".000", ".000"),
        (-0.5, "-.500", "-.500"),
        (10.5, "10.50", "+10.50"),
        (120.04, "120.0", "+120.0"),
        (2.3, "2.300", "+2.300"),
    ],
)
def test_numbers_are_written_with_the_digits_of_their_size(value: float, text: str, change: str) -> None:
    assert (share(value), signed(value)) == (text, change)


def test_scores_on_the_problems_that_one_side_lacks_are_shown(tmp_path: Path) -> None:
    """The smaller set is the easier part of the larger one."""
    names = [f"p{at}" for at in range(40)]
    whole = written(tmp_path / "whole.csv", {"problem": names, "correct": np.arange(40) < 30})
    easy = written(tmp_path / "easy.csv", {"problem": names[:20], "correct": np.arange(20) < 18})
    (warning,) = [text for text in compared(whole, easy).warnings if "left out" in text]
    assert "20 problems" in warning
    assert "whole has a mean of 0.5 on its 20, and of 1 on the others" in warning


# --- types and words --------------------------------------------------------------------------------------------------


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def test_one_column_serves_two_roles(tmp_path: Path) -> None:
    rows = [{"prompt": f"{at} + 1", "correct": at % 2} for at in range(6)]
    (log,) = read(lines(tmp_path / "a.jsonl", rows), Options({"problem": ["prompt"]}))
    assert log.samples["problem"].tolist() == log.samples["prompt"].tolist() == [row["prompt"] for row in rows]


@pytest.mark.parametrize(
    "odd",
    [
        {"meta": [1, 2]}, {"meta": {"a": 1}}, {"gold": 1}, {"gold": "x+1"}, {"problem": 7}, {"correct": True},
        {"correct": 1.0}, {"correct": "1"}, {"prompt": [{"role": "user", "content": "hello"}]},
    ],
    ids=str,
)  # fmt: skip
def test_types_may_mix(tmp_path: Path, odd: dict[str, Any]) -> None:
    plain = [{"problem": f"p{at}", "correct": at % 2, "gold": "7", "prompt": "q"} for at in range(5)]
    (log,) = read(lines(tmp_path / "a.jsonl", [*plain, {"problem": "last", "correct": 1} | odd]), Options())
    assert log.samples["correct"].tolist() == [0, 1, 0, 1, 0, 1]


def test_words_that_are_scores(tmp_path: Path) -> None:
    words = {"True": 1, "no": 0, "PASS": 1, "failed": 0, "Correct": 1, "incorrect": 0, "C": 1, "P": 0.5, "1": 1}
    path = written(tmp_path / "a.csv", {"problem": list(map(str.lower, words)), "correct": list(words)})
    assert read(path, Options())[0].samples["correct"].tolist() == list(words.values())


def test_a_benchmark_on_which_every_answer_is_right_is_drawn(tmp_path: Path) -> None:
    rows = [{"problem": f"p{at}", "correct": int(sample < 3)} for at in range(20) for sample in range(4)]
    paths = [lines(tmp_path / f"{name}.jsonl", rows) for name in "ab"]
    found = compared(*paths)
    assert found.curves[found.curves["k"] == 4]["mean"].tolist() == pytest.approx([1, 1])
    assert figures.curves(found).axes
    assert {line["low"] for line in forest.layout(found, records(found.differences))["lines"]} == {forest.WIDTH / 2}


def test_an_interval_of_shares_ends_at_1(tmp_path: Path) -> None:
    one = lines(tmp_path / "a.jsonl", [{"problem": f"p{at}", "correct": at % 2} for at in range(3)])
    other = lines(tmp_path / "b.jsonl", [{"problem": f"p{at}", "correct": int(at != 1)} for at in range(3)])
    (row,) = records(compared(one, other).differences)
    assert (row["low"], row["high"]) == (-1, 1)


# --- names of columns: refused with a fix that works, or read as runs where they are runs -----------------------------


SAMPLES = {
    "Question ID,Is Right,model_output\n1,1,a\n2,0,b\n3,1,c\n": "problem=Question ID,correct=Is Right",
    "qid\tpassed\nx\ttrue\ny\tfalse\n": "problem=qid,correct=passed",
    "idx,acc,latency\n1,1,.31\n2,0,.22\n": "problem=idx,correct=acc",
    "id,sample,acc\n1,0,1\n1,1,1\n2,0,0\n2,1,1\n": "problem=id,correct=acc",
    "questionId,score\na,.25\nb,1\n": "problem=questionId,correct=score",
    "question_id,output\n7,a\n9,b\n": "problem=question_id,correct=NAME",
    "text,question_id,epoch,solved\nlong text,7,1,no\nanother,9,1,yes\n": "problem=question_id,correct=solved",
}
RUNS = (
    "seed,gsm8k,math\n0,63.1,41\n1,62.5,40\n",
    "run,value\n1,.5\n2,1\n",
    "config,seed,success\na,0,1\na,1,0\n",
    "name,gsm8k,finished\nx,.5,1\ny,.7,1\n",
    "step,loss\n100,2.5\n200,2.25\n",
)


def fix_of(path: Path, columns: str = "") -> str:
    """The names that a refusal suggests for `--columns`."""
    with pytest.raises(ConfigError) as error:
        read(path, Options(parsed(columns)))
    assert error.value.fix
    option, names = shlex.split(error.value.fix)
    assert (error.value.code, option) == ("bad_data", "--columns")
    return names


@pytest.mark.parametrize("text", SAMPLES)
def test_samples_with_other_columns_are_refused_with_columns_that_work(tmp_path: Path, text: str) -> None:
    path = written(tmp_path / "odd.csv", text)
    names = fix_of(path)
    assert names == SAMPLES[text]
    if "NAME" not in names:
        (log,) = read(path, Options(parsed(names)))
        assert set(log.samples["problem"]) != {"all"}


@pytest.mark.parametrize("text", RUNS)
def test_tables_of_runs_are_read_as_runs(tmp_path: Path, text: str) -> None:
    (log,) = read(written(tmp_path / "runs.csv", text), Options())
    assert set(log.samples["problem"]) == {"all"}


def test_a_benchmark_that_a_run_lacks_is_read_of_the_other_runs(tmp_path: Path) -> None:
    """The mean that a table gives of its benchmarks is none of them."""
    (log,) = read(written(tmp_path / "runs.csv", "seed,gsm8k,math,mean\n0,.5,.4,.45\n1,.6,,.6\n"), Options())
    found = log.samples[["benchmark", "seed", "correct"]].to_numpy().tolist()
    assert found == [["gsm8k", "0", 0.5], ["gsm8k", "1", 0.6], ["math", "0", 0.4]]
    assert [note for note in log.notes if "1 of 2 rows have no math" in note]
    with refused("bad_data", "named mean"):
        read(written(tmp_path / "long.csv", "problem,benchmark,correct\n1,mean,1\n1,x,0\n"), Options())


def test_who_names_the_score_alone_says_that_rows_are_runs(tmp_path: Path) -> None:
    path = written(tmp_path / "runs.csv", "name,solved\nx,1\ny,0\n")
    assert fix_of(path) == "problem=name,correct=solved"
    (log,) = read(path, Options(parsed("correct=solved")))
    assert set(log.samples["problem"]) == {"all"}
