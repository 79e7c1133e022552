"""An error names a method that breaks its contract, and the expected value."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch

from mcpo_cli.backends import checks
from mcpo_cli.backends.verl import batch as verl_batch
from mcpo_cli.config.load import load
from mcpo_cli.errors import RunFailed
from mcpo_cli.methods import Clipped, Normalized, Signals, State, Step, Term, TokenBatch, TokenLoss, get
from mcpo_cli.testing import batches

SIGNALS = Signals(torch.zeros(6, 4).double(), torch.zeros(6, 4).bool())


@dataclass(frozen=True)
class Slips(Clipped, Normalized):
    """Returns a given value in place of a valid one."""

    name: ClassVar[str] = "slips"
    returns: Any = None

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        return self.returns  # type: ignore[no-any-return]

    def token_loss(self, batch: TokenBatch) -> TokenLoss:
        return self.returns(batch) if self.returns else None  # type: ignore[no-any-return,return-value]


@pytest.mark.parametrize(
    ("returns", "said"),
    [
        (None, "returned None instead of (Signals, State)"),
        (SIGNALS, "returned Signals instead of (Signals, State)"),
        ((None, {}), "returned (None, dict) instead of (Signals, State)"),
        (
            (dataclasses.replace(SIGNALS, advantage=torch.zeros(6)), {}),
            "advantage of shape (6,) instead of shape (6, 4)",
        ),
        ((dataclasses.replace(SIGNALS, advantage=[0.0]), {}), "advantage of no tensor instead of shape (6, 4)"),
        ((dataclasses.replace(SIGNALS, has_gradient_PG=torch.zeros(4, 6)), {}), "has_gradient_PG of shape (4, 6)"),
        ((dataclasses.replace(SIGNALS, counts_PG=torch.zeros(24)), {}), "counts_PG of shape (24,)"),
    ],
)
def test_signals_of_another_type_or_shape_name_the_method(returns: Any, said: str) -> None:
    spec = dataclasses.replace(load(["scale=smoke"])[0], method=Slips(returns=returns))
    of = batches.step()
    with pytest.raises(RunFailed) as local:
        checks.signals(spec.method, of, {})
    with pytest.raises(RunFailed) as verl:
        verl_batch.apply_method(spec, of, {}, torch.ones(6, 4).bool(), lambda: torch.zeros(6, 4, 7), seed=0)
    assert local.value.message == verl.value.message
    assert local.value.message.startswith("method=slips: signals returned ")
    assert said in local.value.message
    assert local.value.fix == "mcpo components check method slips"


def test_an_advantage_that_is_not_a_number_is_the_methods() -> None:
    signals = Signals(torch.full((6, 4), torch.nan).double(), torch.ones(6, 4).bool())
    with pytest.raises(checks.NotFinite) as failed, checks.at("step 3"):
        checks.signals(Slips(returns=(signals, {})), batches.step(), {})
    assert failed.value.message == "step 3: method=slips: an advantage is NaN or infinite"
    assert failed.value.fix == "mcpo components check method slips"


@dataclass(frozen=True)
class NoAdvantages(Clipped, Normalized):
    """Returns an invalid value from `advantages`, the main function of most methods."""

    name: ClassVar[str] = "no_advantages"
    returns: Any = None

    def advantages(self, reward_PG: torch.Tensor, correct_PG: torch.Tensor) -> torch.Tensor:
        return self.returns  # type: ignore[no-any-return]


@pytest.mark.parametrize("returns", [None, 1.0, [[1.0]]])
def test_advantages_that_are_no_tensor_name_the_method(returns: Any) -> None:
    with pytest.raises(RunFailed) as failed:
        checks.signals(NoAdvantages(returns=returns), batches.step(), {})
    assert failed.value.message.startswith("method=no_advantages: signals returned advantage of no tensor")


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (None, "token_loss returned None instead of a TokenLoss of one term or more"),
        (lambda batch: TokenLoss(()), "token_loss returned TokenLoss instead of a TokenLoss of one term or more"),
        (
            lambda batch: TokenLoss((Term("policy", batch.logp_BT.sum(-1), batch.length_B),)),
            "token_loss returned value_BT of the term policy of shape (24,) instead of shape (24, 7)",
        ),
        (
            lambda batch: TokenLoss((Term("policy", batch.logp_BT, batch.logp_BT),)),
            "token_loss returned weight_B of the term policy of shape (24, 7) instead of shape (24,)",
        ),
    ],
)
def test_a_loss_of_another_type_or_shape_names_the_method(loss: Callable[[TokenBatch], Any] | None, said: str) -> None:
    batch = batches.mini_batch(get("grpo"), batches.step(), get("grpo").signals(batches.step(), {})[0])
    with pytest.raises(RunFailed) as raised:
        checks.token_loss(Slips(returns=loss), batch)
    assert raised.value.message == f"method=slips: {said}"
