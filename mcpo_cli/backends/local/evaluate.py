"""Evaluation: n samples of every held-out problem; only (n, c) is kept, every metric is derived from it."""

from mcpo_cli.backends.local.encoding import Language
from mcpo_cli.backends.local.policy import Policy
from mcpo_cli.backends.local.sampler import sample
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.records import EvalRow
from mcpo_cli.seeds import stream
from mcpo_cli.tasks import Problems


def evaluate(spec: RunSpec, policy: Policy, language: Language, held_out: Problems, step: int) -> list[EvalRow]:
    """One row a problem of every tier, in the tiers' order."""
    settings, rows = spec.eval, []
    for number, (tier, problems) in enumerate(held_out.tiers(settings.problems).items()):
        rollouts = sample(
            policy,
            language.prompts(problems).to(policy.device),
            settings.samples,
            spec.train.max_response,
            settings.temperature,
            language.eos,
            stream(spec.seed, "eval", step, number),
            language.stops,
        )
        correct_PG = language.judge(problems, rollouts, tier).correct_PG
        for problem, correct in zip(problems, correct_PG.sum(-1).tolist(), strict=True):
            rows.append(EvalRow(step=step, tier=tier, problem=problem.text, n=settings.samples, c=correct))
    return rows
