"""Checks before a verl run starts; each error names what is missing and the command that fixes it."""

import difflib
import importlib.util
import re
import shutil
import socket
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from mcpo_cli import architecture, home, machine, pretrained
from mcpo_cli.backends import cost
from mcpo_cli.backends.base import KEPT_CHECKPOINTS
from mcpo_cli.backends.verl import overrides, pins
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.config.yaml_files import read_yaml
from mcpo_cli.errors import SIMILAR, ConfigError
from mcpo_cli.machine import GIB

CONNECT_SECONDS = 5.0
BUNDLE_CPUS = 3
"""CPU slots that verl reserves in Ray per GPU."""
OVERRIDE = re.compile(r"(?P<add>\+?)(?P<key>[A-Za-z_]\w*(?:\.\w+)+)=(?P<value>.+)", re.DOTALL)
REFERENCE = Path("trainer", "config", "_generated_ppo_trainer.yaml")
"""All keys of verl's configuration in one file of its package, which verl generates for reference."""


def check(spec: RunSpec) -> None:
    """Raise ConfigError for the first thing missing; imports neither verl nor torch, starts no process."""
    _task(spec)
    own_settings(spec)
    _method(spec)
    _versions(spec)
    _device(spec)
    _address(spec)
    _slots(spec)
    _memory(spec)
    _disk(spec)
    if spec.model.path:
        _model(spec)
    spec.task.check()


def own_settings(spec: RunSpec) -> None:
    """Check verl's own settings (`cluster.verl`), which are passed on as they are.

    Raises:
        ConfigError: one has another form, is given twice, sets what mcpo sets, or names a key that verl does not have.
    """
    table = overrides.table(spec, overrides.planned(spec, home.home()))
    ours, seen = {key.lstrip("+"): value for key, value in table.items()}, set[str]()
    for text in spec.cluster.verl:
        match = OVERRIDE.fullmatch(text)
        if match is None:
            raise ConfigError(
                f"cluster.verl: '{text}' is not KEY=VALUE in Hydra's grammar",
                fix="""cluster.verl='["actor_rollout_ref.model.enable_activation_offload=true"]'""",
            )
        key = match["key"]
        if key in seen:
            raise ConfigError(f"cluster.verl: {key} is given twice", fix="give it once")
        seen.add(key)
        for name, value in ours.items():
            if _within(name, key) or _within(key, name):
                raise ConfigError(
                    f"cluster.verl: mcpo itself sets {name} (to {value}), from its own settings or for all runs",
                    fix=f"leave {key} out of cluster.verl",
                )
        if not match["add"]:
            _known(key, match["value"])


def _known(key: str, value: str) -> None:
    """Refuse a key that verl does not have, where verl is installed; elsewhere verl itself will."""
    package = importlib.util.find_spec("verl")
    if package is None or package.origin is None:
        return
    keys = list(_keys(read_yaml(Path(package.origin).parent / REFERENCE)))
    if key in keys:
        return
    last = {name: name.rpartition(".")[2] for name in keys}
    similar = difflib.get_close_matches(key.rpartition(".")[2], {*last.values()}, n=1, cutoff=SIMILAR)
    nearest = difflib.get_close_matches(key, [name for name in keys if last[name] in similar], n=1, cutoff=0.0)
    fix = f"{nearest[0]}={value}" if nearest else f"+{key}={value}"
    raise ConfigError(
        f"cluster.verl: verl has no key {key}" + (f": did you mean '{nearest[0]}'?" if nearest else ""),
        fix=f"cluster.verl='[\"{fix}\"]'" + ("" if nearest else "  (`+` adds a key that verl's files lack)"),
    )


def _within(key: str, group: str) -> bool:
    """Whether `key` is `group`, or is in it."""
    return f"{key}.".startswith(f"{group}.")


def _keys(tree: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Every key of a configuration, groups included."""
    for name, value in tree.items():
        yield f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from _keys(value, f"{prefix}{name}.")


def _task(spec: RunSpec) -> None:
    if not spec.task.vocabulary and not spec.model.path:
        raise ConfigError(
            f"model={spec.model.name} is built from scratch, but task={spec.task.name} has no closed vocabulary: "
            "it needs a pretrained model",
            fix="model=qwen3-1.7b, or model.path=FOLDER  (mcpo model list)",
        )
    if longer := [string for string in spec.task.stops if len(string) > 1]:
        raise ConfigError(
            f"task={spec.task.name} ends responses at {', '.join(map(repr, longer))}; backend=verl samples tokens "
            "without decoding them, so it can end a response at strings of one character only",
            fix="task.stop=['\\n'], or backend=local",
        )


def _method(spec: RunSpec) -> None:
    """Reject what verl cannot do: a pass of all of a mini-batch before its gradient, but for the first of a step."""
    method, train = spec.method, spec.train
    if method.prepares and "previous_policy" in method.needs:
        raise ConfigError(
            f"method={method.name} evaluates each mini-batch before its gradient and needs the policy before the last "
            "one there, too (`previous_policy`); backend=verl has it during the gradient only",
            fix="backend=local",
        )
    if method.prepares and train.mini_batch < train.prompts:
        raise ConfigError(
            f"method={method.name} evaluates each mini-batch under the current policy before its gradient; "
            f"backend=verl cannot do that between the {train.prompts // train.mini_batch} mini-batches of a step",
            fix=f"train.mini_batch={train.prompts}, or backend=local",
        )


def _versions(spec: RunSpec) -> None:
    """Check that verl and its dependencies are installed in versions it accepts."""
    cluster, on_gpu = spec.cluster, spec.compute.device != "cpu"
    wanted = dict(pins.CORE)
    if on_gpu and cluster.rollout == "vllm":
        wanted["vllm"] = pins.GPU["vllm"]
    if cluster.attention == "flash_attention_2":
        wanted["flash-attn"] = pins.GPU["flash-attn"]
    fix = f"{pins.SETUP}; mcpo doctor lists what is missing"
    for package, versions in wanted.items():
        version = pins.installed(package)
        if version is None:
            slower = f"{cost.sdpa_factor(spec):.1f} times the operations of training"
            hint = f", or cluster.attention=sdpa  ({slower})" if package == "flash-attn" else ""
            raise ConfigError(f"backend=verl needs {package} {versions}, which is not installed", fix=fix + hint)
        if not pins.fits(version, versions):
            raise ConfigError(f"backend=verl needs {package} {versions}; {package} {version} is installed", fix=fix)
    for package in cluster.loggers:
        if pins.installed(package) is None:
            rest = ",".join(name for name in cluster.loggers if name != package)
            raise ConfigError(
                f"cluster.loggers={package}: that package is not installed",
                fix=f"pip install {package}, or cluster.loggers=[{rest}]",
            )


def _device(spec: RunSpec) -> None:
    """Check for GPUs, or for the plugin that replaces them on a CPU."""
    cluster = spec.cluster
    if cluster.plugin and not _importable(cluster.plugin):
        raise ConfigError(
            f"cluster.plugin={cluster.plugin}: no such module can be imported",
            fix="PYTHONPATH=FOLDER  (the folder that contains it; for tests.verl.cpu, a checkout of mcpo)",
        )
    if not cluster.plugin and (spec.compute.device == "cpu" or cluster.rollout == "transformers"):
        lacks = "compute.device=cpu" if spec.compute.device == "cpu" else "cluster.rollout=transformers"
        raise ConfigError(
            f"{lacks}: verl itself does not support this; mcpo's tests contain a plugin for it",
            fix="cluster.plugin=tests.verl.cpu  (in a checkout)",
        )
    if cluster.nodes > 1 and not cluster.ray_address and cluster.launcher == "local":
        raise ConfigError(
            f"cluster.nodes={cluster.nodes}: this machine is one node; name a Ray cluster, or use SLURM",
            fix="cluster.ray_address=HOST:PORT, or cluster.launcher=slurm",
        )
    if _here(spec) and spec.compute.device != "cpu":
        _gpus(spec)


def _address(spec: RunSpec) -> None:
    """Check that something listens at the Ray cluster's address; Ray itself would retry for minutes."""
    address = spec.cluster.ray_address
    if address in ("", "auto"):
        return
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"cluster.ray_address={address}: no Ray cluster answers there ({error})",
            fix="cluster.ray_address=HOST:PORT, with the PORT given to `ray start --head --port=PORT`",
        ) from error


def _gpus(spec: RunSpec) -> None:
    gpus, cluster = machine.gpus(), spec.cluster
    if not gpus:
        raise ConfigError(
            "this machine has no NVIDIA GPU (nvidia-smi finds none, or CUDA_VISIBLE_DEVICES hides them)",
            fix="cluster.launcher=slurm, cluster.ray_address=HOST:PORT, or scale=toy backend=local",
        )
    if len(gpus) < cluster.gpus:
        raise ConfigError(
            f"cluster.gpus={cluster.gpus}: this machine has {len(gpus)} ({gpus[0].name})",
            fix=f"cluster.gpus={len(gpus)} cluster.tensor_parallel=1",
        )
    if busy := [gpu for gpu in gpus if gpu.free < cluster.gpu_memory * gpu.memory]:
        raise ConfigError(
            f"{busy[0].name} has only {busy[0].free / GIB:.0f} of {busy[0].memory / GIB:.0f} GiB free; sampling "
            f"takes the fraction cluster.gpu_memory={cluster.gpu_memory:g}",
            fix="nvidia-smi  (shows who uses it), or CUDA_VISIBLE_DEVICES=OTHERS",
        )
    smallest = min(gpus, key=lambda gpu: gpu.memory)
    for doing, needed in cost.gpu_bytes(spec).items():
        if needed > smallest.memory:
            share = f" ({cluster.gpu_memory:.0%} of it for sampling)" if doing == "samples" else ""
            fix = {
                "trains": "cluster.gpus or cluster.nodes, or cluster.sequence_parallel with a lower "
                "cluster.max_tokens_per_gpu",
                "samples": "cluster.tensor_parallel or cluster.gpu_memory",
            }
            raise ConfigError(
                f"model={spec.model.name} needs at least {needed / GIB:.0f} GiB on each of {cluster.gpus} GPUs "
                f"while it {doing}; {smallest.name} has {smallest.memory / GIB:.0f} GiB{share}",
                fix=f"raise {fix[doing]}, or a smaller model",
            )


def _slots(spec: RunSpec) -> None:
    """Check for enough CPU slots: with too few for verl's actors, Ray waits forever without a message."""
    cluster = spec.cluster
    # TransferQueue's controller, its storage unit per GPU, verl's task runner, and verl's bundles.
    needed = 2 + cluster.gpus * (1 + cluster.nodes * BUNDLE_CPUS)
    if not cluster.ray_address and cluster.cpus * cluster.nodes < needed:
        raise ConfigError(
            f"cluster.cpus={cluster.cpus}: verl's processes reserve {needed} with {cluster.gpus} GPUs",
            fix=f"cluster.cpus={needed}",
        )


def _memory(spec: RunSpec) -> None:
    """Check that offloaded weights and moments fit into main memory."""
    needed = cost.of(spec).checkpoint / spec.cluster.nodes
    total = psutil.virtual_memory().total
    if _here(spec) and spec.cluster.offload and needed > total:
        raise ConfigError(
            f"cluster.offload=true keeps {needed / GIB:.0f} GiB in memory; this machine has {total / GIB:.0f} GiB",
            fix="cluster.offload=false",
        )


def _disk(spec: RunSpec) -> None:
    """Check disk space for the checkpoints that are kept and the one being written."""
    folder, needed = home.home(), cost.of(spec).disk
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise ConfigError(
            f"checkpoints need {needed / GIB:.0f} GiB ({KEPT_CHECKPOINTS} are kept, one is being written); "
            f"{folder} has {free / GIB:.0f} GiB left",
            fix="MCPO_HOME=FOLDER on a larger disk",
        )


def _model(spec: RunSpec) -> None:
    """Check that the model is present or can be fetched, and matches its settings."""
    model, train = spec.model, spec.train
    config = pretrained.configuration(model)
    pretrained.check_sizes(replace(model, vocabulary=cost.vocabulary(spec)), architecture.stated(config))
    window, longest = config.get("max_position_embeddings"), train.max_prompt + train.max_response
    if window is not None and longest > window:
        raise ConfigError(
            f"{model.path} has a context of {window} tokens; train.max_prompt + train.max_response is {longest}",
            fix=f"train.max_response={max(2, window - train.max_prompt)}",
        )
    # A model of the hub that is not here yet is checked once it is (`launch.py`).
    if spec.task.needs_chat_template and pretrained.is_here(model):
        pretrained.check_chat_template(model.name, pretrained.folder(model))


def _here(spec: RunSpec) -> bool:
    """Whether the run uses this machine."""
    return not spec.cluster.ray_address and spec.cluster.launcher == "local"


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False
