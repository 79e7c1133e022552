"""`mcpo runs samples`: the recorded rollouts that are shown, and their form."""

from dataclasses import replace
from typing import Any

import pytest

from mcpo_cli.config.schema import Compute
from tests.cli.conftest import InProcess
from tests.store_runs import begin, spec

RUN = spec().run_id


def rows(step: int, prompt: str, **responses: int) -> list[dict[str, Any]]:
    """Rollouts of one group; `right_a=2` means two correct responses `a`."""
    return [
        {"step": step, "prompt": prompt, "gold": "7", "response": name[6:], "correct": name.startswith("right_")}
        for name, count in responses.items()
        for _ in range(count)
    ]


@pytest.fixture
def kept(here: InProcess) -> InProcess:
    attempt = begin(spec())
    attempt.journal.rows(
        "samples", 2, [*rows(2, "3 + 4", right_seven=1, wrong_eight=3), *rows(2, "5 + 2", wrong_nine=4)]
    )
    attempt.journal.rows("samples", 4, [*rows(4, "1 + 6", right_seven=4), *rows(4, "0 + 7", right_7=2, wrong_6=2)])
    attempt.end("done")
    return here


def shown(here: InProcess, *options: str) -> list[tuple[int, str]]:
    document = here.json("runs", "samples", RUN, *options)
    assert document["steps"] == [2, 4]
    return [(group["step"], group["prompt"]) for group in document["groups"]]


def test_the_newest_step_comes_first_and_filters_combine(kept: InProcess) -> None:
    everything = [(4, "1 + 6"), (4, "0 + 7"), (2, "3 + 4"), (2, "5 + 2")]
    assert shown(kept) == everything
    assert shown(kept, "--groups", "1") == everything[:1]
    assert shown(kept, "--step", "2") == everything[2:]
    assert shown(kept, "--min-accuracy", "0.5") == everything[:2]
    assert shown(kept, "--min-accuracy", "0.25", "--max-accuracy", "0.5") == everything[1:3]
    assert shown(kept, "--tier", "k2-3") == []
    assert shown(kept, "--text", "seven") == [everything[0], everything[2]]
    assert shown(kept, "--text", "seven", "--max-accuracy", "0.9", "--groups", "1") == [everything[2]]


def test_of_a_long_response_the_table_has_both_ends(here: InProcess) -> None:
    attempt = begin(spec())
    response = f"first {'so ' * 1000}last"
    attempt.journal.rows("samples", 2, [{**row, "response": response} for row in rows(2, "p", right_=1)])
    printed = " ".join(here("runs", "samples", RUN).stdout.split())
    assert "first so so" in printed
    assert "so so last" in printed
    assert len(printed) < 600
    assert here.json("runs", "samples", RUN)["groups"][0]["right"] == [response]


def test_a_tier_has_the_prompts_that_are_like_its_problems(here: InProcess) -> None:
    attempt = begin(spec())
    prompts = ["1 + 2 _ _ =", "1 + 2 * 3 _ =", "1 - 2 * 3 + 4 =", "1 + 1 + 1 + 1 + 1 + 1 ="]
    attempt.journal.rows("samples", 4, [row for prompt in prompts for row in rows(4, prompt, right_seven=1)])
    assert [group["prompt"] for group in here.json("runs", "samples", RUN, "--tier", "k2-3")["groups"]] == prompts[1:3]
    assert here.refused("bad_input", "runs", "samples", RUN, "--tier", "k2").endswith("fix: --tier k2-3")


def test_a_run_that_kept_none_names_the_setting_that_keeps_them(here: InProcess) -> None:
    begin(replace(spec(), compute=Compute(sample_groups=0))).end("done")
    assert here.refused("bad_input", "runs", "samples", RUN).partition("fix: compute.sample_groups=2")[1]
