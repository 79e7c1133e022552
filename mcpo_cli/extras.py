"""Packages that an installation may lack, and the extra of mcpo-cli that installs each."""

import sys
from importlib.util import find_spec

from mcpo_cli.errors import ConfigError

EXTRAS = {
    **dict.fromkeys(
        ("torch", "transformers", "hydra", "omegaconf", "tokenizers", "safetensors", "huggingface_hub", "gguf", "loky"),
        "train",
    ),
    "mlflow": "mlflow",
    "sqlalchemy": "mlflow",
    "submitit": "slurm",
    "reasoning_gym": "gym",
    "inspect_ai": "inspect",
    "tensorboard": "tensorboard",
    "trackio": "trackio",
    "wandb": "wandb",
}
"""Extra by module; the extra `all` has the packages that `make setup` installs (pyproject.toml)."""


def is_installed(module: str) -> bool:
    """True if the module can be found; does not import it."""
    return find_spec(module) is not None


def command(extra: str) -> str:
    """The command that installs an extra; pip keeps the installed mcpo-cli, whatever its source."""
    return f"{sys.executable} -m pip install 'mcpo-cli[{extra}]'"


def missing(error: BaseException) -> ConfigError | None:
    """The error of a command that needs an extra, from the error of a failed import; None for any other error."""
    module = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    return _lacking("this command", module) if module in EXTRAS else None


def require(module: str, what: str) -> None:
    """Raises ConfigError, with the command that installs `module`, if `what` cannot be done without it."""
    if not is_installed(module):
        raise _lacking(what, module)


def _lacking(subject: str, module: str) -> ConfigError:
    return ConfigError(
        f"{subject} needs {module}, which is not installed", fix=command(EXTRAS[module]), code="not_installed"
    )
