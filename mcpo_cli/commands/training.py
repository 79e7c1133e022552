"""The verbs `mcpo train` and `mcpo ablate`."""

import shlex
from collections.abc import Mapping
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mcpo_cli.commands.reply import Reply, table, verb
from mcpo_cli.commands.verbs import DryRun, Full, SuiteOverrides, Verbose
from mcpo_cli.errors import ConfigError
from mcpo_cli.home import location

if TYPE_CHECKING:
    from mcpo_cli.config.plan import Plan
    from mcpo_cli.render.markup import Grid

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
  mcpo ablate table1 seed=0,1            another suite, with two seeds
  mcpo ablate ./mine.yaml --dry-run      the planned runs of a suite of your own""",
}
"""The end of the help of each verb; click does not wrap what follows `\\b`."""


@verb("suite, home, runs (run_id, arm, state, metrics, ...); with --dry-run also command, estimate")
def train(
    overrides: SuiteOverrides = None,
    dry_run: DryRun = False,
    verbose: Verbose = False,
) -> Reply:
    """Train one run, a sweep, or all runs of a suite. Completed runs are skipped, unfinished ones continue."""
    from mcpo_cli.config import plan

    suite, words = plan.split_suite(overrides or [])
    runs = plan.from_suite(suite, words, f"mcpo train {shlex.quote(suite)}") if suite else plan.from_overrides(words)
    return execute(runs, dry=dry_run, verbose=verbose)


def execute(plan: "Plan", *, dry: bool, verbose: bool) -> Reply:
    """Train the runs of `plan` that are not done; on a dry run, show all of them instead."""
    from mcpo_cli.commands import console, dry_run
    from mcpo_cli.scheduling import outcome, start

    if dry:
        return dry_run.show_plan(plan, verbose=verbose)
    outcomes = start.train(plan)
    document = outcome.document(plan, outcomes)
    after = {"records:": str(location() / "runs"), **next_steps(plan)}
    return Reply(document, [runs_table(document, plan), partial(console.talk_pairs, after)])


def runs_table(document: Mapping[str, Any], plan: "Plan") -> "Grid":
    """The outcomes of `outcome.document`; with a reward of the user's, also its mean."""
    with_reward = any(planned.spec.train.reward != "verdict" for planned in plan.runs)
    columns = {"train accuracy": "train/accuracy", **({"train reward": "train/reward"} if with_reward else {})}
    rows = []
    for run in document["runs"]:
        metrics = run["metrics"]
        evals = [value for name, value in metrics.items() if name.startswith("eval/") and name.endswith("/pass_at_1")]
        values = [metrics.get(name) for name in columns.values()] + [sum(evals) / len(evals) if evals else None]
        scores = ["-" if value is None else f"{value:.3f}" for value in values]
        rows.append([run["run_id"], run["arm"], run["state"], *scores])
    return table(["run", "arm", "state", *columns, "eval pass@1"], rows)


def next_steps(plan: "Plan") -> dict[str, str]:
    """The commands that show the runs of `plan` once they are done, by their subject."""
    run_id = plan.runs[0].spec.run_id
    if len({run.arm for run in plan.runs}) > 1:
        first = {"comparison:": plan.command.replace("mcpo train", "mcpo compare", 1)}
    else:
        first = {"curves:": f"mcpo runs show {run_id}"}
    return {**first, "answers:": f"mcpo runs samples {run_id}", "charts:": "mcpo ui"}


Until = Annotated[
    Literal["decided"] | None,
    typer.Option(
        help="decided: train 4, 8, then 12 seeds; stop once every arm's difference from the baseline has a verdict."
    ),
]


@verb("suite, home, runs, comparisons as of `mcpo compare`; with --until decided also decisions, seeds")
def ablate(
    overrides: SuiteOverrides = None,
    until: Until = None,
    full: Full = False,
    dry_run: DryRun = False,
    verbose: Verbose = False,
) -> Reply:
    """Train all arms of a suite and compare them. Default: table2 (MCPO, its two components left out, DAPO)."""
    from mcpo_cli.config import plan
    from mcpo_cli.config.reading import without_seeds

    name, words = plan.split_suite(overrides or [])
    suite, command = name or "table2", f"mcpo ablate {name}".strip()
    if until and dry_run:
        raise ConfigError(
            "--dry-run shows one plan, and --until decided has one for each stage of seeds; that of the first",
            fix=shlex.join([*command.split(), *without_seeds(words), "seed=0,1,2,3", "--dry-run"]),
            code="contradiction",
        )
    if dry_run:
        return execute(plan.from_suite(suite, words, command), dry=True, verbose=verbose)
    from mcpo_cli.commands import comparison
    from mcpo_cli.compare import stages, subjects
    from mcpo_cli.compare.comparison import Question
    from mcpo_cli.scheduling import outcome, start

    if until:
        document, words = stages.train_in_stages(suite, words, command)
        trained = plan.from_suite(suite, words, command)
    else:
        trained = plan.from_suite(suite, words, command)
        document = outcome.document(trained, start.train(trained))
    answers = subjects.of_plan(trained, suite, Question())
    compared = comparison.shown(answers, (suite, words), comparison.Destination(), full=full)
    page = chain([runs_table(document, trained)] if full else [], compared.page)
    if until:
        head = "\nBy stages, which keep the level .05 together; the tables above test these seeds once:"
        page = chain(page, [head, stages.decisions_grid(document["decisions"])])
    return Reply({**document, **compared.document}, page)
