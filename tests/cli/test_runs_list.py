"""`mcpo runs`: list, show, tag, delete and samples."""

from dataclasses import replace

import pytest

from mcpo_cli.config import forking
from mcpo_cli.config.load import from_dict
from mcpo_cli.config.plan import from_overrides
from mcpo_cli.config.schema import Compute
from mcpo_cli.home import run_dir
from mcpo_cli.runs import attempts
from mcpo_cli.runs.journal import read_json, write_json
from tests.cli.conftest import InProcess
from tests.cli.test_arms import SMALL
from tests.cli.test_transcripts import rollouts
from tests.store_runs import begin, made_up, spec

SWEEP = ("method.delta=0.01,0.05", "seed=0,1", *SMALL)


@pytest.fixture
def ids(here: InProcess, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "offline")
    return made_up(from_overrides(SWEEP))


def test_a_fork_does_not_take_its_trunks_short_name(here: InProcess, ids: list[str]) -> None:
    """If two runs that are not forks match, neither is chosen, and the fix names one that is found."""
    (trunk,) = made_up(from_overrides(["seed=2", *SMALL]))
    parent = from_dict(read_json(run_dir(trunk) / "spec.json"))
    (fork,) = made_up(forking.plan(parent, 1, ["train.lr=1e-4"], "mcpo fork"))
    assert fork.startswith("mcpo-toy-s-s2")
    assert here.json("runs", "show", "mcpo-toy-s-s2")["run_id"] == trunk
    assert here.json("runs", "show", fork[:-1])["run_id"] == fork
    refused = here.refused("duplicate_name", "runs", "show", "mcpo-toy-s-s1")
    assert all(run_id in refused for run_id in (ids[1], ids[3]))
    meant = refused.partition("fix: ")[2].partition(",")[0]
    assert here.json("runs", "show", meant)["run_id"] in ids


def test_a_run_that_was_trained_again_is_not_overwritten(here: InProcess, ids: list[str]) -> None:
    here.json("runs", "delete", ids[0])
    made_up(from_overrides(SWEEP))
    assert here.refused("bad_input", "runs", "restore", ids[0]).endswith(f"fix: mcpo runs delete {ids[0]}")


def test_a_deleted_run_is_found_in_the_trash(here: InProcess, ids: list[str]) -> None:
    here.json("runs", "delete", ids[0])
    assert here.refused("unknown_name", "runs", "show", ids[0][:-1]).endswith(f"fix: mcpo runs restore {ids[0][:-1]}")
    assert here.refused("unknown_name", "runs", "restore", "NOPE").endswith(f"fix: ls {here.home / 'trash'}")


def test_an_empty_word_is_no_run(here: InProcess, ids: list[str]) -> None:
    """As of a variable that is not set: it is the beginning of every id."""
    here.json("runs", "delete", *ids[1:])
    assert "no run ''" in here.refused("unknown_name", "runs", "delete", "")


def test_an_unknown_setting_does_not_list_a_hundred(here: InProcess, ids: list[str]) -> None:
    assert len(here.refused("unknown_key", "runs", "list", "--where", "foo=1")) < 200
    assert "has seed=9;" in here("runs", "list", "--where", "seed=9").stderr


def test_runs_are_found_by_several_values_and_by_tags_that_look_like_numbers(here: InProcess, ids: list[str]) -> None:
    for tag in ("1.10", "true", "null"):
        here("runs", "tag", ids[0], tag)
        assert [run["run_id"] for run in here.json("runs", "list", "--where", f"tag={tag}")["runs"]] == [ids[0]]
    found = here.json("runs", "list", "--where", "seed=0,1", "--where", "method.delta=0.01,0.5")["runs"]
    assert {run["run_id"] for run in found} == {*ids[:2]}


@pytest.mark.slow
def test_a_run_at_work_is_not_deleted(here: InProcess, ids: list[str]) -> None:
    with attempts.owned(run_dir(ids[0])):
        result = here("runs", "delete", ids[0])
    assert result.returncode != 0
    assert "another process" in result.stderr
    assert run_dir(ids[0]).is_dir()


def test_runs_of_a_removed_method_are_one_short_line_and_can_be_deleted(here: InProcess, ids: list[str]) -> None:
    for run_id in ids[:2]:
        path = run_dir(run_id) / "spec.json"
        settings = read_json(path)
        write_json(path, settings | {"method": {"name": "gone"}})
    (line,) = here("runs", "list").stderr.strip().splitlines()
    assert "method 'gone' is not here" in line
    assert len(line) < 200
    here.json("runs", "delete", *ids[:2])
    assert here("runs", "list").stderr == ""


def test_a_tier_has_the_prompts_that_are_like_its_problems(here: InProcess) -> None:
    attempt = begin(spec())
    prompts = ["1 + 2 _ _ =", "1 + 2 * 3 _ =", "1 - 2 * 3 + 4 =", "1 + 1 + 1 + 1 + 1 + 1 ="]
    attempt.journal.rows("samples", 4, [row for prompt in prompts for row in rollouts(4, prompt, right_seven=1)])
    shown = here.json("runs", "samples", spec().run_id, "--tier", "k2-3")["groups"]
    assert [group["prompt"] for group in shown] == prompts[1:3]
    assert here.refused("bad_input", "runs", "samples", spec().run_id, "--tier", "k2").endswith("fix: --tier k2-3")


def test_a_run_that_kept_none_names_the_setting_that_keeps_them(here: InProcess) -> None:
    begin(replace(spec(), compute=Compute(sample_groups=0))).end("done")
    assert here.refused("bad_input", "runs", "samples", spec().run_id).partition("fix: compute.sample_groups=2")[1]
