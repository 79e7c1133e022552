"""Which MLflow store is meant. Apart from what reaches it, as importing mlflow takes seconds."""

import os

from mcpo_cli.home import home

OFFLINE = "offline"


def resolve(setting: str) -> str | None:
    """The tracking URI that `compute.tracking_uri` stands for; None where it says offline.

    Raises:
        ConfigError: MCPO_HOME cannot be written.
    """
    uri = setting or os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{home() / 'mlflow.db'}"
    return None if uri == OFFLINE else uri
