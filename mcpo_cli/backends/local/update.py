"""The gradient steps of one global step: mini-batches, micro-batches, and their measurements.

Groups without a gradient are excluded from the backward pass; the method marks them (`Signals.has_gradient_PG`, and
`Method.has_gradient` if that depends on the current policy). They still count in the mini-batch's totals, so
no gradient changes.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from mcpo_cli.backends import checks, corrections, measure
from mcpo_cli.backends.local import tree as trees
from mcpo_cli.backends.local.generate import Rollouts
from mcpo_cli.backends.local.policy import Policy
from mcpo_cli.backends.local.rounding import Rounding
from mcpo_cli.backends.measure import MetricSums
from mcpo_cli.config.schema import Compute, Train
from mcpo_cli.methods import Method, MiniBatch, Signals, TokenBatch, TokenLoss, reduce
from mcpo_cli.records import MiniBatchRow
from mcpo_cli.seeds import stream

WORTH_SPLITTING = 2**20
"""A layer of so many weights is computed faster by all threads together than by each thread on its own micro-batch."""


@dataclass(frozen=True)
class GradedBatch:
    """Prompt groups of one global step with the method's signals. Shapes: P prompts, G rollouts.

    Places that are not used do not count and have no gradient.
    """

    rollouts: Rollouts
    correct_PG: Tensor
    signals: Signals
    index_P: Tensor
    """Indices of the prompts in the global step's batch, int64."""
    used_PG: Tensor
    """The rollouts that the method sees (`masking.used`): all that were drawn, unless one could not be graded."""

    @property
    def mixed_P(self) -> Tensor:
        """Prompts with correct and incorrect rollouts among the used ones: 0 < p < 1."""
        right_P = (self.correct_PG & self.used_PG).sum(-1)
        return (right_P > 0) & (right_P < self.used_PG.sum(-1))

    def select(self, index: Tensor) -> "GradedBatch":
        """The groups of `index`, in that order."""
        signals, rollouts = self.signals.map(lambda tensor: tensor[index]), self.rollouts.select(index)
        return GradedBatch(rollouts, self.correct_PG[index], signals, self.index_P[index], self.used_PG[index])

    def in_places(self, value_B: Tensor) -> Tensor:
        """`value_B` of the used rollouts in order, spread over all P * G places; 0 in the others."""
        used_M = self.used_PG.flatten()
        value_M = value_B.new_zeros(len(used_M), *value_B.shape[1:])
        value_M[used_M] = value_B
        return value_M

    def total(self, max_response: int) -> MiniBatch:
        """Its totals as one mini-batch; max_response: the longest response that sampling allows."""
        return MiniBatch.of(self.rollouts.length_PG, self.signals, max_response)


def log_probs(policy: Policy, rollouts: Rollouts) -> Tensor:
    """logp_PGT of the sampled tokens under the policy at temperature 1, with its gradient."""
    return policy.log_probs(rollouts.prompt_PS, rollouts.token_PGT, rollouts.mask_PGT)


def log_probs_and_entropies(policy: Policy, rollouts: Rollouts) -> tuple[Tensor, Tensor]:
    """`log_probs`, and entropy_PGT of the policy where each token was drawn, without a gradient."""
    return policy.log_probs_and_entropies(rollouts.prompt_PS, rollouts.token_PGT, rollouts.mask_PGT)


class Updater:
    """Optimizer steps under one method.

    previous: the policy before the last optimizer step; reference: the policy that a penalty pulls towards. Each is
    kept only if the method asks for it; its weights are part of a checkpoint. trained_tokens: tokens, prompts included,
    of the sequences that went through a forward and a backward pass in the last global step.
    """

    def __init__(self, policy: Policy, method: Method, train: Train, compute: Compute, seed: int) -> None:
        self.policy, self.method, self.train, self.compute, self.seed = policy, method, train, compute, seed
        self.trained_tokens = 0
        self.previous = policy.copy() if "previous_policy" in method.needs else None
        self.reference = policy.copy() if "reference_policy" in method.needs else None
        # One micro-batch per thread where operations are too small for torch's own threads, which split each of them.
        is_per_thread = compute.threads > 1 and policy.layer_weights < WORTH_SPLITTING
        self._map = _threads(compute.threads).map if is_per_thread else map
        self.optimizer = torch.optim.AdamW(
            policy.parameters(), lr=train.lr, betas=train.betas, weight_decay=train.weight_decay, fused=True
        )

    def global_step(self, batch: GradedBatch, step: int) -> tuple[dict[str, float], list[MiniBatchRow]]:
        """All gradient steps on one batch of rollouts: their metrics, and a row each. `step` counts from 1."""
        rate = self.train.lr_at(step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        if self.reference is not None and self.method.moves_reference(step):
            self.reference.load_weights(self.policy.weights())
        self.trained_tokens, sums, rows = 0, MetricSums(), list[MiniBatchRow]()
        has_rounding = step == 1 and self.policy.dtype != self.policy.weights_dtype
        rounding, rounding_metrics = Rounding(self.policy, batch.rollouts) if has_rounding else None, dict[str, float]()
        for index_M in torch.arange(self.train.prompts, device=self.policy.device).split(self.train.mini_batch):
            step_sums = self.mini_batch(batch.select(index_M), step, len(rows))
            rows.append(measure.mini_batch_row(step, len(rows) + 1, step_sums))
            sums.merge(step_sums)
            if rounding and not rounding_metrics:
                rounding_metrics = rounding.over_step()
        return {**sums.means(), **rounding_metrics, "train/lr": rate}, rows

    def mini_batch(self, batch: GradedBatch, step: int, number: int) -> MetricSums:
        """One optimizer step, the `number`-th (from 0) of global step `step`; returns its measurements.

        Raises:
            NotFinite: a loss or the gradient norm is NaN or infinite; the weights are as before this step.
        """
        total, sums, method = batch.total(self.train.max_response), MetricSums(), self.method
        # Before its first optimizer step of a global step the policy is the one that sampled: log-probabilities need no
        # forward pass. `previous` is older then, except in the first global step.
        on_policy = number == 0 and (self.previous is None or step == 1)
        if method.prepares:
            batch = self.prepared(batch, total, stream(self.seed, "method", step, number), on_policy)
        trained_M = batch.signals.has_gradient_PG.any(-1)
        screened_M = trained_M & False
        if method.screens:
            screened_M = trained_M & ~(batch.signals.advantage_PG != 0).any(-1)
            trained_M[screened_M] = self._screen(batch, screened_M, total, on_policy, sums)
        if not trained_M.any():
            # The optimizer's momentum still moves the weights. One group is computed, so that a loss is recorded.
            trained_M[batch.used_PG.any(-1).to(torch.int8).argmax()] = True
        rollouts = batch.rollouts.select(trained_M)
        read_PG = rollouts.length_PG + trees.lengths(rollouts.prompt_PS)[:, None]
        self.trained_tokens += int(read_PG[rollouts.drawn_PG].sum())
        # The last mini-batch's gradients would take as much memory as the weights.
        self.optimizer.zero_grad()
        total_gradients: tuple[Tensor, ...] = ()
        parts = [(batch.select(index), screened_M[index]) for index in self._micro_batches(batch, trained_M)]
        # Added in the order of the micro-batches, so the sum does not depend on the number of threads.
        is_first = number == 0
        for gradients, part_sums in self._map(lambda part: self._gradients(part[0], part[1], total, is_first), parts):
            for sum_so_far, gradient in zip(total_gradients, gradients, strict=bool(total_gradients)):
                sum_so_far.add_(gradient)
            total_gradients = total_gradients or gradients
            sums.merge(part_sums)
            # Otherwise these gradients would stay in memory, as large as the weights, while the next are computed.
            del gradients
        for parameter, gradient in zip(self.policy.parameters(), total_gradients, strict=True):
            parameter.grad = gradient
        norm = torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.train.grad_clip)
        sums.add("train/grad_norm", norm, 1)
        checks.check_mini_batch(step, number + 1, sums)
        if self.previous is not None:
            self.previous.load_weights(self.policy.weights())
        self.optimizer.step()
        return sums

    def state(self) -> dict[str, dict[str, Tensor]]:
        """Everything that a checkpoint must hold, as named tensors by file."""
        moments = {
            f"{i}.{name}": value
            for i, entry in self.optimizer.state_dict()["state"].items()
            for name, value in entry.items()
        }
        parts = {"policy": self.policy.weights(), "optimizer": moments}
        return parts | {name: policy.weights() for name, policy in self._others().items()}

    def load_state(self, parts: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Inverse of `state`."""
        self.policy.load_weights(parts["policy"])
        for name, policy in self._others().items():
            policy.load_weights(parts[name])
        moments: dict[int, dict[str, Tensor]] = {}
        for key, value in parts["optimizer"].items():
            index, name = key.split(".", 1)
            moments.setdefault(int(index), {})[name] = value
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": moments})

    def _others(self) -> dict[str, Policy]:
        """The policies that are kept in addition to the trained one, by the name of their file."""
        policies = {"previous": self.previous, "reference": self.reference}
        return {name: policy for name, policy in policies.items() if policy is not None}

    @torch.no_grad()
    def prepared(self, batch: GradedBatch, total: MiniBatch, seed: int, on_policy: bool) -> GradedBatch:
        """The mini-batch with the columns of `Method.prepare`, which sees all of it under the current policy."""
        indices = torch.arange(len(batch.correct_PG)).split(self.compute.micro_batch)
        parts = [self.tokens(batch.select(index), total, on_policy, keep_padding=True) for index in indices]
        flat_columns = self.method.prepare(_joined(parts), seed)
        columns = {name: batch.in_places(column) for name, column in flat_columns.items()}
        return dataclasses.replace(batch, signals=batch.signals.with_columns(columns))

    @torch.no_grad()
    def _screen(
        self, batch: GradedBatch, chosen_M: Tensor, total: MiniBatch, on_policy: bool, sums: MetricSums
    ) -> Tensor:
        """Which of the groups `chosen_M` have a gradient; the method's report about these groups is added to `sums`.

        A forward pass without a graph costs a third of the pass that it saves for most groups, which have no gradient.
        """
        trained_M = torch.zeros_like(chosen_M)
        for index in self._micro_batches(batch, chosen_M):
            part = batch.select(index)
            tokens = self.tokens(part, total, on_policy)
            sums.merge(measure.reported(self.method.report(tokens), tokens.group_B))
            trained_M[index] = part.in_places(self.method.has_gradient(tokens)).view(len(index), -1).any(-1)
        return trained_M[chosen_M]

    def loss(self, tokens: TokenBatch) -> TokenLoss:
        """The method's loss of `tokens`, corrected for an inexact sampler."""
        return corrections.applied(self.train, checks.token_loss(self.method, tokens), tokens)

    @torch.no_grad()
    def log_probs(self, rollouts: Rollouts) -> Tensor:
        """logp_PGT of the tokens under the policy now; 0 on padding."""
        return torch.cat([log_probs(self.policy, part) for part in self._parts(rollouts)])

    @torch.no_grad()
    def collisions(self, rollouts: Rollouts) -> Tensor:
        """collision_PGT under the policy now; see `Step`."""
        parts = self._parts(rollouts)
        return torch.cat([self.policy.collisions(part.prompt_PS, part.token_PGT, part.mask_PGT) for part in parts])

    def _parts(self, rollouts: Rollouts) -> list[Rollouts]:
        """Micro-batches of `rollouts` in their order."""
        parts = torch.arange(len(rollouts.length_PG), device=rollouts.length_PG.device).split(self.compute.micro_batch)
        return [rollouts.select(index) for index in parts]

    def _gradients(
        self, batch: GradedBatch, screened_M: Tensor, total: MiniBatch, is_first: bool
    ) -> tuple[tuple[Tensor, ...], MetricSums]:
        """Forward and backward pass of one micro-batch: its share of the gradients and of the metrics.

        screened_M: groups that the method has reported on already. is_first: true in the first mini-batch, where the
        policy is still the one that sampled.
        """
        tokens = self.tokens(batch, total)
        loss = self.loss(tokens)
        gradients = torch.autograd.grad(reduce(loss, tokens.mask_BT), self.policy.parameters())
        with torch.no_grad():
            sums = measure.losses(loss, tokens.mask_BT)
            fresh_tokens = tokens.select(~screened_M[:, None].expand_as(batch.used_PG)[batch.used_PG])
            if len(fresh_tokens.group_B):
                sums.merge(measure.reported(self.method.report(fresh_tokens), fresh_tokens.group_B))
            if is_first:
                sums.merge(measure.difference(tokens))
            if corrections.WEIGHT in tokens.columns:
                sums.merge(corrections.measured(tokens.columns, tokens.logp_old_BT, tokens.mask_BT))
            return gradients, sums

    def _micro_batches(self, batch: GradedBatch, chosen_M: Tensor) -> Iterator[Tensor]:
        """Indices of the groups `chosen_M`, groups of similar length together, so that little is padded.

        A micro-batch has at most `micro_batch` groups, and at most `micro_batch_tokens` tokens unless it is one group.
        """
        index = chosen_M.nonzero().squeeze(-1)
        if not len(index):
            return
        rollouts = batch.rollouts.select(index)
        by_length = rollouts.length_PG.amax(-1).argsort(stable=True)
        token_M = rollouts.length_PG.sum(-1) + trees.lengths(rollouts.prompt_PS)
        part, tokens = list[int](), 0
        for position, group_tokens in zip(by_length.tolist(), token_M[by_length].tolist(), strict=True):
            is_full = len(part) == self.compute.micro_batch or tokens + group_tokens > self.compute.micro_batch_tokens
            if part and is_full:
                yield index[part]
                part, tokens = [], 0
            part.append(position)
            tokens += group_tokens
        yield index[part]

    def tokens(
        self, batch: GradedBatch, total: MiniBatch, on_policy: bool = False, keep_padding: bool = False
    ) -> TokenBatch:
        """The used rollouts of `batch` as sequences, with log-probabilities under the policy and the one before it.

        total: of the mini-batch that the groups are part of. on_policy: both are still the policy that sampled.
        keep_padding: keep columns that are padding in every row.
        """
        rollouts = batch.rollouts if keep_padding else crop(batch.rollouts)
        mask_BT = rollouts.mask_PGT.flatten(0, 1)
        (_, G, T), old_BT = rollouts.mask_PGT.shape, rollouts.logp_PGT.flatten(0, 1)

        def under(policy: Policy) -> Tensor:
            is_sampler = on_policy and policy is not self.reference
            logp_BT = old_BT if is_sampler else log_probs(policy, rollouts).flatten(0, 1)
            # Padding has log-probability 0 everywhere: a ratio of 1 that the mask takes out.
            return logp_BT.where(mask_BT, 0.0)

        def sequences(tensor: Tensor) -> Tensor:
            return tensor[:, :G].flatten(0, 1)[..., :T] if tensor.ndim == 3 else tensor[:, :G].flatten(0, 1)

        with torch.no_grad():
            policy_fields = {f"logp_{name}_BT": under(policy) for name, policy in self._others().items()}
        entropy_BT = None
        if "current_entropy" in self.method.needs:
            logp_BT, entropy_BT = map(sequences, log_probs_and_entropies(self.policy, rollouts))
        else:
            logp_BT = under(self.policy)
        signals = batch.signals.map(sequences)
        tokens = TokenBatch(
            logp_BT=logp_BT,
            logp_old_BT=old_BT.where(mask_BT, 0.0),
            mask_BT=mask_BT,
            advantage_BT=signals.advantage.view(len(mask_BT), -1),
            group_B=batch.index_P.repeat_interleave(G),
            total=total,
            columns=signals.columns,
            **policy_fields,
            entropy_BT=entropy_BT,
        )
        used_B = sequences(batch.used_PG)
        return tokens if used_B.all() else tokens.select(used_B)


def _joined(parts: list[TokenBatch]) -> TokenBatch:
    """Parts of one mini-batch, of equal T, as the whole."""
    first = parts[0]
    fields = {
        name: torch.cat([vars(part)[name] for part in parts])
        for name, value in vars(first).items()
        if isinstance(value, Tensor)
    }
    columns = {name: torch.cat([part.columns[name] for part in parts]) for name in first.columns}
    return first.replace(**fields, columns=columns)


def _threads(count: int) -> ThreadPoolExecutor:
    """Threads that each compute on one core."""
    return ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,))


def crop(rollouts: Rollouts) -> Rollouts:
    """Without the columns that are padding in every row, and the places that are empty in every group."""
    longest, places = int(rollouts.length_PG.max()), int(rollouts.drawn_PG.sum(-1).max())
    ends = {"_PG": (slice(None), slice(places)), "_PGT": (slice(None), slice(places), slice(longest))}
    parts = {name: ends.get(name[name.rindex("_") :], ()) for name in vars(rollouts)}
    return Rollouts(**{name: getattr(rollouts, name)[part] for name, part in parts.items()})
