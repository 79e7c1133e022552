"""The cost of a run's training so far: the axes on which runs are compared."""

from mcpo_cli.config import workload
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.config.workload import eval_steps
from mcpo_cli.records import AXES
from mcpo_cli.runs.journal import Journal


class Spent:
    """Running totals of a run over all its attempts, which every row of a global step records.

    `cost/rollouts`: rollouts sampled for training, also those of groups that dynamic sampling threw away.
    `cost/sampled_tokens`: their response tokens. `cost/trained_tokens`: tokens, the prompt's included, of the sequences
    that went through a forward and a backward pass. `cost/gradient_steps`: optimizer steps. `cost/flops`: operations
    that `workload.operations` estimates from these tokens. `cost/seconds`: seconds of sampling and update. Rollouts of
    probes and evaluations count nowhere, and neither does the time that they and the records take.
    """

    def __init__(self, spec: RunSpec, journal: Journal, step: int) -> None:
        """Continue from the totals that the journal holds of global step `step`; from 0 if it holds none."""
        rows = {row["step"]: row["metrics"] for row in journal.steps()}
        self._spec, self._step = spec, step
        self.totals = {name: rows[step][name] if step in rows else 0.0 for name in AXES}
        self._rollouts_before = 0.0

    def add(
        self, *, rollouts: int, sampled_tokens: int, trained_tokens: int, gradient_steps: int, seconds: float
    ) -> None:
        """Add one global step."""
        operations = workload.operations(self._spec, sampled_tokens, trained_tokens)
        own = (rollouts, sampled_tokens, trained_tokens, gradient_steps, operations, seconds)
        self._step, self._rollouts_before = self._step + 1, self.totals["cost/rollouts"]
        self.totals = {name: self.totals[name] + value for name, value in zip(AXES, own, strict=True)}

    @property
    def evaluation_due(self) -> bool:
        """Whether the policy is evaluated after the global step that was added last."""
        rollouts = {self._step - 1: self._rollouts_before, self._step: self.totals["cost/rollouts"]}
        return self._step in eval_steps(self._spec, rollouts)
