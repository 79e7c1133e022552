"""The policy that a run starts from: a model that exists, or the base policy that was made from scratch."""

from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from mcpo_cli import pretrained
from mcpo_cli.backends import Stop
from mcpo_cli.backends.local.lora import Lora
from mcpo_cli.backends.local.policy import Policy, device
from mcpo_cli.backends.local.warmup import base_folder
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import ConfigError, first_line
from mcpo_cli.runs.attempts import Attempt
from mcpo_cli.seeds import stream


def start_policy(spec: RunSpec, attempt: Attempt, stop: Stop) -> tuple[Policy, PreTrainedTokenizerBase]:
    """The policy of `spec` before RL, and its tokenizer.

    Raises:
        ConfigError: the model cannot be loaded. RunFailed, Interrupted: see `warmup.base_folder`.
    """
    if spec.model.path:
        attempt.phase("loading the model")
        folder = pretrained.folder(spec.model)
    else:
        folder = base_folder(spec, attempt, stop)
    policy = policy_of(load(folder, spec.model.name, "float32"), spec)
    return policy, AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def policy_of(model: Any, spec: RunSpec) -> Policy:
    """The policy that a run of `spec` trains, with the weights of `model` (float32)."""
    place, lora = device(spec.compute.device), None
    if spec.model.lora_rank:
        torch.nn.Module.to(model, place)
        lora = Lora.of(model, spec.model.lora_rank, spec.model.lora_alpha, stream(spec.seed, "init"))
    reduced = spec.compute.dtype == "bfloat16" or (spec.compute.dtype == "auto" and place.type == "cuda")
    dtype = torch.bfloat16 if reduced else None
    return Policy(model, place, dtype=dtype, lora=lora, kept_rows=spec.compute.micro_batch_tokens)


def load(folder: Path, name: str, dtype: str) -> Any:
    """The causal LM in a Hugging Face folder, which must hold every weight.

    Raises:
        ConfigError: transformers cannot load it, or weights are missing.
    """
    transformers.utils.logging.disable_progress_bar()
    try:
        # Returns two values, contrary to its annotation.
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, local_files_only=True, trust_remote_code=False, output_loading_info=True
        )
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        library = f"transformers {transformers.__version__}"
        raise ConfigError(f"{name}: {library} cannot load it: {first_line(error)}") from error
    model, info = loaded
    # transformers would replace them with random numbers.
    if absent := sorted(info["missing_keys"]) + sorted(str(key) for key in info["mismatched_keys"]):
        raise ConfigError(
            f"{name}: {len(absent)} weights are missing or differ in shape from config.json: {', '.join(absent[:3])}"
        )
    return model


def stop_ids(model: Any, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The tokens that end a response: the tokenizer's end token and those of generation_config.json, as in vLLM."""
    named = model.generation_config.eos_token_id
    listed = named if isinstance(named, list) else [named]
    return [*dict.fromkeys(token for token in [tokenizer.eos_token_id, *listed] if token is not None)]
