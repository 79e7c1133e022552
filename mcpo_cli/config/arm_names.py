"""Names the arms of runs: a suite's name or the method's, then the settings in which runs of that name differ."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mcpo_cli.config.schema import RunSpec

COLUMNS = ("model.name", "regime")
"""Settings with their own columns in every table: runs are compared within a model and a regime."""
PRESETS = ("model.name", "regime", "scale", "task.name", "sampler.name", "backend")
"""Settings that change others: an arm's name needs a difference only between runs that share these settings."""
SEEDS = {"seed", "base_seed"}
"""Runs of one arm differ in them."""
Settings = Mapping[str, Any]


def names(labels: Sequence[str | None], specs: Sequence[RunSpec], columns: Sequence[str] = COLUMNS) -> list[str]:
    """The arm of each run, such as `mcpo delta=0.01`; runs that differ only in their seeds have the same arm.

    Args:
        labels: the suite's name of each run's arm. None: the method's label, which does not cover settings outside
            of the method, so these are compared with those of all other runs without a name.
        specs: the settings of each run.
        columns: settings that have their own columns and are not part of the arm's name.
    """
    settings = [spec.flat_identity(later_too=True) for spec in specs]
    return of_settings(labels, [spec.method.label for spec in specs], settings, columns)


def of_settings(
    labels: Sequence[str | None], methods: Sequence[str], settings: Sequence[Settings], columns: Sequence[str] = COLUMNS
) -> list[str]:
    """`names` of runs whose specs are not at hand. methods: their labels; settings: all that decide the result."""
    called = [label or method for label, method in zip(labels, methods, strict=True)]
    # Runs of an arm may share one mapping, which is then compared once.
    same_name = defaultdict[str, dict[int, Settings]](dict)
    unnamed = dict[int, Settings]()
    for label, name, values in zip(labels, called, settings, strict=True):
        same_name[name][id(values)] = values
        if label is None:
            unnamed[id(values)] = values
    varied = {name: _varied([*members.values()], columns) for name, members in same_name.items()}
    shared = {key for key in _varied([*unnamed.values()], columns) if not key.startswith("method.")}
    shown = dict[tuple[str, bool, int], str]()
    names = []
    for label, name, values in zip(labels, called, settings, strict=True):
        if (key := (name, label is None, id(values))) not in shown:
            keys = varied[name] | (shared if label is None else set())
            shown[key] = " ".join([name, *_shown(values, sorted(keys & values.keys(), key=list(values).index))])
        names.append(shown[key])
    return names


def label(arm: str, spec: RunSpec) -> str | None:
    """A suite's name of the arm of a recorded run, without the settings that `names` added; None for the method's."""
    words, settings = arm.split(" "), spec.flat_identity(later_too=True)
    known = {shown for key in settings for shown in (*_shown(settings, [key]), _written(key, settings[key]))}
    while len(words) > 1 and words[-1] in known:
        words.pop()
    return None if (shortened := " ".join(words)) == spec.method.label else shortened


def _varied(members: Sequence[Settings], columns: Sequence[str]) -> set[str]:
    """The settings besides seeds that differ between runs with equal `columns` and, unless in PRESETS, equal PRESETS.

    The code of a plug-in is compared between runs that have it: the setting that names it shows which do.
    """
    presets = [key for key in PRESETS if key not in columns]
    rest = {key for values in members for key in values} - {*columns, *presets, *SEEDS}
    return {
        key
        for keys, shared in ((presets, columns), (rest, (*columns, *presets)))
        for group in _grouped(members, shared)
        for key in keys
        if len({repr(values.get(key)) for values in group if key in values or not key.startswith("plugins.")}) > 1
    }


def _grouped(members: Sequence[Settings], keys: Sequence[str]) -> Iterable[list[Settings]]:
    groups = defaultdict(list)
    for values in members:
        groups[tuple(map(values.get, keys))].append(values)
    return groups.values()


def _shown(values: Settings, keys: Sequence[str]) -> list[str]:
    """`delta=0.01` of `method.delta`; with its group where two of `keys` end alike."""
    short = {key: _short(key) for key in keys if key in values}
    often = Counter(short.values())
    return [_written(name if often[name] == 1 else key, values[key]) for key, name in short.items()]


def _short(key: str) -> str:
    return key.removesuffix(".name").rpartition(".")[2]


def _written(key: str, value: Any) -> str:
    """The setting as an override, with hashes shortened and without blanks, which separate the settings of an arm."""
    plain = list(value) if isinstance(value, tuple) else value
    text = str(plain).lower() if isinstance(value, bool) else "null" if value is None else str(plain)
    text = text[:8] if re.fullmatch(r"[0-9a-f]{12,}", text) else text
    return f"{key}={''.join(text.split())}"
