"""Writes verl's steps to the journal, under the local backend's names (verl's own metrics as `verl/...`)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from mcpo_cli.backends import measure
from mcpo_cli.backends.graded import Graded
from mcpo_cli.backends.measure import CostTotals
from mcpo_cli.backends.verl import batch
from mcpo_cli.backends.verl.batch import Group
from mcpo_cli.backends.verl.launch import Channel
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.runs.journal import JournalWriter

PHASES = {
    "gen": "sample",
    "update_weights": "sample",
    "old_log_prob": "update",
    "adv": "update",
    "update_actor": "update",
    "probe": "probe",
}
"""Maps verl's timers to the local backend's phases; the rest of the step is `record`."""


@dataclass(frozen=True)
class Trained:
    """A global step after its update.

    kept: groups in its batch, with `advantage_PG`. discarded: groups that dynamic sampling dropped. updates, probed,
    verl: metrics of gradient steps, of probes, and verl's own. seconds: by phase, see `seconds`.
    """

    kept: Sequence[Group]
    discarded: Sequence[Group]
    advantage_PG: Tensor
    updates: Mapping[str, float]
    probed: Mapping[str, float]
    verl: Mapping[str, Any]
    seconds: Mapping[str, float]


class Records:
    """The journal of one attempt, written by verl's trainer."""

    def __init__(self, spec: RunSpec, attempt_dir: Path) -> None:
        self.spec, self.run_dir = spec, attempt_dir.parent
        self.journal = JournalWriter(attempt_dir)
        self.channel = Channel(attempt_dir)
        self._durable: int | None = None
        self._phase = "starting"

    def phase(self, text: str) -> None:
        """Report the current phase."""
        self._phase = text
        self.channel.tell(text, self._durable)

    def durable(self, step: int) -> None:
        """Report that a checkpoint covers everything up to `step`."""
        self._durable = step
        self.channel.tell(self._phase, step)

    def step(self, step: int, trained: Trained, costs: CostTotals, tokenizer: Any) -> None:
        """Write all rows of one global step; costs: with this step.

        Sampling metrics cover all groups, except `train/entropy`: the trainer computes the entropies of kept groups.
        """
        groups = batch.in_order([*trained.kept, *trained.discarded])
        spec, ends = self.spec, batch.end_tokens(self.spec.task, tokenizer)
        graded = batch.graded(groups, ends, spec.train.temperature)
        orders = {group.prompt.order for group in trained.kept}
        in_batch = [i for i, group in enumerate(groups) if group.prompt.order in orders]
        self.journal.rows("groups", step, measure.group_rows(step, graded, {*in_batch}))
        if costs.evaluation_due:
            first_groups = groups[: spec.compute.sample_groups]
            texts = [[str(tokenizer.decode(tokens)) for tokens in group.tokens] for group in first_groups]
            self.journal.rows("samples", step, measure.sample_rows(step, graded, texts))
        row = measure.global_step(
            step,
            spec,
            graded,
            in_batch,
            trained.advantage_PG,
            entropy=_entropy(graded),
            updates=trained.updates,
            probed=trained.probed,
            costs=costs.totals,
            seconds=trained.seconds,
            of_backend={f"verl/{name}": value for name, value in _flat(trained.verl)},
        )
        self.journal.step(row)

    def evaluation(self, step: int, groups: Sequence[Group]) -> None:
        """Write one row per held-out problem; RunFailed if no answer to one could be graded."""
        rows = [
            measure.eval_row(
                step,
                group.prompt.tier,
                group.prompt.problem.text,
                (len(group.grades), sum(group.graded), sum(group.correct)),
            )
            for group in groups
        ]
        self.journal.rows("eval", step, rows)

    def close(self) -> None:
        """Flush the journal to the disk and close it."""
        self.journal.close()


def _flat(metrics: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The numbers in `metrics` with their names; nested tables (verl's counts of discarded groups) are flattened."""
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            yield from _flat({f"{name}/{key}": number for key, number in value.items()})
        else:
            yield name, float(value)


def _entropy(graded: Graded) -> float:
    """Mean entropy over the tokens of the groups whose entropy is known."""
    assert graded.entropy_PG is not None
    known_PG = ~graded.entropy_PG.isnan()
    return float((graded.entropy_PG * graded.length_PG)[known_PG].sum() / graded.length_PG[known_PG].sum())


def seconds(timing: Mapping[str, float]) -> dict[str, float]:
    """The seconds of a global step by phase, from verl's timers."""
    phases = dict.fromkeys(("sample", "probe", "update"), 0.0)
    for name, value in timing.items():
        if phase := PHASES.get(name):
            phases[phase] += value
    # verl's sampling timer includes the probes.
    phases["sample"] -= phases["probe"]
    return {**phases, "record": max(0.0, timing["step"] - sum(phases.values()))}
