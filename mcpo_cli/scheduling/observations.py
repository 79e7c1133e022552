"""Observations: a run begun again at its saved states, without a gradient step, so that probes can read its rollouts.

`runs/<run>/probes/...` holds their records: attempts, as a run's folder does.
"""

from pathlib import Path

from mcpo_cli.errors import ConfigError
from mcpo_cli.runs import origins
from mcpo_cli.runs.catalog import Run


def observe(run: Run, step: int | None, prompts: int) -> Path:
    """The folder with records of the first `prompts` training problems under checkpoints of `run`; made once.

    step: of the only checkpoint to sample under; None means all checkpoints that the run has kept.

    Raises:
        ConfigError: the run has no such checkpoint, or no checkpoint that a run can begin at.
    """
    from mcpo_cli.backends.local import observe as engine  # not above: it imports torch

    origins.check_backend(run.spec)
    steps = [kept_step for kept_step in origins.kept(run.folder) if step in (None, kept_step)]
    if not steps:
        raise ConfigError(
            f"{run.spec.run_id} has no complete checkpoint" + ("" if step is None else f" of step {step}"),
            fix=f"mcpo runs show {run.spec.run_id}",
        )
    folder = run.folder / "probes" / f"steps_{'_'.join(map(str, steps))}_prompts_{prompts}"
    origins.record_once(folder, run.spec, lambda attempt: engine.observe(run.spec, attempt, run.folder, steps, prompts))
    return folder
