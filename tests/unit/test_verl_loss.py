"""Batches and losses of verl, which is not needed: sequences that are trained, precision, `train.correction`."""

import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from mcpo_cli.backends import corrections
from mcpo_cli.backends.verl import batch as batches
from mcpo_cli.backends.verl import loss as losses
from mcpo_cli.backends.verl.loss import FACTS, METRIC, column_field, facts, loss
from mcpo_cli.config.load import load
from mcpo_cli.config.schema import Train
from mcpo_cli.methods import MiniBatch, Step, TokenBatch, get, reduce
from mcpo_cli.testing import mini_batch, step

BEARS = st.lists(st.booleans(), min_size=4, max_size=40).map(lambda bears: bears[: len(bears) // 4 * 4])


@given(bears=BEARS, ranks=st.sampled_from([1, 2, 4]), data=st.data())
def test_all_with_a_gradient_are_trained_and_no_more_than_ranks_need(
    bears: list[bool], ranks: int, data: st.DataObject
) -> None:
    tokens = data.draw(st.lists(st.integers(1, 50), min_size=len(bears), max_size=len(bears)))
    part = list(range(len(bears)))
    passing = batches.select_trained(part, bears, tokens, ranks)
    bearing = {i for i in part if bears[i]}
    assert bearing <= set(passing)
    assert len(set(passing)) == len(passing)
    assert len(passing) % ranks == 0
    assert len(passing) == max(ranks, -(-len(bearing) // ranks) * ranks)
    left_out = set(part) - set(passing)
    assert max((tokens[i] for i in set(passing) - bearing), default=0) <= min((tokens[i] for i in left_out), default=50)


def _unasked() -> torch.Tensor:
    raise AssertionError("log-probabilities were read")


def test_a_hinge_has_no_gradient_before_the_first_gradient_step_and_is_reported() -> None:
    """Prompts all incorrect, mixed, mastered, mastered; two per mini-batch: the hinge may act from the second on."""
    method = get("mcpo")
    correct_PG = torch.tensor([[False, False], [True, True], [True, False], [True, True]])
    length_PG = torch.tensor([[1, 2], [3, 1], [2, 2], [2, 3]])
    step = Step(correct_PG.double(), correct_PG, length_PG, torch.arange(4), max_response=4)
    signals, _ = method.signals(step, {})
    first = MiniBatch.of(length_PG[:2], signals.map(lambda tensor: tensor[:2]), max_response=4)
    logp_PGT = torch.linspace(-2, 0, 24).view(4, 2, 3)
    has_gradient_PG, reported = batches.screen(method, step, signals, lambda: logp_PGT, first, 2)
    assert has_gradient_PG.tolist() == [[False, False], [False, False], [True, True], [True, True]]
    reported.close()
    assert reported.pairs["hinge/tokens_active"] == [0, 4]
    assert reported.pairs["hinge/drift_sum"] == [0, 0]
    assert reported.pairs["hinge/prompts_felt"] == [0, 1]
    # The policy before the last gradient step is not the one that sampled.
    anchored = get("mcpo", anchor="previous_step")
    has_gradient_PG, reported = batches.screen(anchored, step, signals, _unasked, first, 2)
    assert torch.equal(has_gradient_PG, signals.has_gradient_PG)
    assert not reported.pairs
    # DAPO does not screen, so no log-probabilities are computed.
    plain = get("dapo", dynamic_sampling=False)
    signals, _ = plain.signals(step, {})
    has_gradient_PG, reported = batches.screen(plain, step, signals, _unasked, first, 2)
    assert has_gradient_PG.any(-1).tolist() == [False, False, True, False]
    assert not reported.pairs


def test_a_loss_has_its_own_precision_where_verl_calls_it_under_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    factor = torch.ones(2, 2)
    monkeypatch.setattr(losses, "_loss", lambda *_: (factor @ factor, {}))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (factor @ factor).dtype == torch.bfloat16
        value, _ = loss(get("fipo"), {"log_probs": factor}, {})
    assert value.dtype == torch.float32


# --- `train.correction`: the loss on the fields of verl's queue is the local one --------------------------------------


METHOD = get("mcpo")
TRAINS = {
    "token TIS": Train(correction="token-truncate"),
    "sequence TIS": Train(correction="sequence-truncate"),
    "MIS": Train(correction="sequence-mask", correction_high=1.05),
    "IcePop": Train(correction="token-mask", correction_low=0.95, correction_high=1.05),
    "V3.2": Train(off_policy_mask=0.05),
    "both": Train(correction="token-truncate", correction_high=1.02, off_policy_mask=0.05),
}


class Data(dict[str, Any]):
    """The part of verl's TensorDict that the loss uses."""

    def select(self, *names: str) -> "Data":
        return Data({name: self[name] for name in names})

    def to_padded_tensor(self) -> dict[str, Tensor]:
        return {name: value.to_padded_tensor(0.0) for name, value in self.items()}


@pytest.fixture(autouse=True)
def padding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces verl's function that splits the model's output, which is padded here."""
    names = ["verl", "verl.workers", "verl.workers.utils", "verl.workers.utils.padding"]
    for name in names:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(sys.modules[names[-1]], "no_padding_2_padding", lambda value, data: value, raising=False)


def ragged(value_BT: Tensor, length_B: Tensor) -> Tensor:
    rows = [value_T[: int(length)].clone() for value_T, length in zip(value_BT, length_B, strict=True)]
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


def case(train: Train) -> tuple[TokenBatch, Data]:
    """A mini-batch whose sampler differed by .05 nats per token, and its form in verl's queue."""
    of = step()
    signals, _ = METHOD.signals(of, {})
    batch = mini_batch(METHOD, of, signals)
    noise_BT = torch.randn(batch.mask_BT.shape, generator=torch.Generator().manual_seed(3)).double()
    sampler_BT = (batch.logp_old_BT + 0.05 * noise_BT) * batch.mask_BT
    columns = corrections.columns(train, batch.logp_old_BT, sampler_BT, batch.mask_BT)
    length_B = of.length_PG.flatten()
    total = MiniBatch.of(of.length_PG, signals, of.max_response)
    places = [(prompt, rollout) for prompt in range(len(of.length_PG)) for rollout in range(of.length_PG.shape[1])]
    data = Data(
        {
            "response_mask": ragged(batch.mask_BT.double(), length_B),
            "old_log_probs": ragged(batch.logp_old_BT, length_B),
            "advantages": ragged(batch.advantage_BT.expand_as(batch.mask_BT), length_B),
            FACTS: torch.tensor([facts(METHOD, signals, place, total, of.length_PG > 0) for place in places]).double(),
            "dp_size": 1,
            **{column_field(name): ragged(value_BT, length_B) for name, value_BT in columns.items()},
        }
    )
    return batch.replace(columns={**batch.columns, **columns}), data


@pytest.mark.parametrize("name", TRAINS)
def test_loss_gradient_and_metrics_are_those_of_the_local_backend(name: str) -> None:
    train = TRAINS[name]
    batch, data = case(train)
    leaf = batch.logp_BT.detach().requires_grad_()
    value, reported = loss(METHOD, {"log_probs": leaf}, data, train=train)
    (gradient,) = torch.autograd.grad(value, leaf)
    expected = reduce(corrections.applied(train, METHOD.token_loss(batch), batch), batch.mask_BT)
    (expected_gradient,) = torch.autograd.grad(expected, batch.logp_BT)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(gradient * batch.mask_BT, expected_gradient * batch.mask_BT)
    plain = reduce(METHOD.token_loss(batch), batch.mask_BT)
    assert abs(float((value - plain).detach())) > 1e-4, "it corrects something"
    sums = corrections.measured(batch.columns, batch.logp_old_BT, batch.mask_BT).pairs
    for key, pair in sums.items():
        assert reported[METRIC]["sums"][key] == pytest.approx(pair)


def test_without_a_correction_the_loss_is_the_methods() -> None:
    batch, data = case(Train())
    for name in (corrections.SAMPLER, corrections.WEIGHT):
        del data[column_field(name)]
    value, reported = loss(METHOD, {"log_probs": batch.logp_BT}, data, train=Train())
    torch.testing.assert_close(value, reduce(METHOD.token_loss(batch), batch.mask_BT))
    assert not [key for key in reported[METRIC]["sums"] if key.startswith("rollout_corr/")]


def test_what_is_asked_for() -> None:
    assert [corrections.asked(train) for train in (Train(), *TRAINS.values())] == [False] + [True] * len(TRAINS)
    (spec,) = load(["scale=verl-cpu", "train.correction=sequence-mask", "train.off_policy_mask=0.1"])
    assert spec.train.correction == "sequence-mask"
