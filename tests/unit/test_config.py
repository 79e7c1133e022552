"""Identity and presets: the settings that name a run; everything shipped composes."""

import dataclasses
import functools
import itertools
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from mcpo_cli import methods, prompt_samplers, tasks
from mcpo_cli.backends import feasible
from mcpo_cli.config import cost, load, plan, presets, reading, words
from mcpo_cli.config.reading import read_yaml
from mcpo_cli.config.schema import RunSpec, digest
from mcpo_cli.plugins import Plugin
from mcpo_cli.settings import IDENTITY, RUNTIME
from tests.errors import refused
from tests.models import existing

GROUPS = [field.name for field in dataclasses.fields(RunSpec) if dataclasses.is_dataclass(field.default)]

OF_RESULTS = ("compute.dtype", "cluster.fused_kernels", "cluster.deterministic", "cluster.verl")
"""Settings of machines that change results by more than rounding at random."""


@functools.cache
def base() -> RunSpec:
    return load.load([])[0]


def settings() -> Iterator[tuple[str, "dataclasses.Field[Any]"]]:
    """Every setting below RunSpec with its path, without the options of methods and tasks."""
    for field in dataclasses.fields(RunSpec):
        if field.name in GROUPS:
            for inner in dataclasses.fields(type(field.default)):
                yield f"{field.name}.{inner.name}", inner
        elif field.name not in presets.CLASSES:
            yield field.name, field


def other(hint: Any, value: Any) -> Any:
    """A different value of the same type."""
    if get_origin(hint) is Literal:
        return next((choice for choice in get_args(hint) if choice != value), f"not {value}")
    if isinstance(value, bool):
        return not value
    if value is None or isinstance(value, int | float):
        return (value or 0) + 1
    if isinstance(value, str):
        return f"{value}x"
    if isinstance(value, dict):
        return {"method mine": Plugin("mine.py", "", "0")}
    return tuple(f"{item}x" if isinstance(item, str) else item / 2 for item in value) or ("x",)


def changed(spec: Any, path: str) -> Any:
    """`spec` with another value at `path`."""
    name, _, rest = path.partition(".")
    value = getattr(spec, name)
    new = changed(value, rest) if rest else other(get_type_hints(type(spec))[name], value)
    return dataclasses.replace(spec, **{name: new})


@pytest.mark.parametrize(("path", "field"), list(settings()), ids=lambda case: case if isinstance(case, str) else "")
def test_every_field_says_whether_it_changes_the_result(path: str, field: "dataclasses.Field[Any]") -> None:
    role = field.metadata["role"]
    assert role in (IDENTITY, RUNTIME)
    changes_rounding_alone = path.startswith(("compute.", "cluster.")) and path not in OF_RESULTS
    assert (role == RUNTIME) == changes_rounding_alone
    run_id = changed(base(), path).run_id
    assert (run_id == base().run_id) == (role == RUNTIME)


@pytest.mark.parametrize("name", sorted(methods.registry()))
def test_every_option_of_a_method_is_identity(name: str) -> None:
    spec = dataclasses.replace(base(), method=methods.get(name))
    options = [field.name for field in dataclasses.fields(spec.method)]
    ids = {changed(spec, f"method.{option}").run_id for option in options} | {spec.run_id}
    assert len(ids) == len(options) + 1


@pytest.mark.parametrize("name", sorted(tasks.registry()))
def test_options_of_a_task_are_identity_but_where_its_data_lie(name: str) -> None:
    spec = dataclasses.replace(base(), task=tasks.get(name))
    roles = {field.name: field.metadata["role"] for field in dataclasses.fields(spec.task)}
    assert {option for option, role in roles.items() if role == RUNTIME} == {"data_path"} & roles.keys()
    for option, role in roles.items():
        assert (changed(spec, f"task.{option}").run_id == spec.run_id) == (role == RUNTIME)
    identity = spec.identity(later_too=True)["task"]
    assert identity.keys() == {"name", *(option for option, role in roles.items() if role == IDENTITY)}


def test_methods_with_the_same_options_are_different_runs() -> None:
    specs = [dataclasses.replace(base(), method=methods.get(name)) for name in methods.registry()]
    digests = {spec.run_id.rpartition("-")[2] for spec in specs}
    assert len(digests) == len(specs)


def test_runs_share_a_base_policy_whatever_the_method_and_the_training() -> None:
    assert changed(base(), "train.lr").base_id == base().base_id
    assert changed(base(), "method.beta").base_id == base().base_id
    assert changed(base(), "compute.threads").base_id == base().base_id
    for path in ("seed", "model.hidden", "warmup.lr", "task.max_ops"):
        assert changed(base(), path).base_id != base().base_id


def test_digest_is_stable() -> None:
    """The digest names all records: only RUN_ID_VERSION may change it."""
    assert digest({"b": [1, 2.5], "a": {"x": None}}) == digest({"a": {"x": None}, "b": [1, 2.5]}) == "ab323e1cff9a"


PAPER = ["dapo", "grpo", "mcpo"]
"""Methods that are paired with every other preset; all methods with each would be half of all tests."""
PRIME = 11
"""At least the number of presets of any group."""
BINARY = ("max_rl", "passk", "psr_nsr", "real", "rl_zvp", "topr")
REQUIRED = {
    "method=mc_grpo": ["train.rollouts=17"],
    **{f"method={name}": ["train.overlong_cache=0"] for name in BINARY},
}
"""Settings that a method requires."""


def required(overrides: Sequence[str]) -> list[str]:
    """Settings that these presets require: samplers that choose among problems need problems that return."""
    words = [word for preset in overrides for word in REQUIRED.get(preset, [])]
    chosen = dict(preset.split("=") for preset in overrides)
    if not prompt_samplers.registry()[chosen.pop("sampler", "uniform")].needs_repeats:
        return words
    (without,) = load.load([*(f"{group}={name}" for group, name in chosen.items()), *words])
    return words if without.task.repeats else [*words, "task.pool=1024"]


def together() -> Iterator[tuple[str, ...]]:
    """Presets of all groups at once, so that every pair of presets of two groups occurs: an orthogonal array.

    Modulo a prime, two of the lines i + slope * j with different slopes meet in every pair of values.
    """
    groups = {group: PAPER if group == "method" else names for group, names in presets.groups().items()}
    assert len(groups) <= PRIME >= max(map(len, groups.values()))
    for i, j in itertools.product(range(PRIME), repeat=2):
        chosen = (
            (group, names[(i + slope * j) % PRIME % len(names)]) for slope, (group, names) in enumerate(groups.items())
        )
        yield tuple(f"{group}={name}" for group, name in chosen)


ALONE = [(f"{group}={name}",) for group, names in presets.groups().items() for name in names]
IN_PAIRS = [pytest.param(overrides, marks=pytest.mark.slow) for overrides in dict.fromkeys(together())]


@pytest.mark.parametrize("overrides", [*ALONE, *IN_PAIRS], ids=" ".join)
def test_every_preset_and_every_pair_of_presets_composes(overrides: tuple[str, ...]) -> None:
    (spec,) = load.load([*overrides, *required(overrides)])
    assert load.from_dict(spec.to_dict()) == spec
    assert spec.scale == dict(preset.split("=") for preset in overrides).get("scale", spec.scale)


def at_scales() -> Iterator[Any]:
    """Suites at the scales toy and paper, and at those where their sweep is another; the paper's at toy are quick."""
    for name, path in sorted(plan.suites().items()):
        for scale in sorted({"toy", "paper", *read_yaml(path).get("sweep_at_scale", {})}):
            is_quick = scale == "toy" and path.parts[-3] == "paper"
            yield pytest.param(name, scale, marks=[pytest.mark.slow] * (not is_quick))


@pytest.mark.parametrize(("name", "scale"), [*at_scales()])
def test_every_suite_composes_and_can_be_trained(name: str, scale: str) -> None:
    suite = read_yaml(plan.suites()[name])
    swept = {**suite["sweep"], **suite.get("sweep_at_scale", {}).get(scale, {})}
    # One seed and one base policy, because composing takes a tenth of a second per run.
    seeds = ["seed", *({"base_seed"} & swept.keys())]
    runs = plan.from_suite(name, [f"scale={scale}", *(f"{seed}=0" for seed in seeds)], "mcpo").runs
    swept |= {seed: [0] for seed in seeds}
    names = {load.load([f"model={model}"])[0].model.name for model in swept["model"]}
    assert {run.spec.model.name for run in runs} == names
    sweep = itertools.product(*swept.values())
    assert len(runs) == len(suite["arms"]) * len(list(sweep))
    assert {run.arm.partition(" lr=")[0] for run in runs} == set(suite["arms"])
    if scale == "toy":
        feasible.check([cost.estimate(run.spec) for run in runs])


def system(text: str) -> str:
    return load.load(["task=math", "task.benchmarks=[aime24]", f"task.system={text}"])[0].task.system


@pytest.mark.parametrize(
    "text",
    [
        "思考, {problem}",
        "Думай шаг за шагом",
        "a=b; c",
        "it's 100% (sure)",
        r'\frac{1}{2} "',
        "1e3",
        "true",
        "{{x}}",
        "",
    ],
)
def test_text_is_a_setting_as_it_was_written(text: str) -> None:
    """Hydra's grammar has no place for most signs outside quotes."""
    assert system(text) == text
    assert system(shlex.split(reading.in_quotes(f"task.system={text}"))[0].partition("=")[2]) == text


def test_text_that_means_something_else_says_how_to_quote_it() -> None:
    with refused("bad_input", "the commas would separate the values of a sweep") as caught:
        system("Think, then answer")
    assert caught.value.fix == "as one text: 'task.system=\"Think, then answer\"'; as a sweep: each value in quotes"
    assert system('"Think, then answer"') == "Think, then answer"
    with refused("bad_input", "it has no =") as caught:
        load.load([__file__])
    assert str(caught.value.fix).startswith(f"data={__file__}")
    with refused("bad_input", "Interpolation key 'HOME' not found"):
        system("${HOME}/x")
    assert system(r"\${HOME}/x") == "${HOME}/x"


def test_a_path_that_looks_like_a_reference_to_the_environment_is_a_path() -> None:
    assert system("doc.env/a") == "doc.env/a"


def test_values_of_a_file_are_those_that_yaml_reads(tmp_path: Path) -> None:
    """A mapping or a list that is one value stays one; null is no text, also in the sweep of a suite."""
    task = {"chat_variables": {"effort": "a, b", "thinking": False}, "benchmarks": ["aime24", "b"], "stop": ["x"]}
    content = {"task": task, "base_seed": None, "seed": [0, 1]}
    overrides = words.as_overrides(content)
    assert overrides[1:] == ["task.benchmarks=[aime24,b]", "task.stop=[x]", "base_seed=null", "seed=0,1"]
    assert reading.read(overrides[0]).value() == task["chat_variables"]
    suite = tmp_path / "mine.yaml"
    suite.write_text("{arms: {a: [method=dapo]}, sweep: {seed: [1], base_seed: [null, 0]}}")
    assert [run.spec.seed_of_base for run in plan.from_suite(str(suite), ["scale=smoke"], "mcpo").runs] == [1, 0]


def test_an_arm_that_is_a_mapping_is_mended_with_its_settings(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("arms: {a: {method: dapo, train.lr: 0.1}}")
    with refused("bad_input", "arms.a") as error:
        plan.from_suite(str(tmp_path / "mine.yaml"), [], "mcpo")
    assert error.value.fix == "arms.a=[method=dapo,train.lr=0.1]"


@pytest.mark.parametrize("model", ["toy-m", "toy-s,toy-m"])
def test_each_model_that_is_named_takes_the_place_of_those_of_a_suite(model: str) -> None:
    runs = plan.from_suite("table1", [f"model={model}", "seed=0"], "mcpo").runs
    assert [run.spec.model.name for run in runs] == [*model.split(",")] * 2


def test_a_suite_takes_the_sweep_of_each_scale_that_is_named(tmp_path: Path) -> None:
    suite = tmp_path / "mine.yaml"
    suite.write_text("{arms: {a: [method=dapo]}, sweep: {seed: [7, 8]}, sweep_at_scale: {smoke: {seed: [1]}}}")
    runs = plan.from_suite(str(suite), ["scale=toy,smoke"], "mcpo").runs
    assert [(run.spec.scale, run.spec.seed) for run in runs] == [("toy", 7), ("toy", 8), ("smoke", 1)]


def test_a_folder_takes_the_place_of_the_models_of_a_suite(tmp_path: Path) -> None:
    folder = existing(tmp_path / "mine", max_position_embeddings=1024)
    assert {run.spec.model.name for run in plan.from_suite("lm", [f"model={folder}"], "mcpo").runs} == {"mine"}
