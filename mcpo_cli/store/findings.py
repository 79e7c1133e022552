"""Uploads probe results to MLflow: values to the runs they describe, the full document to the parent runs."""

from collections.abc import Mapping
from typing import Any

from mcpo_cli.runs.journal import Journal, read_json
from mcpo_cli.store.connection import PARENT, Connection
from mcpo_cli.store.points import Point, milliseconds


class Findings(Connection):
    """An MLflow store, for probe results."""

    def log(self, probe: str, findings: Mapping[str, Mapping[str, float]], document: Any) -> list[str]:
        """Log values as `probe/<probe>/<value>` and `document` as `probes/<probe>.json`.

        Each point has the end time of its run, so that MLflow drops repeated equal points.

        Args:
            findings: run id -> value name -> value.

        Returns:
            The ids of the runs that the store does not hold.

        Raises:
            StoreError: the store failed.
        """
        with self._writing():
            parents, unknown = set[str](), []
            for run_id, values in findings.items():
                runs = self._copies(run_id)
                for run in runs:
                    self._log(run.info.run_id, _points(probe, values, self._ended(run_id)), {})
                    parents |= {run.data.tags[tag] for tag in [PARENT] if tag in run.data.tags}
                if not runs:
                    unknown.append(run_id)
            for parent in sorted(parents):
                self._client().log_dict(parent, document, f"probes/{probe}.json")
        return unknown

    def _ended(self, run_id: str) -> float:
        attempt = Journal(self._home / "runs" / run_id).attempts()[-1]
        return float(read_json(attempt / "status.json")["updated"])


def _points(probe: str, values: Mapping[str, float], time: float) -> list[Point]:
    return [(f"probe/{probe}/{name}", value, milliseconds(time), 0) for name, value in values.items()]
