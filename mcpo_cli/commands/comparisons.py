"""The runs that the words of a verb name, and the comparison of their arms; for `mcpo compare`, `ablate` and probes."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace

from mcpo_cli.analysis.comparison import Choice, Row, compare, records
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.product import Artifact
from mcpo_cli.analysis.tables import comparison
from mcpo_cli.commands import console
from mcpo_cli.commands.publish import publish_artifacts
from mcpo_cli.config import plan, presets
from mcpo_cli.config.plan import Plan
from mcpo_cli.errors import ConfigError
from mcpo_cli.home import home, location
from mcpo_cli.report import artifacts
from mcpo_cli.report.artifacts import ArtifactBuilder, BuiltArtifact
from mcpo_cli.runs import catalog


def plan_of(words: Sequence[str], command: str) -> Plan:
    """The plan of the runs that `words` name, whether they are done or not. command: the verb that takes the words.

    Raises:
        ConfigError: see `parted`; or there is no such suite, setting or run.
    """
    named, overrides = parted(words, command)
    if not named:
        return plan.from_overrides(overrides)
    if plan.is_suite(named[0]):
        return plan.from_suite(named[0], overrides, f"mcpo ablate {shlex.quote(named[0])}")
    return catalog.plan_of(location(), named, command)


def all_done(command: str) -> Plan:
    """The plan of all done runs of MCPO_HOME. command: the verb that asks for them.

    Raises:
        ConfigError: no run is done.
    """
    reasons: dict[str, str] = {}
    cells = tuple(run.cell for run in catalog.runs(location(), reasons.__setitem__) if run.state == "done")
    if reasons:
        console.talk(catalog.left_out(reasons))
    if not cells:
        raise ConfigError(f"no done runs in {location()}", fix="mcpo train scale=smoke")
    return Plan("runs", command, cells)


def parted(words: Sequence[str], command: str) -> tuple[list[str], list[str]]:
    """The suite or runs that `words` begin with, and the overrides after them; no name where all words are settings.

    Raises:
        ConfigError: there are no words, or a suite and something else, or runs and overrides.
    """
    words = plan.expanded(words)
    named, overrides = [word for word in words if "=" not in word], [word for word in words if "=" in word]
    suites = [word for word in named if plan.is_suite(word)]
    fix = f"{command} table1, or: {command} RUN_ID RUN_ID (mcpo runs list)"
    if not words:
        raise ConfigError("name a suite, settings or runs", fix=fix)
    if len(suites) > 1 or (suites and len(named) > 1):
        raise ConfigError(f"name one suite, or several runs, not {', '.join(named)}", fix=fix)
    if overrides and named and not suites:
        raise ConfigError(f"{named[0]} is an existing run: its settings cannot be changed", fix=fix)
    return named, overrides


def of_words(words: Sequence[str], choice: Choice) -> list[BuiltArtifact]:
    """Build and publish the comparison of the arms that the words name, one for each regime.

    Raises:
        ConfigError: no such suite, setting, run, arm, metric or axis; or the runs do not share seeds and problems.
        MissingCells: a run is not done.
    """
    named, overrides = parted(words, "mcpo compare")
    if named and plan.is_suite(named[0]):
        return suite(named[0], overrides, choice)
    whole = plan_of(words, "mcpo compare")
    parts = by_regime(whole)
    names = {regime: _slug("compare", part.plan_id, *_choices(choice)) for regime, part in parts.items()}
    return [
        _make(comparison.of_runs(part, names[regime], choice), part, [], words, choice)
        for regime, part in parts.items()
    ]


def suite(name: str, overrides: Sequence[str], choice: Choice) -> list[BuiltArtifact]:
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
    publish_artifacts([(whole, built)])
    return built


def by_regime(whole: Plan) -> dict[str, Plan]:
    """The plan of each regime: a comparison covers one regime."""
    regimes = dict.fromkeys(cell.spec.regime for cell in whole.cells)
    return {
        regime: replace(whole, cells=tuple(cell for cell in whole.cells if cell.spec.regime == regime))
        for regime in regimes
    }


def chosen(name: str, choice: Choice) -> Choice:
    """The choice, with the suite's own choice for empty fields."""
    about = plan.read(name)
    return replace(choice, baseline=choice.baseline or about.baseline, metric=choice.metric or about.metric)


def headline(whole: Plan, choice: Choice) -> list[Row]:
    """The headline's differences of the done runs of a plan (`Comparison.differences`), with their regimes.

    Raises:
        MissingCells: a run is not done.
    """
    return [
        {"regime": regime, **one}
        for regime, part in by_regime(whole).items()
        for one in records(compare(Runs(part), choice).headline)
    ]


def _named(name: str, choice: Choice, regime: str) -> Artifact:
    """The suite's table; for another choice, or if an artifact has the suite's name, a separate comparison."""
    stem = presets.stem(name)
    declared = artifacts.declared().get(stem)
    if choice == Choice() and not regime and (declared is None or declared.failed_too):
        return comparison.comparison(name)
    return comparison.comparison(name, choice, _slug("compare", stem, *_choices(choice), regime))


def _make(
    artifact: Artifact, whole: Plan, overrides: Sequence[str], words: Sequence[str], choice: Choice
) -> BuiltArtifact:
    plans = {artifact.needs[0]: whole}
    made = ArtifactBuilder(plans, home() / "reports", whole.cells[0].spec.scale, overrides)
    if artifact.name == presets.stem(artifact.needs[0]):
        return made.build(artifact.needs[0])
    return made.make(artifact, shlex.join(["mcpo", "compare", *words, *_options(choice)]))


def _options(choice: Choice) -> list[str]:
    given = [("--baseline", choice.baseline), ("--metric", choice.metric), *(("--at", at) for at in choice.at)]
    return [word for option, value in given if value for word in (option, value)]


def _choices(choice: Choice) -> list[str]:
    return [choice.baseline, choice.metric, *choice.at]


def _slug(*words: str) -> str:
    """The words as a file name."""
    return "-".join(filter(None, (re.sub(r"[^a-z0-9]+", "-", word.lower()).strip("-") for word in words)))
