"""How much faster or slower than modelled a home's machine is, from the steps that were done in it."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import Any

from mcpo_cli.config import cost
from mcpo_cli.config.cost import Estimate
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import RunFailed
from mcpo_cli.runs import catalog
from mcpo_cli.runs.journal import STEPS, Journal, last_row, lines_from

Kind = tuple[str, str]
"""Scale and model: estimates for runs of one kind have similar errors."""
NEWEST = 24
"""Most runs of a kind whose steps are read: the newest runs tell how fast the machine is now."""


class Speeds:
    """The measured speed of each kind of run in a home, from the newest runs of each."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._measured: dict[Kind, dict[str, tuple[float, float]]] = defaultdict(dict)
        """By kind and run: the measured and the modelled seconds of its steps."""
        kinds: dict[Kind, list[tuple[str, catalog.Run]]] = defaultdict(list)
        for run in catalog.runs(home):
            settings = run.facts
            kinds[settings["scale"], settings["model.name"]].append((run.date, run))
        for runs in kinds.values():
            for _, run in sorted(runs, key=itemgetter(0), reverse=True)[:NEWEST]:
                self._learn(run.folder, cost.estimate(run.spec))

    def _learn(self, run_dir: Path, expected: Estimate) -> None:
        """Take into account the time of a run's steps so far, whether it goes on or not."""
        spec, seconds, steps = expected.spec, 0.0, 0
        for first, last in _timed(run_dir):
            # System clocks are sometimes set back.
            if last["time"] > first["time"]:
                seconds += last["time"] - first["time"]
                steps += last["step"] - first["step"]
        if steps:
            modelled = steps / spec.train.steps * expected.training
            self._measured[spec.scale, spec.model.name][spec.run_id] = seconds, modelled

    def factor(self, expected: Estimate) -> float | None:
        """Measured over modelled seconds: for the run's own steps, or else for runs of its kind; None without any."""
        spec = expected.spec
        times = self._measured[spec.scale, spec.model.name]
        if spec.run_id not in times:
            self._learn(self._home / "runs" / spec.run_id, expected)
        measured = [times[spec.run_id]] if spec.run_id in times else times.values()
        modelled = sum(seconds for _, seconds in measured)
        return sum(seconds for seconds, _ in measured) / modelled if modelled else None

    def basis(self, specs: Iterable[RunSpec]) -> str:
        """The source of the estimated seconds of `specs`, in words."""
        kinds = {(spec.scale, spec.model.name) for spec in specs} & self._measured.keys()
        runs = sum(len(self._measured[kind]) for kind in kinds)
        return f"from the cost model and the steps that {runs} run(s) have done here" if runs else "from the cost model"


def _timed(run_dir: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """First and last row of each attempt that has several rows, up to the first damaged attempt."""
    with suppress(RunFailed):
        for attempt in Journal(run_dir).attempts():
            path = attempt / STEPS
            first, last = next((row for row, _ in lines_from(path, 0)), None), last_row(path)
            if first and last and first != last:
                yield first, last
