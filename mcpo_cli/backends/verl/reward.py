"""Our grader as verl's `reward.custom_reward_function`; verl adds the overlong shaping."""

import asyncio
import functools
from typing import Any

from mcpo_cli import grading, tasks
from mcpo_cli.backends.verl.data import stops
from mcpo_cli.grading import Grade, Pool, functions
from mcpo_cli.tokenization import cut

WORKERS = 4
"""Grading processes per verl reward worker; verl has one reward worker per GPU."""


async def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any], **_options: Any
) -> dict[str, Any]:
    """`score` and `acc` (1 or 0), and the `status`, `detail` and `answer` of the verdict.

    An `unevaluated` answer scores 0, because restating the problem must not be rewarded. An `infra_error` scores 0
    because verl needs a number; its status keeps the rollout out of the update (`masking`). `batch.check` counts it.

    extra_info: has the text of the `problem`, the name of the `grader`, possibly a user's function that returns the
    `reward` in place of the verdict, stop strings (`data.stops`) up to which the response is graded, and from
    `manager.Rewards` the `response` with its special tokens, which `solution_str` lacks.
    """
    response = cut(extra_info.get("response", solution_str), stops(extra_info))

    async def judged(grader: str) -> Grade:
        return await grade(grader, functions.question(grader, extra_info["problem"], ground_truth), response)

    verdict = await judged(extra_info["grader"])
    correct = float(verdict.status == "correct")
    reward_verdict = await judged(extra_info["reward"]) if extra_info.get("reward") else None
    shown_verdict = reward_verdict if reward_verdict and reward_verdict.status == "infra_error" else verdict
    details = {"status": shown_verdict.status, "detail": shown_verdict.detail, "answer": verdict.answer or ""}
    return {"score": reward_verdict.reward if reward_verdict else correct, "acc": correct, **details}


async def grade(grader: str, gold: str, response: str) -> Grade:
    """The verdict of `grader`; a grader that tasks do not run apart runs in this process, as in the local engine."""
    if grader in {task.grader for task in tasks.registry().values() if not task.judged_apart}:
        return grading.loaded(grader).grade(gold, response, extracted=False)
    return await asyncio.wrap_future(_pool(grader).submit(gold, response))


@functools.cache
def _pool(grader: str) -> Pool:
    """The pool for `grader`, started at the first answer; its processes end with this one."""
    return Pool(grader, workers=WORKERS, refuse_unevaluated=True)
