"""Translates a RunSpec into the start of verl 0.9.1: Hydra overrides, environment and command.

`settings.yaml` is the table of its settings. verl is not imported, so that a dry run works where it is not installed.
"""

import dataclasses
import functools
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from mcpo_cli import pretrained
from mcpo_cli.config.reading import quoted, read_yaml
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.prompt_samplers import Refill, is_of_option
from mcpo_cli.runs import bases
from mcpo_cli.seeds import Stream, stream
from mcpo_cli.settings import flat

MAIN = "mcpo_cli.backends.verl.main"
PATCHES = "mcpo_cli.backends.verl.patches"
"""The module that every process of verl imports first."""
DETERMINISTIC = {
    "PYTHONHASHSEED": "0",
    "CUBLAS_WORKSPACE_CONFIG": ":16:8",
    "FLASH_ATTENTION_DETERMINISTIC": "1",
    "NCCL_ALGO": "Ring",
    "NCCL_PROTO": "Simple",
    "VERL_DISABLE_FLASH_ATTN_CE": "1",
}
"""The variables of verl's `enable_full_determinism`. verl sets them in processes that run already, some too late."""
BATCH_INVARIANT = {"VERL_FULL_DETERMINISM": "1", "VLLM_BATCH_INVARIANT": "1"}
"""The variables of vLLM's kernels whose sums do not depend on the batch. They need Triton, so a CPU has none."""
BARE = re.compile(r"(?=.*[A-Za-z])(?!(?i:true|false|null|nan|inf)$)[A-Za-z0-9_./:@+-]+")
"""Strings that Hydra's grammar accepts without quotes."""

Value = str | int | float | bool | None | list[Any]
Table = dict[str, Value]


@dataclass(frozen=True)
class Paths:
    """The files and folders of one attempt."""

    run: Path
    attempt: Path
    model: str
    """A Hugging Face folder; in a dry run possibly the name of a model on the Hugging Face Hub."""
    evaluate_first: bool = True
    """True if the base policy still has to be evaluated."""

    @property
    def train(self) -> Path:
        """The training problems in the order of the stream; all attempts share the file."""
        return self.run / "data" / "train.parquet"

    @property
    def held_out(self) -> Path:
        """The held-out problems of all tiers."""
        return self.run / "data" / "held_out.parquet"

    @property
    def checkpoints(self) -> Path:
        """verl's checkpoints; a later attempt resumes from them."""
        return self.run / "checkpoints"


def planned(spec: RunSpec, home: Path) -> Paths:
    """The paths of the first attempt of `spec` below `home`; does not access the disk."""
    run = home / "runs" / spec.run_id
    model = pretrained.planned_folder(spec.model, home) or str(bases.cached_base(home, spec))
    return Paths(run, run / "attempt_1", model)


def command(paths: Paths, settings: Sequence[str]) -> list[str]:
    """The command line of the training process with its `overrides`.

    -P: files in the current folder must not shadow modules.
    """
    return [sys.executable, "-P", "-m", MAIN, str(paths.attempt), *settings]


def preview(spec: RunSpec, home: Path) -> dict[str, Any]:
    """The first start, as plain data: command, environment, and verl's settings as a tree."""
    paths = planned(spec, home)
    user_settings = {key: value for key, _, value in (text.partition("=") for text in spec.cluster.verl)}
    settings: dict[str, Any] = {}
    rows = table(spec, paths)
    for key, value in {**rows, **user_settings}.items():
        *groups, name = key.lstrip("+").split(".")
        functools.reduce(lambda tree, group: tree.setdefault(group, {}), groups, settings)[name] = value
    return {"command": command(paths, overrides(spec, rows)), "environment": environment(spec), "config": settings}


def environment(spec: RunSpec) -> dict[str, str]:
    """Environment variables of the training process; the variables of `_workers` reach every Ray process."""
    # Makes Ray's processes and verl's servers listen on loopback only.
    loopback = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    address = {"RAY_ADDRESS": spec.cluster.ray_address} if spec.cluster.ray_address else loopback
    return {"HYDRA_FULL_ERROR": "1", "RAY_USAGE_STATS_ENABLED": "0", **address, **_workers(spec)}


def overrides(spec: RunSpec, rows: Table) -> list[str]:
    """Every row of `table` in Hydra's grammar, then the user's settings, which `checks.py` checks."""
    return [*(f"{key}={written(value)}" for key, value in rows.items()), *spec.cluster.verl]


def written(value: Value) -> str:
    """`value` in Hydra's grammar, https://hydra.cc/docs/advanced/override_grammar/basic."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(map(written, value))}]"
    return quoted(value) if isinstance(value, str) and not BARE.fullmatch(value) else str(value)


def table(spec: RunSpec, paths: Paths) -> Table:
    """verl's keys and values; a `+` marks keys that its YAML files lack."""
    names = {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec)}
    settings = _filled(_template(), SimpleNamespace(**names, paths=paths, values=values(spec, paths)))
    rows = {f"+{key.replace('+', '')}" if "+" in key else key: value for key, value in flat(settings).items()}
    return rows | _ray(spec)


@functools.cache
def _template() -> dict[str, Any]:
    """Our table of verl's settings, with `${name}` in place of values."""
    return read_yaml(Path(__file__).with_name("settings.yaml"))


def _filled(value: Any, names: SimpleNamespace) -> Any:
    """`value` of the template, with the values that its `${...}` name."""
    match value:
        case dict():
            return {key: _filled(entry, names) for key, entry in value.items()}
        case list():
            return [_filled(entry, names) for entry in value]
        case str() if value.startswith("${"):
            item = attrgetter(value[2:-1])(names)
            return str(item) if isinstance(item, Path) else list(item) if isinstance(item, tuple) else item
    return value


def values(spec: RunSpec, paths: Paths) -> SimpleNamespace:
    """The `values` of `settings.yaml`: all that are not settings of mcpo taken unchanged."""
    train, on_gpu = spec.train, _on_gpu(spec)
    refills = isinstance(spec.sampler, Refill) and not draws_by_position(spec)
    return SimpleNamespace(
        on_gpu=on_gpu,
        eager=not on_gpu or spec.cluster.eager,
        batch_invariant=on_gpu and spec.cluster.deterministic,
        device="cuda" if on_gpu else "cpu",
        param_dtype="bf16" if on_gpu else "fp32",
        rollout_dtype="bfloat16" if on_gpu else "float32",
        load_format="auto" if spec.model.lora_rank else "dummy",
        max_model_len=train.max_prompt + train.max_response,
        refills=refills,
        gen_batch_size=1 if refills else train.prompts,
        max_gen_batches=1 + train.max_refills if refills else 0,
        overlong=train.overlong_cache > 0,
        data_seed=_seed(spec, "data"),
        init_seed=_seed(spec, "init"),
        rollout_seed=_seed(spec, "rollout"),
        run_id=spec.run_id,
        hydra=paths.attempt / "hydra",
    )


def draws_by_position(spec: RunSpec) -> bool:
    """True if a round of prompts is drawn as with the local engine (`queue.Rounds`), not by verl's data loader.

    verl's loader replaces each prompt that a filter drops as soon as it is answered, so that the position at which the
    next step begins depends on the speed of answers.
    """
    return not is_of_option(spec.sampler) or (spec.cluster.deterministic and spec.sampler.filters)


def _ray(spec: RunSpec) -> Table:
    cluster = spec.cluster
    # "local" keeps the run from joining a cluster that RAY_ADDRESS names.
    rows: Table = {"+ray_kwargs.ray_init.address": cluster.ray_address or "local"}
    # An existing cluster has its own size.
    rows["ray_kwargs.ray_init.num_cpus"] = None if cluster.ray_address else cluster.cpus
    if not cluster.ray_address:
        rows["+ray_kwargs.ray_init.include_dashboard"] = False
        if not _on_gpu(spec):
            rows["+ray_kwargs.ray_init.num_gpus"] = cluster.gpus
    variables = _workers(spec).items()
    return rows | {f"+ray_kwargs.ray_init.runtime_env.env_vars.{name}": value for name, value in variables}


def _workers(spec: RunSpec) -> dict[str, str]:
    """Environment variables of every verl process, also of processes that Ray starts on other machines."""
    modules = filter(None, (PATCHES, spec.cluster.plugin))
    variables = {"VLLM_NO_USAGE_STATS": "1", "VERL_USE_EXTERNAL_MODULES": ",".join(modules)}
    # Loading checkpoints must not run code (`patches.py`). The second keeps the first from rejecting verl's messages.
    variables |= {"TORCH_FORCE_WEIGHTS_ONLY_LOAD": "1", "VERL_DATAPROTO_SERIALIZATION_METHOD": "numpy"}
    if spec.cluster.deterministic:
        variables |= DETERMINISTIC | (BATCH_INVARIANT if _on_gpu(spec) else {})
    if not _on_gpu(spec):
        # verl registers FSDP for cuda and npu only; VERL_ENGINE_DEVICE selects it.
        variables |= {"VERL_PLATFORM": "cpu", "VERL_ENGINE_DEVICE": "cuda", "VLLM_CPU_KVCACHE_SPACE": "1"}
        variables |= {"OMP_NUM_THREADS": str(spec.compute.threads), "TORCHDYNAMO_DISABLE": "1"}
    return variables


def _on_gpu(spec: RunSpec) -> bool:
    return spec.compute.device != "cpu"


def _seed(spec: RunSpec, name: Stream) -> int:
    """A 31-bit seed, as NumPy and vLLM accept."""
    return stream(spec.seed, name) % 2**31
