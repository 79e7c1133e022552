"""The MLflow store. Only this package imports mlflow, and only its public API.

`resolve` says whether there is a store at all. It stands here because its callers must not wait for mlflow's import.
"""

import os

from mcpo_cli.errors import ConfigError
from mcpo_cli.home import home

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


def resolve(setting: str) -> str | None:
    """The tracking URI for the value `setting` of `compute.tracking_uri`; None for "offline".

    Raises:
        ConfigError: MCPO_HOME cannot be written, or its path cannot stand in the URI of a database.
    """
    uri = setting or os.environ.get("MLFLOW_TRACKING_URI")
    if not uri:
        if signs := sorted(set("?#%") & set(str(home()))):
            raise ConfigError(
                f"MCPO_HOME={home()} cannot hold an MLflow store: its path contains {' '.join(signs)}",
                fix="move it, or MLFLOW_TRACKING_URI=offline",
            )
        uri = f"sqlite:///{home() / 'mlflow.db'}"
    return None if uri == OFFLINE else uri
