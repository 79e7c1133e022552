"""Our grader as verl's `reward.custom_reward_function`; verl adds the overlong shaping."""

import asyncio
import functools
from typing import Any

from mcpo_cli import grading, tasks
from mcpo_cli.backends.verl.data import stops
from mcpo_cli.grading import Pool, Verdict
from mcpo_cli.tokenization import cut

WORKERS = 4
"""Grading processes per verl reward worker; verl has one reward worker per GPU."""


async def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any], **_options: Any
) -> dict[str, Any]:
    """`score` and `acc` (1 or 0), and the `status`, `detail` and `answer` of the verdict.

    An `unevaluated` answer scores 0, because restating the problem must not be rewarded. An `infra_error` scores 0
    because verl needs a number; its status shows that the answer was not graded, and `groups.check` counts it.

    extra_info: has the name of the `grader`, and stop strings (`data.stops`) up to which the response is graded.
    """
    verdict = await judge(extra_info["grader"], ground_truth, cut(solution_str, stops(extra_info)))
    score = float(verdict.status == "correct")
    said = {"status": verdict.status, "detail": verdict.detail, "answer": verdict.answer or ""}
    return {"score": score, "acc": score, **said}


async def judge(grader: str, gold: str, response: str) -> Verdict:
    """The verdict of `grader`; one that tasks do not judge apart runs in this process, as in the local engine."""
    if grader in {task.grader for task in tasks.registry().values() if not task.judged_apart}:
        return grading.loaded(grader).grade(gold, response, extracted=False)
    return await asyncio.wrap_future(_pool(grader).submit(gold, response))


@functools.cache
def _pool(grader: str) -> Pool:
    """The pool for `grader`, started at the first answer; its processes end with this one."""
    return Pool(grader, workers=WORKERS, refuse_unevaluated=True)
