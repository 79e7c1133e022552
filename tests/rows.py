"""Rows of journals with given numbers, and journals of such rows."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mcpo_cli.config.schema import RunSpec
from mcpo_cli.home import run_dir
from mcpo_cli.runs.attempts import Attempt
from mcpo_cli.runs.journal import Journal

Row = dict[str, Any]


def group(step: int, p: float, prompt: str = "", **more: Any) -> Row:
    """A group with accuracy `p`."""
    shares = {"mean_length": 1.0, "kept": True, "truncated": 0.0, "duplicates": 0.0}
    return {"step": step, "prompt": prompt, "p": p, **shares, **more}


def reroll(step: int, prompt: str, c: int, origin: int = 0, n: int = 8) -> Row:
    """A prompt that was resampled with `c` of `n` correct: of the panel, or mastered at the step `origin`."""
    source = "mastered" if origin else "panel"
    return {"step": step, "source": source, "origin": origin, "prompt": prompt, "gold": "", "n": n, "c": c}


def evaluation(step: int, right: Mapping[str, Sequence[int]], n: int = 8) -> list[Row]:
    """An evaluation with these numbers of correct samples, by tier."""
    return [
        {"step": step, "tier": tier, "problem": f"{tier} {i}", "n": n, "c": c}
        for tier, counts in right.items()
        for i, c in enumerate(counts)
    ]


def journal(
    spec: RunSpec,
    rows: Mapping[Any, Sequence[Row]],
    metrics: Sequence[Mapping[str, float]] = (),
    folder: Path | None = None,
) -> Journal:
    """The journal of a done run with these rows by kind, each at its own step, and `metrics` of the steps 1, 2, ..."""
    attempt = Attempt(folder or run_dir(spec.run_id), spec, 0)
    for kind, every in rows.items():
        for step in sorted({row["step"] for row in every}):
            attempt.journal.rows(kind, step, [row for row in every if row["step"] == step])
    for step, values in enumerate(metrics, start=1):
        attempt.journal.step({"step": step, "time": float(step), "metrics": dict(values)})
    attempt.end("done")
    return Journal(attempt.folder.parent)
