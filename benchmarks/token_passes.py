"""Tokens that mcpo's verl trainer passes through the model for recorded batches, against verl's own recipe.

`python -m benchmarks.token_passes RUN_FOLDER ...` prints one line per run. A forward pass of a token counts once, a
backward pass twice. verl passes every sequence of a batch forward for its old log-probabilities, and forward and
backward in its update. A folder has the mean response length of each group, so its responses are taken for equal.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from mcpo_cli.backends.local import encoding, tokenizer
from mcpo_cli.backends.verl.batch import apply_method, select_trained
from mcpo_cli.config.load import from_dict
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.data.base import Problem
from mcpo_cli.methods import Step
from mcpo_cli.records import GroupRow
from mcpo_cli.runs.journal import Journal, read_json
from mcpo_cli.tasks import closed

UPDATE = 3


def counted(folder: Path) -> dict[str, float]:
    """Shares of tokens of mastered and of all-incorrect prompts, and token-passes by verl's recipe and by ours."""
    spec = from_dict(read_json(folder / "spec.json"))
    rows = [row for row in Journal(folder).groups() if row["kept"]]
    total = dict.fromkeys(("tokens", "mastered", "all_wrong", "ours"), 0)
    for number in sorted({row["step"] for row in rows}):
        step, tokens_PG = recorded(spec, [row for row in rows if row["step"] == number])
        total["tokens"] += int(tokens_PG.sum())
        total["mastered"] += int(tokens_PG[step.correct_PG.all(-1)].sum())
        total["all_wrong"] += int(tokens_PG[~step.correct_PG.any(-1)].sum())
        total["ours"] += passes(spec, step, tokens_PG.flatten().tolist())
    shares = {name: total[name] / total["tokens"] for name in ("mastered", "all_wrong")}
    verl = (1 + UPDATE) * total["tokens"]
    return {**shares, "verl": verl, "ours": total["ours"], "saved": 1 - total["ours"] / verl}


def recorded(spec: RunSpec, rows: Sequence[GroupRow]) -> tuple[Step, torch.Tensor]:
    """The batch, and the tokens of each sequence with its prompt, PG."""
    G = spec.train.rollouts
    correct_PG = torch.arange(G) < torch.tensor([[round(row["p"] * G)] for row in rows])
    length_PG = torch.tensor([[round(row["mean_length"])] * G for row in rows])
    words = tokenizer.build(closed(spec.task).vocabulary)
    prompt_PS = encoding.prompts(words, [Problem(row["prompt"], "") for row in rows])
    step = Step(
        correct_PG.double(), correct_PG, length_PG, torch.arange(len(rows)), max_response=spec.train.max_response
    )
    return step, length_PG + prompt_PS.shape[1]


def passes(spec: RunSpec, step: Step, tokens: Sequence[int]) -> int:
    """Token-passes of one batch on one rank, by our recipe."""
    G = spec.train.rollouts
    unmoved_PGT = torch.zeros(*step.length_PG.shape, int(step.length_PG.max()))
    output, _ = apply_method(spec, step, {}, torch.ones_like(step.correct_PG), lambda: unmoved_PGT, 0)
    has_gradient, total = output.has_gradient_PG.flatten().tolist(), sum(tokens)
    for part in torch.arange(len(tokens)).split(spec.train.mini_batch * G):
        total += UPDATE * sum(tokens[i] for i in select_trained(part.tolist(), has_gradient, tokens, 1))
    return total


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(json.dumps({"run": Path(name).name, **counted(Path(name))}))
