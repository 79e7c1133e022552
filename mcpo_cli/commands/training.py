"""The verbs that train: `mcpo train`, `ablate`, `branch` and `probe`."""

import shlex
from collections.abc import Mapping
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mcpo_cli.commands.reply import Reply, table, verb
from mcpo_cli.commands.verbs import (
    DryRun,
    Full,
    Overrides,
    RunId,
    SuiteOverrides,
    Verbose,
    complete_run_id,
    complete_suite_overrides,
    starting_with,
)
from mcpo_cli.errors import ConfigError
from mcpo_cli.home import location, run_dir

if TYPE_CHECKING:
    from mcpo_cli.analysis.render import Grid
    from mcpo_cli.config.plan import Plan

EXAMPLES = {
    "train": """\
\b
Examples:
  mcpo train scale=smoke                               every stage once, in seconds
  mcpo train method=mcpo model=toy-m seed=0,1,2        a sweep: one run per seed
  mcpo train method=dapo,mcpo train.lr=5e-4 --dry-run  the planned runs and their time
  mcpo train method.delta=0.02 regime=skills-drift     another drift budget and condition
  mcpo train table1 --dry-run                          the runs of a suite
  mcpo train table1 scale=paper --dry-run              on GPUs, at the paper's size""",
    "ablate": """\
\b
Examples:
  mcpo ablate                            the ablations of Table 2
  mcpo ablate why-reweight seed=0,1      another suite, with two seeds
  mcpo ablate ./mine.yaml --dry-run      the planned runs of a suite of your own""",
    "fork": """\
\b
Examples:
  mcpo fork dapo-toy-s-s0 --at 10 method=dapo,mcpo       the same first ten steps, then each method's own
  mcpo fork dapo-toy-s-s0 --at 10 train.lr=1e-4,3e-4     or each step size's""",
    "branch": """\
\b
Examples:
  mcpo branch toy                       eight arms, three states of six runs, at toy scale
  mcpo branch toy seed=0,1,2,3 --dry-run    which trunk runs, and for how long
  mcpo branch ./mine.yaml               a study of yours; docs/branching.md explains its file""",
    "probe": """\
\b
Examples:
  mcpo probe mastery                     mastered prompts in later steps, over its suite
  mcpo probe hinge RUN_ID                the records of one run
  mcpo probe atlas method=grpo,rloo      the gradients of methods, without a run""",
}
"""The end of the help of each verb; click does not wrap what follows `\\b`."""


@verb
def train(
    overrides: SuiteOverrides = None,
    dry_run: DryRun = False,
    verbose: Verbose = False,
) -> Reply:
    """Train one run, a sweep, or all runs of a suite. Completed runs are skipped, unfinished ones continue."""
    from mcpo_cli.commands import console
    from mcpo_cli.commands import dry_run as shown
    from mcpo_cli.config import plan
    from mcpo_cli.scheduling import start
    from mcpo_cli.scheduling.forecast import forecast

    suite, rest = plan.split_suite(overrides or [])
    chosen = plan.from_suite(suite, rest, f"mcpo train {shlex.quote(suite)}") if suite else plan.from_overrides(rest)
    expected = forecast(chosen)
    if dry_run:
        return shown.reply(expected, verbose=verbose)
    document = start.document(expected)
    after = {"records:": str(location() / "runs"), **next_steps(chosen)}
    return Reply(document, [runs_table(document), partial(console.talk_pairs, after)])


def runs_table(document: Mapping[str, Any]) -> "Grid":
    """The outcomes of `start.document`."""
    rows = [[run["run_id"], run["arm"], run["state"], *_scores(run["metrics"])] for run in document["runs"]]
    return table(["run", "arm", "state", "train accuracy", "eval pass@1"], rows)


def _scores(metrics: dict[str, float]) -> list[str]:
    evals = [value for name, value in metrics.items() if name.startswith("eval/") and name.endswith("/pass_at_1")]
    accuracy = metrics.get("train/accuracy")
    return ["-" if accuracy is None else f"{accuracy:.3f}", "-" if not evals else f"{sum(evals) / len(evals):.3f}"]


def next_steps(plan: "Plan") -> dict[str, str]:
    """The commands that show the runs of `plan` once they are done, by their subject."""
    run_id = plan.cells[0].spec.run_id
    if len({cell.arm for cell in plan.cells}) > 1:
        first = {"comparison:": plan.command.replace("mcpo train", "mcpo compare", 1)}
    else:
        first = {"curves:": f"mcpo runs show {run_id}"}
    return {**first, "answers:": f"mcpo runs samples {run_id}", "charts:": "mcpo ui"}


Until = Annotated[
    Literal["decided"] | None,
    typer.Option(
        help="decided: train 3, 6, then 12 seeds; stop once every arm's difference from the baseline has a verdict."
    ),
]


@verb
def ablate(
    overrides: SuiteOverrides = None,
    until: Until = None,
    full: Full = False,
    dry_run: DryRun = False,
    verbose: Verbose = False,
) -> Reply:
    """Train all arms of a suite and compare them. Default: table2 (MCPO, its two components left out, DAPO)."""
    from mcpo_cli.commands import dry_run as shown
    from mcpo_cli.config import plan
    from mcpo_cli.scheduling import start
    from mcpo_cli.scheduling.forecast import forecast

    named, rest = plan.split_suite(overrides or [])
    suite, command = named or "table2", f"mcpo ablate {named}".strip()
    if dry_run:
        return shown.reply(forecast(plan.from_suite(suite, rest, command)), verbose=verbose)
    from mcpo_cli.analysis.comparison import Choice
    from mcpo_cli.commands import build_artifacts, comparisons, seeds

    if until:
        document, rest = seeds.train_in_stages(suite, rest, command)
    else:
        document = start.document(forecast(plan.from_suite(suite, rest, command)))
    built = comparisons.suite(suite, rest, Choice())
    pages = (build_artifacts.page(one, full=full) for one in built)
    decided = seeds.decisions_page(document["decisions"]) if until else ()
    page = chain([runs_table(document)] if full else [], *pages, decided)
    return Reply({**document, "comparisons": [one.to_json() for one in built]}, page)


@verb
def fork(
    run_id: RunId,
    at: Annotated[int, typer.Option("--at", min=1, help="The global step that the forks share as their last.")],
    overrides: Overrides = None,
    dry_run: DryRun = False,
    verbose: Verbose = False,
) -> Reply:
    """Continue copies of a run from a global step, each with another method or step size; show what that changed."""
    from mcpo_cli.commands import dry_run as shown
    from mcpo_cli.config import forking
    from mcpo_cli.runs import catalog
    from mcpo_cli.scheduling import start
    from mcpo_cli.scheduling.forecast import forecast

    parent, words = catalog.find(location(), run_id).spec, overrides or []
    command = shlex.join(["mcpo", "fork", parent.run_id, "--at", str(at), *words])
    chosen = forking.plan(parent, at, words, command)
    if dry_run:
        return shown.reply(forecast(chosen), verbose=verbose)
    from mcpo_cli.commands import build_artifacts

    document = start.document(forecast(chosen))
    built = build_artifacts.build_forks(chosen, words)
    return Reply({**built.to_json(), **document}, build_artifacts.page(built, full=True))


def _complete_studies(incomplete: str) -> list[str]:
    from mcpo_cli.config import branching

    return starting_with(incomplete, branching.studies())


Study = Annotated[
    str,
    typer.Argument(metavar="STUDY|FILE", help="A branch study, or its YAML file.", autocompletion=_complete_studies),
]


@verb
def branch(study: Study, overrides: Overrides = None, dry_run: DryRun = False) -> Reply:
    """Compare what one global step of each arm does to mastered and held-out prompts, from the same saved states."""
    from mcpo_cli.commands import dry_run as shown
    from mcpo_cli.config import branching
    from mcpo_cli.scheduling.forecast import forecast

    words = overrides or []
    content, command = branching.read(study), shlex.join(["mcpo", "branch", study, *words])
    trunks = branching.trunks(content, words)
    if dry_run:
        return shown.reply(forecast(branching.plan(study, trunks, command)), verbose=False)
    from mcpo_cli.commands import build_artifacts

    for trunk in trunks:
        build_artifacts.measure_branches(study, trunk, command)
    built = build_artifacts.build_branches(study, content, trunks, words, command)
    document = {"study": study, "points": build_artifacts.branch_points(trunks), **built.to_json()}
    return Reply(document, build_artifacts.page(built, full=True))


def _complete_probes(incomplete: str) -> list[str]:
    from mcpo_cli import measures

    return starting_with(incomplete, measures.registry())


def _complete_targets(ctx: typer.Context, incomplete: str) -> list[str]:
    runs = [] if ctx.params.get("overrides") else complete_run_id(incomplete)
    return runs + complete_suite_overrides(ctx, incomplete)


ProbeName = Annotated[
    str,
    typer.Argument(
        metavar="PROBE",
        help="The question to ask; `mcpo components list probe` explains them all.",
        autocompletion=_complete_probes,
    ),
]
Target = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="RUN_ID...|CHECKPOINT...|SUITE|KEY=VALUE...",
        help="Runs or their checkpoints, a suite, or settings of new runs as for `mcpo train`.",
        autocompletion=_complete_targets,
    ),
]
Prompts = Annotated[
    int | None,
    typer.Option(
        min=1, help="Number of training problems to sample per checkpoint (default: all of a pool, else 1024)."
    ),
]


@verb
def probe(
    name: ProbeName,
    overrides: Target = None,
    prompts: Prompts = None,
    dry_run: DryRun = False,
    verbose: Verbose = False,
) -> Reply:
    """Answer one question from runs' records, from their checkpoints, from new diagnostic runs, or about methods."""
    from mcpo_cli import measures
    from mcpo_cli.commands import build_artifacts, console, publish
    from mcpo_cli.commands import dry_run as shown
    from mcpo_cli.measures import run as probe_run
    from mcpo_cli.runs.journal import Journal
    from mcpo_cli.scheduling import start
    from mcpo_cli.scheduling.forecast import forecast

    chosen, words = measures.get(name), overrides or []
    if targets := probe_run.targets(words, f"mcpo probe {name}"):
        if dry_run:
            raise ConfigError(
                "--dry-run shows runs that a probe would start; these exist already", fix="omit --dry-run"
            )
        measured = [probe_run.existing(chosen, target, prompts) for target in targets]
    else:
        if prompts:
            fix = f"mcpo probe {name} RUN_ID --prompts {prompts}"
            raise ConfigError("--prompts applies to an existing run or checkpoint", fix=fix)
        plan = probe_run.runs(chosen, words)
        if dry_run:
            return shown.reply(forecast(plan), verbose=verbose)
        if chosen.needs:
            start.train(forecast(plan))
            measured = [probe_run.measure(chosen, cell, Journal(run_dir(cell.spec.run_id))) for cell in plan.cells]
        else:
            measured = probe_run.without_runs(chosen, plan, console.talk)
    document = probe_run.document(chosen, measured)
    if chosen.needs:
        publish.publish_probe(chosen, measured, document)
    if built := build_artifacts.build_atlas(measured, words):
        document = built.to_json() | document
    if built:
        return Reply(document, build_artifacts.page(built, full=True))
    columns = ["regime", "model", "arm", "seeds"]
    rows = [
        [*(str(row[column]) for column in columns), *(probe_run.shown(row, name) for name in chosen.shows)]
        for row in document["arms"]
    ]
    legend = (
        f"{chosen.question} ± half a 95 % interval over seeds. With one seed, brackets show that run's interval. "
        "Full output: --json"
    )
    return Reply(document, [table([*columns, *chosen.shows], rows), partial(console.talk, legend)])
