"""Guesses at an unknown setting: another tool's name for it, its name in another group, or a similar spelling."""

import difflib
from collections.abc import Callable, Sequence

from mcpo_cli.config.reading import short
from mcpo_cli.errors import SIMILAR, ConfigError

HABITS = {
    **dict.fromkeys(("num_generations", "group_size", "n_rollouts"), "train.rollouts"),
    **dict.fromkeys(("batch_size", "train_batch_size", "per_device_train_batch_size"), "train.prompts"),
    **dict.fromkeys(("ppo_mini_batch_size", "mini_batch_size"), "train.mini_batch"),
    **dict.fromkeys(("epochs", "num_train_epochs", "total_epochs", "max_steps"), "train.steps"),
    **dict.fromkeys(("max_completion_length", "max_new_tokens", "max_response_length"), "train.max_response"),
    **dict.fromkeys(("model_name", "model_name_or_path"), "model.path"),
    **dict.fromkeys(("kl_coef", "kl_loss_coef"), "method.beta"),
    **dict.fromkeys(("max_grad_norm", "clip_grad"), "train.grad_clip"),
    **dict.fromkeys(("rollout_correction", "rollout_is", "vllm_importance_sampling_mode"), "train.correction"),
    "learning_rate": "train.lr",
    "dataset": "task.data",
    **dict.fromkeys(("report_to", "logger", "loggers"), "cluster.loggers"),
}
"""Names of settings in TRL, verl and other tools, and their names here."""


def unknown_key(key: str, known: Sequence[str], mend: Callable[[str], str]) -> ConfigError:
    """The error of a key that is not in `known`; `mend` makes the fix of the key that was probably meant."""
    meant = _meant(key, known)
    hint = f": did you mean {' or '.join(repr(name) for name in meant)}?" if meant else ""
    group = key.partition(".")[0]
    listed = f"mcpo help {group}" if any(name.startswith(f"{group}.") for name in known) else "mcpo help"
    fix = short(mend(meant[0])) if meant else f"{listed}  (lists the settings)"
    return ConfigError(f"unknown key '{short(key)}'{hint}", fix=fix, code="unknown_key")


def _meant(key: str, known: Sequence[str]) -> list[str]:
    """The keys that an unknown key may mean.

    `warmup.max_ops` may mean `task.warmup_max_ops`. In a group that exists, only the names in it are compared: the
    letters of the group would make all of them look similar.
    """
    group, _, wanted = key.rpartition(".")
    if wanted in HABITS and group in ("", "train", "cluster"):
        return [HABITS[wanted]]
    siblings = {name.removeprefix(f"{group}."): name for name in known if group and name.startswith(f"{group}.")}
    return (
        [name for name in known if name.rpartition(".")[2] == key.replace(".", "_")]
        or [siblings[name] for name in difflib.get_close_matches(wanted, siblings, n=1, cutoff=SIMILAR)]
        or [name for name in known if name.rpartition(".")[2] == wanted]
        or ([] if siblings else difflib.get_close_matches(key, known, n=1, cutoff=SIMILAR))
    )
