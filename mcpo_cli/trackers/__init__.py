"""Where runs can be seen besides their journals: MLflow, W&B, TensorBoard, trackio.

`follower.py` follows journals, and each tracker has a module of its name. Only this package imports mlflow, and only
its public API.

`resolve` decides if there is an MLflow store, without importing mlflow, so that its callers need not wait for the
import. An installation without mlflow has no store unless a setting names one: the journals hold everything.
"""

import json
import os
from typing import Any

from mcpo_cli import extras
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import ConfigError
from mcpo_cli.home import home
from mcpo_cli.redaction import redact

# MLflow and its drivers read these when imported. Values the user has set take precedence.
os.environ.update(
    {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
        "MLFLOW_LOGGING_LEVEL": "CRITICAL",  # it would print tracebacks of errors that it also raises
        "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # the URL may hold a password, and stdout is for data
        "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",  # the default of 7 waits for minutes
        "PGCONNECT_TIMEOUT": "10",
    }
    | dict(os.environ)
)

OFFLINE = "offline"
PROJECT = "mcpo"
"""The project of all runs in W&B and trackio."""


def named(setting: str) -> str:
    """The store that `setting` (`compute.tracking_uri`) or else MLFLOW_TRACKING_URI names; empty for the default."""
    return setting or os.environ.get("MLFLOW_TRACKING_URI", "")


def resolve(setting: str) -> str | None:
    """The tracking URI for the value `setting` of `compute.tracking_uri`.

    None for "offline", and for the default store if mlflow is not installed.

    Raises:
        ConfigError: a store is named and mlflow is not installed; MCPO_HOME cannot be written, or its path cannot be
            part of the URI of a database.
    """
    if uri := named(setting):
        if uri == OFFLINE:
            return None
        extras.require("mlflow", "a store")
        return uri
    if not extras.is_installed("mlflow"):
        return None
    if signs := sorted(set("?#%") & set(str(home()))):
        raise ConfigError(
            f"MCPO_HOME={home()} cannot hold an MLflow store: its path contains {' '.join(signs)}",
            fix="move it, or MLFLOW_TRACKING_URI=offline",
        )
    return f"sqlite:///{home() / 'mlflow.db'}"


def settings(spec: RunSpec) -> dict[str, Any]:
    """The settings that decide the result of a run, without secrets."""
    identity: dict[str, Any] = json.loads(redact(json.dumps(spec.identity())))
    return identity
