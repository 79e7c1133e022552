"""Evaluation: n samples of every held-out problem; only (n, c) is kept, every metric is derived from it."""

from transformers import PreTrainedTokenizerFast

from mcpo_cli.backends.local.encoding import judge, prompts
from mcpo_cli.backends.local.policy import Policy
from mcpo_cli.backends.local.sampler import sample
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.records import EvalRow
from mcpo_cli.seeds import stream
from mcpo_cli.tasks import closed


def evaluate(spec: RunSpec, policy: Policy, tokenizer: PreTrainedTokenizerFast, step: int) -> list[EvalRow]:
    """One row a problem of every tier, in the tiers' order."""
    settings, task, rows = spec.eval, closed(spec.task), []
    for number, (tier, problems) in enumerate(task.tiers(settings.problems).items()):
        rollouts = sample(
            policy,
            prompts(tokenizer, problems).to(policy.device),
            settings.samples,
            spec.train.max_response,
            settings.temperature,
            tokenizer.eos_token_id,
            stream(spec.seed, "eval", step, number),
        )
        correct_PG = judge(task, tokenizer, problems, rollouts).correct_PG
        for problem, correct in zip(problems, correct_PG.sum(-1).tolist(), strict=True):
            rows.append(EvalRow(step=step, tier=tier, problem=problem.text, n=settings.samples, c=correct))
    return rows
