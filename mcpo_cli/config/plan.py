"""Turns overrides or a suite into a list of runs. Every command that starts runs uses this module."""

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import chain
from pathlib import Path
from typing import Any

from mcpo_cli import paths, plugins, redaction
from mcpo_cli.config import arm_names, load, presets, reading
from mcpo_cli.config.reading import MAX_VALUES, key_of, read_yaml
from mcpo_cli.config.schema import RunSpec, digest
from mcpo_cli.config.words import as_overrides, spelled_out, sweep
from mcpo_cli.convert import convert
from mcpo_cli.errors import ConfigError, mend, nearest, similar

SMALLEST_EFFECT = 0.02
"""The smallest difference that matters, unless a suite says otherwise: two points of pass@1."""


@dataclass(frozen=True)
class PlannedRun:
    """One run of a plan, with the name of its arm (see `arm_names.names`)."""

    arm: str
    spec: RunSpec


@dataclass(frozen=True)
class Plan:
    """Runs that belong together."""

    suite: str
    """The name of the runs' MLflow experiment."""
    command: str
    """The command that continues the runs."""
    runs: tuple[PlannedRun, ...]
    same: Mapping[str, str] = field(default_factory=dict)
    """Maps an arm to an earlier arm with the same settings: both are the same runs, listed once."""

    def __repr__(self) -> str:
        return f"Plan({self.suite}: {len(self.runs)} runs)"

    @property
    def plan_id(self) -> str:
        """The id of this set of runs, independent of their order."""
        return digest(sorted(run.spec.run_id for run in self.runs))

    @property
    def equal_arms(self) -> list[str]:
        """A sentence for each arm of `same`, without its full stop."""
        return [f"{arm} and {first} have equal settings and are the same runs" for arm, first in self.same.items()]


@dataclass(frozen=True)
class Suite:
    """The content of a suite's file."""

    arms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The overrides of each arm, by the arm's name."""
    title: str = ""
    """Title: the comparison in a few words."""
    question: str = ""
    """The question that its result answers."""
    table: bool = False
    """Whether a table of the suite's name shows its result: `mcpo reproduce` prints it."""
    baseline: str = ""
    """The arm that its comparison compares the others with; empty for the first."""
    metric: str = ""
    """The metric of its comparison's headline; empty for pass@1."""
    smallest_effect: float = field(default=SMALLEST_EFFECT, metadata={"gt": 0.0})
    """The smallest difference of the metric that matters; the number of needed seeds is computed for it."""
    sweep: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """The values to sweep, by key."""
    sweep_at_scale: Mapping[str, Mapping[str, tuple[Any, ...]]] = field(default_factory=dict)
    """By the scale's name: values that replace the values in `sweep` at that scale."""

    def swept(self, overrides: Sequence[str], given: Collection[str]) -> list[str]:
        """The sweeps at the scale that `overrides` choose, without the settings `given`."""
        return sweeps({**self.sweep, **self.sweep_at_scale.get(load.chosen("scale", overrides), {})}, given)

    def contradicted(self, overrides: Sequence[str]) -> list[str]:
        """The settings of `overrides` in which the arms differ: they cannot be set for all arms."""
        arm_keys = {key_of(text) for arm in self.arms.values() for text in arm}
        return sorted(arm_keys & {key_of(text) for text in overrides})


def sweeps(values: Mapping[str, Sequence[Any]], given: Collection[str]) -> list[str]:
    """The values to sweep as overrides, without the settings `given`."""
    return [sweep(key, swept) for key, swept in values.items() if key not in given]


def from_overrides(overrides: Sequence[str]) -> Plan:
    """The plan of `mcpo train OVERRIDES`: one run, or the product of the sweeps.

    Raises:
        ConfigError: invalid overrides.
    """
    (specs,) = load.load_all([spelled_out(overrides)])
    return of_specs("train", specs, shlex.join(["mcpo", "train", *overrides]))


def of_specs(suite: str, specs: Sequence[RunSpec], command: str, labels: Sequence[str | None] = ()) -> Plan:
    """The plan of the runs of `specs`, each once: the first of equal runs stays.

    labels: the name of each run's arm; by default the label of its method, and the settings in which the run differs.
    """
    arms, runs = arm_names.names(labels or [None] * len(specs), specs), dict[str, PlannedRun]()
    for arm, spec in zip(arms, specs, strict=True):
        runs.setdefault(spec.run_id, PlannedRun(arm, spec))
    run_arms = {run.arm for run in runs.values()}
    earlier_arms = {arm: runs[spec.run_id].arm for arm, spec in zip(arms, specs, strict=True) if arm not in run_arms}
    return Plan(suite, command, tuple(runs.values()), earlier_arms)


def from_suite(name: str, overrides: Sequence[str], command: str) -> Plan:
    """The plan of the suite `name` (see `read`); `overrides` replace its sweeps and settings.

    Raises:
        ConfigError: no such suite, invalid overrides, or an override of a setting in which the arms differ.
    """
    suite, overrides = read(name), spelled_out(overrides)
    override_keys = {key_of(text) for text in overrides}
    for key in suite.contradicted(overrides):
        text = next(text for text in overrides if key_of(text) == key)
        suite_note = "" if name in command else f", a suite of {command},"
        raise ConfigError(
            f"the arms of {name}{suite_note} differ in {key}, so it cannot be set for all of them",
            fix=f"mcpo train {text}  (without the suite)",
        )
    for arm, settings in suite.arms.items():
        try:
            load.expand(settings)
        except ConfigError as error:
            message = f"{file(name)}: arms.{arm}: {error.message}"
            raise ConfigError(message, fix=error.fix, code=error.code) from error
    if "model.path" in override_keys:
        override_keys.add("model")  # a folder takes the place of the models of the suite
    words = [[*suite.swept(combination, override_keys), *combination] for combination in by_scale(overrides)]
    planned = [(arm, [*settings, *others]) for arm, settings in suite.arms.items() for others in words]
    spec_lists = load.load_all(settings for _, settings in planned)
    labels = [arm for (arm, _), specs in zip(planned, spec_lists, strict=True) for _ in specs]
    specs, command = [*chain.from_iterable(spec_lists)], f"{command} {shlex.join(overrides)}".strip()
    return of_specs(presets.stem(name), specs, command, labels)


def by_scale(overrides: Sequence[str]) -> list[list[str]]:
    """`overrides` once for each combination of the presets that choose the scale, on which a suite's sweeps depend."""
    others = [text for text in overrides if key_of(text) not in load.CHOOSE_SCALE]
    choosing = load.expand([text for text in overrides if key_of(text) in load.CHOOSE_SCALE])
    return [[*combination, *others] for combination in choosing]


def split_suite(words: Sequence[str]) -> tuple[str, list[str]]:
    """Splits off a leading suite name: that name (empty if there is none) and the overrides."""
    words = expanded(words)
    # The reader of overrides reports a setting without its value, and the right form.
    settings = presets.keys()
    suite_words = words[:1] if words and "=" not in words[0] and words[0] not in settings else []
    return "".join(suite_words), list(words[len(suite_words) :])


def expanded(words: Sequence[str]) -> list[str]:
    """The words, with a method's name or a file of settings at the beginning replaced by its settings."""
    first_word, other_words = "".join(words[:1]), list(words[1:])
    if first_word in presets.groups()["method"] and first_word not in suites():
        return [f"method={first_word}", *other_words]
    if "=" in first_word or not presets.is_file(first_word):
        return list(words)
    suite_keys = {"claims", *(field.name for field in fields(Suite))}
    if not (content := read_yaml(paths.named(first_word))).keys() & suite_keys:
        word_keys = {key_of(word) for word in other_words}
        return [*(text for text in as_overrides(content) if key_of(text) not in word_keys), *other_words]
    return list(words)


def suites() -> dict[str, Path]:
    """The files of all suites, of mcpo and of plug-ins, by name."""
    return presets.files("suites/*.yaml")


def is_suite(word: str) -> bool:
    """True if `word` is the name or the file of a suite."""
    return presets.is_file(word) or word in suites()


def file(name: str) -> Path:
    """The file of the suite `name`, which may itself be a path.

    Raises:
        ConfigError: there is no such suite, or another suite has the same name as that file.
    """
    files = suites()
    if not presets.is_file(name):
        if name not in files:
            if name.startswith(("~", "+")) or reading.SPACED.fullmatch(name):
                reading.read(name)  # refuses seed:1, and all actions of Hydra on a setting except changing it
            # The first word may also be a method (`expanded`), but a list of all methods would not help.
            words = [*files, *presets.groups()["method"]]
            candidates = words if similar(name, words) else files
            raise ConfigError(
                f"unknown suite '{name}': {nearest(name, candidates)}",
                fix=mend("mcpo train {}", name, candidates, "mcpo components list suite"),
                code="unknown_name",
            )
        return files[name]
    path = paths.named(name)
    if path.stem in files and files[path.stem].resolve() != path.resolve():
        raise plugins.taken(f"suite '{path.stem}'", files[path.stem], path)
    return path


def read(name: str) -> Suite:
    """The suite `name`.

    Raises:
        ConfigError: see `file`; or the file is not a valid suite.
    """
    path = file(name)
    data = read_yaml(path)
    try:
        suite = convert(Suite, data, "")
        if not suite.arms:
            raise ConfigError("arms: at least one is needed", fix="arms: {NAME: [method=mcpo]}")
        if len(suite.arms) > MAX_VALUES:
            raise ConfigError(f"arms: {len(suite.arms)}, of at most {MAX_VALUES}", fix="several suites")
        if heading := redaction.unfit_heading([*suite.arms, suite.title]):
            raise ConfigError(f"the name of an arm or the title cannot be shown: {heading}", fix=redaction.HEADING_FIX)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}", fix=error.fix, code=error.code) from error
    return suite


def about(suite: str) -> tuple[str, str]:
    """Title and question of a suite; both empty for any other name, such as `train` of `mcpo train`."""
    content = read(suite) if suite in suites() else Suite()
    return content.title, content.question
