"""Checks before a verl run starts; each error names what is missing and the command that fixes it."""

import difflib
import importlib.util
import re
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any

import psutil
from packaging.specifiers import SpecifierSet

from mcpo_cli import architecture, home, machine, pretrained
from mcpo_cli.backends.verl import overrides, processes
from mcpo_cli.config import cost
from mcpo_cli.config.cost import KEPT_CHECKPOINTS
from mcpo_cli.config.reading import read_yaml
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import SIMILAR, ConfigError
from mcpo_cli.machine import GIB, Gpu
from mcpo_cli.methods import describe

Problem = tuple[str, str]
"""A missing requirement, and the command that fixes it."""
CONNECT_SECONDS = 5.0
LEAVING_SECONDS = 30.0
"""Seconds to wait for the end of a killed attempt's processes, which hold memory of the GPU."""
BUNDLE_CPUS = 3
"""CPU slots that verl reserves in Ray per GPU."""
OVERRIDE = re.compile(r"(?P<add>\+?)(?P<key>[A-Za-z_]\w*(?:\.\w+)+)=(?P<value>.+)", re.DOTALL)
REFERENCE = Path("trainer", "config", "_generated_ppo_trainer.yaml")
"""All keys of verl's configuration in one file of its package, which verl generates for reference."""


VERL = "0.9.1"
CORE = {
    "verl": f"=={VERL}",
    "torch": ">=2.9",
    "transformers": ">=5.5.3,!=5.6.0,<5.11",
    "tensordict": ">=0.8.0,!=0.9.0,<=0.10.0",
    "TransferQueue": ">=0.1.10",
    "ray": ">=2.41.0",
    "numpy": ">=2.0.0",
}
"""Required on every machine."""
GPU = {"torch": "==2.11.0", "vllm": "==0.24.0", "flash-attn": ">=2.8.3,<2.9"}
"""Required on GPUs: the pins of verl's extras `vllm` and `fsdp`, for CUDA 13.0. verl pins flash-attn to 2.8.3, which
looks for a wheel for CUDA 12; 2.8.3.post2 looks for one for CUDA 13."""
SETUP = "make setup-gpu  (in a checkout; docs/gpu-reference.md has the commands without make)"
"""Installs all of these packages, with the ones for GPUs."""


def installed(package: str) -> str | None:
    """The installed version of `package`, None if there is none."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def fits(version: str, versions: str) -> bool:
    """True if `version` is in the range `versions`; local build labels (`+cu130`) are ignored."""
    return SpecifierSet(versions, prereleases=True).contains(version.partition("+")[0])


def check(spec: RunSpec) -> None:
    """Raise ConfigError for the first missing requirement; does not import verl or torch, starts no process."""
    parts = (_versions, _device, _address, _slots, _room, _model)
    for message, fix in chain.from_iterable(part(spec) for part in parts):
        raise ConfigError(message, fix=fix)
    spec.task.check()


def check_spec(spec: RunSpec) -> None:
    """Raise ConfigError for the first thing that no machine can train with verl."""
    own_settings = ((f"cluster.verl: {message}", fix) for message, fix in _own_settings(spec))
    for message, fix in chain(own_settings, _task(spec), _sampler(spec), _method(spec)):
        raise ConfigError(message, fix=fix)


def _own_settings(spec: RunSpec) -> Iterator[Problem]:
    """Settings of `cluster.verl` that have another form, come twice, are mcpo's, or that verl does not have."""
    table = overrides.table(spec, overrides.planned(spec, home.location())) if spec.cluster.verl else {}
    own_values, seen_keys = {key.lstrip("+"): value for key, value in table.items()}, set[str]()
    for text in spec.cluster.verl:
        match = OVERRIDE.fullmatch(text)
        if match is None:
            example = """cluster.verl='["actor_rollout_ref.model.enable_activation_offload=true"]'"""
            yield f"'{text}' is not KEY=VALUE in Hydra's grammar", example
            return
        key = match["key"]
        if key in seen_keys:
            yield f"{key} is given twice", "give it once"
        seen_keys.add(key)
        for name, value in own_values.items():
            if _within(name, key) or _within(key, name):
                yield (
                    f"mcpo itself sets {name} (to {value}), for all runs or from a setting of its own",
                    f"leave {key} out",
                )
        if not match["add"]:
            yield from _unknown(key, match["value"])


def _unknown(key: str, value: str) -> Iterator[Problem]:
    """A key that verl does not have, where verl is installed; elsewhere verl itself will refuse it."""
    package = importlib.util.find_spec("verl")
    if package is None or package.origin is None:
        return
    keys = list(_keys(read_yaml(Path(package.origin).parent / REFERENCE)))
    if key in keys:
        return
    ends = {name: name.rpartition(".")[2] for name in keys}
    similar_ends = difflib.get_close_matches(key.rpartition(".")[2], {*ends.values()}, n=1, cutoff=SIMILAR)
    names = difflib.get_close_matches(key, [name for name in keys if ends[name] in similar_ends], n=1, cutoff=0.0)
    for name in names:
        yield f"verl has no key {key}: did you mean '{name}'?", f"cluster.verl='[\"{name}={value}\"]'"
    yield f"verl has no key {key}", f"cluster.verl='[\"+{key}={value}\"]'  (`+` adds a key that verl's files lack)"


def _within(key: str, group: str) -> bool:
    return f"{key}.".startswith(f"{group}.")


def _keys(tree: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Every key of a configuration, groups included."""
    for name, value in tree.items():
        yield f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from _keys(value, f"{prefix}{name}.")


def _task(spec: RunSpec) -> Iterator[Problem]:
    task = spec.task
    if not task.vocabulary and not spec.model.path:
        yield (
            f"model={spec.model.name} is built from scratch, but task={task.name} has no closed vocabulary: it needs a "
            "pretrained model",
            "model=qwen3-1.7b, or model.path=FOLDER  (mcpo components list model)",
        )
    if stops := [string for string in task.stops if len(string) > 1]:
        yield (
            f"task={task.name} ends responses at {', '.join(map(repr, stops))}; backend=verl samples tokens without "
            "decoding them, so it can end a response at strings of one character only",
            "task.stop=['\\n'], or backend=local",
        )


def _sampler(spec: RunSpec) -> Iterator[Problem]:
    if spec.sampler.uneven_groups:
        yield (
            f"sampler={spec.sampler.name} gives prompts different numbers of rollouts; backend=verl samples as many of "
            "each (`actor_rollout_ref.rollout.n`) and divides mini-batches by that number",
            "backend=local, or sampler=uniform",
        )


def _method(spec: RunSpec) -> Iterator[Problem]:
    """Limits of this backend: it does not sample greedily, and has no pass over a whole mini-batch before its gradient
    except for the first of a step."""
    method, train = spec.method, spec.train
    if reason := describe.unfit_for_verl(method):
        yield f"method={method.name} cannot be trained by backend=verl: {reason}", "backend=local"
    if method.prepares and train.mini_batch < train.prompts:
        yield (
            f"method={method.name} evaluates each mini-batch under the current policy before its gradient; "
            f"backend=verl cannot do that between the {train.prompts // train.mini_batch} mini-batches of a step",
            f"train.mini_batch={train.prompts}, or backend=local",
        )


def _versions(spec: RunSpec) -> Iterator[Problem]:
    """Packages that are missing, or of a version that verl does not accept."""
    cluster, requirements = spec.cluster, dict(CORE)
    if spec.compute.device != "cpu" and cluster.rollout == "vllm":
        requirements["vllm"] = GPU["vllm"]
    if cluster.attention == "flash_attention_2":
        requirements["flash-attn"] = GPU["flash-attn"]
    fix = f"{SETUP}; mcpo doctor lists what is missing"
    for package, versions in requirements.items():
        version = installed(package)
        if version is None:
            alternative = ", or cluster.attention=sdpa  (1.6 to 2 times the operations of training)"
            hint = alternative if package == "flash-attn" else ""
            yield f"backend=verl needs {package} {versions}, which is not installed", fix + hint
        elif not fits(version, versions):
            yield f"backend=verl needs {package} {versions}; {package} {version} is installed", fix


def _device(spec: RunSpec) -> Iterator[Problem]:
    """GPUs, or the plugin that replaces them on a CPU."""
    cluster, on_cpu = spec.cluster, spec.compute.device == "cpu"
    if cluster.plugin and not _importable(cluster.plugin):
        yield (
            f"cluster.plugin={cluster.plugin}: no such module can be imported",
            "PYTHONPATH=FOLDER  (the folder that contains it; for tests.verl.cpu, a checkout of mcpo)",
        )
    if not cluster.plugin and (on_cpu or cluster.rollout == "transformers"):
        setting = "compute.device=cpu" if on_cpu else "cluster.rollout=transformers"
        yield (
            f"{setting}: verl itself does not support this; mcpo's tests contain a plugin for it",
            "cluster.plugin=tests.verl.cpu  (in a checkout)",
        )
    if cluster.nodes > 1 and not cluster.ray_address and cluster.launcher == "local":
        yield (
            f"cluster.nodes={cluster.nodes}: this machine is one node; name a Ray cluster, or use SLURM",
            "cluster.ray_address=HOST:PORT, or cluster.launcher=slurm",
        )
    if _here(spec) and not on_cpu:
        yield from _gpus(spec)


def _gpus(spec: RunSpec) -> Iterator[Problem]:
    gpus, cluster = _settled(spec), spec.cluster
    if not gpus:
        yield (
            "this machine has no NVIDIA GPU (nvidia-smi finds none, or CUDA_VISIBLE_DEVICES hides them)",
            "cluster.launcher=slurm, cluster.ray_address=HOST:PORT, or scale=toy backend=local",
        )
        return
    if len(gpus) < cluster.gpus:
        message = f"cluster.gpus={cluster.gpus}: this machine has {len(gpus)} ({gpus[0].name})"
        yield message, f"cluster.gpus={len(gpus)} cluster.tensor_parallel=1"
    for gpu in gpus:
        if _lacks_memory(gpu, spec):
            yield (
                f"{gpu.name} has only {gpu.free / GIB:.0f} of {gpu.memory / GIB:.0f} GiB free; sampling takes the "
                f"fraction cluster.gpu_memory={cluster.gpu_memory:g}",
                "nvidia-smi  (shows who uses it), or CUDA_VISIBLE_DEVICES=OTHERS",
            )
    smallest_gpu = min(gpus, key=lambda gpu: gpu.memory)
    fixes = {
        "trains": "cluster.gpus or cluster.nodes, or cluster.sequence_parallel with a lower cluster.max_tokens_per_gpu",
        "samples": "cluster.tensor_parallel or cluster.gpu_memory",
    }
    for activity, need in cost.gpu_bytes(spec).items():
        if need > smallest_gpu.memory:
            share = f" ({cluster.gpu_memory:.0%} of it for sampling)" if activity == "samples" else ""
            yield (
                f"model={spec.model.name} needs at least {need / GIB:.0f} GiB on each of {cluster.gpus} GPUs "
                f"while it {activity}; {smallest_gpu.name} has {smallest_gpu.memory / GIB:.0f} GiB{share}",
                f"raise {fixes[activity]}, or a smaller model",
            )


def _settled(spec: RunSpec) -> list[Gpu]:
    """The GPUs, once the processes of a killed attempt of this run have given their memory back.

    They end by themselves when they miss their parent (`main.py`), within seconds.
    """
    name, deadline = str(overrides.planned(spec, home.location()).run), time.monotonic() + LEAVING_SECONDS
    while True:
        gpus = machine.gpus()
        waits = any(_lacks_memory(gpu, spec) for gpu in gpus) and processes.marked(name)
        if not waits or time.monotonic() > deadline:
            return gpus
        time.sleep(0.5)


def _lacks_memory(gpu: Gpu, spec: RunSpec) -> bool:
    """True if less is free than vLLM will take."""
    return gpu.free < spec.cluster.gpu_memory * gpu.memory


def _address(spec: RunSpec) -> Iterator[Problem]:
    """Something must listen at the Ray cluster's address; Ray itself would retry for minutes."""
    address = spec.cluster.ray_address
    if address in ("", "auto"):
        return
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        yield (
            f"cluster.ray_address={address}: no Ray cluster answers there ({error})",
            "cluster.ray_address=HOST:PORT, with the PORT given to `ray start --head --port=PORT`",
        )


def _slots(spec: RunSpec) -> Iterator[Problem]:
    """CPU slots: with too few for verl's actors, Ray waits forever without a message."""
    cluster = spec.cluster
    # TransferQueue's controller, its storage unit per GPU, verl's task runner, and verl's bundles.
    need = 2 + cluster.gpus * (1 + cluster.nodes * BUNDLE_CPUS)
    if not cluster.ray_address and cluster.cpus * cluster.nodes < need:
        message = f"cluster.cpus={cluster.cpus}: verl's processes reserve {need} with {cluster.gpus} GPUs"
        yield message, f"cluster.cpus={need}"


def _room(spec: RunSpec) -> Iterator[Problem]:
    """Main memory for offloaded weights and moments; disk for the checkpoints."""
    checkpoint, total = cost.weights(spec).checkpoint, psutil.virtual_memory().total
    need = checkpoint / spec.cluster.nodes
    if _here(spec) and spec.cluster.offload and need > total:
        yield (
            f"cluster.offload=true keeps {need / GIB:.0f} GiB in memory; this machine has {total / GIB:.0f} GiB",
            "cluster.offload=false",
        )
    folder, need = home.home(), (KEPT_CHECKPOINTS + 1) * checkpoint
    free_bytes = shutil.disk_usage(folder).free
    if need > free_bytes:
        yield (
            f"checkpoints need {need / GIB:.0f} GiB ({KEPT_CHECKPOINTS} are kept, one is being written); "
            f"{folder} has {free_bytes / GIB:.0f} GiB left",
            "MCPO_HOME=FOLDER on a larger disk",
        )


def _model(spec: RunSpec) -> Iterator[Problem]:
    """An existing model must be present or fetchable, and match its settings."""
    model, longest = spec.model, spec.train.max_prompt + spec.train.max_response
    if not model.path:
        return
    config = pretrained.configuration(model)
    pretrained.check_sizes(replace(model, vocabulary=cost.weights(spec).rows), architecture.stated(config))
    window = config.get("max_position_embeddings")
    if window is not None and longest > window:
        yield (
            f"{model.path} has a context of {window} tokens; train.max_prompt + train.max_response is {longest}",
            f"train.max_response={max(2, window - spec.train.max_prompt)}",
        )
    # A model of the Hugging Face Hub is checked once it has been downloaded (`launch.py`).
    if spec.task.needs_chat_template and (folder := pretrained.find(model)):
        pretrained.check_chat_template(model.name, folder)


def _here(spec: RunSpec) -> bool:
    """True if the run uses this machine."""
    return not spec.cluster.ray_address and spec.cluster.launcher == "local"


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False
