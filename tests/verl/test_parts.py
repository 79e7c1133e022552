"""The parts of the verl backend that need verl, but not a run of it."""

import importlib
import inspect
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
import torch

from mcpo_cli.backends.verl import overrides
from mcpo_cli.config.load import load
from mcpo_cli.methods import Method, get
from mcpo_cli.prompt_samplers import Refill
from mcpo_cli.testing import CHECKS
from tests.errors import refused
from tests.store_runs import free_port
from tests.unit.test_conformance import VARIANTS
from tests.verl import LEAN
from tests.verl.conftest import PATIENCE, ROOT

pytestmark = pytest.mark.verl


@pytest.mark.parametrize("method", VARIANTS, ids=repr)
def test_loss_and_gradient_under_verl_are_the_methods_own(method: Method) -> None:
    CHECKS["verl computes the same loss"](method)


TRAINER = {
    "fit": "self agent_loop_manager",
    "_setup": "self",
    "_build_replay_buffer": "self",
    "_add_prompts_to_generate": "self num_prompts",
    "_submit_batch_to_rollout": "self batch",
    "_balance_batch": "self batch metrics logging_prefix keep_minibatch",
    "_compute_old_log_prob": "self batch metrics",
    "_compute_advantage": "self batch metrics",
    "_update_actor": "self batch metrics",
    "_compute_metrics": "self batch metrics timing_raw global_steps epoch",
    "_save_checkpoint": "self",
    "on_sample_end": "self",
    "prepare_step": "self",
    "on_step_end": "self",
    "step": "self metrics timing_raw",
}
BUFFER = {
    "sample": "self global_steps partition_id batch_size",
    "_terminal_eviction_reasons": "self global_steps partition_id",
    "_dapo_filtered_keys": "self partition_id",
    "_select_prompt_uids": "self partition_id sampleable_keys batch_size",
    "_clear_groups": "self partition_id uids",
    "_wait_for_next_poll": "self partition_id last_debug_time",
}
AGENT = {"run": "self sampling_params kwargs"}
REWARDS = {"run_single": "self data"}
RUNNER = {"run": "config _ray_trace_ctx"}
CLASSES = {
    "trainer.main_ppo:TaskRunnerV1": RUNNER,
    "trainer.ppo.v1.trainer_sync:PPOTrainerSync": TRAINER,
    "trainer.ppo.v1.replay_buffer:ReplayBuffer": BUFFER,
    "experimental.agent_loop.agent_loop:AgentLoopBase": AGENT,
    "experimental.reward_loop.reward_manager.dapo:DAPORewardManager": REWARDS,
}
"""Classes of verl that ours derive from, and the methods that are overridden or called: verl would not miss an override
that has another name. Its functions are imported and called in every run of these tests."""


def parameters(function: Any) -> str:
    """The names of the parameters."""
    return " ".join(inspect.signature(function).parameters)


def test_verl_has_the_private_methods_that_are_overridden_or_called() -> None:
    for place, methods in CLASSES.items():
        module, _, name = place.partition(":")
        found = getattr(importlib.import_module(f"verl.{module}"), name)
        assert {name: parameters(getattr(found, name)) for name in methods} == methods


def test_a_checkpoint_is_written_before_the_rollout_engine_wakes_and_complete_after_the_evaluation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An awake engine uses the memory that writing needs; the evaluation's rows belong to the checkpoint."""
    from mcpo_cli.backends.verl import trainer as module

    done: list[str] = []

    def does(name: str, returned: Any = None) -> Callable[..., Any]:
        return lambda *_, **__: done.append(name) or returned

    nothing = SimpleNamespace(**dict.fromkeys(("logp_difference", "with_entropy"), lambda *_: []))
    monkeypatch.setattr(module, "queue", nothing)
    monkeypatch.setattr(module.tq, "kv_clear", lambda **_: None)
    monkeypatch.setattr(module, "seconds", lambda _: {"sample": 0.0, "update": 0.0})
    monkeypatch.setattr(module.SkipManager, "init", lambda _: None)
    (spec,) = load(["scale=verl-cpu", "train.steps=3", "compute.checkpoint_every=2", "cluster.rollout=transformers"])
    trainer: Any = object.__new__(module.Trainer)

    def step(*_: Any) -> Any:
        done.append("step")
        trainer.output = SimpleNamespace(signals=SimpleNamespace(advantage_PG=None))
        return SimpleNamespace(keys=[], partition_id="train")

    channel = SimpleNamespace(asked_to_stop=lambda: False)
    journal = SimpleNamespace(rows=lambda *_: None)
    vars(trainer).update(
        spec=spec,
        config=None,
        engine_metrics={},
        global_steps=0,
        sealed=0,
        kept=[],
        mini_batches=[],
        updates={},
        probed={},
        trained_tokens=0,
        tokenizer=None,
        records=SimpleNamespace(
            channel=channel, journal=journal, phase=does("-"), step=does("record"), close=does("-")
        ),
        costs=SimpleNamespace(add=lambda **_: None, evaluation_due=True),
        step=step,
        write_checkpoint=does("write"),
        on_step_end=does("wake"),
        evaluate=does("evaluate"),
        seal_checkpoint=does("seal"),
        _compute_metrics=does("-"),
    )
    trainer.fit(None)
    plain, saved = ["step", "wake", "record", "evaluate"], ["step", "write", "wake", "record", "evaluate", "seal"]
    assert [name for name in done if name != "-"] == ["evaluate", *plain, *saved, *saved]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_log_probabilities_without_flash_attn_are_verls_and_keep_no_softmax(dtype: torch.dtype) -> None:
    """Under autocast, as in a run on GPUs; with one and a half pieces."""
    from mcpo_cli.backends.verl import patches

    torch.manual_seed(0)
    logits, labels = torch.randn(3 * patches.ROWS // 2, 50).to(dtype), torch.randint(50, (3 * patches.ROWS // 2,))

    def taken(function: Callable[..., torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, int]:
        leaf, kept = logits.clone().requires_grad_(), list[torch.Tensor]()
        hooks = torch.autograd.graph.saved_tensors_hooks(lambda value: kept.append(value) or value, lambda value: value)
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16), hooks:
            value = function(leaf, labels)
        own = leaf.untyped_storage().data_ptr()
        value.sum().backward()
        assert leaf.grad is not None
        beside = sum(each.nbytes for each in kept if each.untyped_storage().data_ptr() != own)
        return value.detach(), leaf.grad, beside

    (expected, gradient, _), (found, own, beside) = (taken(each) for each in (patches._by_row, patches._by_piece))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(own, gradient, rtol=1e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-6)
    assert beside <= labels.nbytes


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_ranks_get_equally_many_sequences(ranks: int) -> None:
    from mcpo_cli.backends.verl.batch import balance_ranks

    tokens = [7, 1, 9, 3, 3, 8, 2, 6, 5, 5, 1, 4]
    chosen = [0, 2, 3, 5, 7, 8, 10, 11]
    order = balance_ranks(chosen, tokens, ranks)
    assert sorted(order) == chosen
    size = len(chosen) // ranks
    assert all(share == sorted(share) for share in (order[i : i + size] for i in range(0, len(chosen), size)))
    assert balance_ranks([], tokens, ranks) == []


def test_ranks_get_similar_work() -> None:
    """Similar work, not similar numbers of tokens: attention costs their square."""
    from verl.utils.seqlen_balancing import calculate_workload, get_seqlen_balanced_partitions

    from mcpo_cli.backends.verl.batch import balance_ranks

    tokens = [2000, 1000, 16000, 6000, 6000, 8000, 1000, 12000]
    work = calculate_workload(torch.tensor(tokens)).tolist()

    def heaviest(shares: list[list[int]]) -> float:
        return max(sum(work[i] for i in share) for share in shares)

    order = balance_ranks(range(8), tokens, 2)
    by_tokens = get_seqlen_balanced_partitions(tokens, k_partitions=2, equal_size=True)
    assert heaviest([order[:4], order[4:]]) < 0.93 * heaviest(by_tokens)


def refilled(method: str, order: dict[str, int], discarded: set[str]) -> Any:
    """The replay buffer of a run with 3 prompts per step."""
    from mcpo_cli.backends.verl.queue import Buffer

    trainer = SimpleNamespace(
        spec=SimpleNamespace(method=get(method), train=SimpleNamespace(prompts=3), sampler=Refill()),
        prompts={uid: SimpleNamespace(order=index) for uid, index in order.items()},
        discard=discarded.update,
        check_alive=lambda: None,
        _add_prompts_to_generate=lambda _: None,
    )
    return Buffer(trainer)


@pytest.mark.parametrize(("name", "dropped"), [("dapo", {"wrong", "right"}), ("ngrpo", {"right"})])
def test_the_buffer_drops_the_groups_that_the_method_drops(
    name: str, dropped: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that could not be graded is no answer: with one, `right` is not mixed. One verdict is too few."""
    from mcpo_cli.backends.verl import queue

    answers = {
        "wrong": ["wrong"] * 3,
        "right": ["correct", "infra_error", "correct"],
        "mixed": ["correct", "wrong", "infra_error"],
        "alone": ["infra_error", "correct", "infra_error"],
    }
    said = [{"reward_extra_info": {"status": status}} for statuses in answers.values() for status in statuses]
    monkeypatch.setattr(queue.tq, "kv_batch_get", lambda **_: {"extra_fields": said})
    buffer = refilled(name, {}, set())
    buffer.partitions["train"] = {f"{uid}_{number}_0": {} for uid in answers for number in range(3)}
    buffer.finished_keys["train"] = {*answers}
    found, counts = buffer._dapo_filtered_keys("train")
    assert found == dropped | {"alone"}
    assert counts.total() == len(found)
    assert buffer._dapo_filtered_keys("train")[0] == found


def test_of_more_prompts_than_needed_the_first_of_the_stream_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """For any random ids, and any number of submitted prompts."""
    from verl.trainer.ppo.v1 import replay_buffer

    from mcpo_cli.backends.verl.queue import Buffer

    monkeypatch.setattr(replay_buffer.tq, "kv_clear", lambda **_: None)
    monkeypatch.setattr(Buffer, "_sync_metadata_from_transfer_queue", lambda _: None)
    monkeypatch.setattr(Buffer, "_dapo_filtered_keys", lambda *_: (set(), Counter()))
    for submitted in range(3, 9):
        order, discarded = {str(uuid4()): index for index in range(submitted)}, set[str]()
        buffer = refilled("dapo", order, discarded)
        buffer.partitions["train"] = {f"{uid}_{rollout}_0": {} for uid in order for rollout in range(2)}
        buffer.finished_keys["train"] = set(order)
        batch, _ = buffer.sample(1, "train", 3)
        assert {order[key.split("_", 1)[0]] for key in batch.keys} == {0, 1, 2}
        assert {order[uid] for uid in discarded} == set(range(3, submitted))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A simulated clock, on which sleeping takes no real time."""
    from mcpo_cli.backends.verl import main

    slept: list[float] = []
    monkeypatch.setattr(main.time, "sleep", slept.append)
    monkeypatch.setattr(main.time, "monotonic", lambda: sum(slept))
    return slept


def test_a_run_waits_until_all_gpus_have_joined_or_gives_up(
    monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    from mcpo_cli.backends.verl import main

    monkeypatch.setattr(main.ray, "cluster_resources", lambda: {"GPU": 8.0 * min(len(clock), 2)} if clock else {})
    told: list[str] = []
    main.wait_for_gpus(16, told.append)
    assert [text.partition(":")[2].split()[:3] for text in told] == [["0", "of", "16"], ["8", "of", "16"]]
    monkeypatch.setattr(main.ray, "cluster_resources", lambda: {"GPU": 8.0})
    with refused("run_failed", "8 of 16 GPUs"):
        main.wait_for_gpus(16, lambda _: None)
    assert sum(clock) > main.JOINING_SECONDS


RANK = """
import torch
from verl.workers import engine_workers
engine_workers.initialize_global_process_group_ray(timeout_second=None)
group = torch.distributed.distributed_c10d._get_default_group()
print("timeout", group._get_backend(torch.device("cpu")).options._timeout.total_seconds())
"""
"""The first actions of verl's `TrainingWorker`."""


def test_ranks_wait_an_hour_for_each_other() -> None:
    (spec,) = load(["scale=verl-cpu"])
    rank = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    environment = {**os.environ, **LEAN, "PYTHONPATH": str(ROOT), **rank, **overrides.environment(spec)}
    ended = subprocess.run(
        [sys.executable, "-c", RANK], env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert "timeout 3600.0" in ended.stdout, ended.stderr
