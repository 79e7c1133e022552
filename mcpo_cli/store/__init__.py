"""The MLflow store. Only this package imports mlflow."""

import os

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
