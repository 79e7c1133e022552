"""NaN and infinity under verl, whose engine and rollout engine would continue: the run ends, like a local one."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mcpo_cli.backends.checks import NotFinite
from mcpo_cli.backends.verl import checkpoint
from mcpo_cli.backends.verl.batch import Prompt
from mcpo_cli.config.load import load
from mcpo_cli.data.base import Problem
from mcpo_cli.runs.journal import Journal
from tests.verl.conftest import TOY, Runs, nobody_is_left, status

pytestmark = pytest.mark.verl


def sampled(logp: float) -> dict[str, Any]:
    """A prompt's two responses in the queue; one token has this log-probability."""
    ragged = partial(torch.nested.as_nested_tensor, layout=torch.jagged)
    said = {"reward_extra_info": {"status": "correct", "answer": "1", "detail": ""}}
    return {
        "responses": ragged([torch.tensor([1, 2]), torch.tensor([1])]),
        "rm_scores": ragged([torch.tensor([0.0, 1.0]), torch.tensor([1.0])]),
        "rollout_log_probs": ragged([torch.tensor([-1.0, logp]), torch.tensor([-0.5])]),
        "extra_fields": [said, said],
    }


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A trainer at global step 3, with one prompt in the batch, and another one that is evaluated."""
    from mcpo_cli.backends.verl import trainer as module

    found: Any = object.__new__(module.Trainer)
    (found.spec,) = load(["scale=verl-cpu"])
    prompt = Prompt(0, Problem("1 + 1", "2"), "train")
    keys = ["a_0_0", "a_1_0"]
    vars(found).update(
        global_steps=3,
        prompts={"a": prompt},
        discarded=[],
        val_dataloader=[{"raw_prompt": ["1 + 1"]}],
        agent_loop_manager=SimpleNamespace(generate_sequences=lambda _: None),
        replay_buffer=SimpleNamespace(partitions={"train": keys}, sample=lambda *_: (SimpleNamespace(keys=keys), None)),
        records=SimpleNamespace(phase=lambda _: None),
        _seed=lambda *_: None,
    )
    monkeypatch.setattr(module.batches, "prompts", lambda *_: {"a": prompt})
    monkeypatch.setattr(module.tu, "get_tensordict", lambda _: None)
    monkeypatch.setattr(module.tu, "assign_non_tensor", lambda *_, **__: None)
    for name in ("kv_batch_put", "kv_clear"):
        monkeypatch.setattr(module.tq, name, lambda **_: None)
    return found


@pytest.mark.parametrize("logp", [torch.nan, -torch.inf])
@pytest.mark.parametrize(
    ("sample", "place"),
    [
        (lambda trainer: trainer.on_sample_end(), "step 3"),
        (lambda trainer: trainer.discard({"a"}), "step 3"),
        (lambda trainer: trainer.evaluate(), "evaluation after step 3"),
    ],
    ids=["batch", "discarded", "evaluation"],
)
def test_log_probabilities_of_the_rollout_engine(
    sample: Callable[[Any], None], place: str, logp: float, trainer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM samples arbitrary tokens from NaN logits, which would be recorded as incorrect answers."""
    from mcpo_cli.backends.verl import queue

    monkeypatch.setattr(queue.tq, "kv_batch_get", lambda **_: sampled(logp))
    with pytest.raises(NotFinite, match=f"^{place}: the log-probabilities of the policy are NaN or infinite"):
        sample(trainer)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_weights_on_any_rank_keep_a_checkpoint_from_being_written(value: float, trainer: Any, tmp_path: Path) -> None:
    def engine(weight: float) -> Any:
        share = SimpleNamespace(requires_grad=True, detach=lambda: share, to_local=lambda: torch.tensor([1.0, weight]))
        return SimpleNamespace(module=SimpleNamespace(named_parameters=lambda: [("weight", share)]))

    written: list[str] = []
    trainer.root, trainer.method_state, trainer.kept_policies = tmp_path, {}, []
    trainer._save_checkpoint = lambda: written.append("files")
    trainer.replay_buffer = SimpleNamespace(save=lambda _: written.append("sampler"))
    trainer.on_each_rank = lambda call: [call(engine(1.0)), call(engine(value))]
    with pytest.raises(NotFinite, match=r"^step 3: a weight of the policy is NaN or infinite"):
        trainer.write_checkpoint()
    assert written == []
    trainer.on_each_rank = lambda call: [call(engine(1.0)), call(engine(2.0))]
    trainer.write_checkpoint()
    assert written == ["files", "sampler"]


def test_advantages_name_the_step(trainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from mcpo_cli.backends.verl import trainer as module

    def broken(*_: Any) -> Any:
        raise NotFinite("method=x: an advantage is NaN or infinite")

    trainer.kept, trainer.method_state = [], {}
    trainer._graded = lambda _: SimpleNamespace(judged_PG=None)
    monkeypatch.setattr(module.queue, "step", lambda *_: SimpleNamespace(length_PG=None))
    monkeypatch.setattr(module.batches, "apply_method", broken)
    with pytest.raises(NotFinite, match=r"^step 3: method=x: an advantage"):
        trainer._apply_method(["a_0_0"], "old_log_probs")


@pytest.mark.slow
def test_a_run_whose_weights_become_nan_fails_and_goes_on_with_its_reference(runs: Runs) -> None:
    """They do so after the last gradient step of global step 2, whose loss and gradient are finite.

    The method has a penalty on the divergence from a reference, which is the base policy until it moves in step 3. Its
    batches are refilled, and rollouts are drawn at a temperature other than 1, which must not affect their correction.
    """
    method = ("method=grpo_kl", "method.kl_beta=0.1", "method.reference_every=2", "train.lr=1e-3")
    sampling = ("method.dynamic_sampling=true", "train.temperature=0.7")
    corrected = ("train.correction=token-truncate", "train.correction_high=1")
    settings = (*TOY, *method, *sampling, *corrected, "train.steps=3", "compute.checkpoint_every=1")
    result = runs("train", *settings, "cluster.plugin=tests.verl.faults.nan_weights")
    assert result.returncode == 1, result.stdout
    folder = runs.folder("grpo_kl")
    assert status(folder)["state"] == "failed"
    assert status(folder)["error"].startswith("step 2: a weight of the policy is NaN or infinite")
    assert "a smaller train.lr" in result.stdout
    assert checkpoint.complete(folder / "checkpoints") == [1]
    assert [row["step"] for row in Journal(folder).steps()] == [1]
    assert nobody_is_left(folder)

    again = runs("train", *settings)
    assert again.returncode == 0, again.stdout
    divergence: dict[int, list[float]] = {}
    for mini_batch in Journal(folder).mini_batches():
        total, count = mini_batch["sums"]["kl/reference"]
        divergence.setdefault(mini_batch["step"], []).append(total / count)
    # In the first gradient step of step 1, and of step 3 where it moved, the policy is the reference itself.
    assert divergence[1][0] == pytest.approx(0, abs=1e-9)
    assert divergence[3][0] == pytest.approx(0, abs=1e-9)
    # A run that was resumed from step 1 still has the base policy in step 2.
    assert min(divergence[1][1], divergence[2][0], divergence[2][1], divergence[3][1]) > 1e-6
    batches_were_refilled(Journal(folder))
    sampled_warm_and_trained_at_temperature_1(Journal(folder))


def batches_were_refilled(journal: Journal) -> None:
    for row in journal.steps():
        groups = [group for group in journal.groups() if group["step"] == row["step"]]
        kept = [group for group in groups if group["kept"]]
        assert len(kept) == 8
        assert all(0 < group["p"] < 1 for group in kept)
        assert row["metrics"]["sampling/prompts"] == len(groups)
        assert row["metrics"]["sampling/rounds"] == len(groups) / 8
        # Only groups that the filter dropped are mastered; probes still measure them.
        mastered = [group["prompt"] for group in groups if group["p"] == 1]
        again = [roll["prompt"] for roll in journal.rerolls() if roll["origin"] == roll["step"] == row["step"]]
        assert again == mastered[:16]
    # The test needs a filter that dropped groups.
    assert any(group["p"] in (0, 1) and not group["kept"] for group in journal.groups())


def sampled_warm_and_trained_at_temperature_1(journal: Journal) -> None:
    for metrics in (row["metrics"] for row in journal.steps()):
        # The rollout engine's log-probabilities are at temperature 1, so the trainer's are, and those of the update.
        assert metrics["sanity/logp_difference"] < 1e-4
        assert metrics["verl/training/rollout_probs_diff_max"] < 1e-4
        assert metrics["sanity/noise_floor"] == 0
        # The probability of a response at its sampling temperature is not known anywhere.
        assert "sanity/duplicates_expected" not in metrics
        # The two engines round differently; ratios above the bound of 1 are cut.
        assert 1 - 1e-4 < metrics["rollout_corr/weight"] < 1
