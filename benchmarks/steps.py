"""Steps of real runs of both models, at the base policy and at a better one; and TRL from the better one on.

The base policies come from MCPO_HOME, or are made and kept there; this is not timed.
"""

import statistics
from collections.abc import Iterator
from importlib.metadata import version

from benchmarks import engine, flops, opponent, rows, workload
from mcpo_cli.config.load import load

FIRST, LATER = range(1, 4), range(13, 16)
"""The steps whose medians are the times at the base policy and at step 15."""
MODELS = ("toy-s", "toy-m")
METHODS = ("dapo", "mcpo")
TRL_STEPS = 3


def real(*settings: str) -> engine.RealRun:
    """A run from its base policy on, in the paper's shape."""
    (spec,) = load(["regime=paper-shaped", f"compute.threads={workload.THREADS}", *settings])
    return engine.RealRun(spec)


def of_runs() -> Iterator[rows.Measurement]:
    """Seconds of a step and the share of the CPU's peak, by model and method."""
    for model in MODELS:
        for method in METHODS:
            yield "step of a run", {"model": model, "method": method}, _of_run(model, method)


def _of_run(model: str, method: str) -> dict[str, float]:
    run = real(f"model={model}", f"method={method}")
    found = dict[str, float]()
    done = [(run.seconds(), run.needed, flops.peak()) for _ in range(LATER.stop - 1)]
    for name, steps in (("base", FIRST), ("step_15", LATER)):
        chosen = [done[step - 1] for step in steps]
        found[f"{name}_seconds"] = statistics.median(seconds for seconds, _, _ in chosen)
        found[f"{name}_flops_share"] = statistics.median(needed / seconds / peak for seconds, needed, peak in chosen)
    return found


def against_trl() -> Iterator[rows.Measurement]:
    """A step of GRPO at step 15 of a run with toy-s: TRL continues from there, and takes turns with the run itself."""
    run = real("model=toy-s", "method=grpo", "probe.every=0", "probe.panel_every=0", "probe.gradients_every=0")
    while run.step < LATER.stop - 1:
        run.seconds()
    ours: list[float] = []
    trl = statistics.median(opponent.seconds(TRL_STEPS, lambda: ours.append(run.seconds()), run))
    local = statistics.median(ours)
    numbers = {"trl_ratio": trl / local, "trl_seconds": trl, "local_seconds": local}
    yield "step against TRL, at step 15", {"model": "toy-s", "trl": version("trl")}, numbers
