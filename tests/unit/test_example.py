"""`examples/grpo_from_scratch.py` computes the same as the method `grpo`, and learns."""

import pytest
import torch

from examples.grpo_from_scratch import Settings, advantages, grpo_loss, train
from mcpo_cli.methods import get, reduce
from mcpo_cli.testing.batches import mini_batch, step


def test_advantages_are_those_of_grpo() -> None:
    of = step(seed=1)
    signals, _ = get("grpo").signals(of, {})
    torch.testing.assert_close(advantages(of.reward_PG.double()), signals.advantage)


def test_loss_and_gradient_are_those_of_grpo() -> None:
    method, of = get("grpo"), step(seed=2)
    signals, _ = method.signals(of, {})
    batch = mini_batch(method, of, signals, seed=3)
    P, G = of.reward_PG.shape
    logp_PGT, old_PGT, mask_PGT = (
        tensor.unflatten(0, (P, G)) for tensor in (batch.logp_BT, batch.logp_old_BT, batch.mask_BT)
    )
    found = grpo_loss(logp_PGT, old_PGT, signals.advantage, mask_PGT, 0.2, 0.2)
    expected = reduce(method.token_loss(batch), batch.mask_BT)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(loss, batch.logp_BT, retain_graph=True)[0] for loss in (found, expected)]
    torch.testing.assert_close(*gradients)


def test_every_part_of_the_loop_runs(capsys: pytest.CaptureFixture[str]) -> None:
    train(Settings(warmup_steps=2, steps=1, prompts=4, rollouts=2, mini_batch=2))
    assert "after 1 steps of GRPO" in capsys.readouterr().out


@pytest.mark.slow
def test_it_learns() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    before, after = train(Settings())
    torch.set_num_threads(threads)
    assert after > before + 0.05
