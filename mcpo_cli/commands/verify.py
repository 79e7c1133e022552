"""`mcpo verify`: train global steps of a finished run again and compare them with its records."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mcpo_cli.commands.reply import Part, Reply, table, verb
from mcpo_cli.commands.verbs import DryRun, RunId
from mcpo_cli.errors import ConfigError, Differs, Interrupted
from mcpo_cli.home import home, location

if TYPE_CHECKING:
    from mcpo_cli.scheduling.spot_checks import Stretch, StretchResult

EXAMPLES = """\
\b
Examples:
  mcpo verify dapo-toy-s-s0                 three steps, drawn anew at each call
  mcpo verify dapo-toy-s-s0 --at 3,7        these steps
  mcpo verify dapo-toy-s-s0 --dry-run       from which checkpoints, and how long the steps took the run"""
SEEDS = 1 << 32
"""Number of possible seeds: large, so that the author of the records cannot predict which steps are drawn."""

Steps = Annotated[int, typer.Option("--steps", min=1, help="How many global steps to draw.")]
At = Annotated[str, typer.Option("--at", metavar="STEP,...", help="These global steps instead.", show_default=False)]
Seed = Annotated[
    int | None,
    typer.Option(min=0, help="Seed of the draw, to repeat it (default: a new one each time).", show_default=False),
]


@verb("run_id, asked, seed, steps_to_train, recorded_seconds, same, seconds, stretches, first_difference")
def verify(
    run_id: RunId,
    count: Steps = 3,
    at: At = "",
    seed: Seed = None,
    dry_run: DryRun = False,
) -> Reply:
    """Train random steps of a finished run again from its checkpoints; exit 5 if a record or weight differs."""
    from mcpo_cli.commands import console
    from mcpo_cli.runs import catalog
    from mcpo_cli.scheduling import spot_checks

    if wrong := [word for word in at.split(",") if at and not word.strip().isdecimal()]:
        raise ConfigError(f"--at {at}: {wrong[0]!r} is not the number of a global step", fix="--at 3,7")
    run = catalog.find(location(), run_id)
    spot_checks.check_run(run)
    seed = secrets.randbelow(SEEDS) if seed is None else seed
    steps = spot_checks.steps(run.spec, count, [int(word) for word in at.split(",") if at], seed)
    stretches = spot_checks.stretches(run, steps)
    document: dict[str, Any] = {
        "run_id": run.spec.run_id,
        "asked": steps,
        "seed": None if at else seed,
        "steps_to_train": sum(len(stretch.steps) for stretch in stretches),
        "recorded_seconds": spot_checks.recorded_seconds(run, stretches),
    }
    console.talk(_plan(document, stretches))
    if dry_run:
        return Reply(document)
    checked: list[StretchResult] = []
    began = time.monotonic()
    try:
        with console.progress(f"verifying {run.spec.run_id}", document["steps_to_train"], "steps") as advance:
            checked += spot_checks.check(run, stretches, home(), advance)
    except KeyboardInterrupt as error:
        raise Interrupted("stopped; nothing of the check is kept", fix=f"the same command, --seed {seed}") from error
    first = next((stretch.difference for stretch in checked if stretch.difference), None)
    document |= {
        "same": first is None,
        "seconds": time.monotonic() - began,
        "stretches": [stretch.to_json() for stretch in checked],
        "first_difference": first.to_json() if first else None,
    }
    failure, ending = None, [f"same: {document['steps_to_train']} global steps of {run.spec.run_id}, trained again"]
    if first:
        fix = f"mcpo verify {run.spec.run_id} --at {max(1, first.step)}  (checks that step again)"
        failure, ending = Differs(f"{run.spec.run_id} is not what training it again gives: {first}", fix=fix), []
    return Reply(document, [*_page(checked), *ending], failure)


def _plan(document: dict[str, Any], stretches: Sequence[Stretch]) -> str:
    """The steps that will be trained, and the time that the run took for them."""
    from mcpo_cli.commands.console import duration

    note = "" if document["seed"] is None else f" (drawn with --seed {document['seed']})"
    lines = [f"steps {', '.join(map(str, document['asked']))} of {document['run_id']}{note}"]
    for stretch in stretches:
        start = f"the checkpoint of step {stretch.start}" if stretch.start else "the base policy"
        length = f", {len(stretch.steps)} global steps" if len(stretch.steps) > len(stretch.asked) else ""
        lines.append(f"  step {', '.join(map(str, stretch.asked))} from {start}{length}")
    trained, took = document["steps_to_train"], duration(document["recorded_seconds"])
    return "\n".join([*lines, f"{trained} global steps to train; they took the run {took}, evaluations left out"])


def _page(checked: Sequence[StretchResult]) -> Iterator[Part]:
    """A row for each step that was trained, and how it was compared."""
    from mcpo_cli.commands.console import remark
    from mcpo_cli.runs.differences import TOLERANCE

    rows = []
    for stretch in checked:
        for step in stretch.to_json()["steps"]:
            weights = "yes" if step["weights_compared"] else "-"
            rows.append([str(step[name]) for name in ("step", "values", "differing")] + [weights])
    yield table(["step", "values", "differing", "weights compared"], rows)
    for exactly, reason in dict.fromkeys((stretch.exactly, stretch.why) for stretch in checked):
        precision = "bit by bit" if exactly else f"numbers within {TOLERANCE:g} of each other, and no weights' hash"
        yield remark(f"compared {precision}: {reason}")
