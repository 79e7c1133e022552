"""Compare the arms of a suite, or single runs; shared by `mcpo compare` and `mcpo ablate`."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace

from mcpo_cli.analysis import artifacts
from mcpo_cli.analysis.artifacts import Built, Workshop
from mcpo_cli.analysis.comparison import Choice, Difference, compare
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.product import Artifact
from mcpo_cli.analysis.tables import base
from mcpo_cli.commands import build_artifacts
from mcpo_cli.config import load, plan
from mcpo_cli.config.plan import Cell, Plan
from mcpo_cli.errors import ConfigError
from mcpo_cli.home import home, location
from mcpo_cli.runs import catalog


def suite(name: str, overrides: Sequence[str], choice: Choice) -> list[Built]:
    """Build and publish the comparison of the suite's arms, one for each regime.

    Raises:
        ConfigError: no such suite, arm, metric or axis, or bad overrides.
        MissingCells: a run is not done.
    """
    whole = plan.from_suite(name, overrides, f"mcpo ablate {shlex.quote(name)}")
    parts, built = by_regime(whole), []
    for regime, part in parts.items():
        asked = [*overrides, f"regime={regime}"] if len(parts) > 1 else list(overrides)
        artifact = _named(name, choice, regime if len(parts) > 1 else "")
        built.append(_make(artifact, part, asked, [name, *asked], choice))
    build_artifacts.publish_suite(whole, built)
    return built


def by_regime(whole: Plan) -> dict[str, Plan]:
    """The plan of each regime: a comparison is about one."""
    regimes = dict.fromkeys(cell.spec.regime for cell in whole.cells)
    return {
        regime: replace(whole, cells=tuple(cell for cell in whole.cells if cell.spec.regime == regime))
        for regime in regimes
    }


def chosen(name: str, choice: Choice) -> Choice:
    """The choice with what the suite says in the place of what it leaves open."""
    about = plan.read(name)
    return replace(choice, baseline=choice.baseline or about.baseline, metric=choice.metric or about.metric)


def headline(whole: Plan, choice: Choice) -> list[tuple[str, Difference]]:
    """The headline's differences of the done runs of a plan, with their regimes; nothing is written.

    Raises:
        MissingCells: a run is not done.
    """
    return [(regime, one) for regime, part in by_regime(whole).items() for one in compare(Runs(part), choice).headline]


def runs(ids: Sequence[str], choice: Choice) -> list[Built]:
    """Build and publish the comparison of single runs, by the ids or the beginnings of ids.

    Raises:
        ConfigError: no such run, arm, metric or axis; or the runs do not share model, seeds and problems.
        MissingCells: a run is not done.
    """
    found = [catalog.find(location(), wanted) for wanted in ids]
    cells = [Cell(run.origin.get("arm", run.spec.method.label), run.spec) for run in found]
    names = {(cell.arm, cell.spec.model.name, cell.spec.seed_of_base, cell.spec.seed) for cell in cells}
    if len(names) < len(cells):
        # Runs of one method that differ in a setting: the ids tell them apart.
        cells = [replace(cell, arm=f"{cell.arm} {cell.spec.run_id[-4:]}") for cell in cells]
    whole = Plan("runs", shlex.join(["mcpo", "compare", *ids]), tuple(cells))
    name = _slug("compare", whole.plan_id, *_words(choice))
    return [_make(base.of_runs(whole.suite, name, choice), whole, [], list(ids), choice)]


def _named(name: str, choice: Choice, regime: str) -> Artifact:
    """The suite's table, or the comparison beside it where another is asked for or the name is another artifact's."""
    stem = load.stem(name)
    if choice == Choice() and not regime and (stem in base.PLACES or stem not in artifacts.declared()):
        return base.comparison(name)
    return base.comparison(name, choice, _slug("compare", stem, *_words(choice), regime))


def _make(artifact: Artifact, whole: Plan, overrides: Sequence[str], words: Sequence[str], choice: Choice) -> Built:
    plans = {artifact.needs[0]: whole}
    made = Workshop(plans, home() / "reports", whole.cells[0].spec.scale, overrides)
    if artifact.name == load.stem(artifact.needs[0]):
        return made.build(artifact.needs[0])
    return made.make(artifact, shlex.join(["mcpo", "compare", *words, *_options(choice)]))


def _options(choice: Choice) -> list[str]:
    given = [("--baseline", choice.baseline), ("--metric", choice.metric), *(("--at", at) for at in choice.at)]
    return [word for option, value in given if value for word in (option, value)]


def _words(choice: Choice) -> list[str]:
    return [choice.baseline, choice.metric, *choice.at]


def _slug(*words: str) -> str:
    """The words as a file name."""
    return "-".join(filter(None, (re.sub(r"[^a-z0-9]+", "-", word.lower()).strip("-") for word in words)))


def parted(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The suite or runs that `words` begin with, and the overrides after them.

    Raises:
        ConfigError: nothing is named, or a suite stands beside something else, or runs beside overrides.
    """
    named, overrides = [word for word in words if "=" not in word], [word for word in words if "=" in word]
    suites = [word for word in named if plan.is_suite(word)]
    fix = "mcpo compare table1, or: mcpo compare RUN_ID RUN_ID (mcpo runs list)"
    if not named:
        raise ConfigError("name a suite or the runs to compare", fix=fix)
    if len(suites) > 1 or (suites and len(named) > 1):
        raise ConfigError(f"compare one suite, or several runs, not {', '.join(named)}", fix=fix)
    if overrides and not suites:
        raise ConfigError(f"{named[0]} is an existing run: its settings cannot be changed", fix=fix)
    return named, overrides


def show(built: Sequence[Built]) -> None:
    """Print the comparisons, whole."""
    for one in built:
        build_artifacts.show(one, whole=True)
