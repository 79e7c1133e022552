"""What is evaluated: a run's policy, a folder or a model of the hub; on which benchmarks, arithmetic among them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mcpo_cli import data
from mcpo_cli.config.load import from_dict
from mcpo_cli.config.schema import Eval, Task, Warmup
from mcpo_cli.data.base import Loaded, digest
from mcpo_cli.errors import ConfigError, nearest
from mcpo_cli.home import location
from mcpo_cli.model_facts import ModelFacts, resolve
from mcpo_cli.runs import catalog, folders
from mcpo_cli.runs.journal import Journal, read_json
from mcpo_cli.tasks.arithmetic import Arithmetic

ARITHMETIC = "arithmetic"
"""Stands for the held-out tiers of the local engine's task."""


@dataclass(frozen=True)
class Subject:
    """The model to evaluate. task: the arithmetic task that it was trained on, the default one where none is known."""

    facts: ModelFacts
    task: Task


def subject(model: str, revision: str) -> Subject:
    """The model that `model` names: a run (its final policy), a local folder, or a model of the hub.

    Raises:
        ConfigError: there is no such model, or the run has no final policy.
    """
    runs = [path.name for path in catalog.folders(location())]
    if Path(model).is_dir() or not any(name.startswith(model) for name in runs):
        try:
            facts = resolve(model, revision or None)
        except ConfigError as error:
            hint = "" if "/" in model or not runs else f"; no run of {location()} begins so either"
            raise ConfigError(f"{error.message}{hint}", fix=error.fix or "mcpo runs list") from error
        if Path(model).is_dir():
            facts = replace(facts, name=facts.folder.name)
        spec_file = facts.folder.parent / "spec.json"
        if facts.folder.name != "policy" or not spec_file.is_file():
            return Subject(facts, Task())
        _check(facts.folder)
        spec = from_dict(read_json(spec_file))
        return Subject(replace(facts, name=spec.run_id), spec.task)
    run = catalog.find(location(), model)
    policies = [attempt / "policy" for attempt in Journal(run.folder).attempts() if (attempt / "policy").is_dir()]
    if not policies:
        raise ConfigError(f"run {run.spec.run_id} is {run.state}: it has no final policy yet", fix="mcpo runs list")
    _check(policies[-1])
    return Subject(replace(resolve(str(policies[-1])), name=run.spec.run_id), run.spec.task)


def _check(policy: Path) -> None:
    """Hold a run's final policy against the checksums that it was written with, where it has any."""
    if (policy / folders.MANIFEST).exists() and (damage := folders.damage(policy)):
        raise ConfigError(
            f"{damage}; a policy that is not what was trained is not evaluated",
            fix=f"rm -r {policy.parent.parent}, and the command that trained the run trains it again",
        )


def benchmarks(names: Sequence[str], path: str, task: Task, limit: int | None) -> list[Loaded]:
    """The benchmarks `names`, each at most its first `limit` problems.

    path: a file or a folder to read them from instead of the hub; it says nothing about the arithmetic tiers.

    Raises:
        ConfigError: an unknown name, a name given twice, a training set, or data that cannot be read.
    """
    known = [*data.names("benchmark"), ARITHMETIC]
    loaded: list[Loaded] = []
    for name in names:
        if name == ARITHMETIC:
            loaded += _tiers(task, limit)
            continue
        if name not in known:
            why = "is a training set" if name in data.names("train") else "is no benchmark"
            raise ConfigError(f"'{name}' {why}: {nearest(name, known)}", fix="mcpo data list")
        whole = data.load(name, Path(path).expanduser() if path else None)
        loaded.append(_cut(whole, limit) if limit else whole)
    if len({benchmark.name for benchmark in loaded}) < len(loaded):
        raise ConfigError(f"--benchmarks {','.join(names)}: a benchmark is named twice")
    return loaded


def _cut(whole: Loaded, limit: int) -> Loaded:
    problems = whole.problems[:limit]
    note = f"{len(problems)} of {len(whole.problems)} problems"
    return replace(whole, problems=problems, digest=digest(problems), notes=(*whole.notes, note))


def _tiers(task: Task, limit: int | None) -> list[Loaded]:
    tiers = Arithmetic(task, Warmup()).tiers(limit or Eval().problems)
    sets = {name: tuple(problems) for name, problems in tiers.items()}
    return [
        Loaded(name, found, digest(found), f"generated:{ARITHMETIC}", len(found), grader="exact", template="plain")
        for name, found in sets.items()
    ]


def split(text: str) -> list[str]:
    """The names in a comma-separated list.

    Raises:
        ConfigError: it holds none.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise ConfigError("--benchmarks names none", fix="--benchmarks aime24,aime25,amc23")
    return names
