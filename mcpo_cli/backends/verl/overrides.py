"""Translates a RunSpec into the start of verl 0.9.1: Hydra overrides, environment and command.

One row per setting, under verl's own names (`verl/trainer/config/ppo_trainer.yaml` and the files it includes). Every
setting that affects results is listed, even at verl's default, so that a changed default cannot change a run. verl is
not imported, so that a dry run works where it is not installed.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcpo_cli import pretrained
from mcpo_cli.backends.verl import grammar, lora, passthrough
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.config.workload import KEPT_CHECKPOINTS
from mcpo_cli.runs import folders
from mcpo_cli.seeds import Stream, stream

MAIN = "mcpo_cli.backends.verl.main"
REWARD = "pkg://mcpo_cli.backends.verl.reward"
TRAINER = "mcpo"
"""The name under which our trainer registers with verl."""
AGENT, AGENT_MODULE = "mcpo", "mcpo_cli.backends.verl.agent"
"""Our agent loop (`agent.py`) and its module; verl's own needs a tokenizer with a chat template."""
IMPORTED = ("mcpo_cli.backends.verl.pickles", "mcpo_cli.backends.verl.timeouts")
"""Modules that every process of verl imports first."""

Table = dict[str, grammar.Value]


@dataclass(frozen=True)
class Paths:
    """The files and folders of one attempt."""

    run: Path
    attempt: Path
    model: str
    """A Hugging Face folder; in a dry run possibly the name of a model on the hub."""
    evaluate_first: bool = True
    """Whether the base policy still has to be evaluated."""

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
    model = pretrained.place(spec.model, home) or str(folders.cached_base(home, spec))
    return Paths(run, run / "attempt_1", model)


def command(spec: RunSpec, paths: Paths) -> list[str]:
    """The command line of the training process. -P: files in the current folder must not shadow modules."""
    return [sys.executable, "-P", "-m", MAIN, str(paths.attempt), *overrides(spec, paths)]


def preview(spec: RunSpec, home: Path) -> dict[str, Any]:
    """What the first start would run, as plain data: command, environment, and verl's settings as a tree."""
    paths = planned(spec, home)
    settings: dict[str, Any] = {}
    for key, value in {**table(spec, paths), **passthrough.given(spec)}.items():
        *groups, name = key.lstrip("+").split(".")
        inner = settings
        for group in groups:
            inner = inner.setdefault(group, {})
        inner[name] = value
    return {"command": command(spec, paths), "environment": environment(spec), "config": settings}


def environment(spec: RunSpec) -> dict[str, str]:
    """Environment variables of the training process; those of `_workers` reach every Ray process."""
    # Makes Ray's processes and verl's servers listen on loopback only.
    alone = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    place = {"RAY_ADDRESS": spec.cluster.ray_address} if spec.cluster.ray_address else alone
    return {"HYDRA_FULL_ERROR": "1", "RAY_USAGE_STATS_ENABLED": "0", **place, **_workers(spec)}


def overrides(spec: RunSpec, paths: Paths) -> list[str]:
    """Every row of `table` in Hydra's grammar, then the user's own.

    Raises:
        ConfigError: `cluster.verl` has a mistake.
    """
    own = passthrough.checked(spec, lambda other: table(other, planned(other, paths.run.parent.parent)))
    return [*(f"{key}={grammar.written(value)}" for key, value in table(spec, paths).items()), *own]


def table(spec: RunSpec, paths: Paths) -> Table:
    """verl's keys and values; a `+` marks keys that its YAML files lack."""
    return {
        **_data(spec, paths),
        **_model(spec, paths),
        **_actor(spec),
        **_optimizer(spec),
        **_rollout(spec),
        **_reward(spec),
        **_algorithm(spec),
        **_trainer(spec, paths),
        **_machines(spec),
    }


def _data(spec: RunSpec, paths: Paths) -> Table:
    train = spec.train
    return {
        "data.train_files": [str(paths.train)],
        "data.val_files": [str(paths.held_out)],
        "data.prompt_key": "prompt",
        "data.reward_fn_key": "data_source",
        "data.max_prompt_length": train.max_prompt,
        "data.max_response_length": train.max_response,
        "data.train_batch_size": train.prompts,
        # Dynamic sampling refills the batch one prompt at a time.
        "data.gen_batch_size": 1 if spec.method.dynamic_sampling else train.prompts,
        "data.val_batch_size": None,
        # The file is already in stream order, without overlong prompts.
        "data.shuffle": False,
        "data.seed": _seed(spec, "data"),
        "data.validation_shuffle": False,
        "data.train_max_samples": -1,
        "data.val_max_samples": -1,
        "data.filter_overlong_prompts": False,
        "data.truncation": "error",
        "data.dataloader_num_workers": 0,
        "data.return_raw_chat": True,
        "data.trust_remote_code": False,
    }


def _model(spec: RunSpec, paths: Paths) -> Table:
    cluster, on_gpu = spec.cluster, _on_gpu(spec)
    return {
        "actor_rollout_ref.model.path": paths.model,
        "actor_rollout_ref.model.custom_chat_template": None,
        "actor_rollout_ref.model.external_lib": AGENT_MODULE,
        "actor_rollout_ref.model.trust_remote_code": False,
        **lora.settings(spec),
        "actor_rollout_ref.model.use_liger": False,
        "actor_rollout_ref.model.use_fused_kernels": cluster.fused_kernels,
        "actor_rollout_ref.model.fused_kernel_options.impl_backend": "triton",
        # Sequences are packed with either attention: transformers keeps them apart by their positions.
        "actor_rollout_ref.model.use_remove_padding": True,
        "actor_rollout_ref.model.enable_gradient_checkpointing": on_gpu,
        "+actor_rollout_ref.model.override_config.attn_implementation": cluster.attention,
        "actor_rollout_ref.hybrid_engine": True,
    }


def _actor(spec: RunSpec) -> Table:
    """One pass over the batch in mini-batches. The loss is ours (`loss.py`), so verl's loss settings are left out."""
    train, cluster, on_gpu = spec.train, spec.cluster, _on_gpu(spec)
    return {
        "actor_rollout_ref.actor.strategy": "fsdp2",
        "actor_rollout_ref.actor.ppo_mini_batch_size": train.mini_batch,
        "actor_rollout_ref.actor.ppo_epochs": 1,
        "actor_rollout_ref.actor.shuffle": False,
        "actor_rollout_ref.actor.data_loader_seed": _seed(spec, "data"),
        "actor_rollout_ref.actor.use_dynamic_bsz": True,
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu": cluster.max_tokens_per_gpu,
        "actor_rollout_ref.actor.entropy_coeff": 0,
        "actor_rollout_ref.actor.use_kl_loss": False,
        "actor_rollout_ref.actor.kl_loss_coef": 0.0,
        "actor_rollout_ref.actor.use_torch_compile": on_gpu,
        "actor_rollout_ref.actor.entropy_from_logits_with_chunking": on_gpu,
        "actor_rollout_ref.actor.fsdp_config.strategy": "fsdp2",
        "actor_rollout_ref.actor.fsdp_config.model_dtype": "fp32",
        "+actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype": "bf16" if on_gpu else "fp32",
        "+actor_rollout_ref.actor.fsdp_config.mixed_precision.reduce_dtype": "fp32",
        "+actor_rollout_ref.actor.fsdp_config.mixed_precision.buffer_dtype": "fp32",
        "actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size": cluster.sequence_parallel,
        "actor_rollout_ref.actor.fsdp_config.use_torch_compile": on_gpu,
        "actor_rollout_ref.actor.fsdp_config.fsdp_size": -1,
        "actor_rollout_ref.actor.fsdp_config.reshard_after_forward": True,
        # True, the default of verl's dataclass, keeps whole gradients until the last micro-batch: 33 GB for 8B weights.
        "actor_rollout_ref.actor.fsdp_config.use_no_sync_for_gradient_accumulation": False,
        "actor_rollout_ref.actor.fsdp_config.param_offload": cluster.offload,
        "actor_rollout_ref.actor.fsdp_config.optimizer_offload": cluster.offload,
        "actor_rollout_ref.actor.fsdp_config.seed": _seed(spec, "init"),
        # True would give all rollouts of a prompt the same random numbers.
        "actor_rollout_ref.actor.fsdp_config.full_determinism": False,
    }


def _optimizer(spec: RunSpec) -> Table:
    train = spec.train
    return {
        "actor_rollout_ref.actor.optim.optimizer": "AdamW",
        "actor_rollout_ref.actor.optim.optimizer_impl": "torch.optim",
        "actor_rollout_ref.actor.optim.lr": train.lr,
        "actor_rollout_ref.actor.optim.lr_scheduler_type": "constant",
        # In global steps, as in our settings; `trainer.py` skips verl's first warm-up step, whose rate is 0.
        "actor_rollout_ref.actor.optim.lr_warmup_steps": train.lr_warmup_steps,
        "actor_rollout_ref.actor.optim.lr_warmup_steps_ratio": 0.0,
        "actor_rollout_ref.actor.optim.total_training_steps": train.steps,
        "actor_rollout_ref.actor.optim.betas": list(train.betas),
        "actor_rollout_ref.actor.optim.weight_decay": train.weight_decay,
        "actor_rollout_ref.actor.optim.clip_grad": train.grad_clip,
        "actor_rollout_ref.actor.grad_clip": train.grad_clip,
    }


def _rollout(spec: RunSpec) -> Table:
    """Sampling for training and, in `val_kwargs`, for evaluation."""
    train, cluster, on_gpu = spec.train, spec.cluster, _on_gpu(spec)
    return {
        "actor_rollout_ref.rollout.name": cluster.rollout,
        "actor_rollout_ref.rollout.mode": "async",
        "actor_rollout_ref.rollout.n": train.rollouts,
        "actor_rollout_ref.rollout.temperature": train.temperature,
        "actor_rollout_ref.rollout.top_p": 1.0,
        "actor_rollout_ref.rollout.top_k": -1,
        "actor_rollout_ref.rollout.do_sample": True,
        "actor_rollout_ref.rollout.ignore_eos": False,
        "actor_rollout_ref.rollout.prompt_length": train.max_prompt,
        "actor_rollout_ref.rollout.response_length": train.max_response,
        "actor_rollout_ref.rollout.max_model_len": train.max_prompt + train.max_response,
        # The engine's own seed; each rollout brings a seed of its own (`agent.py`).
        "actor_rollout_ref.rollout.seed": _seed(spec, "rollout"),
        "actor_rollout_ref.rollout.full_determinism": False,
        "actor_rollout_ref.rollout.val_kwargs.n": spec.eval.samples,
        "actor_rollout_ref.rollout.val_kwargs.temperature": spec.eval.temperature,
        "actor_rollout_ref.rollout.val_kwargs.top_p": 1.0,
        "actor_rollout_ref.rollout.val_kwargs.top_k": -1,
        "actor_rollout_ref.rollout.val_kwargs.do_sample": True,
        "actor_rollout_ref.rollout.calculate_log_probs": True,
        # At temperature 1, as the trainer's; processed ones are at the temperature that the token was drawn at.
        "actor_rollout_ref.rollout.logprobs_mode": "raw_logprobs",
        "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz": True,
        "actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu": cluster.max_tokens_per_gpu,
        # The engine gets the trainer's weights before it samples anything; with LoRA, those that are trained.
        "actor_rollout_ref.rollout.load_format": "auto" if spec.model.lora_rank else "dummy",
        "actor_rollout_ref.rollout.dtype": "bfloat16" if on_gpu else "float32",
        "actor_rollout_ref.rollout.tensor_model_parallel_size": cluster.tensor_parallel,
        "actor_rollout_ref.rollout.gpu_memory_utilization": cluster.gpu_memory,
        "actor_rollout_ref.rollout.enforce_eager": not on_gpu,
        "actor_rollout_ref.rollout.free_cache_engine": on_gpu,
        "+actor_rollout_ref.rollout.enable_sleep_mode": on_gpu,
        # Chunked prefill rewinds the request's random generator, which CPU generators do not support.
        "actor_rollout_ref.rollout.enable_chunked_prefill": on_gpu,
        "actor_rollout_ref.rollout.enable_prefix_caching": True,
        "actor_rollout_ref.rollout.multi_turn.enable": False,
        "actor_rollout_ref.rollout.agent.default_agent_loop": AGENT,
        "actor_rollout_ref.rollout.agent.num_workers": cluster.gpus,
    }


def _reward(spec: RunSpec) -> Table:
    """Our grader decides correctness; verl's DAPO reward manager adds the overlong shaping."""
    train = spec.train
    return {
        "reward.num_workers": spec.cluster.gpus,
        "reward.custom_reward_function.path": REWARD,
        "reward.custom_reward_function.name": "compute_score",
        "reward.reward_model.enable": False,
        "reward.reward_manager.source": "register",
        "reward.reward_manager.name": "dapo",
        "+reward.reward_kwargs.max_resp_len": train.max_response,
        "+reward.reward_kwargs.overlong_buffer_cfg.enable": train.overlong_cache > 0,
        "+reward.reward_kwargs.overlong_buffer_cfg.len": train.overlong_cache,
        "+reward.reward_kwargs.overlong_buffer_cfg.penalty_factor": train.overlong_penalty,
        "+reward.reward_kwargs.overlong_buffer_cfg.log": True,
    }


def _algorithm(spec: RunSpec) -> Table:
    """Our trainer computes the advantages; `grpo` only tells verl that there is no critic."""
    method, cap = spec.method, spec.cluster.rollout_correction
    return {
        "algorithm.adv_estimator": "grpo",
        "algorithm.norm_adv_by_std_in_grpo": True,
        "algorithm.gamma": 1.0,
        "algorithm.lam": 1.0,
        "algorithm.use_kl_in_reward": False,
        "algorithm.use_pf_ppo": False,
        "algorithm.kl_ctrl.kl_coef": 0.0,
        "algorithm.filter_groups.enable": method.dynamic_sampling,
        "algorithm.filter_groups.metric": "acc",
        "algorithm.filter_groups.max_num_gen_batches": 1 + spec.train.max_refills if method.dynamic_sampling else 0,
        "algorithm.filter_groups.max_inflight_gen_batches": 1,
        # Ours computes them with verl's function (`correction.py`).
        "algorithm.rollout_correction.rollout_is": None if cap is None else "token",
        "algorithm.rollout_correction.rollout_is_threshold": cap,
        "algorithm.rollout_correction.rollout_is_batch_normalize": False,
        "algorithm.rollout_correction.rollout_rs": None,
        "algorithm.rollout_correction.bypass_mode": False,
        "critic.enable": False,
        "distillation.enabled": False,
    }


def _trainer(spec: RunSpec, paths: Paths) -> Table:
    return {
        "trainer.use_v1": True,
        "trainer.v1.trainer_mode": TRAINER,
        "trainer.total_training_steps": spec.train.steps,
        # The training file is long enough for all steps.
        "trainer.total_epochs": 1,
        "trainer.balance_batch": True,
        "trainer.critic_warmup": 0,
        "trainer.val_only": False,
        "trainer.val_before_train": paths.evaluate_first,
        "trainer.test_freq": spec.eval.every,
        "trainer.save_freq": spec.compute.checkpoint_every,
        "trainer.max_actor_ckpt_to_keep": KEPT_CHECKPOINTS,
        "trainer.default_local_dir": str(paths.checkpoints),
        "trainer.default_hdfs_dir": None,
        "trainer.del_local_ckpt_after_load": False,
        "trainer.resume_mode": "auto",
        "actor_rollout_ref.actor.checkpoint.save_contents": ["model", "optimizer", "extra"],
        "actor_rollout_ref.actor.checkpoint.load_contents": ["model", "optimizer", "extra"],
        "actor_rollout_ref.actor.checkpoint.async_save": False,
        # Our trainer writes the journal, from which MLflow is fed, and hands the same to these (`loggers.py`).
        "trainer.logger": ["console", *spec.cluster.loggers],
        "trainer.project_name": "mcpo",
        "trainer.experiment_name": spec.run_id,
        "trainer.log_val_generations": 0,
        "trainer.rollout_data_dir": None,
        "trainer.validation_data_dir": None,
        "hydra.run.dir": str(paths.attempt / "hydra"),
        "hydra.output_subdir": None,
    }


def _machines(spec: RunSpec) -> Table:
    cluster = spec.cluster
    # "local" keeps the run from joining a cluster that RAY_ADDRESS names.
    ray: Table = {"+ray_kwargs.ray_init.address": cluster.ray_address or "local"}
    if cluster.ray_address:
        # An existing cluster knows its own size.
        ray["ray_kwargs.ray_init.num_cpus"] = None
    else:
        ray["ray_kwargs.ray_init.num_cpus"] = cluster.cpus
        ray["+ray_kwargs.ray_init.include_dashboard"] = False
        if not _on_gpu(spec):
            ray["+ray_kwargs.ray_init.num_gpus"] = cluster.gpus
    variables = _workers(spec).items()
    return {
        "trainer.nnodes": cluster.nodes,
        "trainer.n_gpus_per_node": cluster.gpus,
        "trainer.device": "cuda" if _on_gpu(spec) else "cpu",
        # Each unit is a Ray actor that reserves a CPU and waits silently until it gets one.
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": cluster.gpus,
        **ray,
        **{f"+ray_kwargs.ray_init.runtime_env.env_vars.{name}": value for name, value in variables},
    }


def _workers(spec: RunSpec) -> dict[str, str]:
    """Environment variables of every verl process, including those that Ray starts on other machines."""
    modules = filter(None, (*IMPORTED, spec.cluster.plugin))
    variables = {"VLLM_NO_USAGE_STATS": "1", "VERL_USE_EXTERNAL_MODULES": ",".join(modules)}
    # Loading checkpoints must not run code (`pickles.py`). The second keeps the first from rejecting verl's messages.
    variables |= {"TORCH_FORCE_WEIGHTS_ONLY_LOAD": "1", "VERL_DATAPROTO_SERIALIZATION_METHOD": "numpy"}
    if not _on_gpu(spec):
        # verl registers FSDP for cuda and npu only; VERL_ENGINE_DEVICE selects it.
        variables |= {"VERL_PLATFORM": "cpu", "VERL_ENGINE_DEVICE": "cuda", "VLLM_CPU_KVCACHE_SPACE": "1"}
        variables |= {"OMP_NUM_THREADS": str(spec.compute.threads), "TORCHDYNAMO_DISABLE": "1"}
    return variables


def _on_gpu(spec: RunSpec) -> bool:
    return spec.compute.device != "cpu"


def _seed(spec: RunSpec, name: Stream, *index: int) -> int:
    """A 31-bit seed, as NumPy and vLLM accept."""
    return stream(spec.seed, name, *index) % 2**31
