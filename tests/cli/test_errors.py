"""Bad input: one message, exit code 2, nothing started, nothing written."""

import json
import re
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpo_cli.config import load
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import ConfigError
from mcpo_cli.main import main
from tests.cli.conftest import Cli, InProcess

# arguments of mcpo, and what the message must name: the path, the value, the fix
BAD = [
    ("train method=mpco", "unknown method 'mpco'", "method=mcpo"),
    ("train modle=toy-s", "unknown key 'modle'", "model=toy-s"),
    ("train lr=0.001", "'train.lr' or 'warmup.lr'", "train.lr=0.001"),
    ("train zzz=1", "unknown key 'zzz'", "mcpo help"),
    ("train wandb.project=foo", "unknown key 'wandb.project'", "mcpo help"),
    ("train method.foo=1", "unknown key 'method.foo'", "mcpo help method"),
    ("train seed=[0,1]", "must be an integer, not list", "seed=0,1"),
    ("train --seed 3", "--seed is not an option but a setting", "seed=3"),
    ("train --train.lr=3", "--train.lr is not an option but a setting", "train.lr=3"),
    ("train method.bta=2", "unknown key 'method.bta'", "method.beta=2"),
    (
        "train method=grpo method.delta=0.1",
        "method.delta is an option of disco, drpo, mcpo, mcpo_extended, mcpo_placebo, rew",
        "method=disco",
    ),
    ("train scale=smoke task=math", "task=math has no vocabulary of its own", "model=smollm2-135m"),
    ("train scale=smoke task.name=math", "is not a setting: use task=NAME", "task=math"),
    ("train scale=smoke task=maths", "unknown task 'maths'", "task=math"),
    ("train scale=paper task.skills=3", "task.skills is an option of arithmetic, not of math", "task=arithmetic"),
    ("train warmup.max_ops=4", "did you mean 'task.warmup_max_ops'", "task.warmup_max_ops=4"),
    ("train model=qwen3-8b", "GiB of memory", "compute.micro_batch_tokens"),
    ("train model.kv_heads=1", "model.path is empty", "model.path="),
    (
        "train backend=verl model.path=/no/model --dry-run",
        "model.path=/no/model: there is no such folder",
        "model.path=",
    ),
    ("train train.max_prompt=10", "cannot hold a prompt of 18 tokens", "train.max_prompt=18"),
    ("train scale=paper task.data=aime24", "aime24 is not a training set", "task.data=dapo_math_17k"),
    ("train scale=paper task.benchmarks=[aime]", "'aime' is not a benchmark", "mcpo data list"),
    ("train scale=paper task.benchmarks=[]", "is empty", "task.benchmarks="),
    ("train scale=paper cluster.gpus=6", "1024 sequences", "cluster.gpus=4"),
    ("train scale=paper cluster.tensor_parallel=3", "does not divide cluster.gpus=8", "cluster.tensor_parallel=1"),
    ("train scale=paper train.max_response=30000", "one sequence of 32048 tokens", "max_tokens_per_gpu=32048"),
    ("train scale=tyo", "unknown scale 'tyo'", "scale=toy"),
    ("train seed=abc", "seed=abc: must be an integer", "seed=0"),
    ("train seed=2.6", "seed=2.6: must be an integer", "seed=3"),
    ("train seed=-1", "seed=-1: must be >= 0", "seed=0"),
    ("train seed", "cannot read the override 'seed'", "key=value"),
    ("train +new=1", "'+new=1'", "new=VALUE"),
    ("train seed=1 seed=2", "seed is given twice", "seed=1,2"),
    ("train seed=range(0,100000000)", "at most 1000", ""),
    ("train train.rollouts=1", "train.rollouts=1: must be >= 2", "train.rollouts=2"),
    ("train method.beta=-1", "method.beta=-1.0: must be >= 0", "method.beta=0"),
    ("train train.lr=nan", "must be a finite number", "train.lr="),
    ("train train.lr=1e999", "must be a finite number", "train.lr="),
    ("train method.hinge=perhaps", "must be true or false", "method.hinge=true"),
    ("train task.skills=true", "one of: 1, 3", "task.skills="),
    ("train compute.device=gpu", "did you mean 'cpu'?", "compute.device=cpu"),
    ("train train.betas=[0.9]", "a list of 2 values", "train.betas=[0.9, 0.999]"),
    ("train model.name=../../etc", "it names folders", "model.name="),
    ("train train.mini_batch=200", "larger than train.prompts=128", "train.mini_batch=128"),
    ("train train.mini_batch=9", "does not divide train.prompts=128", "train.mini_batch=8"),
    ("train task.pool=16", "fewer prompts than one batch", "task.pool=128"),
    ("train --flag", "No such option", "--help"),
    ("trian", "No such command 'trian'", "train"),
    ("ablate method=grpo", "the arms of table2 differ in method", "mcpo train"),
    ("train table9", "unknown suite 'table9'", "mcpo train table"),
    ("reproduce table9", "unknown artifact 'table9'", "table"),
    ("reproduce table1 seed=x", "seed=x: must be an integer", "seed=0"),
    ("runs show nothing", "no runs in", "mcpo train scale=smoke"),
    ("runs list --state asleep", "asleep", "running"),
    ("method show mcpo --rollouts 1000000000", "--rollouts", "less than or equal to 4096"),
    ("evaluate qwen --limit 1000000000000000000000000000000", "--limit", "less than or equal to 100000"),
]


@pytest.mark.parametrize(("arguments", "problem", "fix"), BAD, ids=[case[0] for case in BAD])
def test_bad_input_is_one_message(
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: str,
    problem: str,
    fix: str,
) -> None:
    monkeypatch.setattr(sys, "argv", ["mcpo", *arguments.split()])
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as exit_:
        main()
    out, err = capsys.readouterr()
    assert exit_.value.code == 2
    assert problem in err
    assert fix in err
    assert len(re.findall(r"^error:|─ Error ─", err, re.MULTILINE)) == 1
    assert "Traceback" not in err
    assert out == ""
    assert cli.untouched()


@pytest.mark.parametrize("arguments", ["train seed=abc", "train --flag", "runs show nothing"])
def test_the_process_ends_with_2(cli: Cli, arguments: str) -> None:
    result = cli(*arguments.split())
    assert result.returncode == 2
    assert result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    assert cli.untouched()


def test_a_home_that_cannot_be_written(here: InProcess, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = here("train", "scale=smoke", MCPO_HOME=str(tmp_path / "file" / "home"))
    assert result.returncode == 2
    assert f"MCPO_HOME={tmp_path / 'file' / 'home'}: {tmp_path / 'file'} is not a folder" in result.stderr
    assert "fix:" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("where", ["setting", "environment"])
def test_a_store_that_cannot_be_reached(cli: Cli, where: str) -> None:
    uri = "http://127.0.0.1:1"
    setting = [f"compute.tracking_uri={uri}"] if where == "setting" else []
    result = cli("train", "scale=smoke", *setting, **({} if setting else {"MLFLOW_TRACKING_URI": uri}))
    assert result.returncode == 2
    assert uri in result.stderr
    assert "compute.tracking_uri=offline" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (cli.home / "runs").exists()


def test_debug_shows_the_traceback_and_keeps_the_exit_code(here: InProcess) -> None:
    result = here("train", "seed=abc", "--debug")
    assert result.returncode == 2
    assert "Traceback" in result.stderr
    assert "seed=abc: must be an integer" in result.stderr


def test_json_holds_the_error_too(here: InProcess) -> None:
    result = here("train", "seed=abc", "--json")
    assert result.returncode == 2
    assert json.loads(result.stdout)["error"] == {
        "code": "bad_input",
        "type": "ConfigError",
        "message": "seed=abc: must be an integer, not str",
        "fix": "seed=0  (the default)",
        "exit_code": 2,
    }


@pytest.mark.parametrize(
    ("arguments", "message", "fix"),
    [
        ("train --bogus --json", "No such option: --bogus", "train --help"),
        ("train --json --bogus", "No such option: --bogus", "train --help"),
        ("runs show --json", "Missing argument 'RUN_ID'.", "runs show --help"),
        ("grade x --timeout z --json", "Invalid value for '--timeout'", "grade --help"),
        ("trian --json", "No such command 'trian'. Did you mean 'train'?", "--help"),
        ("runs lst --json", "No such command 'lst'. Did you mean 'list'?", "runs --help"),
    ],
)
def test_json_holds_errors_of_the_command_line_itself(here: InProcess, arguments: str, message: str, fix: str) -> None:
    result = here(*arguments.split())
    assert result.returncode == 2
    error = json.loads(result.stdout)["error"]
    assert error["message"].startswith(message)
    assert (error["type"], error["exit_code"]) == ("ConfigError", 2)
    assert error["fix"].endswith(fix)
    assert "─ Error ─" in result.stderr


def test_words_that_are_no_options_ask_for_nothing(here: InProcess) -> None:
    """The value of an option, or what stands behind `--`."""
    for arguments in (["grade", "x", "--compare", "--json"], ["train", "--", "seed=abc", "--json", "--debug"]):
        result = here(*arguments)
        assert (result.returncode, result.stdout) == (2, "")
        assert "Traceback" not in result.stderr


def test_json_is_one_document_where_answers_could_not_be_graded(here: InProcess, tmp_path: Path) -> None:
    """The results stand beside the error."""
    path = tmp_path / "answers.jsonl"
    path.write_text((json.dumps({"gold": "$$", "response": "1"}) + "\n") * 5)
    result = here("grade", str(path), "--json", "--workers", "1")
    document = json.loads(result.stdout)
    assert (result.returncode, document["answers"], len(document["lines"])) == (1, 5, 5)
    assert document["error"]["type"] == "RunFailed"


def test_an_unexpected_error_is_one_line(here: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcpo_cli.runs.catalog.runs", lambda *_, **__: 1 / 0)
    result = here("runs", "list")
    assert result.returncode == 70
    assert "rerun with --debug" in result.stderr
    assert "Traceback" not in result.stderr


WORDS = st.sampled_from([*load.keys(), *load.groups(), "seed", "nope", "hydra.run.dir", "", "~seed", "+x", "model@a"])
VALUES = st.one_of(
    st.sampled_from(["0", "1", "-1", "1e9", "nan", "null", "true", "toy-s", "mcpo", "dapo", "0,1,2", "choice(1,2)"]),
    st.sampled_from(["range(0,3)", "glob(*)", "[1,2]", "{a:1}", "${seed}", "${oc.env:HOME}", "'", '"x"', "a b", "\\"]),
    st.integers().map(str),
    st.floats().map(str),
    st.text(max_size=8),
)
OVERRIDE = st.one_of(st.builds("{}={}".format, WORDS, VALUES), st.text(max_size=12))


@settings(max_examples=60)
@given(st.lists(OVERRIDE, max_size=3))
def test_any_overrides_give_runs_or_a_config_error(overrides: list[str]) -> None:
    specs: list[RunSpec] = []
    with suppress(ConfigError):
        specs = load.load(overrides)
        assert specs
    assert [load.from_dict(spec.to_dict()) for spec in specs] == specs
