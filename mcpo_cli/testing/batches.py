"""Random global steps and mini-batches, in float64, for tests of methods. Shapes as in `mcpo_cli.methods.base`."""

from collections.abc import Sequence

import torch
from torch import Tensor

from mcpo_cli.methods import Method, MiniBatch, Signals, Step, TokenBatch

LIMIT = 8
"""The longest response."""


def step(right: Sequence[int] = (0, 1, 2, 3, 4, 4), rollouts: int = 4, longest: int = 7, seed: int = 0) -> Step:
    """A global step with binary rewards and everything that a method may ask for.

    Args:
        right: correct rollouts of each prompt; the default has every accuracy, p = 0 and p = 1 among them.
        longest: tokens of the longest response; lengths are drawn from 1 to this.
    """
    rng = torch.Generator().manual_seed(seed)
    shape = (len(right), rollouts)
    correct_PG = torch.rand(shape, generator=rng).argsort(-1) < torch.tensor(right)[:, None]
    length_PG = torch.randint(1, longest + 1, shape, generator=rng)
    # The first response has all tokens, so that T is the same for every seed.
    length_PG[0, 0] = longest
    mask_PGT = torch.arange(longest) < length_PG[..., None]
    logp_PGT = -torch.rand((*shape, longest), generator=rng, dtype=torch.float64) * mask_PGT
    entropy_PGT = torch.rand((*shape, longest), generator=rng, dtype=torch.float64) * mask_PGT
    answer_PG = torch.randint(0, 3, shape, generator=rng)
    # The square of the token's probability, and a share of the most that the other tokens can add.
    share_PGT, p_PGT = torch.rand((*shape, longest), generator=rng, dtype=torch.float64), logp_PGT.exp()
    return Step(
        reward_PG=correct_PG.double(),
        correct_PG=correct_PG,
        length_PG=length_PG,
        prompt_P=torch.arange(len(right)) + 100,
        max_response=LIMIT,
        logp_PGT=logp_PGT,
        entropy_PGT=entropy_PGT,
        collision_PGT=(p_PGT**2 + share_PGT * (1 - p_PGT) ** 2) * mask_PGT,
        answer_PG=answer_PG,
        # Drawn for each prompt, so that prompts of one accuracy have correct and incorrect greedy responses.
        greedy_reward_P=torch.randint(0, 2, (len(right),), generator=rng).double(),
    )


def mini_batch(method: Method, of: Step, signals: Signals, drift: float = 0.2, seed: int = 1) -> TokenBatch:
    """The whole step as one mini-batch under a policy that has moved on since it was sampled.

    Its `logp_BT` is a leaf that requires a gradient. Columns of `Method.prepare` are in it.

    Args:
        drift: standard deviation of log pi_theta - log pi_old over tokens, nats.
    """
    assert of.logp_PGT is not None
    rng, mask_BT = torch.Generator().manual_seed(seed), of.mask_PGT.flatten(0, 1)
    old_BT = of.logp_PGT.flatten(0, 1)

    def moved(scale: float) -> Tensor:
        return (old_BT + scale * torch.randn(old_BT.shape, generator=rng, dtype=torch.float64)) * mask_BT

    flat = signals.map(lambda tensor: tensor.flatten(0, 1))
    batch = TokenBatch(
        logp_BT=moved(drift),
        logp_old_BT=old_BT,
        mask_BT=mask_BT,
        advantage_BT=flat.advantage.view(len(mask_BT), -1),
        group_B=torch.arange(len(of.correct_PG)).repeat_interleave(of.correct_PG.shape[1]),
        total=MiniBatch.of(of.length_PG, signals, of.max_response),
        columns=flat.columns,
        logp_previous_BT=moved(drift / 2) if "previous_policy" in method.needs else None,
        logp_reference_BT=moved(2 * drift) if "reference_policy" in method.needs else None,
    )
    if "current_entropy" in method.needs:
        batch = batch.replace(entropy_BT=torch.rand(old_BT.shape, generator=rng, dtype=torch.float64) * mask_BT)
    if method.prepares:
        batch = batch.replace(columns={**batch.columns, **method.prepare(batch, seed)})
    return batch.replace(logp_BT=batch.logp_BT.requires_grad_())
