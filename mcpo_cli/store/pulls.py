"""Restores the journals of runs from MLflow to a home that lacks them, so that analysis works there."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mcpo_cli.errors import McpoError, StoreError
from mcpo_cli.store import archive
from mcpo_cli.store.connection import DOCTOR, PAGE, RUN_ID, Connection


class Pulls(Connection):
    """An MLflow store, as a source of runs."""

    def pull(self, suite: str | None) -> tuple[list[str], dict[str, str]]:
        """Restore the journals of all completed runs, or of one suite's, that have no folder in this home.

        Existing run folders are left alone, whatever their state.

        Returns:
            The ids of the restored runs, and run id -> reason for those that could not be restored.

        Raises:
            StoreError: the store failed; the runs restored until then are complete.
        """
        pulled, left = list[str](), dict[str, str]()
        with self._answering(fix=DOCTOR):
            for run in self._done(suite):
                run_id = run.data.tags[RUN_ID]
                if (self._home / "runs" / run_id).exists():
                    continue
                try:
                    self._restore(run.info.run_id, run_id)
                    pulled.append(run_id)
                    left.pop(run_id, None)
                except McpoError as error:
                    left[run_id] = error.message
        return pulled, left

    def _done(self, suite: str | None) -> Iterator[Any]:
        client = self._client()
        experiments = [one for one in client.search_experiments() if suite in (None, one.name)]
        for one in experiments:
            self._relocate(one)
        wanted = [one.experiment_id for one in experiments]
        token: str | None = ""
        while token is not None and wanted:
            page = client.search_runs(wanted, "tags.state = 'done'", max_results=PAGE, page_token=token or None)
            yield from page
            token = page.token or None

    def _restore(self, mlflow_id: str, run_id: str) -> None:
        content = self._artifact(mlflow_id, archive.NAME)
        if content is None:
            raise StoreError("its journal is not in the store; run mcpo runs sync where it was trained to upload it")
        (self._home / "runs").mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._home, prefix=".pull-") as folder:
            restored = archive.restore(content, run_id, Path(folder) / "run")
            # An atomic rename: no run is ever there in part, and one that appeared meanwhile stays.
            restored.rename(self._home / "runs" / run_id)
