"""Episodes of verifiers 0.4 and prime-rl: traces.jsonl, an episode a line, each with the traces of its agents.

Of a run of prime-rl the last evaluation counts, or without one the last step. Agents that are not trained (judges,
simulated users) are left out. A rollout that was not scored is left out, too, and counted in the notes.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from mcpo_cli import golds
from mcpo_cli.compare.readers import base, cells
from mcpo_cli.compare.readers.base import LogPart, TaskFile
from mcpo_cli.compare.readers.cells import Field, Row
from mcpo_cli.compare.readers.columns import Options

FILE = re.compile(r"traces\.jsonl")
NEEDED = ("env", "task", "traces")
STEP = re.compile(r"(?P<run>.*)/rollouts/step_(?P<step>\d+)/(?P<kind>train|eval)/(?P<subset>all|effective)/[^/]+")
"""A file that prime-rl writes while it trains."""
FIELDS: dict[str, Field] = {name: name for name in ("problem", "response", "prompt", "gold", "tokens")}
FACTS = {"verifiers": "verifiers.version", "sampling": "agent.config.sampling"}
REWARD = "reward"
"""The name of the score: the sum of all rewards with their weights, as verifiers computes it."""


def _files(path: Path) -> list[Path]:
    newest: dict[str, tuple[tuple[bool, int, bool], Path]] = {}
    for file in base.files_named(path, "traces.jsonl", FILE, NEEDED):
        step = STEP.fullmatch(str(file.absolute()))
        rank = (step["kind"] == "eval", int(step["step"]), step["subset"] == "effective") if step else (True, 0, True)
        run = step["run"] if step else str(file)
        newest[run] = max(newest.get(run, (rank, file)), (rank, file))
    return [file for _, file in newest.values()]


def _task_file(path: Path) -> TaskFile:
    first, step = base.first_row(path), STEP.fullmatch(str(path.absolute()))
    folder = Path(step["run"]) if step else path.parent
    # prime-rl writes all environments into one file, in the order in which episodes end.
    task = "" if step else _environment(first)
    return TaskFile(path, task, "", folder, _model(_traces(first)[0]) or folder.name)


def _parts(file: TaskFile, options: Options) -> list[LogPart]:
    rows = [_row(episode, trace) for episode in base.rows_of(file.path, NEEDED) for trace in _traces(episode)]
    scored: dict[str, list[Row]] = {}
    for row in rows:
        if row["scores"]:
            scored.setdefault(row["benchmark"], []).append(row)
    if not scored:
        raise base.damaged(file.path, "none of its rollouts was scored")
    left = base.left_out(file.path, sum(not row["scores"] for row in rows), len(rows), "were not scored")
    return [
        replace(part, notes=left)
        for name, of_name in scored.items()
        if options.benchmark in (name, "") or options.benchmark not in scored
        for part in base.parts(
            replace(file, task=name), of_name, _shared(of_name), options, fields=FIELDS, preferred=(REWARD,),
            value=lambda row, score: row["scores"][score], facts=of_name[0]["facts"],
        )
    ]  # fmt: skip


def _shared(rows: Sequence[Row]) -> list[str]:
    """The names of the scores that all rollouts have."""
    return [name for name in rows[0]["scores"] if all(name in row["scores"] for row in rows)]


def _environment(episode: Row) -> str:
    return str(episode["env"].get("name") or episode["env"].get("id") or "episodes")


def _traces(episode: Row) -> list[Row]:
    """The traces of agents that are trained; an empty trace if the episode failed before it had any."""
    return [trace for trace in episode["traces"] if trace["agent"].get("trainable", True)] or [{}]


def _model(trace: Row) -> str:
    models = [call.get("model") for call in trace.get("calls", ())]
    return str(next(filter(None, [*models, cells.cell(trace, "agent.config.model")]), ""))


def _row(episode: Row, trace: Row) -> dict[str, Any]:
    """One rollout; `scores` is empty if it was not scored."""
    task, nodes = episode["task"], trace.get("nodes", [])
    sampled = [cells.text(node["message"]) for node in nodes if node["sampled"]]
    turns = [node["message"] for node in nodes if not node["sampled"] and node["message"]["role"] in ("system", "user")]
    tokens = [(call.get("usage") or {}).get("completion_tokens", 0) for call in trace.get("calls", ())]
    return {
        "benchmark": _environment(episode),
        "problem": cells.name(
            task.get("key") or task.get("hash") or cells.digest(cells.text(task["data"].get("prompt")))
        ),
        "prompt": cells.text(turns),
        "response": sampled[-1] if sampled else "",
        "gold": golds.of_cell(task["data"].get("answer"), cells.text),
        "tokens": sum(tokens),
        "scores": _scores(trace),
        "doc": task["data"],
        "facts": {name: cells.cell(trace, of) for name, of in FACTS.items()},
    }


def _scores(trace: Row) -> dict[str, float]:
    """Each metric, each reward, and their weighted sum; nothing if the rollout was not scored."""
    rewards = {name: reward for name, reward in trace.get("rewards", {}).items() if reward is not None}
    metrics = {name: value for name, value in trace.get("metrics", {}).items() if value is not None}
    total = sum(reward["score"] * reward.get("weight", 1.0) for reward in rewards.values())
    return {**metrics, **{name: reward["score"] for name, reward in rewards.items()}, REWARD: total} if rewards else {}


READER = base.of_files(
    name="traces",
    about="verifiers 0.4 and prime-rl: a folder of episodes, or one of its traces.jsonl",
    files=_files,
    logs=partial(base.of_tasks, task=_task_file, read_parts=_parts),
)
