"""The batch of a global step: prompt groups, the method's signals for them, and the sequences that are trained.

Shape suffixes: P prompts, G rollouts of each, T tokens; B = P x G sequences.
"""

import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from mcpo_cli import grading
from mcpo_cli.backends import masking, measure
from mcpo_cli.backends.graded import Graded, equal_pairs, random_rewards
from mcpo_cli.backends.measure import MetricSums
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.data.base import Problem
from mcpo_cli.grading import Grade, functions
from mcpo_cli.methods import Method, MiniBatch, Signals, State, Step, TokenBatch
from mcpo_cli.tasks import Task
from mcpo_cli.tokenization import stop_ids


@dataclass(frozen=True)
class Prompt:
    """A problem submitted for sampling."""

    order: int
    """Index among the step's prompts."""
    problem: Problem
    tier: str
    """Data source."""


@dataclass(frozen=True)
class Group:
    """All rollouts of one prompt; every list is indexed by rollout number."""

    prompt: Prompt
    tokens: list[torch.Tensor]
    """Response tokens, including the end token."""
    reward: list[float]
    grades: list[Grade]
    logp: list[float]
    """Log-probability of each whole rollout at temperature 1, by the rollout engine."""
    entropy: list[float]
    """Entropy of the policy in nats, mean over the rollout's tokens; NaN if the trainer has not computed it."""
    random_correct: list[bool] | None = None
    """Rewards of the rollouts that replace the verdicts (`train.reward=random`)."""

    @property
    def seen(self) -> list[bool]:
        """Correctness as the method gets it."""
        return self.correct if self.random_correct is None else self.random_correct

    def rewarded_at_random(self, seed: int, step: int) -> "Group":
        """This group as the local engine would reward it at global step `step` under `train.reward=random`."""
        random_correct = random_rewards(torch.tensor([self.correct]), seed, step, self.prompt.order)[0].tolist()
        return replace(self, reward=list(map(float, random_correct)), random_correct=random_correct)

    @property
    def graded(self) -> list[bool]:
        """False for each rollout that could not be graded."""
        return [grade.is_graded for grade in self.grades]

    @property
    def correct(self) -> list[bool]:
        """True for each correct rollout."""
        return [grade.status == "correct" for grade in self.grades]


def prompts(batch: Any, start: int) -> dict[str, Prompt]:
    """The prompts of a verl batch by id; their order counts from `start`."""
    rows = zip(batch["uid"], batch["extra_info"], batch["reward_model"], batch["data_source"], strict=True)
    return {
        str(uid): Prompt(start + i, problem(info, reward), str(source))
        for i, (uid, info, reward, source) in enumerate(rows)
    }


def columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Rows of `data.row` in the form of verl's data set: one list per column name."""
    names = ("data_source", "reward_model", "extra_info")
    derived = {"raw_prompt": [row["prompt"] for row in rows], "index": [row["extra_info"]["index"] for row in rows]}
    return {**derived, **{name: [row[name] for row in rows] for name in names}}


def problem(extra_info: Mapping[str, Any], reward_model: Mapping[str, Any]) -> Problem:
    """The problem of a row, from the columns of the same names."""
    return Problem(extra_info["problem"], reward_model["ground_truth"])


def uid_of(key: str) -> str:
    """The prompt id in a trajectory's key `<prompt>_<rollout>_<turn>`."""
    return key.split("_", 1)[0]


def index_of(key: str, prompts: Mapping[str, Prompt]) -> tuple[int, int]:
    """A trajectory's index in the step: its prompt's index, and its rollout number."""
    return prompts[uid_of(key)].order, int(key.split("_")[1])


def in_order(groups: Iterable[Group]) -> list[Group]:
    """The groups sorted by the order of their prompts."""
    return sorted(groups, key=lambda group: group.prompt.order)


def check(spec: RunSpec, groups: Sequence[Group]) -> None:
    """Raise RunFailed if too many rollouts could not be graded, or a user's function failed on one."""
    grades = [grade for group in groups for grade in group.grades]
    judges = {spec.train.reward, *(spec.task.grader_of(group.prompt.tier) for group in groups)}
    grading.check(grades, function=any(map(functions.is_function, judges)))


def end_tokens(task: Task, tokenizer: Any) -> Collection[int]:
    """The tokens that end a response to `task`: the tokenizer's end token, and tokens with a stop string."""
    return {tokenizer.eos_token_id, *stop_ids(tokenizer, task.stops)}


def graded(groups: Sequence[Group], ends: Collection[int], temperature: float) -> Graded:
    """The groups, drawn at `temperature`, as tensors; ends: see `end_tokens`."""
    # Compare digests: comparing thousands of long responses token by token takes a minute.
    digest_PG = torch.tensor([[hash(tokens.numpy().tobytes()) for tokens in group.tokens] for group in groups])
    return Graded(
        problems=[group.prompt.problem for group in groups],
        correct_PG=torch.tensor([group.correct for group in groups]),
        reward_PG=torch.tensor([group.reward for group in groups], dtype=torch.float64),
        length_PG=torch.tensor([[len(tokens) for tokens in group.tokens] for group in groups]),
        ended_PG=torch.tensor([[int(tokens[-1]) in ends for tokens in group.tokens] for group in groups]),
        same_P=equal_pairs(digest_PG[..., None]),
        entropy_PG=torch.tensor([group.entropy for group in groups], dtype=torch.float64),
        # Log-probabilities under the distribution that was sampled are known at temperature 1 only.
        logp_PG=torch.tensor([group.logp for group in groups], dtype=torch.float64) if temperature == 1 else None,
        graded_PG=torch.tensor([group.graded for group in groups]),
    )


@dataclass(frozen=True)
class MethodOutput:
    """A method's signals for a batch.

    signals: with the columns of `Method.prepare`. totals: of each mini-batch; all have the same number of prompts.
    used_PG: the sequences that the method sees (`masking.used`). has_gradient_PG: True for sequences with a gradient.
    report: the method's report on the sequences of the first mini-batch without a gradient because the policy has not
    moved yet.
    """

    signals: Signals
    length_PG: Tensor
    totals: list[MiniBatch]
    used_PG: Tensor
    has_gradient_PG: Tensor
    report: MetricSums


def apply_method(
    spec: RunSpec, step: Step, state: State, graded_PG: Tensor, logp_PGT: Callable[[], Tensor], seed: int
) -> tuple[MethodOutput, State]:
    """The output of the method of `spec` for the batch `step`, and the method's next state.

    graded_PG: False where a rollout could not be graded. logp_PGT: log-probabilities under the policy that sampled, for
    methods that read them. seed: of `prepare`.
    """
    method, size = spec.method, spec.train.mini_batch
    used_PG = masking.used(method, step.length_PG > 0, graded_PG)
    signals, state = masking.signals(method, step, state, used_PG)
    totals = [
        MiniBatch.of(step.length_PG[index_M], signals.map(operator.itemgetter(index_M)), step.max_response)
        for index_M in torch.arange(len(step.length_PG)).split(size)
    ]
    if method.prepares:
        (total,) = totals
        signals = prepare(method, step, signals, used_PG, logp_PGT(), total, seed)
    has_gradient_PG, report = screen(method, step, signals, logp_PGT, totals[0], size)
    return MethodOutput(signals, step.length_PG, totals, used_PG, has_gradient_PG, report), state


def prepare(
    method: Method,
    step: Step,
    signals: Signals,
    used_PG: Tensor,
    logp_PGT: Tensor,
    total: MiniBatch,
    seed: int,
) -> Signals:
    """`signals` of a batch of one mini-batch, with the columns of `Method.prepare`; 0 where unused."""
    used_B = used_PG.flatten()
    batch = _on_policy(step, signals, logp_PGT, total).select(used_B)
    columns = dict[str, Tensor]()
    for name, part in method.prepare(batch, seed).items():
        columns[name] = part.new_zeros(len(used_B), *part.shape[1:])
        columns[name][used_B] = part
    return signals.with_columns(columns)


def screen(
    method: Method, step: Step, signals: Signals, logp_PGT: Callable[[], Tensor], first: MiniBatch, size: int
) -> tuple[Tensor, MetricSums]:
    """has_gradient_PG, and the method's report on the sequences that this excludes from the first mini-batch.

    Before the first gradient step no policy has drifted, so a rounding error must not pass for a drift. first, size:
    totals and number of prompts of that mini-batch.
    """
    # The policy before the last gradient step differs from the one that sampled, so it may have drifted already.
    has_gradient_PG = signals.has_gradient_PG.clone()
    if not method.screens or "previous_policy" in method.needs:
        return has_gradient_PG, MetricSums()
    screened_PG = signals.has_gradient_PG & (signals.advantage_PG == 0)
    screened_PG[size:] = False
    if not screened_PG.any():
        return has_gradient_PG, MetricSums()
    batch = _on_policy(step, signals, logp_PGT(), first).select(screened_PG.flatten())
    has_gradient_B = method.has_gradient(batch)
    has_gradient_PG[screened_PG] = has_gradient_B
    excluded_batch = batch.select(~has_gradient_B)
    return has_gradient_PG, measure.reported(method.report(excluded_batch), excluded_batch.group_B)


def _on_policy(step: Step, signals: Signals, logp_PGT: Tensor, total: MiniBatch) -> TokenBatch:
    """All sequences under the policy that sampled them; total: of the mini-batch that is asked for."""
    logp_BT = logp_PGT.flatten(0, 1)
    flat = signals.map(lambda tensor: tensor.flatten(0, 1))
    return TokenBatch(
        logp_BT=logp_BT,
        logp_old_BT=logp_BT,
        mask_BT=step.mask_PGT.flatten(0, 1),
        advantage_BT=flat.advantage.view(len(logp_BT), -1),
        group_B=torch.arange(len(step.correct_PG)).repeat_interleave(step.correct_PG.shape[1]),
        total=total,
        columns=flat.columns,
    )


def mini_batches(
    has_gradient: Sequence[bool], tokens: Sequence[int], size: int, ranks: int
) -> Iterator[tuple[list[int], list[int]]]:
    """For each mini-batch of `size` sequences: the ones in its update, and the others, ordered by `balance_ranks`."""
    for start in range(0, len(tokens), size):
        part = range(start, start + size)
        trained_indices = select_trained(part, has_gradient, tokens, ranks)
        other_indices = sorted({*part} - {*trained_indices})
        yield balance_ranks(trained_indices, tokens, ranks), balance_ranks(other_indices, tokens, ranks)


def select_trained(part: Sequence[int], has_gradient: Sequence[bool], tokens: Sequence[int], ranks: int) -> list[int]:
    """The sequences of the mini-batch `part` that its update trains on, because they have a gradient.

    If ranks would get unequal numbers or none, the shortest other sequences are added, whose gradient is zero. A
    sequence is its index in the batch, which has the order of the stream.
    """
    indices = [i for i in part if has_gradient[i]]
    fillers = sorted((i for i in part if not has_gradient[i]), key=lambda i: tokens[i])
    shortfall = max(-len(indices) % ranks, ranks - len(indices))
    return sorted(indices + fillers[:shortfall])


def balance_ranks(sequences: Sequence[int], tokens: Sequence[int], ranks: int) -> list[int]:
    """The sequences of one pass, rank after rank: equally many each, of similar work.

    Attention costs the square of a length, so similar numbers of tokens would not do. tokens: the length of every
    sequence of the batch.
    """
    from verl.utils.seqlen_balancing import calculate_workload, get_seqlen_balanced_partitions

    if not sequences:
        return []
    work = calculate_workload(torch.tensor([tokens[i] for i in sequences])).tolist()
    shares = get_seqlen_balanced_partitions(work, k_partitions=ranks, equal_size=True)
    return [sequences[i] for share in shares for i in share]
