"""The settings of runs beside those that the paper states (`settings` of `paper.yaml`)."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from mcpo_cli.config.plan import Plan, PlannedRun
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.measures.frames import Runs
from mcpo_cli.render.markup import Grid
from mcpo_cli.render.product import Artifact, Product

from .published import paper
from .sections import PAPER

NOT_STATED = "not stated"
DEVIATES = "deviates"
ABSENT = "-"
NOTES = (
    "Each setting of the paper's Section 6.1 with its value in these runs, then settings that the paper leaves open. "
    "Suites are named where their values differ.",
)


def _model(spec: RunSpec) -> str:
    model = spec.model
    return (
        model.origin.rpartition("/")[2] or f"{model.name} ({model.layers} layers of width {model.hidden}, from scratch)"
    )


def _tuning(spec: RunSpec) -> str:
    return "none" if spec.model.path else f"warm-up to {spec.warmup.target_accuracy:.0%} right answers"


def _schedule(spec: RunSpec) -> str:
    steps = spec.train.lr_warmup_steps
    return f"constant, {f'{steps} global steps of' if steps else 'no'} warm-up"


def _benchmarks(spec: RunSpec) -> dict[str, int]:
    """Number of problems by held-out tier, with published benchmarks in the paper's spelling."""
    sizes = spec.task.tier_sizes(spec.eval.problems)
    return {name.upper() if name in spec.task.published else name: size for name, size in sizes.items()}


def _option(name: str) -> Callable[[PlannedRun], Any]:
    """An option of the method; None if the method has no such option."""
    return lambda run: getattr(run.spec.method, name, None)


def _hinge(name: str) -> Callable[[PlannedRun], Any]:
    return lambda run: _option(name)(run) if _option("penalises_drift")(run) else None


def _filter(arm: str) -> Callable[[PlannedRun], Any]:
    return lambda run: run.spec.method.dynamic_sampling if run.arm == arm else None


HERE: Mapping[str, Callable[[PlannedRun], Any]] = {
    "framework": lambda run: {"local": "PyTorch alone (backend=local)"}.get(run.spec.backend, run.spec.backend),
    "base_models": lambda run: _model(run.spec),
    "supervised_fine_tuning": lambda run: _tuning(run.spec),
    "training_data": lambda run: run.spec.task.title,
    # Fixed: both backends use AdamW.
    "optimizer": lambda _: "AdamW",
    "learning_rate": lambda run: run.spec.train.lr,
    "learning_rate_schedule": lambda run: _schedule(run.spec),
    "train_batch_prompts": lambda run: run.spec.train.prompts,
    "mini_batch_prompts": lambda run: run.spec.train.mini_batch,
    "rollouts_per_prompt": lambda run: run.spec.train.rollouts,
    "loss_aggregation": _option("aggregation"),
    "clip_low": _option("clip_low"),
    "clip_high": _option("clip_high"),
    "max_response_tokens": lambda run: run.spec.train.max_response,
    "overlong_cache_tokens": lambda run: run.spec.train.overlong_cache,
    "hinge_beta": _hinge("beta"),
    "hinge_delta": _hinge("delta"),
    "dynamic_sampling, DAPO": _filter("DAPO"),
    "dynamic_sampling, MCPO": _filter("MCPO"),
    "evaluation, benchmarks": lambda run: _benchmarks(run.spec),
    "evaluation, samples_per_problem": lambda run: run.spec.eval.samples,
    "evaluation, temperature": lambda run: run.spec.eval.temperature,
    "evaluation, max_response_tokens": lambda run: run.spec.train.max_response,
    # Fixed: no prompt template contains examples.
    "evaluation, prompting": lambda _: "zero-shot",
    "evaluation, seeds": lambda run: run.spec.seed,
    "global_steps": lambda run: run.spec.train.steps,
    "rollout_temperature": lambda run: run.spec.train.temperature,
    "weight_decay": lambda run: run.spec.train.weight_decay,
    "gradient_clipping": lambda run: run.spec.train.grad_clip,
}
"""A run's value of each of the paper's settings and of some that the paper does not state; None if not applicable."""


def published() -> dict[str, Any]:
    """The paper's settings by the names of `HERE`; a list holds alternatives."""
    return dict(_flat(paper()["settings"]))


def build(data: Mapping[str, Runs]) -> Product:
    """One row per setting."""
    plans = {suite: runs.plan for suite, runs in data.items()}
    table = grid(plans)
    rows = pd.DataFrame(table.rows, columns=["setting", "here", "paper", "mark"])
    stated = rows[rows["paper"] != NOT_STATED]
    deviating = f"{(stated['mark'] == DEVIATES).sum()} of the paper's {len(stated)} settings deviate."
    return Product(table.title, f"{_statement(plans)} {deviating}", rows, [table], NOTES)


def _statement(plans: Mapping[str, Plan]) -> str:
    """What these runs are to the paper's experiment."""
    specs = [run.spec for plan in plans.values() for run in plan.runs]
    if specs[0].scale == "paper":
        return "This is a rerun of the paper's experiment (Section 6.1)."
    models = ", ".join(sorted({spec.model.name for spec in specs}))
    tasks = ", ".join(sorted({spec.task.name for spec in specs}))
    return (
        f"This is a stand-in at scale {specs[0].scale}, not the paper's experiment: {models} on {tasks}; do not "
        "compare accuracies with the paper's, which come from other models: published numbers are in separate blocks."
    )


def grid(plans: Mapping[str, Plan]) -> Grid:
    """One row per setting: its value in the runs, the paper's value, and whether any run deviates.

    plans: by suite; suites are named where their values differ.
    """
    values = published()
    rows = [_row(name, read, values.get(name, NOT_STATED), plans) for name, read in HERE.items()]
    return Grid("Settings of these runs and of the paper", ["setting", "here", "paper", ""], rows, labels=4)


def _row(name: str, read: Callable[[PlannedRun], Any], paper_value: Any, plans: Mapping[str, Plan]) -> Sequence[str]:
    suites_by_value: dict[str, list[str]] = defaultdict(list)
    for suite, plan in plans.items():
        for value in dict.fromkeys(_text(read(run)) for run in plan.runs):
            suites_by_value[value].append(suite)
    if len(suites_by_value) > 1:
        suites_by_value.pop(ABSENT, None)
    targets = set(map(_text, paper_value)) if isinstance(paper_value, list) else {_text(paper_value)}
    deviates = paper_value != NOT_STATED and not set(suites_by_value) <= targets | {ABSENT}
    return [name.replace("_", " "), _values(suites_by_value), _text(paper_value), DEVIATES if deviates else ""]


def _values(suites_by_value: Mapping[str, Sequence[str]]) -> str:
    """The values, each with its suites if the suites differ."""
    if len({tuple(suites) for suites in suites_by_value.values()}) == 1:
        return ", ".join(suites_by_value)
    return "; ".join(f"{value} ({', '.join(suites)})" for value, suites in suites_by_value.items())


def _flat(settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if name == "where":
            continue
        if isinstance(value, Mapping):
            yield from ((f"{name}, {inner}", item) for inner, item in value.items())
        else:
            yield name, value


def _text(value: Any) -> str:
    """A value as text: `1e-06`, `on`, `AIME24: 30, AIME25: 30`."""
    if value is None:
        return ABSENT
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_text(item)}" for name, item in value.items())
    return ", ".join(map(_text, value)) if isinstance(value, list) else str(value)


ARTIFACT = Artifact(
    "settings", "Settings of these runs and of the paper", PAPER, ("table1", "table2", "mastery"), build,
    failed_too=True,
)  # fmt: skip
