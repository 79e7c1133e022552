"""A world small enough to list: a few prompts, every response to them, and a policy with a logit for each next token.

A response is up to LIMIT tokens: symbols, and an end. The last symbol before the end is the answer; a response without
an end has no answer. So a prompt has several correct responses, of different lengths, and truncated incorrect ones.

The policy is tabular: each prefix of each prompt has its own logits. So expected accuracy, its gradient and the
probability of every response are sums without any sampling. Unlike in a network, prompts do not share parameters: a
step on one prompt does not change another.

Shape suffixes: P prompts, R responses, T tokens, S prefixes (states), V tokens of the vocabulary.
"""

import itertools
from dataclasses import dataclass
from functools import cache, cached_property

import torch
from torch import Tensor

from mcpo_cli.backends import corrections

SYMBOLS = 3
"""Symbols of the vocabulary; the end token follows them."""
LIMIT = 3
"""The longest response, its end token included."""
ACCURACIES = (0.02, 0.1, 0.25, 0.4, 0.6, 0.75, 0.9, 0.98)
"""Accuracies of the policy that samples, one for each prompt."""
STEP = 0.12
"""Length of a gradient step in logits, Euclidean over all of them."""
SEED = 0


@dataclass(frozen=True)
class Responses:
    """Every response, and for each of its tokens the prefix after which it comes."""

    token_RT: Tensor
    state_RT: Tensor
    mask_RT: Tensor
    answer_R: Tensor
    """The answer's symbol; SYMBOLS for responses without an answer."""

    @property
    def length_R(self) -> Tensor:
        """Tokens of each response, the end token included."""
        return self.mask_RT.sum(-1)


@cache
def responses() -> Responses:
    """All responses in a fixed order: 40 of them, after 13 prefixes."""
    end, symbols = SYMBOLS, range(SYMBOLS)
    listed = [(*start, end) for length in range(LIMIT) for start in itertools.product(symbols, repeat=length)] + list(
        itertools.product(symbols, repeat=LIMIT)
    )
    prefixes = {
        prefix: index for index, prefix in enumerate(dict.fromkeys(r[:t] for r in listed for t in range(len(r))))
    }
    padded = [(*response, *[end] * (LIMIT - len(response))) for response in listed]
    states = [[prefixes.get(response[:t], 0) if t < len(response) else 0 for t in range(LIMIT)] for response in listed]
    answers = [response[-2] if len(response) > 1 and response[-1] == end else SYMBOLS for response in listed]
    length_R = torch.tensor([len(response) for response in listed])
    return Responses(
        token_RT=torch.tensor(padded),
        state_RT=torch.tensor(states),
        mask_RT=torch.arange(LIMIT) < length_R[:, None],
        answer_R=torch.tensor(answers),
    )


@dataclass(frozen=True)
class Policy:
    """A softmax policy, float64."""

    logits_PSV: Tensor

    @cached_property
    def logp_PSV(self) -> Tensor:
        """Log-probability of each next token."""
        return self.logits_PSV.log_softmax(-1)

    @cached_property
    def logp_PRT(self) -> Tensor:
        """Log-probability of each token of each response; 0 on padding."""
        texts = responses()
        return self.logp_PSV[:, texts.state_RT, texts.token_RT] * texts.mask_RT

    @cached_property
    def probability_PR(self) -> Tensor:
        """Probability of each response; they add up to 1."""
        return self.logp_PRT.sum(-1).exp()

    @cached_property
    def entropy_PRT(self) -> Tensor:
        """Entropy where each token is drawn, nats."""
        entropy_PS = -(self.logp_PSV.exp() * self.logp_PSV).sum(-1)
        return entropy_PS[:, responses().state_RT] * responses().mask_RT

    @cached_property
    def collision_PRT(self) -> Tensor:
        """Sum of squared probabilities where each token is drawn."""
        return self.logp_PSV.exp().square().sum(-1)[:, responses().state_RT] * responses().mask_RT

    @cached_property
    def greedy_PR(self) -> Tensor:
        """bool. The one response of each prompt whose every token is the most probable one."""
        texts = responses()
        likeliest_PRT = self.logp_PSV.argmax(-1)[:, texts.state_RT] == texts.token_RT
        return (likeliest_PRT | ~texts.mask_RT).all(-1)

    def rounded(self, step: float) -> "Policy":
        """The policy of logits rounded to multiples of `step`, as by `train.sampler_rounding`; 0: unrounded."""
        return Policy(corrections.rounded(self.logits_PSV, step))

    def gradient(self, coefficient_PSV: Tensor) -> Tensor:
        """Gradient with respect to the logits of the sum of coefficient times log-probability; leading axes stay."""
        return coefficient_PSV - coefficient_PSV.sum(-1, keepdim=True) * self.logp_PSV.exp()


@dataclass(frozen=True)
class World:
    """The correct responses, and the policy that the others are derived from."""

    correct_PR: Tensor
    base: Policy

    def accuracy_P(self, policy: Policy) -> Tensor:
        """The probability of a correct response."""
        return (policy.probability_PR * self.correct_PR).sum(-1)

    def gradient(self, policy: Policy) -> Tensor:
        """The exact gradient of the mean accuracy of all prompts: the sum of pi(y) r(y) grad log pi(y), PSV."""
        weight_PR = policy.probability_PR * self.correct_PR / len(self.correct_PR)
        return policy.gradient(scattered(weight_PR[..., None].expand(-1, -1, LIMIT)))


def scattered(value_PRT: Tensor) -> Tensor:
    """The sum of values of tokens, PSV: at each prefix and next token over the responses that go through them."""
    texts = responses()
    P, states = len(value_PRT), int(texts.state_RT.max()) + 1
    place_RT = texts.state_RT * (SYMBOLS + 1) + texts.token_RT
    flat_PN = value_PRT.new_zeros(P, states * (SYMBOLS + 1))
    flat_PN.index_add_(1, place_RT[texts.mask_RT], value_PRT[:, texts.mask_RT])
    return flat_PN.view(P, states, SYMBOLS + 1)


@cache
def world() -> World:
    """The world of the atlas: random logits, raised or lowered along correct responses until ACCURACIES are met."""
    texts, P = responses(), len(ACCURACIES)
    rng, states = torch.Generator().manual_seed(SEED), int(texts.state_RT.max()) + 1
    logits_PSV = torch.randn((P, states, SYMBOLS + 1), generator=rng, dtype=torch.float64)
    correct_PR = texts.answer_R == torch.arange(P)[:, None] % SYMBOLS
    towards_PSV = (scattered(correct_PR.double()[..., None].expand(-1, -1, LIMIT)) > 0).double()
    low_P, high_P = torch.full((P,), -20.0).double(), torch.full((P,), 20.0).double()
    for _ in range(60):
        middle_P = (low_P + high_P) / 2
        candidate = World(correct_PR, Policy(logits_PSV + middle_P[:, None, None] * towards_PSV))
        below_P = candidate.accuracy_P(candidate.base) < torch.tensor(ACCURACIES).double()
        low_P, high_P = middle_P.where(below_P, low_P), high_P.where(below_P, middle_P)
    return candidate


@cache
def path(steps: int) -> tuple[Policy, ...]:
    """The policies of `steps` gradient steps from the base of the world, which is the first.

    Each step moves equally far along the exact gradient and in a random direction, as steps of estimates do.
    """
    rng, policies = torch.Generator().manual_seed(SEED + 1), [world().base]
    for _ in range(steps):
        last = policies[-1]
        noise_PSV = torch.randn(last.logits_PSV.shape, generator=rng, dtype=torch.float64)
        along_PSV, aside_PSV = (x_PSV / x_PSV.norm() for x_PSV in (world().gradient(last), noise_PSV))
        policies.append(Policy(last.logits_PSV + STEP * (along_PSV + aside_PSV) / 2**0.5))
    return tuple(policies)
