"""`mcpo runs samples`: the rollouts that a run kept, correct and incorrect ones side by side."""

from collections import Counter
from functools import partial
from itertools import chain, islice, zip_longest
from textwrap import indent
from typing import TYPE_CHECKING, Annotated

import typer

from mcpo_cli.commands.reply import Reply, table, verb
from mcpo_cli.commands.verbs import RunId
from mcpo_cli.errors import ConfigError, mend, nearest
from mcpo_cli.home import location

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mcpo_cli.commands.reply import Part
    from mcpo_cli.runs.catalog import Run
    from mcpo_cli.runs.rollouts import KeptGroup
    from mcpo_cli.tasks import Task

Step = Annotated[int | None, typer.Option(help="Only this global step (default: newest first).", show_default=False)]
Least = Annotated[float, typer.Option("--min-accuracy", min=0, max=1, help="Only groups with at least this accuracy.")]
Most = Annotated[float, typer.Option("--max-accuracy", min=0, max=1, help="Only groups with at most this accuracy.")]
Tier = Annotated[
    str,
    typer.Option(metavar="TIER", help="Only training prompts as difficult as this held-out tier.", show_default=False),
]
Text = Annotated[
    str, typer.Option(help="Only groups whose prompt or a response contains this text.", show_default=False)
]
Groups = Annotated[int, typer.Option("--groups", min=1, help="Most prompt groups to show.")]


@verb("run_id, steps, groups (step, prompt, gold, accuracy, rollouts, ...)")
def samples(
    run_id: RunId,
    step: Step = None,
    min_accuracy: Least = 0.0,
    max_accuracy: Most = 1.0,
    tier: Tier = "",
    text: Text = "",
    groups: Groups = 4,
) -> Reply:
    """Show a run's recorded rollouts by prompt group: correct and incorrect ones side by side, equal ones counted."""
    from mcpo_cli.commands import console
    from mcpo_cli.runs import catalog, rollouts
    from mcpo_cli.runs.journal import Journal

    run = catalog.find(location(), run_id)
    journal = Journal(run.folder)
    task = run.spec.task
    _check_tier(tier, list(task.tier_sizes(run.spec.eval.problems)))
    steps = list(journal.files("samples"))
    if not steps:
        raise _kept_none(run)
    matching = (
        group
        for group in rollouts.groups(journal)
        if step in (None, group.step) and min_accuracy <= group.accuracy <= max_accuracy and group.has(text)
        if not tier or task.tier_of(group.prompt) == tier
    )
    selection = list(islice(matching, groups))
    document = {
        "run_id": run.spec.run_id,
        "steps": steps,
        "groups": [{**vars(group), "accuracy": group.accuracy} for group in selection],
    }
    if selection:
        return Reply(document, chain.from_iterable(map(_page, selection)))
    message = f"no such group; {run.spec.run_id} kept {_kept(task, list(rollouts.groups(journal)))}"
    return Reply(document, [partial(console.talk, message)])


def _check_tier(tier: str, tiers: "Sequence[str]") -> None:
    if tier and tier not in tiers:
        raise ConfigError(f"--tier {tier}: {nearest(tier, tiers)}", fix=mend("--tier {}", tier, tiers))


def _kept(task: "Task", groups: "Sequence[KeptGroup]") -> str:
    """The groups that the run kept, in words."""
    steps = ", ".join(map(str, sorted({group.step for group in groups})))
    accuracies = ", ".join(f"{accuracy:g}" for accuracy in sorted({group.accuracy for group in groups}))
    tiers = Counter(filter(None, (task.tier_of(group.prompt) for group in groups)))
    listed = ", ".join(f"{count} of {tier}" for tier, count in sorted(tiers.items()))
    return f"{len(groups)} groups{f' ({listed})' if listed else ''}, of the steps {steps}, with accuracies {accuracies}"


def _kept_none(run: "Run") -> ConfigError:
    if run.spec.compute.sample_groups:
        reason = "it has finished no evaluated step yet"
        return ConfigError(f"{run.spec.run_id} kept no rollouts: {reason}", fix=f"mcpo runs show {run.spec.run_id}")
    return ConfigError(
        f"{run.spec.run_id} kept no rollouts: it was trained with compute.sample_groups=0",
        fix="compute.sample_groups=2 keeps those of two prompts at each evaluated step of a new run",
    )


def _page(group: "KeptGroup") -> "Iterator[Part]":
    from mcpo_cli.runs.rollouts import counted

    right, wrong = len(group.right), len(group.wrong)
    prompt = group.prompt if "\n" not in group.prompt else f"\n{indent(group.prompt, '    ')}"
    yield f"step {group.step}, {right} of {right + wrong} correct: {prompt}\n  gold: {group.gold}"
    sides = [[(f"{n}x", _marked(text)) for n, text in counted(responses)] for responses in (group.right, group.wrong)]
    rows = [[*correct, *incorrect] for correct, incorrect in zip_longest(*sides, fillvalue=("", ""))]
    yield table(["", f"correct ({right})", "", f"incorrect ({wrong})"], rows)
    yield ""


def _marked(text: str) -> str:
    """`text` with a sign at each line break; a final line break does not begin a new line."""
    return text.replace("\n", "\u21b5\n").removesuffix("\n")
