"""Tables whose columns have names of their own: refused with a fix that works, or read as runs where they are runs."""

import shlex
from pathlib import Path

import pytest

from mcpo_cli.commands.comparison import columns as parsed
from mcpo_cli.compare.readers import Options, read
from mcpo_cli.errors import ConfigError
from tests.errors import refused

SAMPLES = {
    "Question ID,Is Right,model_output\n1,1,a\n2,0,b\n3,1,c\n": "problem=Question ID,correct=Is Right",
    "Question ID;Is Right;model_output\n1;1;a\n2;0;b\n3;1;c\n": "problem=Question ID,correct=Is Right",
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
    "Name,gsm8k,archived\nx,63,false\ny,64,false\n",
    "step,loss\n100,2.5\n200,2.25\n",
)


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


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
