"""Before a start: what a run of verl needs and does not find, each said once with the command that mends it."""

import importlib.util
import shutil
import socket
from typing import Any

import psutil

from mcpo_cli import home, machine
from mcpo_cli.backends import cost
from mcpo_cli.backends.base import KEPT_CHECKPOINTS
from mcpo_cli.backends.verl import pins
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import ConfigError

GIB = 2**30
SIZES = {
    "hidden": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "mlp": "intermediate_size",
    "vocabulary": "vocab_size",
    "tied": "tie_word_embeddings",
}
"""Settings of `model` by their names in config.json."""
CONNECT_SECONDS = 5.0
BUNDLE_CPUS = 3
"""Processor slots that verl reserves in Ray with each GPU."""


def check(spec: RunSpec) -> None:
    """Raises ConfigError for the first thing that is missing; imports neither verl nor torch, starts nothing."""
    _task(spec)
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


def _task(spec: RunSpec) -> None:
    if not spec.task.vocabulary and not spec.model.path:
        raise ConfigError(
            f"model={spec.model.name} is built from scratch, for which task={spec.task.name} has no vocabulary: it "
            "needs a model that exists",
            fix="model=qwen3-1.7b, or model.path=FOLDER",
        )


def _method(spec: RunSpec) -> None:
    """What verl's engine computes otherwise than the local one: it has the weights of now only, and divides by T."""
    method, train = spec.method, spec.train
    if "previous_policy" in method.needs:
        raise ConfigError(
            f"method={method.name} with these options needs the policy before the last gradient step "
            "(method.anchor=previous_step); backend=verl keeps only the newest",
            fix="method.anchor=rollout, or backend=local",
        )
    if method.prepares and train.mini_batch < train.prompts:
        raise ConfigError(
            f"method={method.name} looks at each mini-batch under the newest policy before its gradient; backend=verl "
            f"has no such pass between the {train.prompts // train.mini_batch} mini-batches of a step",
            fix=f"train.mini_batch={train.prompts}, or backend=local",
        )
    if spec.train.temperature != 1:
        raise ConfigError(
            f"train.temperature={spec.train.temperature:g}: verl trains the policy at the temperature of sampling, "
            "the local engine at 1; only at 1 are they the same",
            fix="train.temperature=1",
        )


def _versions(spec: RunSpec) -> None:
    """verl and what it works with are installed, in versions that it takes."""
    cluster, on_gpu = spec.cluster, spec.compute.device != "cpu"
    wanted = dict(pins.CORE)
    if on_gpu and cluster.rollout == "vllm":
        wanted["vllm"] = pins.GPU["vllm"]
    if cluster.attention == "flash_attention_2":
        wanted["flash-attn"] = pins.GPU["flash-attn"]
    fix = 'pip install "mcpo-cli[verl]"  (an environment of its own; mcpo doctor says what is missing)'
    for package, versions in wanted.items():
        found = pins.installed(package)
        if found is None:
            hint = ", or cluster.attention=sdpa" if package == "flash-attn" else ""
            raise ConfigError(f"backend=verl needs {package} {versions}, which is not installed", fix=fix + hint)
        if not pins.fits(found, versions):
            raise ConfigError(f"backend=verl needs {package} {versions}; {package} {found} is installed", fix=fix)


def _device(spec: RunSpec) -> None:
    """The GPUs are there, or on a processor what stands in for them."""
    cluster = spec.cluster
    if cluster.plugin and not _importable(cluster.plugin):
        raise ConfigError(
            f"cluster.plugin={cluster.plugin}: there is no such module here",
            fix="PYTHONPATH=FOLDER  (the one that holds it; for tests.verl.cpu a checkout of mcpo)",
        )
    if not cluster.plugin and (spec.compute.device == "cpu" or cluster.rollout == "transformers"):
        lacks = "compute.device=cpu" if spec.compute.device == "cpu" else "cluster.rollout=transformers"
        raise ConfigError(
            f"{lacks}: verl itself cannot do that; the tests of mcpo bring a plugin for it",
            fix="cluster.plugin=tests.verl.cpu  (in a checkout)",
        )
    if cluster.nodes > 1 and not cluster.ray_address and cluster.launcher == "local":
        raise ConfigError(
            f"cluster.nodes={cluster.nodes}: this machine is one; name a Ray cluster, or use SLURM",
            fix="cluster.ray_address=HOST:PORT, or cluster.launcher=slurm",
        )
    if _here(spec) and spec.compute.device != "cpu":
        _gpus(spec)


def _address(spec: RunSpec) -> None:
    """Somebody listens where the Ray cluster is said to be: Ray itself would try for minutes."""
    address = spec.cluster.ray_address
    if address in ("", "auto"):
        return
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"cluster.ray_address={address}: there is no Ray cluster ({error})",
            fix="cluster.ray_address=HOST:PORT as `ray start --head --port=PORT` had it",
        ) from error


def _gpus(spec: RunSpec) -> None:
    found, cluster = machine.gpus(), spec.cluster
    if not found:
        raise ConfigError(
            "this machine has no NVIDIA GPU (nvidia-smi finds none, or CUDA_VISIBLE_DEVICES hides them)",
            fix="cluster.launcher=slurm, cluster.ray_address=HOST:PORT, or scale=toy backend=local",
        )
    if len(found) < cluster.gpus:
        raise ConfigError(
            f"cluster.gpus={cluster.gpus}: this machine has {len(found)} ({found[0].name})",
            fix=f"cluster.gpus={len(found)} cluster.tensor_parallel=1",
        )
    if busy := [gpu for gpu in found if gpu.free < cluster.gpu_memory * gpu.memory]:
        raise ConfigError(
            f"of {busy[0].name} only {busy[0].free / GIB:.0f} of {busy[0].memory / GIB:.0f} GiB are free; sampling "
            f"takes cluster.gpu_memory={cluster.gpu_memory:g} of it",
            fix="nvidia-smi  (says who uses it), or CUDA_VISIBLE_DEVICES=OTHERS",
        )
    smallest = min(found, key=lambda gpu: gpu.memory)
    for doing, needed in cost.gpu_bytes(spec).items():
        if needed > smallest.memory:
            share = f" ({cluster.gpu_memory:.0%} of it for sampling)" if doing == "samples" else ""
            fix = {
                "trains": "cluster.gpus or cluster.nodes",
                "samples": "cluster.tensor_parallel or cluster.gpu_memory",
            }
            raise ConfigError(
                f"model={spec.model.name} needs at least {needed / GIB:.0f} GiB on each of {cluster.gpus} GPUs "
                f"while it {doing}; {smallest.name} has {smallest.memory / GIB:.0f} GiB{share}",
                fix=f"raise {fix[doing]}, or a smaller model",
            )


def _slots(spec: RunSpec) -> None:
    """Ray waits for ever, and says nothing, where it has too few processor slots for verl's actors."""
    cluster = spec.cluster
    # Of TransferQueue a controller and a storage unit a GPU; verl's task runner; its bundles.
    needed = 2 + cluster.gpus * (1 + cluster.nodes * BUNDLE_CPUS)
    if not cluster.ray_address and cluster.cpus * cluster.nodes < needed:
        raise ConfigError(
            f"cluster.cpus={cluster.cpus}: verl's processes reserve {needed} with {cluster.gpus} GPUs",
            fix=f"cluster.cpus={needed}",
        )


def _memory(spec: RunSpec) -> None:
    """Weights and moments that wait in the processor's memory fit there."""
    needed = cost.BYTES_SAVED * cost.parameters(spec) / spec.cluster.nodes
    total = psutil.virtual_memory().total
    if _here(spec) and spec.cluster.offload and needed > total:
        raise ConfigError(
            f"cluster.offload=true keeps {needed / GIB:.0f} GiB in memory; this machine has {total / GIB:.0f} GiB",
            fix="cluster.offload=false",
        )


def _disk(spec: RunSpec) -> None:
    """Room for the checkpoints that are kept, and for the one being written."""
    folder, needed = home.home(), cost.of(spec).disk
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise ConfigError(
            f"checkpoints need {needed / GIB:.0f} GiB ({KEPT_CHECKPOINTS} are kept, one is being written); "
            f"{folder} has {free / GIB:.0f} GiB left",
            fix="MCPO_HOME=FOLDER on a larger disk",
        )


def _model(spec: RunSpec) -> None:
    """The model is there or can be fetched, and is what the settings say of it."""
    from mcpo_cli.model_facts import configuration

    model, train = spec.model, spec.train
    config = configuration(model.path, model.revision or None)
    wrong = {name: config[key] for name, key in SIZES.items() if key in config and config[key] != _size(spec, name)}
    if wrong:
        told = ", ".join(f"model.{name}={_size(spec, name)} is {value} there" for name, value in wrong.items())
        fix = " ".join(f"model.{name}={str(value).lower()}" for name, value in wrong.items())
        raise ConfigError(f"{model.path}: its config.json says otherwise: {told}", fix=fix)
    window, longest = config.get("max_position_embeddings"), train.max_prompt + train.max_response
    if window is not None and longest > window:
        raise ConfigError(
            f"{model.path} holds {window} tokens; train.max_prompt + train.max_response are {longest}",
            fix=f"train.max_response={max(2, window - train.max_prompt)}",
        )


def _size(spec: RunSpec, name: str) -> Any:
    """The setting, as config.json would say it."""
    counted = {"kv_heads": cost.kv_heads(spec.model), "vocabulary": cost.vocabulary(spec)}
    return counted.get(name, getattr(spec.model, name))


def _here(spec: RunSpec) -> bool:
    """Whether the run will be on this machine."""
    return not spec.cluster.ray_address and spec.cluster.launcher == "local"


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False
