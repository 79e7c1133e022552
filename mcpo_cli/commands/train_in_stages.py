"""`mcpo ablate SUITE --until decided`: seeds in stages, until every difference of the headline has a verdict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mcpo_cli.analysis import words
from mcpo_cli.analysis.comparison import Choice, Row
from mcpo_cli.commands import compare_runs, console
from mcpo_cli.commands.start_runs import run_plan
from mcpo_cli.config import plan
from mcpo_cli.config.overrides import key_of
from mcpo_cli.errors import ConfigError
from mcpo_cli.statistics import sequential, stats


@dataclass(frozen=True)
class Decision:
    """A difference of the headline at the stage that decided it, or at the last one."""

    difference: Row
    """See `compare_runs.headline`."""
    p_holm: float
    """p adjusted over all differences of that stage."""
    seeds: int
    """Seeds after that stage."""
    level: float
    """The largest adjusted p that decides at that stage."""

    @property
    def verdict(self) -> str:
        """`above` or `below` the baseline, else `open`."""
        if not self.p_holm <= self.level:
            return "open"
        return "above" if self.difference["mean"] > 0 else "below"

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        one = self.difference
        place = {key: one[key] for key in ("regime", "model", "arm", "metric", "at")}
        numbers = {"difference": one["mean"], "low": one["low"], "high": one["high"]}
        verdict = {"p_holm": self.p_holm, "level": self.level, "seeds": self.seeds, "verdict": self.verdict}
        return place | numbers | verdict


def train(suite: str, overrides: Sequence[str], command: str) -> tuple[dict[str, Any], list[str]]:
    """Train the stages of `sequential`, and print each stage's outcome on stderr.

    The differences tested are those of the suite's headline at equal steps, of all its models, arms and regimes: one
    family. All arms train on every seed of a stage, so that the final comparison stays paired.

    Returns:
        The document for `--json`: the last stage's runs, the decisions, what was spent. And the overrides of all seeds.

    Raises:
        ConfigError: the overrides set the seeds, which the stages do, or the suite has a design.
        RunFailed: a run failed.
    """
    if "seed" in {key_of(word) for word in overrides}:
        raise ConfigError("--until decided chooses the seeds itself", fix="leave seed=... out, or --until")
    compare_runs.refuse_design(suite)
    decided: dict[tuple[str, str, str], Decision] = {}
    for stage, seeds in enumerate(sequential.STAGES):
        given = [*overrides, f"seed={','.join(map(str, range(seeds)))}"]
        whole = plan.from_suite(suite, given, command)
        document = run_plan(whole)
        tested = compare_runs.headline(whole, compare_runs.chosen(suite, Choice(at=("steps",))))
        adjusted = stats.holm([one["p"] for one in tested])
        for one, p_holm in zip(tested, adjusted, strict=True):
            key = (one["regime"], one["model"], one["arm"])
            if key not in decided or decided[key].verdict == "open":
                decided[key] = Decision(one, float(p_holm), seeds, sequential.LEVELS[stage])
        left = sum(one.verdict == "open" for one in decided.values())
        console.talk(f"{seeds} seeds: {len(decided) - left} of {len(decided)} differences decided")
        if not left:
            break
    console.talk(f"spent: {len(document['runs'])} runs of {seeds} seeds; at most {sequential.STAGES[-1]} seeds")
    return {**document, "decisions": [one.to_json() for one in decided.values()], "seeds": seeds}, given


def show(decisions: Sequence[Mapping[str, Any]]) -> None:
    """Print the decisions."""
    header = ["regime", "model", "arm", "seeds", "difference", "p Holm", "decides at", "verdict"]
    rows = [
        [
            *(str(one[name]) for name in ("regime", "model", "arm", "seeds")),
            f"{one['difference']:+.3f}",
            words.p_value(one["p_holm"]),
            f"{one['level']:g}",
            one["verdict"],
        ]
        for one in decisions
    ]
    console.print_text("\nBy stages, which keep the level .05 together; the tables above test these seeds once:")
    console.print_table(header, rows)
