"""The conformance kit: every registered method passes, and each check fails for a method that breaks its demand."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pytest
from torch import Tensor

from mcpo_cli.methods import (
    Clipped,
    Normalized,
    Report,
    Signals,
    State,
    Step,
    Term,
    TokenBatch,
    TokenLoss,
    get,
    registry,
)
from mcpo_cli.testing import CHECKS, check
from mcpo_cli.testing.conformance import needs_even_groups
from tests.methods import Centred, Remembering

QUICK = ("dapo", "grpo", "mcpo")
VARIANTS = [
    *(pytest.param(get(name), marks=[pytest.mark.slow] * (name not in QUICK)) for name in sorted(registry())),
    get("mcpo", anchor="previous_step", normalize="all", delta=0.1),
    get("mcpo", degenerate="shaped", aggregation="token-mean"),
    get("mcpo", hinge=False, aggregation="seq-mean-token-sum"),
    get("mcpo", reweight=False, aggregation="constant"),
    get("reweighted", clip_advantage=2.0, renormalise=True),
    get("rl_zvp", entropy="current"),
    get("rl_zvp", entropy="current", learns_from="wrong", aggregation="token-mean"),
    Remembering(),
    Centred(),
]


def failed(method: Clipped) -> dict[str, str]:
    return {outcome.name: outcome.detail for outcome in check(method) if not outcome.passed}


@pytest.mark.parametrize("method", VARIANTS, ids=repr)
def test_methods_pass(method: Clipped) -> None:
    """Every shipped method also declares correctly if groups of different sizes fit it."""
    outcomes = check(method)
    assert [outcome.name for outcome in outcomes] == list(CHECKS)
    assert {outcome.name: outcome.detail for outcome in outcomes if not outcome.passed} == {}
    assert method.uneven_groups is not bool(needs_even_groups(method)), needs_even_groups(method)


@dataclass(frozen=True)
class Faulty(Clipped, Normalized):
    """A correct method; each class below breaks one thing in it."""

    name: ClassVar[str] = "faulty"


class Nameless(Faulty):
    name: ClassVar[str] = "a/b"


class DividesByZero(Faulty):
    def advantages(self, reward_PG: Tensor, correct_PG: Tensor) -> Tensor:
        reward_PG = reward_PG.double()
        return (reward_PG - reward_PG.mean(-1, keepdim=True)) / reward_PG.std(-1, keepdim=True)


class SinglePrecision(Faulty):
    def advantages(self, reward_PG: Tensor, correct_PG: Tensor) -> Tensor:
        return super().advantages(reward_PG, correct_PG).float()


class UndeclaredColumn(Faulty):
    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        signals, state = super().signals(step, state)
        return dataclasses.replace(signals, columns={"length": step.length_PG}), state


class FirstRolloutCountsDouble(Faulty):
    def advantages(self, reward_PG: Tensor, correct_PG: Tensor) -> Tensor:
        advantage_PG = super().advantages(reward_PG, correct_PG)
        advantage_PG[:, 0] *= 2
        return advantage_PG


class OtherGroupsCount(Faulty):
    """Divides by the deviation of all rewards, and does not declare it (`uneven_groups`)."""

    def divisor(self, reward_PG: Tensor, p_P1: Tensor) -> Tensor:
        return p_P1 * 0 + reward_PG.std() + 1


class HiddenMemory(Faulty):
    calls: ClassVar[list[int]] = []

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        signals, state = super().signals(step, state)
        self.calls.append(1)
        return dataclasses.replace(signals, advantage=signals.advantage * len(self.calls)), state


class MeanOverThePart(Faulty):
    def weight(self, batch: TokenBatch) -> Tensor:
        return 1 / (len(batch.mask_BT) * batch.length_B)


class ForgottenDetach(Faulty):
    def policy_loss(self, batch: TokenBatch) -> Tensor:
        return -batch.log_ratio_BT.exp().detach() * batch.A_BT * batch.logp_BT


class EntropyOnEverything(Faulty):
    """A term on all tokens, while rollouts without advantage are marked as without gradient."""

    def token_loss(self, batch: TokenBatch) -> TokenLoss:
        surprise_BT = batch.logp_BT * batch.logp_BT.exp()
        return TokenLoss((*super().token_loss(batch).terms, Term("entropy", surprise_BT, self.weight(batch))))


class PaddingCounts(Faulty):
    def policy_loss(self, batch: TokenBatch) -> Tensor:
        ratio_BT = batch.log_ratio_BT.mean(-1, keepdim=True).exp().expand_as(batch.logp_BT)
        return -ratio_BT * batch.A_BT


class MeansInsteadOfSums(Faulty):
    def report(self, batch: TokenBatch) -> Report:
        ratio_BT = batch.log_ratio_BT.exp()
        return Report({"train/ratio": ((ratio_BT * batch.A_BT * batch.mask_BT).sum() / 3 + 1, batch.mask_BT.sum())})


class NoGroup(Faulty):
    def report(self, batch: TokenBatch) -> Report:
        return Report({"ratio": (batch.A_BT.sum(), batch.mask_BT.sum())})


BREAKS: Mapping[type[Faulty], str] = {
    Nameless: "label",
    DividesByZero: "signals of every group",
    SinglePrecision: "signals of every group",
    UndeclaredColumn: "signals of every group",
    FirstRolloutCountsDouble: "signals do not depend on order",
    OtherGroupsCount: "uneven groups are apart",
    HiddenMemory: "state survives a checkpoint",
    MeanOverThePart: "loss does not depend on the split",
    ForgottenDetach: "gradient is that of the loss",
    EntropyOnEverything: "what is left out has no gradient",
    PaddingCounts: "padding changes nothing",
    MeansInsteadOfSums: "report adds up",
    NoGroup: "report adds up",
}


def test_a_sound_method_passes() -> None:
    assert failed(Faulty()) == {}


@pytest.mark.parametrize(("kind", "name"), BREAKS.items(), ids=lambda value: getattr(value, "__name__", value))
def test_a_fault_is_found_by_its_check(kind: type[Faulty], name: str) -> None:
    assert name in failed(kind())


def test_every_check_is_shown_to_fail() -> None:
    assert {*BREAKS.values()} == {*CHECKS} - {"verl computes the same loss"}


def test_a_detach_that_is_declared_is_held_fixed() -> None:
    class Declared(ForgottenDetach):
        stop_gradients: ClassVar[bool] = True

    original = Tensor.detach
    assert "gradient is that of the loss" not in failed(Declared())
    assert Tensor.detach is original, "the check puts another one in its place meanwhile"
    assert "declare stop_gradients" in failed(ForgottenDetach())["gradient is that of the loss"]


def test_a_check_that_raises_stops_no_other() -> None:
    class Raises(Faulty):
        def token_loss(self, batch: TokenBatch) -> TokenLoss:
            raise ZeroDivisionError("here")

    found = failed(Raises())
    assert "label" not in found
    assert found["loss does not depend on the split"] == "ZeroDivisionError: here"
