"""Branch studies: forks of one global step from saved states of a trunk run, all of them on the same batch.

A study is a YAML file in the folder `branches` of a plug-in or of one of its studies, or a file of the user's. `mcpo
fork` reads it.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mcpo_cli import paths
from mcpo_cli.config import forking, load, presets
from mcpo_cli.config.claims import Claim
from mcpo_cli.config.forking import STEP_SETTINGS
from mcpo_cli.config.plan import Plan, PlannedRun, sweeps
from mcpo_cli.config.reading import key_of, read_yaml
from mcpo_cli.config.schema import RunSpec, digest
from mcpo_cli.convert import convert
from mcpo_cli.errors import ConfigError, mend, nearest
from mcpo_cli.prompt_samplers import is_of_option

STATISTICS = ("lost", "gained", "lost at equal gain", "gained at equal loss", "selection minus step")
"""Numbers that a hypothesis can be about: columns of the table; or, of the raw drop of mastered prompts, the part that
is selection minus the part that the step took."""
DEFAULTS = {"suite": "", "decide": "holm"}
"""Defaults of hypotheses, which are judged as one family."""
NO_TRUNKS = ("suite", "beyond", "requires")
"""Parts of a claim that a hypothesis cannot have."""


@dataclass(frozen=True)
class Sizes:
    """Number of rollouts that a branch point is measured with."""

    controls: int = field(default=32, metadata={"ge": 1})
    """Rollouts per mastered prompt, sampled from the policy before the step."""
    held_out: int = field(default=8, metadata={"ge": 0})
    """Rollouts per held-out problem, sampled likewise; 0 leaves held-out problems out."""


@dataclass(frozen=True)
class Study:
    """The content of a study's file."""

    trunk: tuple[str, ...]
    """Overrides of the trunk runs, which save their states."""
    at: tuple[int, ...]
    """Global steps after which arms branch from the trunk's state."""
    arms: Mapping[str, tuple[str, ...]]
    """By each arm's name, its overrides of the trunk: method and settings of the step."""
    curve: tuple[str, ...] = ()
    """Arms that differ only in the step size, from the smallest. Other arms are compared with them at equal gain, and
    at equal loss."""
    hypotheses: tuple[Claim, ...] = ()
    """The hypotheses that are tested, as one family: one number per trunk run, see STATISTICS."""
    title: str = ""
    """Title: the comparison in a few words."""
    question: str = ""
    """The question that its result answers."""
    sweep: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """The values of the trunks' settings to sweep, by key: usually the seeds."""
    sizes: Sizes = Sizes()
    """Number of rollouts that each point is measured with."""


@dataclass(frozen=True)
class Trunk:
    """One trunk run and the arms that branch from it."""

    spec: RunSpec
    arms: Mapping[str, RunSpec]
    at: tuple[int, ...]
    sizes: Sizes
    kept_after: int
    """Number of checkpoints that stay once all points are measured: `compute.checkpoints_after`."""

    @property
    def key(self) -> str:
        """A digest of everything that decides the measurement at a point: arms, sizes."""
        arms = [[name, arm.run_id] for name, arm in self.arms.items()]
        return digest([arms, vars(self.sizes)])[:12]


def studies() -> dict[str, Path]:
    """The files of all studies, of mcpo and of plug-ins, by name."""
    return presets.files("branches/*.yaml")


def read(name: str) -> Study:
    """The study `name`, which may be the path of a YAML file.

    Raises:
        ConfigError: no such study, or its file is not valid.
    """
    study_files = studies()
    if not presets.is_file(name) and name not in study_files:
        raise ConfigError(
            f"there is no run and no branch study '{name}': {nearest(name, study_files)}",
            fix=mend("mcpo fork {}", name, study_files, "mcpo runs list"),
            code="unknown_name",
        )
    path = study_files.get(name) or paths.named(name)
    data = read_yaml(path)
    if isinstance(entries := data.get("hypotheses"), list):
        data |= {"hypotheses": [DEFAULTS | entry if isinstance(entry, dict) else entry for entry in entries]}
    try:
        study = convert(Study, data, "")
        _check(study)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}", fix=error.fix, code=error.code) from error
    return study


def _check(study: Study) -> None:
    if not study.at or min(study.at) < 1 or list(study.at) != sorted(set(study.at)):
        raise ConfigError(f"at: {list(study.at)} must be increasing global steps from 1 on", fix="at: [5, 10, 15]")
    if not study.arms:
        raise ConfigError("arms: at least one is needed", fix="arms: {trunk: []}")
    for arm in study.curve:
        if arm not in study.arms:
            raise ConfigError(f"curve: unknown arm '{arm}': {nearest(arm, study.arms)}", fix="curve: [ARM, ARM]")
    for hypothesis in study.hypotheses:
        _check_hypothesis(hypothesis, study.arms)


def _check_hypothesis(hypothesis: Claim, arms: Collection[str]) -> None:
    place = f"hypotheses, {hypothesis.id}"
    if part := next((name for name in NO_TRUNKS if getattr(hypothesis, name)), None):
        raise ConfigError(f"{place}: a branch study has no {part}", fix=f"leave {part} out")
    for kind, name, names in (
        ("statistic", hypothesis.statistic, STATISTICS),
        ("arm", hypothesis.arm, arms),
        ("arm", hypothesis.baseline or hypothesis.arm, arms),
    ):
        if name not in names:
            text, fix = f"{place}: unknown {kind} '{name}': {nearest(name, names)}", mend(kind + ": {}", name, names)
            raise ConfigError(text, fix=fix, code="unknown_name")


def trunks(study: Study, overrides: Sequence[str]) -> list[Trunk]:
    """The trunk runs of a study with their arms; `overrides` replace settings and sweeps of all trunks.

    Raises:
        ConfigError: invalid settings, or an arm differs from the trunk in more than the step.
    """
    override_keys = {key_of(text) for text in overrides}
    trunk_overrides = [*study.trunk, *sweeps(study.sweep, override_keys), *overrides]
    specs = load.load(trunk_overrides)
    if len({spec.model.name for spec in specs}) > 1:
        raise ConfigError("a branch study has one model", fix="a study for each model")
    return [_trunk(spec, study, override_keys | study.sweep.keys()) for spec in specs]


def _trunk(spec: RunSpec, study: Study, fixed_keys: Collection[str]) -> Trunk:
    """One trunk run with its arms; no arm differs from the trunk in the settings `fixed_keys`.

    Raises:
        ConfigError: see `trunks`.
    """
    _check_trunk(spec, study.at)
    arms = dict[str, RunSpec]()
    for name, settings in study.arms.items():
        words = [text for text in settings if key_of(text) not in fixed_keys]
        (arms[name],) = map(load.validate, forking.changed(spec, words))
        _check_arm(name, spec, arms[name])
    return Trunk(_saving(spec, study.at), arms, study.at, study.sizes, spec.compute.checkpoints_after)


def plan(name: str, trunks: Sequence[Trunk], command: str) -> Plan:
    """The trunk runs of a study as a plan."""
    return Plan(f"branch-{presets.stem(name)}", command, tuple(PlannedRun("trunk", trunk.spec) for trunk in trunks))


def _saving(spec: RunSpec, at: tuple[int, ...]) -> RunSpec:
    """The trunk with checkpoints at all points of `at`, which stay until the arms have branched from them."""
    interval = math.gcd(*at)
    checkpoints = 1 + spec.train.steps // interval
    compute = replace(spec.compute, checkpoint_every=interval, checkpoints=checkpoints, checkpoints_after=checkpoints)
    return replace(spec, compute=compute)


def _check_trunk(spec: RunSpec, at: tuple[int, ...]) -> None:
    if spec.backend != "local":
        raise ConfigError(f"trunk: backend={spec.backend} cannot branch from its states", fix="backend=local")
    if spec.method.dynamic_sampling:
        raise ConfigError(
            "trunk: dynamic sampling leaves mastered prompts out of the batch, so there is nothing to measure",
            fix="method.dynamic_sampling=false" if is_of_option(spec.sampler) else "sampler=uniform",
        )
    if spec.train.temperature != 1:
        raise ConfigError(
            f"trunk: train.temperature={spec.train.temperature:g}: importance weights need rollouts sampled at 1",
            fix="train.temperature=1",
        )
    if at[-1] > spec.train.steps:
        raise ConfigError(
            f"at: {at[-1]} lies beyond the trunk's last global step", fix=f"train.steps={at[-1]}, or a smaller `at`"
        )


def _check_arm(name: str, trunk: RunSpec, arm: RunSpec) -> None:
    differences = (key for key in forking.differing(trunk, arm) if not key.startswith(("method", "plugins.method ")))
    if batch_setting := next((key for key in differences if key not in STEP_SETTINGS), None):
        raise ConfigError(
            f"arm '{name}' differs from the trunk in {batch_setting}, which decides the batch, not the step",
            fix=f"leave it out, or set it under `trunk:`; arms may set method, method.*, {', '.join(STEP_SETTINGS)}",
        )
    if arm.method.dynamic_sampling:
        raise ConfigError(
            f"arm '{name}': dynamic sampling has no effect on a batch that is given",
            fix="method.dynamic_sampling=false",
        )
    policies = {"previous_policy": "the policy before the last gradient step", "reference_policy": "a reference policy"}
    if missing_policies := [policies[need] for need in policies if need in arm.method.needs - trunk.method.needs]:
        raise ConfigError(
            f"arm '{name}' needs {missing_policies[0]}, which the trunk's checkpoints do not hold",
            fix="an arm without method.anchor=previous_step, or without a KL to a reference",
        )
