"""The contract between a method and the backend that trains with it.

A method gets one whole global step (`Step`), returns signals (`Signals`: advantages, rollouts that do not count, its
own columns), and turns each part of a mini-batch (`TokenBatch`) into a loss of named terms (`TokenLoss`). It marks the
rollouts that have a gradient, and may report metrics. The last hooks of `Method` are for the few methods that look at
the current policy before a gradient, or learn from metrics. `group_relative.py` has the shared code of GRPO and its
relatives.

Shape suffixes: P prompts, G rollouts of a prompt, B sequences (rollouts in a row), T response tokens. A `_PGT` or `_BT`
tensor is padded on the right with zeros; the mask says which tokens are real.

This module does not import torch at run time: the math uses tensor methods, so that planning and configuration stay
light and any backend with tensors can call it.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from mcpo_cli.methods.settings import TrainSettings

if TYPE_CHECKING:
    from torch import Tensor

Floats = Any
"""A float, a NumPy array or a tensor: anything with +, *, ** and comparison."""
Need = Literal[
    "logp", "entropy", "answers", "previous_policy", "reference_policy", "current_entropy", "collision", "greedy_reward"
]
"""Inputs that a method has to request because they cost something (fields of `Step` and `TokenBatch`)."""
State = Mapping[str, "Tensor"]
"""Memory of a method from step to step: tensors by name, written to checkpoints as they are."""


@dataclass(frozen=True)
class Step:
    """One whole global step after dynamic sampling, without gradients. Fields that a method does not need are None."""

    reward_PG: Tensor
    """Rewards, shaped or not."""
    correct_PG: Tensor
    """bool. Accuracy comes from these, never from the reward."""
    length_PG: Tensor
    """Tokens of each response, the end token included."""
    prompt_P: Tensor
    """int64, the same number for the same problem at every step and on every backend."""
    max_response: int
    """The longest response that sampling allows (`train.max_response`)."""
    _: KW_ONLY
    logp_PGT: Tensor | None = None
    """Log-probability of each response token under the rollout policy, nats. Need: `logp`."""
    entropy_PGT: Tensor | None = None
    """Entropy of the rollout policy where each token was drawn, nats. Need: `entropy`."""
    collision_PGT: Tensor | None = None
    """Sum over the vocabulary of the squared probabilities where each token was drawn. Need: `collision`."""
    answer_PG: Tensor | None = None
    """int64. Equal answers of a group have equal numbers; so have all missing answers. Need: `answers`."""

    greedy_reward_P: Tensor | None = None
    """Reward of each prompt's greedy response, the most likely token at every position; it is not trained on.
    Need: `greedy_reward`."""

    @property
    def p_P(self) -> Tensor:
        """Rollout accuracy of each prompt, float64."""
        return self.correct_PG.double().mean(-1)

    @property
    def mask_PGT(self) -> Tensor:
        """True for response tokens; T is the longest length."""
        index_T = self.length_PG.new_ones(int(self.length_PG.max())).cumsum(-1) - 1
        return index_T < self.length_PG[..., None]

    @property
    def mean_logp_PG(self) -> Tensor:
        """Mean log-probability of the tokens of each response, float64. Need: `logp`."""
        assert self.logp_PGT is not None
        return (self.logp_PGT.double() * self.mask_PGT).sum(-1) / self.length_PG


@dataclass(frozen=True)
class Signals:
    """The output of a method for a `Step`."""

    advantage: Tensor
    """advantage_PG of each rollout, or advantage_PGT of each token; float64."""
    has_gradient_PG: Tensor
    """bool. Rollouts whose loss may have a gradient; a backend may leave the others out of every pass."""
    counts_PG: Tensor | None = None
    """bool. Rollouts that count in the totals of `MiniBatch`; None for all."""
    columns: Mapping[str, Tensor] = field(default_factory=dict)
    """PG or PGT, by the names that `Method.columns` declares; they reach `TokenBatch.columns` unchanged."""

    @classmethod
    def of(cls, advantage: Tensor, counts_PG: Tensor | None = None) -> Signals:
        """Signals in which a rollout has a gradient if its advantage, or the advantage of one token, is not 0."""
        if not hasattr(advantage, "ndim"):  # `checks.signals` names the method that returned it.
            return cls(advantage, advantage, counts_PG)
        mask = advantage != 0
        return cls(advantage, mask if mask.ndim == 2 else mask.any(-1), counts_PG)

    @property
    def advantage_PG(self) -> Tensor:
        """The advantage of each rollout: of its token advantages the largest in absolute value, with its sign."""
        if self.advantage.ndim == 2:
            return self.advantage
        index_PG1 = self.advantage.abs().argmax(-1, keepdim=True)
        return self.advantage.gather(-1, index_PG1).squeeze(-1)

    def map(self, change: Callable[[Tensor], Tensor]) -> Signals:
        """The signals with `change` applied to every tensor, for example to select prompts."""
        counts_PG = None if self.counts_PG is None else change(self.counts_PG)
        columns = {name: change(column) for name, column in self.columns.items()}
        return Signals(change(self.advantage), change(self.has_gradient_PG), counts_PG, columns)

    def with_columns(self, column_of: Mapping[str, Tensor]) -> Signals:
        """The signals with the columns of `Method.prepare`, each B or BT over the sequences of all groups in order."""
        shaped_columns = {name: column.unflatten(0, self.has_gradient_PG.shape) for name, column in column_of.items()}
        return dataclasses.replace(self, columns={**self.columns, **shaped_columns})


@dataclass(frozen=True)
class MiniBatch:
    """Totals over one whole mini-batch, so that weights of sequences do not depend on its split."""

    sequences: int
    """Rollouts that count (`Signals.counts_PG`); at least 1, since weights divide by it."""
    tokens: int
    """Response tokens of the rollouts that count; at least 1."""
    prompts: int
    """Prompt groups with a rollout that counts."""
    max_response: int
    """The longest response that sampling allows."""
    sums: Mapping[str, float] = field(default_factory=dict)
    """The sum of each PG column of the signals over the rollouts of the mini-batch."""

    @classmethod
    def of(cls, length_PG: Tensor, signals: Signals, max_response: int) -> MiniBatch:
        """The totals of a mini-batch from the lengths and signals of all its prompts."""
        counts_PG = length_PG > 0 if signals.counts_PG is None else signals.counts_PG
        lengths = length_PG[counts_PG]
        sums = {name: float(column.sum()) for name, column in signals.columns.items() if column.ndim == 2}
        prompts = int(counts_PG.any(-1).sum())
        return cls(max(lengths.numel(), 1), max(int(lengths.sum()), 1), prompts, max_response, sums)


@dataclass(frozen=True)
class TokenBatch:
    """Any part of a mini-batch: a micro-batch, a rank's share, or the whole of it."""

    logp_BT: Tensor
    """Log-probability of each response token under the policy that is trained; the only field with a gradient."""
    logp_old_BT: Tensor
    """Log-probability of each response token under the rollout policy."""
    mask_BT: Tensor
    """True for response tokens."""
    advantage_BT: Tensor
    """B1 where `Signals.advantage` has one number per rollout."""
    group_B: Tensor
    """int64, the index of the sequence's prompt in the global step."""
    total: MiniBatch
    """Totals of the mini-batch that this is a part of."""
    columns: Mapping[str, Tensor] = field(default_factory=dict)
    """Columns of the signals and of `Method.prepare`, each B or BT."""
    logp_previous_BT: Tensor | None = None
    """Log-probability under the policy before the last optimizer step. Need: `previous_policy`."""
    logp_reference_BT: Tensor | None = None
    """Log-probability under the reference policy: the base policy, or the policy that `Method.moves_reference` put in
    its place. Need: `reference_policy`."""
    entropy_BT: Tensor | None = None
    """Entropy of the trained policy where each token was drawn, nats, without a gradient; 0 on padding.
    Need: `current_entropy`."""

    @property
    def length_B(self) -> Tensor:
        """Response tokens of each sequence, as floats of the log-probabilities' type."""
        return self.mask_BT.sum(-1).to(self.logp_BT.dtype)

    @property
    def log_ratio_BT(self) -> Tensor:
        """d = log pi_theta - log pi_old of each token; 0 on padding."""
        return self.logp_BT - self.logp_old_BT

    @property
    def has_advantage_B(self) -> Tensor:
        """Sequences with an advantage other than 0."""
        result_B: Tensor = (self.advantage_BT != 0).any(-1)
        return result_B

    @property
    def active_BT(self) -> Tensor:
        """Response tokens with an advantage other than 0, as a mask."""
        return self.mask_BT & (self.advantage_BT != 0)

    @property
    def A_BT(self) -> Tensor:
        """The advantage in the type of the log-probabilities."""
        return self.advantage_BT.to(self.logp_BT.dtype)

    def mean_B(self, value_BT: Tensor) -> Tensor:
        """The mean of `value_BT` over the tokens of each sequence."""
        return (value_BT * self.mask_BT).sum(-1) / self.length_B

    def replace(self, **fields: Any) -> TokenBatch:
        """The batch with other `fields`."""
        return dataclasses.replace(self, **fields)

    def select(self, index: Tensor) -> TokenBatch:
        """The sequences of `index` (integers, or a mask), in that order; the totals stay the mini-batch's."""
        columns = {name: column[index] for name, column in self.columns.items()}
        tensors = {
            name: value[index]
            for name, value in vars(self).items()
            if name.endswith(("_B", "_BT")) and value is not None
        }
        return self.replace(**tensors, columns=columns)


@dataclass(frozen=True)
class Term:
    """One summand of a loss: one value per token, and one weight per sequence that is global over the mini-batch."""

    name: str
    """In records: `train/<name>_loss`."""
    value_BT: Tensor
    weight_B: Tensor

    def sum(self, mask_BT: Tensor) -> Tensor:
        """The weighted sum over tokens and sequences."""
        return ((self.value_BT * mask_BT).sum(-1) * self.weight_B).sum()


@dataclass(frozen=True)
class TokenLoss:
    """The unreduced loss of a `TokenBatch`."""

    terms: tuple[Term, ...]


def reduce(loss: TokenLoss, mask_BT: Tensor) -> Tensor:
    """The sum of all terms. Adding it over micro-batches or ranks gives the mini-batch's loss."""
    first_term, *other_terms = (term.sum(mask_BT) for term in loss.terms)
    total: Tensor = sum(other_terms, first_term)
    return total


Quotient = tuple["Tensor", "Tensor"]
"""Numerator and denominator of a metric, each a sum over the sequences of a `TokenBatch`."""


@dataclass(frozen=True)
class Report:
    """Measurements of a method on a `TokenBatch`. A sequence without gradient adds 0 to every numerator."""

    sums: Mapping[str, Quotient] = field(default_factory=dict)
    """Metrics by name (`group/name`); a denominator of 0 marks a count, which is recorded per mini-batch."""
    prompts: Mapping[str, Quotient] = field(default_factory=dict)
    """flag_B and among_B: of the prompts with a rollout in among_B, the metric is the share with one in flag_B."""


@dataclass(frozen=True)
class Method(ABC):
    """A method is a frozen dataclass of its options, which are `method.*` of the command line."""

    name: ClassVar[str]
    columns: ClassVar[tuple[str, ...]] = ()
    """Names of the PG columns of `signals`."""
    token_columns: ClassVar[tuple[str, ...]] = ()
    """Names of the PGT columns of `signals`, and of everything that `Method.prepare` returns."""
    token_advantages: ClassVar[bool] = False
    """True if each token has its own advantage."""
    stop_gradients: ClassVar[bool] = False
    """True if `token_loss` detaches something on purpose. Checks of the gradient then hold these values constant."""
    binary_rewards: ClassVar[bool] = False
    """True if the method is defined only for rewards 0 and 1."""
    prepares: ClassVar[bool] = False
    """True if `prepare` is called before the gradient of each mini-batch."""

    dynamic_sampling: bool = False
    """Keep only some groups (`keeps`: 0 < p < 1) and sample others in place of the rest (DAPO)."""

    @property
    def label(self) -> str:
        """Short name of this configuration, for run ids and table rows."""
        return self.name

    @property
    def needs(self) -> frozenset[Need]:
        """The inputs with a cost that backends must provide."""
        return frozenset()

    @property
    def uses_dead_groups(self) -> bool:
        """True if groups that `keeps` drops have advantages by design, so that a filter would defeat the method."""
        return False

    @property
    def uneven_groups(self) -> bool:
        """True if groups of a step may differ in their number of rollouts (`sampler=knapsack`).

        Then a group's signals depend only on that group, not on others or a state, and every G >= 2 is allowed.
        """
        return False

    def keeps(self, p: Floats) -> Floats:
        """True if `dynamic_sampling` keeps a group of accuracy `p`, elementwise: if 0 < p < 1."""
        return (p > 0) & (p < 1)

    def moves_reference(self, step: int) -> bool:
        """True if the policy at the start of global step `step` (from 1) becomes the reference. Need:
        `reference_policy`."""
        return False

    def contradictions(self, train: TrainSettings) -> Iterator[tuple[str, str]]:
        """A message and an override for each way in which these options contradict the settings of the run."""
        if self.dynamic_sampling and self.uses_dead_groups:
            yield (
                f"method.dynamic_sampling=true drops the prompts whose answers are all right or all wrong; "
                f"method={self.name} learns from them",
                "method.dynamic_sampling=false",
            )
        if self.binary_rewards and train.overlong_cache and train.overlong_penalty:
            yield (
                f"method={self.name} is defined for rewards 0 and 1; train.overlong_cache={train.overlong_cache} "
                "subtracts a penalty from them",
                "train.overlong_cache=0",
            )

    def without_effect(self, train: TrainSettings) -> Iterator[str]:
        """A sentence, without its full stop, for each part of the method that cannot act with the settings of the run.

        An option that has its default is named only if the method is pointless without it.
        """
        yield from ()

    def query_weight(self, p: Floats, rollouts: float = math.inf) -> Floats:
        """W(p) = mean_j (c_j - p) A_j, the factor of the gradient of p for a group with binary rewards (Eq. 6).

        0 at p = 0 and 1. NaN if the method has no such curve, as when A depends on the whole batch.

        Args:
            p: accuracy, a float, an array or a tensor of them.
            rollouts: G, on which the curve of a few methods depends; without it, the limit of large groups.
        """
        return p * math.nan

    @abstractmethod
    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        """The signals of one global step, and the state after it; before the first step the state is empty.

        Deterministic: a resumed run calls it again.
        """

    @abstractmethod
    def token_loss(self, batch: TokenBatch) -> TokenLoss:
        """The loss to be minimised. Weights use `batch.total`, so that splits add up to the whole."""

    def report(self, batch: TokenBatch) -> Report:
        """Metrics of `batch`: all sequences that may have a gradient. Called without a graph."""
        return Report()

    @property
    def screens(self) -> bool:
        """True if `has_gradient` decides, before the backward pass, about rollouts without advantage."""
        return False

    def has_gradient(self, batch: TokenBatch) -> Tensor:
        """Sequences B of `batch` that have a gradient under its `logp_BT`. Called without a graph."""
        return batch.has_advantage_B

    def prepare(self, batch: TokenBatch, seed: int) -> Mapping[str, Tensor]:
        """Columns BT, named in `token_columns`.

        Args:
            batch: the whole mini-batch under the current policy, without a graph.
            seed: of a random stream that belongs to this mini-batch.
        """
        return {}

    def learn(self, state: State, measured: Mapping[str, float]) -> State:
        """The state after the gradient steps of a global step, given their metrics (means by name)."""
        return state
