"""`mcpo evaluate`: evaluate a model on benchmarks."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from mcpo_cli.commands.options import Debug, DryRun, Json

EPILOG = """\
Settings, key=value: engine=hf|local|vllm n=8 temperature=0.7 top_p=1 max_tokens=20480 seed=0 prompt=dapo|boxed|plain
chat=auto|off revision=COMMIT protocol=paper data.path=FILE|FOLDER grading.timeout=5 compute.device=auto|cpu|cuda ...
The defaults are the paper's (Section 6.1)."""


def _complete_benchmarks(incomplete: str) -> list[str]:
    from mcpo_cli.evaluation import scope

    done, _, begun = incomplete.rpartition(",")
    before = f"{done}," if done else ""
    return [before + name for name in scope.known() if name.startswith(begun)]


Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="A run, a preset, a Hugging Face folder, or OWNER/NAME on the hub.")
]
Settings = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", help="Settings in Hydra's grammar, see below.", show_default=False),
]
Benchmarks = Annotated[
    str,
    typer.Option(
        metavar="NAME|NAME=FILE,...",
        help="Benchmarks (mcpo data list), files of your own, or tasks that generate problems (sums): held-out tiers.",
        autocompletion=_complete_benchmarks,
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(min=1, max=100_000, help="Use at most this many problems of each benchmark.", show_default=False),
]


def evaluate(
    model: Model,
    settings: Settings = None,
    benchmarks: Benchmarks = "aime24,aime25,amc23",
    limit: Limit = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Sample a model on benchmarks, grade, and report with intervals. Rerunning samples only what is missing."""
    from mcpo_cli.commands import console, print_evaluation
    from mcpo_cli.commands.publish import evaluation_publisher
    from mcpo_cli.config import load
    from mcpo_cli.config.evaluation import Evaluation
    from mcpo_cli.errors import Interrupted
    from mcpo_cli.evaluation import asking, protocol, run, scope

    chosen = load.settings(Evaluation, settings or [])
    subject = scope.subject(model, chosen.revision)
    protocol.check(protocol.Protocol(chosen, subject.facts, limit))
    loaded = scope.benchmarks(scope.split(benchmarks), subject, chosen, limit)
    plan = protocol.Protocol(chosen, subject.facts, limit, asking.of_tasks(loaded))
    protocol.check(plan)
    print_evaluation.announce(plan, loaded, str(run.folder(plan.eval_id)))
    if dry_run:
        missing = run.missing(plan, loaded)
        if as_json:
            about = {"label": plan.label, "deviations": plan.deviations(), "missing_problems": missing}
            console.print_json({"eval_id": plan.eval_id, "protocol": plan.document(), **about})
        else:
            lacking = [
                f"{left} of {len(benchmark.problems)} problems of {benchmark.name}"
                for benchmark, left in zip(loaded, missing.values(), strict=True)
            ]
            console.print_text(f"{plan.eval_id}: {plan.label}; to be sampled: {', '.join(lacking)}")
        return
    publish = evaluation_publisher(chosen.compute.tracking_uri, console.talk)
    try:
        with _terminable():
            results = run.evaluate(plan, loaded, console.progress)
    except KeyboardInterrupt as error:
        raise Interrupted("stopped; all samples so far are kept", fix="the same command continues") from error
    publish(run.folder(plan.eval_id))
    if as_json:
        console.print_json(results)
    else:
        print_evaluation.show(results)


@contextmanager
def _terminable() -> Iterator[None]:
    """Make SIGTERM end the block as Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
