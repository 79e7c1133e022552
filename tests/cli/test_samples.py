"""`mcpo runs samples`: the recorded rollouts that are shown, and their form."""

from dataclasses import replace

from mcpo_cli.config.schema import Compute
from tests.cli.conftest import InProcess
from tests.cli.test_transcripts import rollouts
from tests.store_runs import begin, spec

RUN = spec().run_id


def test_a_tier_has_the_prompts_that_are_like_its_problems(here: InProcess) -> None:
    attempt = begin(spec())
    prompts = ["1 + 2 _ _ =", "1 + 2 * 3 _ =", "1 - 2 * 3 + 4 =", "1 + 1 + 1 + 1 + 1 + 1 ="]
    attempt.journal.rows("samples", 4, [row for prompt in prompts for row in rollouts(4, prompt, right_seven=1)])
    assert [group["prompt"] for group in here.json("runs", "samples", RUN, "--tier", "k2-3")["groups"]] == prompts[1:3]
    assert here.refused("bad_input", "runs", "samples", RUN, "--tier", "k2").endswith("fix: --tier k2-3")


def test_a_run_that_kept_none_names_the_setting_that_keeps_them(here: InProcess) -> None:
    begin(replace(spec(), compute=Compute(sample_groups=0))).end("done")
    assert here.refused("bad_input", "runs", "samples", RUN).partition("fix: compute.sample_groups=2")[1]
