"""Time, memory, disk and tokens of runs: estimated, against what is published, measured or by hand; and counted."""

import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch import Tensor

from mcpo_cli.backends import local
from mcpo_cli.backends.local import batch, train
from mcpo_cli.backends.local.encoding import Language
from mcpo_cli.backends.local.generate import sample
from mcpo_cli.backends.local.policy import Policy
from mcpo_cli.backends.measure import CostTotals
from mcpo_cli.config import cost
from mcpo_cli.config.cost import GpuCost
from mcpo_cli.config.eval_schedule import eval_problems, eval_steps
from mcpo_cli.config.load import load
from mcpo_cli.config.plan import Plan
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.data.base import Problem
from mcpo_cli.home import run_dir
from mcpo_cli.machine import GIB
from mcpo_cli.measures.frames import Runs
from mcpo_cli.records import AXES
from mcpo_cli.runs import origins
from mcpo_cli.runs.attempts import Attempt, missing
from mcpo_cli.runs.journal import Journal
from tests.errors import refused

# estimated


def spec(*overrides: str) -> RunSpec:
    return load(["scale=paper", *overrides])[0]


def on_gpus(run: RunSpec) -> GpuCost:
    """The cost of a run that trains on GPUs."""
    gpus = cost.estimate(run).gpus
    assert gpus
    return gpus


@pytest.mark.parametrize(
    ("model", "billions"), [("qwen3-0.6b", 0.596), ("qwen3-1.7b", 1.72), ("qwen3-8b", 8.19), ("qwen3-14b", 14.77)]
)
def test_parameters_are_those_that_are_published(model: str, billions: float) -> None:
    assert cost.weights(spec(f"model={model}")).count / 1e9 == pytest.approx(billions, rel=2e-3)


def test_tokens_and_operations_by_hand() -> None:
    run = spec("model=qwen3-8b", "train.steps=1", "eval.every=1", "task.benchmarks=[aime24]")
    about = on_gpus(run)
    batch = 128 * 16
    assert about.trained == batch * (200 + 5120)
    # The base policy and the only step are evaluated: 30 problems, 8 samples.
    assert about.sampled == (batch + 2 * 30 * 8) * 5120
    weights = cost.weights(run).count - 4096 * 151936
    operations = 2 * weights + 4 * 36 * 4096 * (200 + 2560)
    training = about.trained * operations * 5 / (989e12 * 0.35)
    assert about.seconds == pytest.approx(about.sampled * operations / (989e12 * 0.052) + training)
    assert about.checkpoint == 12 * cost.weights(run).count
    assert about.disk == 3 * about.checkpoint


def test_a_gpu_samples_as_many_tokens_of_8b_as_reported() -> None:
    once, twice = (on_gpus(spec("model=qwen3-8b", "train.steps=1", f"eval.samples={n}")) for n in (8, 16))
    # Only evaluations sample tokens that are not trained on.
    assert (twice.sampled - once.sampled) / (twice.seconds - once.seconds) == pytest.approx(3070, rel=0.01)


def test_memory_shrinks_with_what_is_shared() -> None:
    one, two, whole = (cost.gpu_bytes(spec(*more)) for more in ([], ["cluster.nodes=2"], ["cluster.tensor_parallel=1"]))
    assert two["trains"] < one["trains"]
    assert two["samples"] == one["samples"]
    assert whole["samples"] == 2 * one["samples"]
    weights, cache = 2 * cost.weights(spec()).count, 4 * 36 * 8 * 128 * 22528
    assert one["samples"] == pytest.approx((weights + cache) / 2 / 0.7)


def test_attention_between_all_tokens_of_a_pass_needs_a_mask() -> None:
    masked = cost.gpu_bytes(spec("cluster.attention=sdpa"))["trains"] - cost.gpu_bytes(spec())["trains"]
    assert masked == 24576**2 * 3


CPU = ("model=smollm2-135m", "train.steps=1", "eval.every=1", "probe.every=0", "probe.panel_every=0")


def on_cpu(*overrides: str) -> float:
    """Modelled seconds of one step of a pretrained model on two cores, with the two evaluations around it."""
    return cost.estimate(load([*CPU, *overrides])[0]).training


def test_what_a_step_of_a_pretrained_model_takes_by_hand() -> None:
    """16 prompts x 8 rollouts of sums: the worked examples, which all prompts share, are not counted."""
    run = load(CPU)[0]
    question, response = run.task.question_tokens(), run.task.expected_tokens(run.train.max_response)[1]
    group = question + 8 * response
    assert group < 40
    tokens = 16 * group * (1 + 3 / 2) + 2 * eval_problems(run) * group
    assert on_cpu() == pytest.approx(tokens * 2 * cost.weights(run).count / (2 * cost.OPERATIONS_PER_CORE))


def test_a_penalty_trains_all_groups_and_passes_them_through_one_more_policy() -> None:
    run = load(CPU)[0]
    group = run.task.question_tokens() + 8 * run.task.expected_tokens(run.train.max_response)[1]
    of_a_token = 2 * cost.weights(run).count / (2 * cost.OPERATIONS_PER_CORE)
    assert on_cpu("method=grpo_kl") - on_cpu("method=grpo") == pytest.approx(16 * group * (4 - 3 / 2) * of_a_token)
    plain, kept = (on_gpus(spec(f"method={name}")) for name in ("grpo", "grpo_kl"))
    assert kept.trained == plain.trained
    assert cost.operations(spec("method=grpo_kl"), 0, 5) == cost.operations(spec("method=grpo"), 0, 6)


WEIGHTS = 134_479_872
"""Weights of SmolLM2-135M without norms: 49152 x 576 + 30 x (2 x 576 x 576 + 2 x 576 x 192 + 3 x 576 x 1536)."""


def laptop(*words: str) -> RunSpec:
    method = [] if any(word.startswith("method=") for word in words) else ["method=dapo"]
    return load(["model=smollm2-135m", *method, *words])[0]


def test_a_step_of_smollm2_fits_into_the_memory_that_was_measured() -> None:
    # Measured: 2.9 GB at its peak. State 12 bytes a weight, gradients 4.
    needed = cost.estimate(laptop()).memory
    assert 16 * WEIGHTS < needed < 4.5e9


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """A machine with 3 GiB of free memory and 3 GiB of free disk."""
    machine = SimpleNamespace(memory=3 * GIB, disk=3 * GIB)
    monkeypatch.setenv("MCPO_HOME", str(tmp_path / "not" / "there"))
    monkeypatch.setattr(local.psutil, "virtual_memory", lambda: SimpleNamespace(available=machine.memory))
    monkeypatch.setattr(local.shutil, "disk_usage", lambda _: SimpleNamespace(free=machine.disk))
    return machine


def test_what_cannot_fit_is_refused(small: Any) -> None:
    with refused("bad_input", "memory", "3.0 GiB") as caught:
        local.BACKEND.check_machine(cost.estimate(laptop()))
    assert caught.value.fix is not None
    assert "compute.micro_batch_tokens=512" in caught.value.fix
    small.memory = 8 * GIB
    with refused("cannot_write", "3.8 GB", "disk", "3.2 GB are free"):
        local.BACKEND.check_machine(cost.estimate(laptop()))
    small.disk = 8 * GIB
    local.BACKEND.check_machine(cost.estimate(laptop()))


@pytest.mark.parametrize(
    ("dtype", "instructions", "words"),
    [
        ("auto", "avx2", "products in float32"),
        ("auto", "avx512_bf16 avx2", "float32; this processor has avx512_bf16: compute.dtype=bfloat16"),
        (
            "bfloat16",
            "amx_bf16 avx512_bf16",
            r"in bfloat16 \(amx_bf16\); weights, attention and log-probabilities in float32",
        ),
        ("bfloat16", "avx2", "warning: products in bfloat16, .* no instructions: float32 is faster"),
    ],
)
def test_the_formats_of_products_are_those_of_the_processor(
    dtype: str, instructions: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local.provenance, "instructions", instructions.split)
    assert re.search(words, local.formats(laptop(f"compute.dtype={dtype}")))


# counted

UNTRAINED = ("warmup.target_accuracy=0", "warmup.probe_prompts=8")
QUICK = (
    "scale=smoke",
    *UNTRAINED,
    "train.rollouts=2",
    "train.temperature=1",
    "eval.samples=1",
    "compute.checkpoints_after=0",
)


def trained(*overrides: str, quick: Sequence[str] = QUICK) -> tuple[RunSpec, Journal]:
    """A run of the local engine; by default from untrained weights."""
    spec = load([*quick, *overrides])[0]
    folder = run_dir(spec.run_id)
    attempt = Attempt(folder, spec, start_step=0)
    train.run(spec, attempt, stop=lambda: False)
    assert origins.kept(folder), "a run that is killed before its end continues from them"
    attempt.end("done")
    return spec, Journal(folder)


def test_totals_by_hand(mcpo_home: Path) -> None:
    """GRPO keeps every group: 3 steps of 8 prompts x 2 rollouts in 2 mini-batches."""
    spec, journal = trained("method=grpo")
    rows = [row["metrics"] for row in journal.steps()]
    assert [row["cost/rollouts"] for row in rows] == [16, 32, 48]
    assert [row["cost/gradient_steps"] for row in rows] == [2, 4, 6]
    sampled = [
        sum(group["mean_length"] * 2 for group in journal.groups() if group["step"] <= step) for step in (1, 2, 3)
    ]
    assert [row["cost/sampled_tokens"] for row in rows] == pytest.approx(sampled)
    expected = [cost.operations(spec, row["cost/sampled_tokens"], row["cost/trained_tokens"]) for row in rows]
    assert [row["cost/flops"] for row in rows] == pytest.approx(expected)
    phases = [row["perf/seconds_sample"] + row["perf/seconds_update"] for row in rows]
    assert rows[-1]["cost/seconds"] == pytest.approx(sum(phases))


@pytest.mark.slow
def test_greedy_responses_are_counted_and_are_the_most_likely(mcpo_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more rollout for each of 8 prompts of a step; almost cold sampling takes the same tokens."""
    asked = list[tuple[Tensor, int, Tensor, int]]()

    def both(policy: Policy, language: Language, spec: RunSpec, step: int, problems: Sequence[Problem]) -> Any:
        found = batch.greedy_rewards(policy, language, spec, step, problems)
        prompt_PS, most = language.prompts(problems), spec.train.max_response
        cold = sample(policy, prompt_PS, 1, most, 1e-6, language.eos, 0, language.stops)
        right_P = language.grade(problems, cold).correct_PG.squeeze(-1).double()
        asked.append((found[0], found[2], right_P, int(cold.length_PG.sum())))
        return found

    monkeypatch.setattr(train, "greedy_rewards", both)
    _, journal = trained("method=remax", "train.rollouts=2", "train.overlong_cache=0", quick=["scale=smoke"])
    rows = [row["metrics"] for row in journal.steps()]
    assert [row["cost/rollouts"] for row in rows] == [24, 48, 72]
    own = [sum(group["mean_length"] * 2 for group in journal.groups() if group["step"] == step) for step in (1, 2, 3)]
    totals = [0.0, *(row["cost/sampled_tokens"] for row in rows)]
    for place, (reward_P, tokens, cold_P, cold_tokens) in enumerate(asked):
        assert reward_P.tolist() == cold_P.tolist()
        assert tokens == cold_tokens
        assert totals[place + 1] - totals[place] == pytest.approx(own[place] + tokens)
    assert len(asked) == 3
    assert {float(value) for reward_P, *_ in asked for value in reward_P} == {0.0, 1.0}


def test_tokens_that_are_trained_on_belong_to_groups_that_bear_a_gradient(mcpo_home: Path) -> None:
    """Untrained, nearly all groups are all incorrect. A mini-batch without a mixed group still trains on one group."""
    spec, journal = trained("method=grpo", "train.steps=1", "train.mini_batch=8")
    (row,) = journal.steps()
    mixed = [group for group in journal.groups() if 0 < group["p"] < 1] or journal.groups()[:1]
    tokens = sum(2 * (group["mean_length"] + spec.task.prompt_length) for group in mixed)
    assert row["metrics"]["cost/trained_tokens"] == pytest.approx(tokens)
    assert len(mixed) < 8


def test_totals_go_on_from_the_journal(mcpo_home: Path) -> None:
    spec = load([*QUICK])[0]
    folder = run_dir(spec.run_id)
    first, step = Attempt(folder, spec, start_step=0), {"sampled_tokens": 7, "trained_tokens": 5, "gradient_steps": 2}
    spent = CostTotals(spec, Journal(folder), 0)
    for number in (1, 2):
        spent.add(rollouts=10 * number, seconds=0.5, **step)
        first.journal.step({"step": number, "time": 0.0, "metrics": spent.totals})
    Attempt(folder, spec, start_step=1)
    again = CostTotals(spec, Journal(folder), 1)
    assert again.totals["cost/rollouts"] == 10
    again.add(rollouts=20, seconds=0.5, **step)
    assert again.totals == spent.totals


@pytest.mark.slow
def test_evaluations_at_rollouts(mcpo_home: Path) -> None:
    """16 rollouts a step: multiples of 40 are passed in steps 3 and 5; eval.every and the last step stay."""
    spec, journal = trained("method=grpo", "train.steps=6", "eval.every=4", "eval.every_rollouts=40")
    assert list(journal.files("eval")) == [0, 3, 4, 5, 6]
    assert list(journal.files("samples")) == [3, 4, 5, 6]
    assert not missing(journal.run_dir, spec)
    (journal.run_dir / "attempt_1" / "sums.json").unlink()
    (journal.run_dir / "attempt_1" / "eval" / "step_000003.jsonl").unlink()
    assert missing(journal.run_dir, spec) == ["the evaluation at step 3 has 0 of 18 problems"]


def test_steps_that_pass_several_multiples_are_evaluated_once() -> None:
    spec = load(["scale=smoke", "train.steps=5", "eval.every=5", "eval.every_rollouts=100"])[0]
    assert eval_steps(spec, {1: 99, 2: 100, 3: 350, 4: 399, 5: 450}) == [0, 2, 3, 5]
    assert eval_steps(spec) == [0, 5]


def test_scores_stand_beside_what_they_cost(table1: Plan, runs: Runs) -> None:
    scores = runs.scores()
    assert len(scores) == len(table1.runs) * 3 * 3  # tiers, evaluations
    assert (scores.loc[scores["step"] == 0, list(AXES)] == 0).all(axis=None)
    for run in table1.runs:
        here = scores[(scores["run_id"] == run.spec.run_id) & (scores["step"] == 2)]
        assert here["cost/rollouts"].tolist() == [2 * 8 * 4] * 3
        rows = [row for row in runs.journal(run).eval() if (row["step"], row["tier"]) == (2, "k5-6")]
        mean = sum(row["c"] / row["n"] for row in rows) / len(rows)
        assert here.loc[here["tier"] == "k5-6", "pass@1"].item() == pytest.approx(mean)
