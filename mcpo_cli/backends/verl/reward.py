"""Our grader in verl's reward loop: what `reward.custom_reward_function` names. verl adds the overlong shaping."""

import asyncio
import functools
from typing import Any

from mcpo_cli import benchmarks
from mcpo_cli.benchmarks import Problem
from mcpo_cli.errors import RunFailed
from mcpo_cli.grading import Pool, Verdict

WORKERS = 4
"""Grading processes of each of verl's reward workers, of which there is one a GPU."""


async def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any], **_options: Any
) -> dict[str, Any]:
    """`score` and `acc`, 1 or 0, and the `status` of the verdict.

    extra_info: names the `grader`; `exact` compares tokens and needs no process of its own.

    Raises:
        RunFailed: nothing is known about the answer; that is not a score of 0.
    """
    if extra_info["grader"] == "exact":
        right = benchmarks.correct(solution_str, Problem(extra_info["problem"], ground_truth))
        verdict = Verdict("correct" if right else "wrong")
    else:
        verdict = await asyncio.wrap_future(_pool(extra_info["grader"]).submit(ground_truth, solution_str))
    if verdict.status == "infra_error":
        raise RunFailed(f"an answer of {data_source} could not be graded: {verdict.detail}")
    score = float(verdict.status == "correct")
    return {"score": score, "acc": score, "status": verdict.status}


@functools.cache
def _pool(grader: str) -> Pool:
    """Started with the first answer; its processes end with this one."""
    return Pool(grader, workers=WORKERS)
