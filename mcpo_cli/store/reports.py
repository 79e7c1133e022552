"""Uploads tables, figures and the report to the MLflow parent runs of the suites they are built from."""

import hashlib
import json
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from mcpo_cli.config.plan import Plan
from mcpo_cli.redaction import redact
from mcpo_cli.store import pages
from mcpo_cli.store.mlflow import Store
from mcpo_cli.store.points import milliseconds

FOLDER = "reports"
INDEX = f"{FOLDER}/index.json"
"""Artifact that maps the name of each uploaded file to its checksum."""
UNNAMEABLE = re.compile(r"[^\w./ -]")
"""Characters that MLflow refuses in the name of a metric."""


class Reports(Store):
    """An MLflow store, for files built from its runs."""

    def log(self, plan: Plan, files: Sequence[Path], values: Mapping[str, float], results: str = "") -> list[str]:
        """Upload new and changed files to the plan's parent run, and the plan's runs if they are missing.

        values: metrics to log to the parent run, if a file changed. A name keeps what MLflow allows in one; the rest
        becomes `_`. results: Markdown for the description of the parent run.

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
                now = milliseconds(time.time())
                self._log(parent, [(UNNAMEABLE.sub("_", name), value, now, 0) for name, value in values.items()], {})
            if results:
                note = pages.plan_note(plan, redact(plan.command), self._experiment(plan.suite), results)
                self._describe_run(parent, note)
        return [path.name for path in changed]
