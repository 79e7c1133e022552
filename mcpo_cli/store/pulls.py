"""Brings runs back from MLflow, to a home that lacks them: journals, so that frames, tables and figures work there."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mcpo_cli.config import load
from mcpo_cli.errors import McpoError, StoreError
from mcpo_cli.runs import attempts
from mcpo_cli.runs.journal import read_json
from mcpo_cli.store import archive
from mcpo_cli.store.connection import Connection

PAGE = 1000


class Pulls(Connection):
    """An MLflow store, as the place that runs come back from."""

    def pull(self, suite: str | None) -> tuple[list[str], dict[str, str]]:
        """Restore the journals of all done runs, or of those of one suite, that this home has no folder of.

        A run that is here is left alone, whatever its state.

        Returns:
            The ids of the runs that came, and why others could not, by id.

        Raises:
            StoreError: the store failed; what came until then is whole.
        """
        pulled, left = list[str](), dict[str, str]()
        with self._answering(fix="mcpo runs pull"):
            for run in self._done(suite):
                run_id = run.data.tags["mcpo.run_id"]
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
        wanted = [one.experiment_id for one in client.search_experiments() if suite in (None, one.name)]
        token: str | None = ""
        while token is not None and wanted:
            page = client.search_runs(wanted, "tags.state = 'done'", max_results=PAGE, page_token=token or None)
            yield from page
            token = page.token or None

    def _restore(self, mlflow_id: str, run_id: str) -> None:
        content = self._artifact(mlflow_id, archive.NAME)
        if content is None:
            raise StoreError("its journal is not in the store; mcpo runs sync, where it was trained, brings it there")
        (self._home / "runs").mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._home, prefix=".pull-") as folder:
            restored = Path(folder) / "run"
            archive.unpack(content, restored)
            spec = load.from_dict(read_json(restored / "spec.json"))
            if spec.run_id != run_id or attempts.state(restored, spec) != "done":
                raise StoreError("its journal is of another run, or not that of a run that is done")
            # As one step: a run is there whole or not at all, and one that came meanwhile stays.
            restored.rename(self._home / "runs" / spec.run_id)
