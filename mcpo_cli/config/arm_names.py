"""Names the arms of runs: the suite's name or the method's, then the settings in which runs of that name differ."""

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
"""Settings in which runs of one arm differ."""
Settings = Mapping[str, Any]


def names(labels: Sequence[str | None], specs: Sequence[RunSpec], columns: Sequence[str] = COLUMNS) -> list[str]:
    """The arm of each run, such as `mcpo delta=0.01`; runs that differ only in their seeds have the same arm.

    Args:
        labels: the suite's name of each run's arm; None takes the method's label. The label does not cover settings
            outside of the method, so these settings are compared among all runs without a name.
        specs: the settings of each run.
        columns: settings that have their own columns and are not part of the arm's name.
    """
    settings = [spec.flat_identity(later_too=True) for spec in specs]
    return of_settings(labels, [spec.method.label for spec in specs], settings, columns)


def of_settings(
    labels: Sequence[str | None], methods: Sequence[str], settings: Sequence[Settings], columns: Sequence[str] = COLUMNS
) -> list[str]:
    """`names` of runs whose specs are not at hand. methods: their labels; settings: all that decide a result."""
    base_names = [label or method for label, method in zip(labels, methods, strict=True)]
    # Runs of an arm may share one mapping, which is then compared once.
    settings_by_name = defaultdict[str, dict[int, Settings]](dict)
    unlabelled_settings = dict[int, Settings]()
    for label, name, values in zip(labels, base_names, settings, strict=True):
        settings_by_name[name][id(values)] = values
        if label is None:
            unlabelled_settings[id(values)] = values
    varied_keys = {name: _varied([*members.values()], columns) for name, members in settings_by_name.items()}
    outer_keys = {key for key in _varied([*unlabelled_settings.values()], columns) if not key.startswith("method.")}
    arm_of = dict[tuple[str, bool, int], str]()
    names = []
    for label, name, values in zip(labels, base_names, settings, strict=True):
        if (key := (name, label is None, id(values))) not in arm_of:
            keys = varied_keys[name] | (outer_keys if label is None else set())
            arm_of[key] = " ".join([name, *_shown(values, sorted(keys & values.keys(), key=list(values).index))])
        names.append(arm_of[key])
    return names


def label(arm: str, spec: RunSpec) -> str | None:
    """A suite's name of a recorded run's arm, without the settings that `names` added; None for the method's label."""
    words, settings = arm.split(" "), spec.flat_identity(later_too=True)
    setting_texts = {text for key in settings for text in (*_shown(settings, [key]), _written(key, settings[key]))}
    while len(words) > 1 and words[-1] in setting_texts:
        words.pop()
    return None if (name := " ".join(words)) == spec.method.label else name


def _varied(members: Sequence[Settings], columns: Sequence[str]) -> set[str]:
    """The settings besides seeds that differ between runs with equal `columns` and, unless in PRESETS, equal PRESETS.

    The code of a plug-in is compared only between runs that use it; the setting that names the plug-in shows which do.
    """
    presets = [key for key in PRESETS if key not in columns]
    other_keys = {key for values in members for key in values} - {*columns, *presets, *SEEDS}
    return {
        key
        for keys, group_keys in ((presets, columns), (other_keys, (*columns, *presets)))
        for group in _grouped(members, group_keys)
        for key in keys
        if len({repr(values.get(key)) for values in group if key in values or not key.startswith("plugins.")}) > 1
    }


def _grouped(members: Sequence[Settings], keys: Sequence[str]) -> Iterable[list[Settings]]:
    groups = defaultdict(list)
    for values in members:
        groups[tuple(map(values.get, keys))].append(values)
    return groups.values()


def _shown(values: Settings, keys: Sequence[str]) -> list[str]:
    """`delta=0.01` for `method.delta`; with the group where two of `keys` end alike."""
    short_names = {key: _short(key) for key in keys if key in values}
    counts = Counter(short_names.values())
    return [_written(name if counts[name] == 1 else key, values[key]) for key, name in short_names.items()]


def _short(key: str) -> str:
    return key.removesuffix(".name").rpartition(".")[2]


def _written(key: str, value: Any) -> str:
    """The setting as an override, with hashes shortened and without blanks, which separate the settings of an arm."""
    data = list(value) if isinstance(value, tuple) else value
    text = str(data).lower() if isinstance(value, bool) else "null" if value is None else str(data)
    text = text[:8] if re.fullmatch(r"[0-9a-f]{12,}", text) else text
    return f"{key}={''.join(text.split())}"
