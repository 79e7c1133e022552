"""Evaluation: n samples of every held-out problem; only (n, c) is kept, every metric is derived from it."""

from transformers import PreTrainedTokenizerFast

from mcpo_cli.backends.local.encoding import encode
from mcpo_cli.backends.local.policy import Policy
from mcpo_cli.backends.local.sampler import sample
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.records import EvalRow
from mcpo_cli.seeds import stream
from mcpo_cli.tasks import closed


def evaluate(spec: RunSpec, policy: Policy, tokenizer: PreTrainedTokenizerFast, step: int) -> list[EvalRow]:
    """One row a problem of every tier, in the tiers' order."""
    settings, rows = spec.eval, []
    for number, (tier, problems) in enumerate(closed(spec.task).tiers(settings.problems).items()):
        batch = encode(tokenizer, problems, spec.train.max_response).to(policy.device)
        rollouts = sample(
            policy,
            batch.prompt_PS,
            settings.samples,
            spec.train.max_response,
            settings.temperature,
            tokenizer.eos_token_id,
            stream(spec.seed, "eval", step, number),
        )
        for problem, correct in zip(problems, batch.correct(rollouts).sum(-1).tolist(), strict=True):
            rows.append(EvalRow(step=step, tier=tier, problem=problem.text, n=settings.samples, c=correct))
    return rows
