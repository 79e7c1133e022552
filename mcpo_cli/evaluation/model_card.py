"""The README of an exported policy: its origin and its scores, from the records of its run.

The header has the form of the Hugging Face Hub (https://huggingface.co/docs/hub/model-cards)."""

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import ConfigError, first_line
from mcpo_cli.evaluation.metrics import over_problems
from mcpo_cli.model_files import HUB_ID
from mcpo_cli.pretrained import write
from mcpo_cli.runs import folders
from mcpo_cli.runs.journal import Journal, read_json
from mcpo_cli.runs.provenance import RECORD
from mcpo_cli.settings import flat
from mcpo_cli.statistics import stats


def text(spec: RunSpec, journal: Journal, step: int) -> str:
    """The card of the policy after global step `step`, as Markdown."""
    base = {"base_model": spec.model.path} if HUB_ID.fullmatch(spec.model.path) else {}
    kind = {"library_name": "transformers", "pipeline_tag": "text-generation", "tags": ["rlvr", spec.method.name]}
    facts = "\n".join(f"| {name} | {value} |" for name, value in _facts(spec, journal, step))
    parts = [
        f"---\n{yaml.safe_dump(kind | base, sort_keys=False)}---",
        f"# {spec.method.label} on {spec.model.name}, {spec.seeds}",
        f"A policy after {step} of {spec.train.steps} global steps of reinforcement learning with verifiable rewards, "
        "trained and described by mcpo.",
        f"| | |\n|---|---|\n{facts}",
        f"## Scores\n{_scores(journal, step)}",
    ]
    return "\n\n".join(parts) + "\n"


def _facts(spec: RunSpec, journal: Journal, step: int) -> Iterator[tuple[str, str]]:
    train, model = spec.train, spec.model
    options = ", ".join(f"{key}={value}" for key, value in flat(spec.identity()["method"]).items() if key != "name")
    # An attempt that was killed at its start has none.
    records = (at / RECORD for at in reversed(journal.attempts()))
    code: dict[str, Any] = next((read_json(path) for path in records if path.exists()), {})
    yield "run", f"`{spec.run_id}`"
    yield "method", f"`{spec.method.name}` ({options})"
    yield "trained on", ", ".join(spec.task.published) or f"generated problems of the task `{spec.task.name}`"
    yield "from", model.origin or "random weights and a warm-up on demonstrations"
    yield "global steps", f"{step} of {train.prompts} prompts x {train.rollouts} rollouts, learning rate {train.lr:g}"
    if model.lora_rank:
        yield "trained by", f"LoRA of rank {model.lora_rank}, alpha {model.lora_alpha}; merged into the weights here"
    yield "can be read by", f"transformers {write.OLDEST} or newer, vLLM, `mcpo evaluate`"
    yield "settings", f"scale `{spec.scale}`, regime `{spec.regime}`, backend `{spec.backend}`"
    version = code.get("commit") or code.get("package") or "unknown"
    yield "code", f"commit {version}{' with changes' if code.get('dirty') else ''}"


def _scores(journal: Journal, step: int) -> str:
    """The scores of the evaluation after `step`, one row per tier."""
    path = journal.files("eval").get(step)
    if path is None:
        return f"The policy was not evaluated after step {step}."
    rows = sorted(journal.read(path), key=itemgetter("tier"))
    lines = [_line(tier, list(group)) for tier, group in groupby(rows, key=itemgetter("tier"))]
    note = (
        "Intervals are 95 %, over problems of the same kind. This is one training run: other seeds of it differ, too, "
        "and `mcpo compare` says by how much."
    )
    table = ["| held-out problems | number | samples of each | pass@1 | best@k |", "|---|---|---|---|---|", *lines]
    return "\n".join(table) + f"\n\n{note}"


def _line(tier: str, rows: list[dict[str, Any]]) -> str:
    n, c = [row["n"] for row in rows], [row["c"] for row in rows]
    mean, low, high = over_problems(n, c)
    k = min(n)
    best = float(np.mean(stats.best_at_k(n, c, k)))
    return f"| {tier} | {len(rows)} | {k} | {mean:.3f} [{low:.3f}, {high:.3f}] | {best:.3f} (k = {k}) |"


def check(repository: str) -> None:
    """Raise ConfigError if `repository` cannot name a model on the Hugging Face Hub, or there is no token for it."""
    from huggingface_hub import get_token

    if not HUB_ID.fullmatch(repository):
        raise ConfigError(
            f"--push {repository}: a model on the Hugging Face Hub is named OWNER/NAME", fix="--push OWNER/NAME"
        )
    if get_token() is None:
        raise ConfigError("--push needs a token of the Hugging Face Hub that may write", fix="hf auth login")


def push(folder: Path, repository: str, message: str) -> str:
    """Upload the files of `folder` in one commit; returns the model's address. A new model becomes private.

    Raises:
        ConfigError: the Hugging Face Hub refuses it; the folder is kept.
    """
    from huggingface_hub import HfApi

    hub = HfApi()
    try:
        hub.create_repo(repository, private=True, exist_ok=True)
        hub.upload_folder(
            repo_id=repository, folder_path=folder, commit_message=message, ignore_patterns=[folders.MANIFEST]
        )
    except Exception as error:  # no network, no rights, a full quota: the client's errors have no common class
        raise ConfigError(
            f"{repository} was not uploaded to {hub.endpoint}: {first_line(error)}",
            fix=f"hf upload {repository} {folder}  (the folder is complete)",
        ) from error
    return f"{hub.endpoint}/{repository}"
