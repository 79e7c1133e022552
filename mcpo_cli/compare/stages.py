"""Seeds in stages until every difference has a verdict: `mcpo ablate SUITE --until decided`."""

from collections.abc import Mapping, Sequence
from typing import Any

from mcpo_cli.compare import subjects
from mcpo_cli.compare.comparison import Question
from mcpo_cli.config import plan
from mcpo_cli.config.reading import key_of
from mcpo_cli.errors import ConfigError
from mcpo_cli.render import markup
from mcpo_cli.render.markup import Columns, Grid
from mcpo_cli.render.product import Row
from mcpo_cli.scheduling import outcome, start
from mcpo_cli.scheduling.display import talk
from mcpo_cli.statistics import difference_tests, power
from mcpo_cli.statistics.difference_tests import PValues
from mcpo_cli.statistics.words import OPEN


def train_in_stages(suite: str, overrides: Sequence[str], command: str) -> tuple[dict[str, Any], list[str]]:
    """Train the stages of `power`, and print each stage's outcome on stderr.

    It tests the differences of the suite's headline at equal steps, over all its models, arms and regimes, as one
    family. All arms train on every seed of a stage, so that the final comparison stays paired.

    Returns:
        The document for `--json`: the last stage's runs, the decisions, the cost. And the overrides of all seeds.

    Raises:
        ConfigError: the overrides set the seeds, which the stages choose.
        RunFailed: a run failed.
    """
    if "seed" in {key_of(word) for word in overrides}:
        raise ConfigError("--until decided chooses the seeds itself", fix="omit seed=..., or --until")
    decided: dict[tuple[str, str, str], dict[str, Any]] = {}
    for stage, seeds in enumerate(power.STAGES, 1):
        words = [*overrides, f"seed={','.join(map(str, range(seeds)))}"]
        full_plan = plan.from_suite(suite, words, command)
        document = outcome.document(full_plan, start.train(full_plan))
        question = Question(at=("steps",), look=(stage, len(power.STAGES)))
        tested = subjects.headline_rows(full_plan, suite, question)
        adjusted = difference_tests.adjusted([PValues(row["p"]) for row in tested])
        for row, p_values in zip(tested, adjusted, strict=True):
            key = (row["regime"], row["model"], row["arm"])
            if decided.get(key, {"verdict": "undecided"})["verdict"] in OPEN:
                decided[key] = _decision(row, p_values, seeds, question.level)
        left = sum(row["verdict"] in OPEN for row in decided.values())
        talk(f"{seeds} seeds: {len(decided) - left} of {len(decided)} differences decided")
        if not left:
            break
    talk(f"spent: {len(document['runs'])} runs of {seeds} seeds; at most {power.STAGES[-1]} seeds")
    return {**document, "decisions": [*decided.values()], "seeds": seeds}, words


def _decision(row: Row, p_values: PValues, seeds: int, level: float) -> dict[str, Any]:
    """A difference of the headline at the stage that decided it, or at the last stage.

    Args:
        row: see `subjects.headline_rows`.
        p_values: adjusted over all differences of that stage.
        seeds: number of seeds after that stage.
        level: the largest adjusted p that decides at that stage.
    """
    names = {key: row[key] for key in ("regime", "model", "arm", "metric", "at")}
    numbers = {name: row[name] for name in ("difference", "low", "high")}
    verdict = difference_tests.word(row["difference"], p_values, level, identical=row["identical"])
    tested = {"p_adjusted": p_values.p, "level": level, "seeds": seeds, "verdict": verdict}
    return names | numbers | tested


def decisions_grid(decisions: Sequence[Mapping[str, Any]]) -> Grid:
    """The decisions, for people."""
    columns: Columns = {
        **{name: name for name in ("regime", "model", "arm", "seeds")},
        "difference": lambda row: f"{row['difference']:+.3f}",
        "p adjusted": lambda row: markup.p_value(row["p_adjusted"]),
        "decides at": lambda row: f"{row['level']:g}",
        "verdict": "verdict",
    }
    return Grid.of("", decisions, columns, labels=len(columns))
