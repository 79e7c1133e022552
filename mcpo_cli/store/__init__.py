"""The MLflow store, and the schemas of what it is fed from; nothing outside imports mlflow."""

import os

# Read by MLflow and its drivers when they are imported; what the user has set stays.
os.environ.update(
    {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
        "MLFLOW_LOGGING_LEVEL": "CRITICAL",  # it prints tracebacks of what it raises anyway
        "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # the password in it, too, and stdout is for data
        "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",  # of 7, which wait for minutes
        "PGCONNECT_TIMEOUT": "10",
    }
    | dict(os.environ)
)
