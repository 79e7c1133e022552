"""Failures of a verl run that can be tested without verl: no verdict, no memory, no disk, no time."""

import csv
import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from mcpo_cli.backends import get
from mcpo_cli.backends.local import tokenizer as tokenizers
from mcpo_cli.backends.measure import CostTotals
from mcpo_cli.backends.verl import batch, checkpoint, launch
from mcpo_cli.backends.verl.batch import Group, Prompt
from mcpo_cli.backends.verl.launch import Channel
from mcpo_cli.backends.verl.records import Records, Trained, seconds
from mcpo_cli.compare.comparison import Question
from mcpo_cli.compare.runs import of_runs
from mcpo_cli.config.load import load
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.data.base import Problem
from mcpo_cli.errors import RunFailed
from mcpo_cli.grading import Grade
from mcpo_cli.grading.base import Status
from mcpo_cli.home import run_dir
from mcpo_cli.measures.frames import Runs
from mcpo_cli.runs import attempts, sanity
from mcpo_cli.runs.attempts import Attempt
from mcpo_cli.runs.journal import Journal, dumps, read_json, read_lines, seal, write_json
from mcpo_cli.tasks.chains import Arithmetic
from tests import fakes
from tests.errors import refused
from tests.fakes import write_run
from tests.models import untrained

TOKENIZER = tokenizers.build(Arithmetic().vocabulary)
LOST: Status = "infra_error"
with Path(__file__).with_name("verl_faults.csv").open(encoding="utf-8", newline="") as file:
    _, *FAULTS = csv.reader(file)
"""A line of verl's log, part of its explanation, and part of its fix."""


@pytest.fixture
def spec() -> RunSpec:
    (spec,) = load(["scale=verl-cpu", "cluster.plugin="])
    return spec


def group(order: int, *statuses: Status) -> Group:
    """A prompt whose rollouts got these verdicts; each rollout is one token and the end token."""
    tokens = torch.tensor([TOKENIZER.convert_tokens_to_ids("3"), TOKENIZER.eos_token_id])
    verdicts = [Grade(status, detail=f"{status} {order}.{i}") for i, status in enumerate(statuses)]
    reward = [float(status == "correct") for status in statuses]
    prompt, n = Prompt(order, Problem(f"1 + {order} _ =", "3"), "k2-3"), len(statuses)
    return Group(prompt, [tokens] * n, reward, verdicts, logp=[-1.0] * n, entropy=[0.5] * n)


def spent(spec: RunSpec, folder: Path) -> CostTotals:
    """The cost of one global step."""
    total = CostTotals(spec, Journal(folder), 0)
    total.add(rollouts=6, sampled_tokens=60, trained_tokens=50, gradient_steps=1, seconds=1.0)
    return total


def trained(kept: list[Group], discarded: Sequence[Group] = (), **measured: Any) -> Trained:
    """A batch after its update."""
    advantage_PG = torch.zeros(len(kept), len(kept[0].tokens)).double()
    nothing: dict[str, Any] = {"updates": {}, "probed": {}, "verl": {}, "seconds": {"sample": 1.0}}
    return Trained(kept, discarded, advantage_PG, **(nothing | measured))


def rows(folder: Path, kind: str, step: int) -> list[dict[str, object]]:
    return list(read_lines(folder / kind / f"step_{step:06d}.jsonl"))


def test_a_few_answers_without_a_verdict_are_borne_and_many_end_the_run(spec: RunSpec) -> None:
    batch.check(spec, [group(0, "correct", LOST, LOST), group(1, "wrong", LOST, "timeout")])
    with refused("ungraded", "4 of 6", "infra_error 0.1"):
        batch.check(spec, [group(0, "correct", LOST, LOST), group(1, LOST, LOST, "wrong")])


def test_what_was_thrown_away_has_no_entropy_and_probes_are_no_sampling(spec: RunSpec, tmp_path: Path) -> None:
    thrown = dataclasses.replace(group(1, "correct", "correct"), entropy=[math.nan, math.nan])
    timing = {"gen": 5.0, "probe": 2.0, "update_actor": 1.0, "step": 7.0}
    done = trained(
        [group(0, "wrong", "correct")],
        [thrown],
        probed={"probe/rollouts": 8.0},
        updates={"own/name": 3.0},
        verl={"a": {"b": 4}},
        seconds=seconds(timing),
    )
    Records(spec, tmp_path).step(1, done, spent(spec, tmp_path), TOKENIZER)
    (row,) = read_lines(tmp_path / "metrics.jsonl")
    phases = {phase: row["metrics"][f"perf/seconds_{phase}"] for phase in ("sample", "probe", "update", "record")}
    assert phases == {"sample": 3.0, "probe": 2.0, "update": 1.0, "record": 1.0}
    assert row["metrics"]["train/entropy"] == 0.5
    names = ("probe/rollouts", "own/name", "verl/a/b", "cost/rollouts")
    assert [row["metrics"][name] for name in names] == [8.0, 3.0, 4.0, 6.0]
    kept, discarded = rows(tmp_path, "groups", 1)
    assert (kept["entropy"], kept["entropy_right"], kept["entropy_wrong"]) == (0.5, 0.5, 0.5)
    assert not {"entropy", "entropy_right", "entropy_wrong"} & discarded.keys()
    assert (kept["duplicates"], row["metrics"]["sanity/duplicates_expected"]) == (1.0, pytest.approx(math.exp(-1)))


def test_in_training_an_answer_without_a_verdict_is_in_no_count(spec: RunSpec, tmp_path: Path) -> None:
    records = Records(spec, tmp_path)
    kept = [group(0, "correct", LOST, "correct"), group(2, "wrong", "correct", "correct")]
    thrown = [group(1, LOST, "wrong", LOST)]
    records.step(1, trained(kept, thrown), spent(spec, tmp_path), TOKENIZER)
    (row,) = read_lines(tmp_path / "metrics.jsonl")
    assert row["metrics"]["grading/infra_errors"] == 3 / 9
    assert row["metrics"]["train/accuracy"] == pytest.approx((1 + 2 / 3) / 2)
    assert row["metrics"]["mastery/mastered"] == 1 / 2
    # The group with one verdict has no row.
    assert [(found["p"], found["rollouts"]) for found in rows(tmp_path, "groups", 1)] == [(1, 2), (2 / 3, 3)]


def test_in_evaluation_an_answer_without_a_verdict_is_in_no_count(spec: RunSpec, tmp_path: Path) -> None:
    records = Records(spec, tmp_path)
    records.evaluation(0, [group(0, "correct", LOST, "wrong", LOST), group(1, "wrong", "timeout", "correct", "wrong")])
    found = rows(tmp_path, "eval", 0)
    assert [(row["n"], row["c"], row.get("ungraded")) for row in found] == [(2, 1, 2), (4, 1, None)]
    assert sanity.evaluated(found) == {"eval/k2-3/pass_at_1": (1 / 2 + 1 / 4) / 2, "eval/k2-3/infra_errors": 2 / 8}
    assert sanity.evaluated(found[1:]) == {"eval/k2-3/pass_at_1": 1 / 4}


def test_a_problem_without_any_verdict_has_no_accuracy(spec: RunSpec, tmp_path: Path) -> None:
    with refused("ungraded", "1 + 1 _ ="):
        Records(spec, tmp_path).evaluation(0, [group(0, "wrong", "wrong"), group(1, LOST, LOST)])


def lose(home: Path, spec: RunSpec, problem: int, lost: int, kept: str = "ungraded") -> None:
    """Remove the verdicts of `lost` samples of one problem in the last evaluation of a done run."""
    path = home / "runs" / spec.run_id / "attempt_1" / "eval" / f"step_{spec.train.steps:06d}.jsonl"
    found = list(read_lines(path))
    found[problem] |= {"n": spec.eval.samples - lost, "c": 0, kept: lost}
    path.write_text("".join(dumps(row) + "\n" for row in found))
    seal(path.parents[1])


def test_a_run_with_samples_without_a_verdict_is_whole_but_not_one_with_fewer_samples(mcpo_home: Path) -> None:
    (spec,) = load(["scale=smoke"])
    write_run(spec)
    lose(mcpo_home, spec, 4, lost=2)
    assert attempts.missing(run_dir(spec.run_id), spec) == []
    lose(mcpo_home, spec, 5, lost=2, kept="unknown")
    (gap,) = attempts.missing(run_dir(spec.run_id), spec)
    assert gap.startswith("the evaluation at step")


def test_a_table_counts_the_samples_that_every_problem_has(mcpo_home: Path) -> None:
    plan = fakes.table1("seed=0,1")
    whole = of_runs(Runs(plan), Question("DAPO"))
    lose(mcpo_home, plan.runs[0].spec, 0, lost=3)
    found = of_runs(Runs(plan), Question("DAPO"))
    assert (whole.trained.k, whole.trained.ungraded) == (8, 0)
    assert (found.trained.k, found.trained.ungraded) == (5, 3)
    assert Runs(plan).eval()["ungraded"].dropna().tolist() == [3]


@pytest.mark.parametrize(("line", "names", "lower"), FAULTS)
def test_a_known_fault_is_named_with_what_avoids_it(line: str, names: str, lower: str, tmp_path: Path) -> None:
    log = tmp_path / "verl.log"
    log.write_text(f"\x1b[36m(WorkerDict pid=71)\x1b[0m {line}\nray.exceptions.ActorDiedError: it died\n")
    with refused("run_failed", names, "ActorDiedError: it died", str(log)) as error:
        launch.fail(Channel(tmp_path), log, 1)
    assert lower in str(error.value.fix)


def test_a_fault_that_nobody_knows_has_no_fix() -> None:
    assert launch.known_failure("ValueError: shapes do not match\nmemory: 3 GiB used, OutOfMemory: 0") is None


def test_an_error_of_ours_says_itself_what_mends_it(tmp_path: Path) -> None:
    log = tmp_path / "verl.log"
    log.write_text("MemoryError\n")
    Channel(tmp_path).ended(RunFailed("not enough prompts", fix="train.max_refills=20"))
    with refused("run_failed", "not enough prompts") as error:
        launch.fail(Channel(tmp_path), log, 1)
    assert error.value.fix == "train.max_refills=20"


def test_a_run_that_was_killed_before_its_final_policy_only_writes_that(
    spec: RunSpec, mcpo_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, steps = run_dir(spec.run_id), spec.train.steps
    write_run(spec)
    killed = folder / "attempt_1" / "status.json"
    write_json(killed, {**read_json(killed), "state": "running"})
    actor = checkpoint.folder(folder / "checkpoints", steps) / "actor"
    model = AutoModelForCausalLM.from_pretrained(untrained(actor / "huggingface"))
    torch.save(model.state_dict(), actor / "model_world_size_1_rank_0.pt")
    (actor / "huggingface" / "model.safetensors").unlink()
    checkpoint.seal(folder / "checkpoints", steps)
    assert attempts.state(folder, spec) == "interrupted"

    def refuse(*_arguments: object, **_options: object) -> None:
        raise AssertionError("there is nothing left to train")

    monkeypatch.setattr(launch.subprocess, "Popen", refuse)
    backend = get("verl")
    attempt = Attempt(folder, spec, attempts.resume_step(folder, spec, backend.kept(folder)))
    backend.run(spec, attempt, lambda: False)
    attempt.end("done")
    assert attempts.state(folder, spec) == "done"
    assert [row["step"] for row in Journal(folder).steps()] == list(range(1, steps + 1))
    written = AutoModelForCausalLM.from_pretrained(attempt.folder / "policy").state_dict()
    assert written.keys() == model.state_dict().keys()
    assert all(torch.equal(written[name], value) for name, value in model.state_dict().items())
