"""Moments of an estimator without sampling, for methods whose advantage depends on how many of a group are correct.

Given that number, the responses of a group are independent draws among the correct and among the incorrect ones, and
the number is binomial. So mean and variance are sums over the number and over all responses, without listing groups.

Methods do not declare this property. The method itself fills a table of coefficients by response and number, which must
reproduce the coefficients of whole batches with every kind of group; otherwise the sum does not exist.
"""

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from torch.distributions import Binomial

from mcpo_cli.methods import Method

from .estimate import Circumstances, Drawn, Moments, compute
from .world import LIMIT, SYMBOLS, responses

CHECKS = 8
"""Batches that the table must reproduce."""
FIRST = 9
"""Rollouts of a table that is tried before larger, more expensive ones; odd, because some methods require it."""
TOLERANCE = 1e-9
"""Relative to the largest coefficient."""


@dataclass(frozen=True)
class Table:
    """coefficient_PRNT of each token of a response, in a group with N correct that is a whole batch."""

    coefficient_PRNT: Tensor

    def of(self, correct_PR: Tensor, draws: Drawn) -> Tensor:
        """The coefficients MGT of a batch, which divides by its groups."""
        number_M = draws.of(correct_PR).sum(-1)
        value_MGT: Tensor = self.coefficient_PRNT[draws.prompt_M[:, None], draws.response_MG, number_M[:, None]]
        return value_MGT / len(draws.prompt_M)


def counted(method: Method, case: Circumstances, rollouts: int) -> Moments | None:
    """The moments of the estimates from groups of `rollouts`; None if the table does not reproduce a batch."""
    if rollouts > FIRST and not _is_of_the_kind(method, case):
        return None
    table = _table(method, case, rollouts)
    return _moments(case, table, rollouts) if _holds(method, case, table, rollouts) else None


@cache
def _is_of_the_kind(method: Method, case: Circumstances) -> bool:
    return _holds(method, case, _table(method, case, FIRST), FIRST)


def _table(method: Method, case: Circumstances, G: int) -> Table:
    """The coefficients of every response at every number correct; each group has as many different ones as fit."""
    correct_PR = case.world.correct_PR
    P, R = correct_PR.shape
    coefficient_PRNT = case.policy.logits_PSV.new_zeros(P, R, G + 1, LIMIT)
    right_PC, wrong_PW = (among_PR.nonzero()[:, 1].view(P, -1) for among_PR in (correct_PR, ~correct_PR))
    every_G, prompt_P = torch.arange(G), torch.arange(P)
    for number in range(G + 1):
        needed = [math.ceil(x_PX.shape[1] / n) for x_PX, n in ((right_PC, number), (wrong_PW, G - number)) if n]
        place_J1 = torch.arange(max(needed))[:, None]
        right_JG = (place_J1 * number + every_G) % right_PC.shape[1]
        wrong_JG = (place_J1 * (G - number) + every_G - number) % wrong_PW.shape[1]
        response_PJG = right_PC[:, right_JG].where(every_G < number, wrong_PW[:, wrong_JG])
        draws = Drawn(prompt_P.repeat_interleave(len(place_J1)), response_PJG.flatten(0, 1))
        value_MGT = compute(method, case, draws, {}, seed=0).coefficient_MGT * len(draws.prompt_M)
        coefficient_PRNT[draws.prompt_M[:, None], draws.response_MG, number] = value_MGT
    return Table(coefficient_PRNT)


def _holds(method: Method, case: Circumstances, table: Table, G: int) -> bool:
    """True if batches have the table's coefficients: of random groups, some all correct and some all wrong."""
    rng, correct_PR = torch.Generator().manual_seed(0), case.world.correct_PR
    P, R = correct_PR.shape
    prompt_M = torch.arange(P)
    for seed in range(CHECKS):
        number_M = torch.randint(0, G + 1, (P,), generator=rng)
        number_M[torch.randperm(P, generator=rng)[:2]] = torch.tensor([0, G])
        order_MG = torch.rand((P, G), generator=rng).argsort(-1)
        weight_MR = torch.rand((P, R), generator=rng)
        right_MG, wrong_MG = (
            torch.multinomial(weight_MR * among_PR, G, replacement=True, generator=rng)
            for among_PR in (correct_PR, ~correct_PR)
        )
        draws = Drawn(prompt_M, right_MG.where(order_MG < number_M[:, None], wrong_MG))
        computed = compute(method, case, draws, {}, seed)
        expected_MGT = table.of(correct_PR, draws)
        largest = float(expected_MGT.abs().max())
        is_same = torch.allclose(computed.coefficient_MGT, expected_MGT, rtol=0, atol=TOLERANCE * largest)
        if computed.state or not is_same:
            return False
    return True


def _moments(case: Circumstances, table: Table, G: int) -> Moments:
    texts, policy, exact_PSV = responses(), case.policy, case.exact_PSV
    correct_PR, weight_PR = case.world.correct_PR, case.sampler.probability_PR
    P, R = correct_PR.shape
    accuracy_P = (weight_PR * correct_PR).sum(-1)
    number_N = torch.arange(G + 1).double()
    chance_PN = Binomial(G, accuracy_P[:, None]).log_prob(number_N).exp()
    # The gradient of each response, with its coefficients, with respect to the logits of its prompt.
    states = policy.logits_PSV.shape[1]
    one_hot_RTX = torch.nn.functional.one_hot(texts.state_RT * (SYMBOLS + 1) + texts.token_RT, states * (SYMBOLS + 1))
    raw_PRNX = torch.einsum("prnt,rtx->prnx", table.coefficient_PRNT, one_hot_RTX.double())
    raw_PRNSV = raw_PRNX.view(P, R, G + 1, states, SYMBOLS + 1)
    probability_PSV = policy.logp_PSV.exp()[:, None, None]
    x_PRND = (raw_PRNSV - raw_PRNSV.sum(-1, keepdim=True) * probability_PSV).flatten(3)
    mean_PND, square_PN = 0.0 * x_PRND[:, 0], 0.0 * x_PRND[:, 0, :, 0]
    inner_PN = square_PN
    for among_PR, size_N in ((correct_PR, number_N), (~correct_PR, G - number_N)):
        share_PR = weight_PR * among_PR / (weight_PR * among_PR).sum(-1, keepdim=True)
        own_PND = torch.einsum("pr,prnd->pnd", share_PR, x_PRND)
        own_square_PN = torch.einsum("pr,prn->pn", share_PR, x_PRND.square().sum(-1))
        mean_PND = mean_PND + size_N[:, None] * own_PND
        inner_PN = inner_PN + size_N * (own_square_PN - own_PND.square().sum(-1))
    square_PN = mean_PND.square().sum(-1) + inner_PN
    mean_PD = torch.einsum("pn,pnd->pd", chance_PN, mean_PND)
    variance_P = (chance_PN * square_PN).sum(-1) - mean_PD.square().sum(-1)
    # A batch divides by its P groups; the groups of different prompts are independent.
    mean_PD, variance = mean_PD / P, float(variance_P.clamp(min=0).sum()) / P**2
    mean_square = float(mean_PD.square().sum())
    along = math.fsum((mean_PD * exact_PSV.flatten(1)).flatten().tolist())
    return Moments(along, mean_square, mean_square + variance, float(exact_PSV.square().sum()))
