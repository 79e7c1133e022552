"""The policy that a run starts from: an existing model, or a base policy that is made from scratch.

A base policy is trained on demonstrations until it reaches the target accuracy, then cached. All arms of one model and
base seed start from the same file, so they differ only in the method.

Training this small a network multiplies small differences: rounding that differs between two CPUs grows from 1e-7
to a tenth of the weights within 250 steps in single precision, and the warm-ups end at different steps with different
policies. So warm-up uses double precision, where the same differences begin at 1e-16, and its end depends on an
accuracy that is computed rather than sampled, if a problem has one correct response. The weights are rounded to single
precision at the end.
"""

import shutil
import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from filelock import FileLock
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from mcpo_cli import pretrained, tokenization
from mcpo_cli.backends import Stop
from mcpo_cli.backends.local import policy as policies
from mcpo_cli.backends.local import tokenizer as tokenizers
from mcpo_cli.backends.local.encoding import Encoded, Language, encode
from mcpo_cli.backends.local.generate import sample
from mcpo_cli.backends.local.lora import Lora
from mcpo_cli.backends.local.policy import Policy, device
from mcpo_cli.config.schema import RunSpec, Warmup
from mcpo_cli.convert import LARGEST_FLOAT
from mcpo_cli.errors import ConfigError, Interrupted, RunFailed, first_line
from mcpo_cli.home import home, writing
from mcpo_cli.runs import bases, folders
from mcpo_cli.runs.attempts import Attempt
from mcpo_cli.runs.journal import read_json, write_json
from mcpo_cli.seeds import stream
from mcpo_cli.tasks import closed

PROBE_ROLLOUTS = 4
"""Responses sampled to each prompt of the warm-up's probe if a problem has several correct ones."""


def initial_policy(spec: RunSpec, attempt: Attempt, stop: Stop) -> tuple[Policy, PreTrainedTokenizerBase]:
    """The policy of `spec` before RL, and its tokenizer.

    Raises:
        ConfigError: the model cannot be loaded. RunFailed, Interrupted: see `base_folder`.
    """
    if spec.model.path:
        attempt.phase("loading the model")
        folder = pretrained.folder(spec.model)
    else:
        folder = base_folder(spec, attempt, stop)
    policy = policy_of(load(folder, spec.model.name, "float32"), spec)
    return policy, tokenization.load(folder)


def policy_of(model: Any, spec: RunSpec) -> Policy:
    """The policy that a run of `spec` trains, with the weights of `model` (float32)."""
    torch_device, lora = device(spec.compute.device), None
    if spec.model.lora_rank:
        torch.nn.Module.to(model, torch_device)
        lora = Lora.of(model, spec.model.lora_rank, spec.model.lora_alpha, stream(spec.seed, "init"))
    is_reduced = spec.compute.dtype == "bfloat16" or (spec.compute.dtype == "auto" and torch_device.type == "cuda")
    dtype = torch.bfloat16 if is_reduced else None
    return Policy(model, torch_device, dtype=dtype, lora=lora, kept_rows=spec.compute.micro_batch_tokens)


def export(spec: RunSpec, checkpoint: Path, target: Path) -> None:
    """Write the policy of a checkpoint of a run of `spec` to the folder `target` as transformers loads it.

    Raises:
        ConfigError: the model that the run began with is gone.
    """
    if spec.model.path:
        folder = pretrained.folder(spec.model)
    else:
        cache_folder = bases.cached_base(home(), spec)
        folder = cache_folder if cache_folder.is_dir() else bases.shipped_base(spec) or cache_folder
    policy = policy_of(load(folder, spec.model.name, "float32"), spec)
    policy.load_weights(folders.load(checkpoint).tensors["policy"])
    policy.save(target, tokenization.load(folder))


def load(folder: Path, name: str, dtype: str) -> Any:
    """The causal LM in a Hugging Face folder, which must hold every weight.

    Raises:
        ConfigError: transformers cannot load it, or weights are missing.
    """
    transformers.utils.logging.disable_progress_bar()
    try:
        # Returns two values, contrary to its annotation.
        result: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, local_files_only=True, trust_remote_code=False, output_loading_info=True
        )
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        library = f"transformers {transformers.__version__}"
        raise ConfigError(f"{name}: {library} cannot load it: {first_line(error)}") from error
    model, info = result
    # transformers would leave them out.
    if extras := sorted(info["unexpected_keys"]):
        raise ConfigError(
            f"{name}: {len(extras)} weights are stored that config.json does not ask for: {', '.join(extras[:3])}"
        )
    # transformers would replace them with random numbers.
    if gaps := sorted(info["missing_keys"]) + sorted(str(key) for key in info["mismatched_keys"]):
        raise ConfigError(
            f"{name}: {len(gaps)} weights are missing or differ in shape from config.json: {', '.join(gaps[:3])}"
        )
    return model


def base_folder(spec: RunSpec, attempt: Attempt, stop: Stop) -> Path:
    """The Hugging Face folder of the base policy of `spec`: from the cache, or as shipped with mcpo, or newly trained.

    Raises:
        RunFailed: the target accuracy was not reached, or the disk cannot be written. Interrupted: `stop` is True.
    """
    folder = bases.cached_base(home(), spec)
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
    # The next run with this base policy would train as long, with the same result.
    failure = folder.with_name(f"{folder.name}.missed.json")
    # Runs that share the base policy wait here for the one that makes it.
    attempt.phase("waiting for the base policy")
    with FileLock(folder.with_name(f"{folder.name}.lock")):
        damage = folders.damage(folder)
        if damage and folder.exists():
            print(f"{damage}; the base policy is trained again", file=sys.stderr)
        if damage and not _take(spec, folder):
            if failure.exists():
                raise _missed(spec, read_json(failure)["accuracy"], f"; it was tried before, as {failure} says")
            _make(spec, folder, failure, attempt, stop)
    return folder


def _take(spec: RunSpec, folder: Path) -> bool:
    """Copy the base policy that is shipped with mcpo to `folder`; returns False if it is missing or damaged."""
    source = bases.shipped_base(spec)
    if not source:
        return False
    if damage := folders.damage(source):
        print(f"{damage}; the base policy is trained here instead", file=sys.stderr)
        return False
    manifest = read_json(source / folders.MANIFEST)
    with folders.atomic_folder(folder, {key: value for key, value in manifest.items() if key != "sha256"}) as part:
        for name in manifest["sha256"]:
            shutil.copyfile(source / name, part / name)
    return True


def _make(spec: RunSpec, folder: Path, failure: Path, attempt: Attempt, stop: Stop) -> None:
    tokenizer = tokenizers.build(spec.task.vocabulary)
    model = policies.build(spec.model, tokenizer, spec.seed_of_base).double()
    policy = Policy(model, device(spec.compute.device))
    steps, accuracy = _train(spec, policy, tokenizer, attempt, stop)
    if accuracy < spec.warmup.target_accuracy:
        write_json(failure, {"accuracy": accuracy})
        raise _missed(spec, accuracy)
    model.float()
    with folders.atomic_folder(folder, {"steps": steps, "accuracy": accuracy}) as part:
        policy.save(part, tokenizer)


def _train(
    spec: RunSpec, policy: Policy, tokenizer: PreTrainedTokenizerFast, attempt: Attempt, stop: Stop
) -> tuple[int, float]:
    """Cross-entropy on gold answers up to the target accuracy, or the last step; returns steps and accuracy."""
    settings, task = spec.warmup, closed(spec.task)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=settings.lr, weight_decay=0.0, fused=True)
    accuracy = 0.0
    for step in range(settings.max_steps + 1):
        if step % settings.probe_every == 0:
            accuracy = measured_accuracy(spec, policy, tokenizer)
            attempt.phase(f"warm-up step {step}, accuracy {accuracy:.2f} of {settings.target_accuracy:.2f}")
            if accuracy >= settings.target_accuracy:
                return step, accuracy
            if stop():
                raise Interrupted("stopped during the warm-up, which starts again")
        problems = task.demonstrations(spec.seed_of_base, step, settings.batch)
        loss = cross_entropy(policy, encode(tokenizer, problems, task.answer_length))
        optimizer.zero_grad()
        loss.backward()
        norm = float(torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0))
        # Weights are doubles here: above float32's range the warm-up has diverged; at 0 the weights no longer change.
        if not 0 < norm <= LARGEST_FLOAT:
            raise RunFailed(f"warm-up step {step}: the gradient norm is {norm:.3g}", fix="a smaller warmup.lr")
        optimizer.step()
    return settings.max_steps, accuracy


def _missed(spec: RunSpec, accuracy: float, detail: str = "") -> RunFailed:
    settings = spec.warmup
    return RunFailed(
        f"the warm-up reached accuracy {accuracy:.2f}, not warmup.target_accuracy={settings.target_accuracy}, "
        f"in warmup.max_steps={settings.max_steps} steps{detail}",
        fix=f"warmup.max_steps={2 * settings.max_steps or Warmup.max_steps}",
    )


def measured_accuracy(spec: RunSpec, policy: Policy, tokenizer: PreTrainedTokenizerFast) -> float:
    """Expected share of correct answers at temperature 1 on training prompts that a run does not begin with.

    Where a problem has one correct response, its probability is computed. Otherwise `PROBE_ROLLOUTS` responses to each
    prompt are sampled, at the same quantiles each time.
    """
    # The warm-up's only limit is the answers' length: `train` is not part of its identity.
    task, seed = closed(spec.task), spec.seed_of_base
    problems = task.training(stream(seed, "probe"), 0, spec.warmup.probe_prompts)
    if task.one_right_response:
        return expected_accuracy(policy, encode(tokenizer, problems, task.answer_length))
    language = Language(task, tokenizer, closed=True)
    prompt_PS, shape = language.prompts(problems).to(policy.device), (PROBE_ROLLOUTS, task.answer_length)
    rollouts = sample(policy, prompt_PS, *shape, 1.0, language.eos, stream(seed, "probe", 0))
    return float(language.grade(problems, rollouts).correct_PG.double().mean())


@torch.no_grad()
def expected_accuracy(policy: Policy, batch: Encoded) -> float:
    """Mean probability of the gold responses: the product over a response's tokens, its end token included."""
    batch = batch.to(policy.device)
    logp_P1T = policy.log_probs(batch.prompt_PS, batch.gold_PT[:, None], batch.mask_PT[:, None])
    return float(logp_P1T.sum(-1).exp().mean())


def cross_entropy(policy: Policy, batch: Encoded) -> Tensor:
    """Mean negative log-probability of the gold tokens, end token included."""
    batch = batch.to(policy.device)
    token_P1T, mask_P1T = batch.gold_PT[:, None], batch.mask_PT[:, None]
    return -policy.log_probs(batch.prompt_PS, token_P1T, mask_P1T).sum() / mask_P1T.sum()
