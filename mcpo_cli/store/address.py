"""The address of the MLflow store. This module does not import mlflow, which takes seconds."""

import os

from mcpo_cli.home import home

OFFLINE = "offline"


def resolve(setting: str) -> str | None:
    """The tracking URI for the value `setting` of `compute.tracking_uri`; None for "offline".

    Raises:
        ConfigError: MCPO_HOME cannot be written.
    """
    uri = setting or os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{home() / 'mlflow.db'}"
    return None if uri == OFFLINE else uri
