"""The gradient steps of one global step: mini-batches, micro-batches, and what is measured on the way.

Sequences whose loss is zero (all-wrong groups; mastered ones within the drift budget) are kept out of the
backward pass. They still count in the mini-batch's totals, so no gradient changes.
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from mcpo_cli.backends import measure
from mcpo_cli.backends.local.policy import Policy
from mcpo_cli.backends.local.sampler import Rollouts
from mcpo_cli.backends.measure import Sums
from mcpo_cli.config.schema import Compute, Train
from mcpo_cli.methods import Method, MiniBatch, TokenBatch, reduce
from mcpo_cli.store.records import MiniBatchRow


@dataclass(frozen=True)
class GradedBatch:
    """One global step's rollouts with what they earned. Shapes: P prompts, G rollouts."""

    rollouts: Rollouts
    correct_PG: Tensor
    reward_PG: Tensor
    advantage_PG: Tensor

    @property
    def p_P(self) -> Tensor:
        """Rollout accuracy of each prompt, float64."""
        return self.correct_PG.double().mean(-1)

    @property
    def mixed_P(self) -> Tensor:
        """Prompts with right and wrong rollouts: 0 < p < 1."""
        return self.correct_PG.any(-1) & ~self.mastered_P

    @property
    def mastered_P(self) -> Tensor:
        """Prompts all of whose rollouts are correct, exactly (never by comparing floats)."""
        return self.correct_PG.all(-1)

    def select(self, index: Tensor) -> "GradedBatch":
        """The groups of `index`, in that order."""
        parts = self.correct_PG[index], self.reward_PG[index], self.advantage_PG[index]
        return GradedBatch(self.rollouts.select(index), *parts)


def log_probs(policy: Policy, rollouts: Rollouts) -> Tensor:
    """logp_PGT of the sampled tokens under the policy at temperature 1, with its gradient."""
    return policy.log_probs(rollouts.prompt_PS, rollouts.token_PGT, rollouts.mask_PGT)


class Updater:
    """Optimizer steps under one method.

    anchor: the policy before the last optimizer step, kept only where the method asks for it
    (`needs_anchor`); its weights are part of a checkpoint.
    """

    def __init__(
        self, policy: Policy, method: Method, train: Train, compute: Compute, anchor: Policy | None = None
    ) -> None:
        self.policy, self.method, self.train, self.compute, self.anchor = policy, method, train, compute, anchor
        # A micro-batch a thread: torch's own threads split every operation, and these are too small for it.
        self._map = _threads(compute.threads).map if compute.threads > 1 else map
        self.optimizer = torch.optim.AdamW(
            policy.parameters(), lr=train.lr, betas=train.betas, weight_decay=train.weight_decay, fused=True
        )

    def global_step(self, batch: GradedBatch, step: int) -> tuple[dict[str, float], list[MiniBatchRow]]:
        """All gradient steps on one batch of rollouts: their metrics, and a row each. `step` counts from 1."""
        warm = min(1.0, step / self.train.lr_warmup_steps) if self.train.lr_warmup_steps else 1.0
        for group in self.optimizer.param_groups:
            group["lr"] = self.train.lr * warm
        sums, rows = Sums(), list[MiniBatchRow]()
        felt_P = torch.zeros_like(batch.mastered_P)
        for start in range(0, self.train.prompts, self.train.mini_batch):
            index_M = torch.arange(start, start + self.train.mini_batch, device=self.policy.device)
            moved = start > 0 or (self.anchor is not None and step > 1)
            own = Sums()
            felt_here_P = self._mini_batch(batch, index_M, moved, own)
            mastered, felt = int(batch.mastered_P[index_M].sum()), int(felt_here_P.sum())
            rows.append(measure.mini_batch_row(step, len(rows) + 1, own, self.method, mastered, felt))
            sums.merge(own)
            felt_P |= felt_here_P
        sums.add("hinge/prompts_felt", felt_P.sum(), batch.mastered_P.sum() if self.method.anchors_mastered else 0)
        return {**sums.means(), "train/lr": self.train.lr * warm}, rows

    def state(self) -> dict[str, dict[str, Tensor]]:
        """Everything that a checkpoint must hold, as named tensors by file."""
        moments = {
            f"{i}.{name}": value
            for i, entry in self.optimizer.state_dict()["state"].items()
            for name, value in entry.items()
        }
        parts = {"policy": self._weights(self.policy), "optimizer": moments}
        return parts | ({"anchor": self._weights(self.anchor)} if self.anchor is not None else {})

    def load_state(self, parts: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Inverse of `state`."""
        self._load_weights(self.policy, parts["policy"])
        if self.anchor is not None:
            self._load_weights(self.anchor, parts["anchor"])
        moments: dict[int, dict[str, Tensor]] = {}
        for key, value in parts["optimizer"].items():
            index, name = key.split(".", 1)
            moments.setdefault(int(index), {})[name] = value
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": moments})

    @staticmethod
    def _weights(policy: Policy) -> dict[str, Tensor]:
        # named_parameters lists tied weights once; state_dict would list them twice.
        return {name: value.detach() for name, value in policy.model.named_parameters()}

    @staticmethod
    def _load_weights(policy: Policy, tensors: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in policy.model.named_parameters():
                parameter.copy_(tensors[name])

    def _mini_batch(self, batch: GradedBatch, index_M: Tensor, moved: bool, sums: Sums) -> Tensor:
        """One optimizer step; returns felt_P, the mastered prompts that felt the hinge.

        `moved`: the policy is no longer the hinge's anchor, so the hinge can act.
        """
        length_MG = batch.rollouts.length_PG[index_M]
        mastered_M = batch.mastered_P[index_M]
        total = MiniBatch(
            sequences=length_MG.numel(),
            tokens=int(length_MG.sum()),
            mastered=int(mastered_M.sum()) * length_MG.shape[1],
        )
        felt_P = torch.zeros_like(batch.mastered_P)
        if self.method.anchors_mastered and total.mastered:
            if moved:
                self._screen(batch, index_M[mastered_M], total, sums, felt_P)
            else:
                sums.merge(measure.undrifted(int(length_MG[mastered_M].sum())))
            sums.add("hinge/tokens_active", 0.0, length_MG[mastered_M].sum())
            sums.add("hinge/penalty", 0.0, 1.0)
        sums.add("train/policy_loss", 0.0, 1.0)
        bears_M = (batch.advantage_PG[index_M] != 0).any(-1) | felt_P[index_M]
        parts, first = self._micro_batches(batch, index_M[bears_M]), int(index_M[0]) == 0
        # Zeros, not None, where nobody bears a gradient: the optimizer still moves by its momentum, as it
        # does where every sequence goes through the backward pass.
        total_gradients = [torch.zeros_like(parameter) for parameter in self.policy.parameters()]
        # Added in the order of the micro-batches, so the sum does not depend on the number of threads.
        for gradients, measured in self._map(lambda part: self._gradients(batch, part, total, first), parts):
            for sum_so_far, gradient in zip(total_gradients, gradients, strict=True):
                sum_so_far.add_(gradient)
            sums.merge(measured)
        for parameter, gradient in zip(self.policy.parameters(), total_gradients, strict=True):
            parameter.grad = gradient
        norm = torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.train.grad_clip)
        sums.add("train/grad_norm", norm, 1)
        if self.anchor is not None:
            self._load_weights(self.anchor, self._weights(self.policy))
        self.optimizer.step()
        return felt_P

    def _gradients(
        self, batch: GradedBatch, index: Tensor, total: MiniBatch, first: bool
    ) -> tuple[tuple[Tensor, ...], Sums]:
        """Forward and backward pass of one micro-batch: its share of the gradients and of the metrics.

        first: of the first mini-batch, where the policy still is the one that sampled.
        """
        tokens = self._tokens(batch, index, total)
        loss = self.method.token_loss(tokens)
        gradients = torch.autograd.grad(reduce(loss, tokens.mask_BT), self.policy.parameters())
        with torch.no_grad():
            sums = measure.ratios(tokens, self.method)
            sums.merge(measure.policy_loss(loss, tokens))
            if first:
                sums.merge(measure.difference(tokens))
            return gradients, sums

    @torch.no_grad()
    def _screen(self, batch: GradedBatch, index: Tensor, total: MiniBatch, sums: Sums, felt_P: Tensor) -> None:
        """Mark in felt_P which of the mastered groups `index` have a token outside the drift budget.

        A forward pass without a graph costs a third of what it saves: most groups feel nothing.
        """
        for part in self._micro_batches(batch, index):
            tokens = self._tokens(batch, part, total)
            measured, felt_B = measure.hinge(self.method.token_loss(tokens), tokens)
            felt_P[part] = felt_B.view(len(part), -1).any(-1)
            sums.merge(measured)
            sums.merge(measure.drift(tokens, self.method.drift_budget))

    def _micro_batches(self, batch: GradedBatch, index: Tensor) -> Iterator[Tensor]:
        """Groups of similar length together, so that little is padded."""
        longest = batch.rollouts.length_PG[index].amax(-1) if len(index) else index
        by_length = index[longest.argsort(stable=True)]
        yield from by_length.split(self.compute.micro_batch) if len(index) else ()

    def _tokens(self, batch: GradedBatch, index: Tensor, total: MiniBatch) -> TokenBatch:
        """The groups of `index` as sequences."""
        return token_batch(self.policy, self.anchor, batch.select(index), total)


def token_batch(policy: Policy, anchor: Policy | None, batch: GradedBatch, total: MiniBatch) -> TokenBatch:
    """All groups of `batch` as sequences, with log-probabilities under the policy and the hinge's anchor.

    anchor: None for the policy that sampled. total: of the mini-batch that the groups are part of.
    """
    rollouts = crop(batch.rollouts)
    mask_BT = rollouts.mask_PGT.flatten(0, 1)
    logp_BT = log_probs(policy, rollouts).flatten(0, 1)
    old_BT = rollouts.logp_PGT.flatten(0, 1)
    anchor_BT = old_BT
    if anchor is not None:
        with torch.no_grad():
            anchor_BT = log_probs(anchor, rollouts).flatten(0, 1)
    return TokenBatch(
        # Padding has log-probability 0 on both sides: a ratio of 1 that the mask takes out.
        logp_BT=logp_BT.where(mask_BT, 0.0),
        logp_old_BT=old_BT.where(mask_BT, 0.0),
        logp_anchor_BT=anchor_BT.where(mask_BT, 0.0),
        mask_BT=mask_BT,
        advantage_B=batch.advantage_PG.flatten(),
        mastered_B=batch.mastered_P.repeat_interleave(rollouts.token_PGT.shape[1]),
        total=total,
    )


def _threads(count: int) -> ThreadPoolExecutor:
    """Threads that each compute on one core."""
    return ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,))


def crop(rollouts: Rollouts) -> Rollouts:
    """Without the columns that are padding in every row."""
    longest = int(rollouts.length_PG.max())
    return Rollouts(
        **{name: value[..., :longest] if name.endswith("_PGT") else value for name, value in vars(rollouts).items()}
    )
