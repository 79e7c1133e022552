"""Forks: runs that share the first global steps of another run, and differ from that run in the steps after them.

A fork starts from the other run's weights, optimizer moments, position in the training stream and random streams, so
that runs forked at one step meet the same prompts and draw their rollouts at the same quantiles: common random numbers.
"""

from collections.abc import Sequence
from dataclasses import replace

from mcpo_cli import prompt_samplers
from mcpo_cli.config import class_options, load, presets
from mcpo_cli.config import plan as plans
from mcpo_cli.config.plan import Plan
from mcpo_cli.config.reading import key_of
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.config.used_plugins import used_plugins
from mcpo_cli.errors import ConfigError

STEP_SETTINGS = ("train.lr", "train.mini_batch", "train.grad_clip", "train.weight_decay", "train.betas")
"""Settings besides the method that change a step, and not the batch that it is taken on."""
CHANGEABLE = (*STEP_SETTINGS, "train.steps")
"""Settings besides the method in which a fork may differ from the run that it is forked from."""


def parse(fork: str) -> tuple[str, int]:
    """The run id and the global step of a setting `fork`.

    Raises:
        ConfigError: the setting does not have the form RUN_ID@STEP.
    """
    run_id, _, step = fork.rpartition("@")
    if not run_id or not step.isdecimal() or int(step) < 1:
        raise ConfigError(f"fork={fork}: a fork is given as RUN_ID@STEP", fix="mcpo fork RUN --at STEP method=NAME")
    return run_id, int(step)


def plan(parent: RunSpec, step: int, overrides: Sequence[str], command: str) -> Plan:
    """The forks of `parent` after `step`: one run for each combination of `overrides`.

    Raises:
        ConfigError: an override is invalid, or sets what the forks share with `parent`.
    """
    for text in overrides:
        if not _is_component(key := key_of(text)) and key not in CHANGEABLE:
            raise ConfigError(
                f"{key} decides what the forks share with {parent.run_id}",
                fix=f"leave it out; forks differ in method, method.*, sampler, sampler.*, {', '.join(CHANGEABLE)}",
            )
    origin = f"{parent.run_id}@{step}"
    forks = [load.validate(replace(spec, fork=origin)) for spec in changed(parent, overrides)]
    for fork in forks:
        check_continues(parent, fork)
    return plans.of_specs("fork", forks, command)


def check_continues(parent: RunSpec, fork: RunSpec) -> None:
    """Raise ConfigError if `fork` cannot continue `parent` from its step."""
    run_id, step = parse(fork.fork)
    if fork.backend != "local":
        raise ConfigError(f"fork={fork.fork}: backend={fork.backend} cannot fork a run", fix="backend=local")
    if differences := [key for key in differing(parent, fork) if key != "fork" and not _may_differ(key)]:
        raise ConfigError(
            f"fork={fork.fork}: the run differs from {run_id} in {differences[0]}, which they share",
            fix=f"mcpo fork {run_id} --at {step} method={fork.method.name}",
        )
    if "previous_policy" in fork.method.needs and "previous_policy" not in parent.method.needs:
        raise ConfigError(
            f"method={fork.method.name} needs the policy before the last gradient step, which {run_id} did not keep",
            fix="a method without method.anchor=previous_step",
        )


def differing(parent: RunSpec, fork: RunSpec) -> list[str]:
    """The identity settings in which two runs differ, sorted."""
    old, new = parent.flat_identity(later_too=True), fork.flat_identity(later_too=True)
    return sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))


def _may_differ(key: str) -> bool:
    return _is_component(key) or key.startswith(("plugins.method ", "plugins.sampler ")) or key in CHANGEABLE


def _is_component(key: str) -> bool:
    """True if `key` chooses the method or the sampler, or is one of their options."""
    return key.partition(".")[0] in ("method", "sampler")


def changed(spec: RunSpec, overrides: Sequence[str]) -> list[RunSpec]:
    """`spec` with other classes and single settings, in sweep order; a class that is named has its own defaults.

    Raises:
        ConfigError: any mistake in the overrides.
    """
    specs = []
    for combination in load.expand(overrides):
        data = {"sampler": {"name": prompt_samplers.Uniform.name}, **spec.to_dict()}
        data |= {
            group: {"name": name} for group in presets.CLASSES if (name := class_options.given(group, combination))
        }
        load.apply_settings(class_options.with_options(data, combination), combination)
        specs.append(load.from_dict(data))
    return [replace(spec, plugins=used_plugins(spec)) for spec in specs]
