"""Uploads tables, figures and the report to the MLflow parent runs of the suites they are built from."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from mcpo_cli.config.plan import Plan
from mcpo_cli.store.mlflow import Store

FOLDER = "reports"
INDEX = f"{FOLDER}/index.json"
"""Artifact that maps the name of each uploaded file to its checksum."""


class Reports(Store):
    """An MLflow store, for files built from its runs."""

    def log(self, plan: Plan, files: Sequence[Path]) -> list[str]:
        """Upload new and changed files to the plan's parent run, and the plan's runs if they are missing.

        Returns:
            The names of the files that were sent.

        Raises:
            StoreError: the store failed; the next call sends what is missing.
        """
        with self._writing():
            self._ingest(plan, adopt=True)
            parent = self._parent(plan)
            there = json.loads(self._artifact(parent, INDEX) or b"{}")
            digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
            changed = [path for path in files if there.get(path.name) != digests[path.name]]
            for path in changed:
                self._client().log_artifact(parent, str(path), FOLDER)
            if changed:
                self._client().log_dict(parent, there | digests, INDEX)
        return [path.name for path in changed]
