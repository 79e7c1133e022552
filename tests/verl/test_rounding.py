"""The effect of rounding on a gradient step under verl: the measure by hand, against float32, and its time."""

import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from mcpo_cli.config.load import load
from tests.equivalence.test_families import stock

pytestmark = pytest.mark.verl


@pytest.mark.parametrize(
    ("noise", "rounding"),
    [((0.0, 0.0, 0.0), 0.0), ((0.3, 0.0, 0.0), 0.3 / math.sqrt(3)), ((0.0, 0.3, 0.0), 0.6 / math.sqrt(3))],
)
def test_a_change_that_is_linear_in_the_step_is_no_rounding(noise: tuple[float, ...], rounding: float) -> None:
    from mcpo_cli.backends.verl.engine import rounding_and_drift

    start, drift = torch.tensor([-1.0, -2.0]), torch.tensor([0.5, -0.5])
    before, half_way, after = (start + share * drift + own for share, own in zip((0, 0.5, 1), noise, strict=True))
    found = rounding_and_drift(before, half_way, after)
    assert found["sanity/rounding_after_step"] == pytest.approx(rounding)
    change = float((after - before).square().mean())
    assert found["sanity/drift_after_step"] == pytest.approx(math.sqrt(max(change - rounding**2, 0)))


@pytest.fixture
def one_rank() -> Iterator[None]:
    if distributed.is_initialized():  # by vLLM, which a test before may have run in this process
        yield
        return
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


class Passes:
    """verl's trainer with its only rank in this process; its passes are over all tokens."""

    def __init__(self, *, in_bfloat16: bool) -> None:
        self.module = stock("llama grouped")
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16) if in_bfloat16 else MixedPrecisionPolicy()
        fully_shard(self.module, mesh=init_device_mesh("cpu", (1,)), mp_policy=policy)
        self.engine = SimpleNamespace(module=self.module)
        vocabulary = self.module.config.vocab_size
        self.token_BT = torch.randint(vocabulary, (8, 24), generator=torch.Generator().manual_seed(0))
        self.newest = self.log_probs_now()

    @torch.no_grad()
    def log_probs_now(self) -> Tensor:
        logits_BTV = self.module(input_ids=self.token_BT).logits.float()
        self.module.reshard()
        return logits_BTV[:, :-1].log_softmax(-1).gather(-1, self.token_BT[:, 1:, None]).squeeze(-1)

    def log_probs(self, _chosen: Any) -> None:
        self.newest = self.log_probs_now()

    def on_each_rank(self, call: Any) -> list[Any]:
        return [call(self.engine)]

    def weights(self) -> list[Tensor]:
        return [weight.detach().to_local() for weight in self.module.parameters()]

    def step(self) -> None:
        generator = torch.Generator().manual_seed(1)
        for weight in self.weights():
            weight.add_(1e-6 * torch.randn(weight.shape, generator=generator))


def measured(monkeypatch: pytest.MonkeyPatch, passes: Passes) -> tuple[dict[str, float], Tensor]:
    """The measured rounding over a step of these weights, and the change of log-probabilities that it follows from."""
    from mcpo_cli.backends.verl import engine

    before = passes.log_probs_now()
    ragged = SimpleNamespace(
        old_log_probs=lambda _: before.flatten(),
        newest_log_probs=lambda _: SimpleNamespace(values=passes.newest.flatten),
    )
    monkeypatch.setattr(engine, "queue", ragged)
    batch: Any = SimpleNamespace(keys=["a"])
    batch.select_keys = lambda keys: SimpleNamespace(keys=keys)
    begun = engine.Rounding(passes, batch)
    passes.step()
    moved = [weight.clone() for weight in passes.weights()]
    found = begun.over_step()
    assert all(torch.equal(mine, left) for mine, left in zip(passes.weights(), moved, strict=True))
    assert vars(passes.engine) == {"module": passes.module, "mcpo_kept": {}}, "a copy of the weights is kept"
    return found, passes.log_probs_now() - before


def test_it_is_what_a_pass_in_float32_says(one_rank: None, monkeypatch: pytest.MonkeyPatch) -> None:
    exact, true = measured(monkeypatch, Passes(in_bfloat16=False))
    drift = float(true.square().mean().sqrt())
    assert exact["sanity/drift_after_step"] == pytest.approx(drift, rel=0.01)
    assert exact["sanity/rounding_after_step"] < 0.05 * drift
    reduced, seen = measured(monkeypatch, Passes(in_bfloat16=True))
    rounding = float((seen - true).square().mean().sqrt())
    assert rounding > drift / 2, "the step is so large that rounding does not matter"
    assert reduced["sanity/rounding_after_step"] == pytest.approx(rounding, rel=0.25)


def test_it_is_taken_over_the_first_gradient_step_of_a_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from mcpo_cli.backends.verl import trainer as module

    begun: list[list[str]] = []

    class Counted:
        def __init__(self, _trainer: Any, batch: Any) -> None:
            begun.append(batch.keys)

        def over_step(self) -> dict[str, float]:
            return {"sanity/rounding_after_step": 0.25}

    monkeypatch.setattr(module, "Rounding", Counted)
    monkeypatch.setattr(module, "gradient_steps", lambda *_: ([], {}))
    monkeypatch.setattr(module, "noise_floor", lambda *_: 0.0)
    trainer: Any = object.__new__(module.Trainer)
    trainer.spec = load(["scale=verl-cpu", "method=grpo"])[0]
    trainer.kept_policies, trainer.method_state, trainer.output = [], {}, SimpleNamespace(report=None)
    trainer._trained = lambda _: iter([(["a"], []), (["b"], [])])
    trainer.on_each_rank = lambda _: []
    metrics = {"mcpo": [], "grad_norm": 1.0, "lr": 1.0, "mfu": 0.5}
    trainer.actor_rollout_wg = SimpleNamespace(update_actor=lambda _: {"metrics": dict(metrics)})
    batch: Any = SimpleNamespace(extra_info={})
    batch.select_keys = lambda keys: SimpleNamespace(keys=keys, tags=[{"seq_len": 1}])
    for step, expected in ((1, [["a"]]), (2, [])):
        begun.clear()
        trainer.global_steps = step
        trainer._update_actor(batch, {})
        assert begun == expected
        assert ("sanity/rounding_after_step" in trainer.updates) == (step == 1)
