"""How long the runs of a plan still take: their forecast, corrected by elapsed against promised time as they go."""

from dataclasses import dataclass

from mcpo_cli.scheduling.forecast import Expected, Forecast


@dataclass
class Clock:
    """The time of one run's worker against the run's forecast. Times are in seconds."""

    run: Expected
    began: float
    """The time at which the worker was first seen."""
    now: float
    """The time at which the worker was last seen."""
    step: int | None = None
    """The last global step that the worker has done; None before its first."""
    stepped: float = 0.0
    """The time at which that step was first seen."""

    def see(self, step: int, now: float) -> None:
        """The run's last global step is `step`, at time `now`."""
        self.now = now
        if step > (self.run.step if self.step is None else self.step):
            self.step, self.stepped = step, now

    @property
    def elapsed(self) -> float:
        """Seconds that the known work so far has taken."""
        return (self.now if self.step is None else self.stepped) - self.began

    @property
    def promised(self) -> float:
        """Seconds that the forecast promised for that work: before the first step, at most what has elapsed."""
        if self.step is None:
            return min(self.elapsed, self.run.start_seconds + self.run.step_seconds)
        return self.run.start_seconds + (self.step - self.run.step) * self.run.step_seconds


class Pace:
    """Corrects the forecast of runs by the time that runs of the same scale and model have taken so far.

    While none of these has done a global step, by the time of all runs; a run that is overdue before its first step
    counts.
    """

    def __init__(self, expected: Forecast) -> None:
        self._expected = expected
        self._clocks: dict[str, Clock] = {}

    def see(self, run_id: str, step: int, now: float) -> None:
        """The worker of a run goes on; its last global step is `step`."""
        run = self._expected.runs[run_id]
        self._clocks.setdefault(run_id, Clock(run, now, now)).see(step, now)

    def loading(self, elapsed: float) -> float:
        """Seconds until the first worker begins, `elapsed` seconds after the command."""
        return 0.0 if self._clocks else max(0.0, self._expected.loading - elapsed)

    def seconds_left(self, run_id: str, now: float) -> float:
        """Seconds until a run ends that has not ended."""
        run, clock = self._expected.runs[run_id], self._clocks.get(run_id)
        if not clock:
            return self._factor(run) * run.seconds_left
        seconds = self._factor(run) * (run.seconds_left - clock.promised)
        return max(0.0, seconds - (now - clock.began - clock.elapsed))

    def _factor(self, run: Expected) -> float:
        """Elapsed over promised seconds."""
        clocks, spec = self._clocks.values(), run.spec
        kind = [
            clock
            for clock in clocks
            if (clock.run.spec.scale, clock.run.spec.model.name) == (spec.scale, spec.model.name)
        ]
        counted = kind if any(clock.step is not None for clock in kind) else clocks
        promised = sum(clock.promised for clock in counted)
        return sum(clock.elapsed for clock in counted) / promised if promised else 1.0
