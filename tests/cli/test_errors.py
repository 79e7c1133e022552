"""Bad input: one message, exit code 2; no run starts and no file is written."""

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpo_cli.compare import regrade
from mcpo_cli.config import load, presets
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import ConfigError
from tests.cli.conftest import Cli, InProcess


@pytest.mark.slow
def test_the_process_ends_with_2(cli: Cli) -> None:
    result = cli("train", "seed=abc")
    assert result.returncode == 2
    assert result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    assert cli.untouched()


@pytest.mark.parametrize("preset", [[], ["scale=smoke"]], ids=["alone", "in a preset's formula"])
def test_json_holds_the_error_too(here: InProcess, preset: list[str]) -> None:
    result = here("train", *preset, "seed=abc", "--json")
    assert result.returncode == 2
    assert json.loads(result.stdout)["error"] == {
        "code": "bad_input",
        "type": "ConfigError",
        "message": "seed=abc: must be an integer, not str",
        "fix": "seed=0  (the default)",
        "exit_code": 2,
    }


def test_memory_that_runs_out_is_no_bug(here: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy's message for a file that is too large, or under `ulimit -v`."""

    def read(_path: Path) -> None:
        raise MemoryError("Unable to allocate 7.45 GiB for an array")

    monkeypatch.setattr(regrade, "read", read)
    (tmp_path / "answers.jsonl").write_text("{}\n")
    said = here.refused("no_memory", "grade", str(tmp_path / "answers.jsonl"))
    assert "Unable to allocate 7.45 GiB" in said
    assert "bug" not in said


def test_words_that_are_no_options_ask_for_nothing(here: InProcess) -> None:
    """Such words are values of options, or follow `--`."""
    for arguments in (["grade", "x", "--compare", "--json"], ["train", "--", "seed=abc", "--json", "--debug"]):
        result = here(*arguments)
        assert (result.returncode, result.stdout) == (2, "")
        assert "Traceback" not in result.stderr


def test_json_is_one_document_where_answers_could_not_be_graded(here: InProcess, tmp_path: Path) -> None:
    """The document has both the results and the error."""
    path = tmp_path / "answers.jsonl"
    path.write_text((json.dumps({"gold": "$$", "response": "1"}) + "\n") * 5)
    result = here("grade", str(path), "--json", "--workers", "1")
    document = json.loads(result.stdout)
    assert (result.returncode, document["answers"], len(document["lines"])) == (1, 5, 5)
    assert document["error"]["type"] == "RunFailed"


WORDS = st.sampled_from([*presets.keys(), *presets.groups(), "seed", "nope", "hydra.run.dir", "", "~seed", "+x", "a@b"])
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
