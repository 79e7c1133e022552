"""A small random policy, and the stock forward pass on its rollouts."""

import torch
from torch import Tensor

from mcpo_cli import tasks
from mcpo_cli.backends.local import policy as policies
from mcpo_cli.backends.local import tokenizer as tokenizers
from mcpo_cli.backends.local.encoding import encode
from mcpo_cli.backends.local.generate import Rollouts
from mcpo_cli.backends.local.policy import Policy
from mcpo_cli.config.load import load
from mcpo_cli.config.schema import Model
from mcpo_cli.tasks.chains import Arithmetic

TOKENIZER = tokenizers.build(Arithmetic().vocabulary)
EOS = TOKENIZER.eos_token_id
G, T = 4, 9


def new_policy(seed: int = 0) -> Policy:
    """A random policy in float64; the stock norm still computes in float32, hence the tolerances."""
    model = policies.build(Model(layers=2), TOKENIZER, seed).double()
    # Larger than in a new model, so that attention affects the result.
    for parameter in model.model.layers.parameters():
        parameter.data *= 4
    return Policy(model, torch.device("cpu"))


def prompts(count: int) -> Tensor:
    spec = load(["scale=smoke", "task.max_ops=2"])[0]
    return encode(TOKENIZER, tasks.closed(spec.task).training(0, 0, count), T).prompt_PS


def stock_logits(policy: Policy, rollouts: Rollouts) -> Tensor:
    """logits_PGTV by the model's own forward pass over prompt and response written out."""
    P, S = rollouts.prompt_PS.shape
    full = torch.cat([rollouts.prompt_PS[:, None].expand(P, G, S), rollouts.token_PGT], -1).reshape(P * G, -1)
    logits: Tensor = policy.model(full).logits[:, S - 1 : -1]
    return logits.reshape(P, G, rollouts.token_PGT.shape[-1], -1)


def stock_log_probs(policy: Policy, rollouts: Rollouts) -> Tensor:
    """logp_PGT of the tokens by the stock forward pass."""
    logp = stock_logits(policy, rollouts).log_softmax(-1)
    return logp.gather(-1, rollouts.token_PGT[..., None]).squeeze(-1)
