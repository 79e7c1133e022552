"""The gate of a comparison: the rules of a policy (`rules.py`), judged; as a line for a log, and as Markdown."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pandas as pd

from mcpo_cli.compare import page, rules
from mcpo_cli.compare.comparison import Comparison, records
from mcpo_cli.compare.equal_cost import AVERAGE, shown
from mcpo_cli.compare.rules import EACH, MEAN, GatePolicy, Rule
from mcpo_cli.errors import ConfigError, GateBroken, GateUndecided, McpoError, nearest, similar
from mcpo_cli.render import markup
from mcpo_cli.render.markup import Columns, Grid, share, signed
from mcpo_cli.render.product import Row
from mcpo_cli.statistics import stats
from mcpo_cli.statistics.words import GateWord


@dataclass(frozen=True)
class GateLine:
    """One rule on one difference."""

    benchmark: str
    """The benchmark, or MEAN."""
    rule: Rule
    required: bool
    row: Row
    """The difference: a row of `Comparison.differences`."""
    p_holds: float
    p_broken: float
    """Adjusted over all required rules, or over all advisory rules."""
    outcome: GateWord = "undecided"

    @property
    def sentence(self) -> str:
        """`gsm8k no-worse:0.01 (new +.012 [-.003, +.027])`, with the reason if the data have no test."""
        row = self.row
        reason = ""
        if self.outcome == "undecided":
            reason = rules.too_few(self.rule, row) if row["identical"] else row["why"]
        numbers = f"{row['arm']} {signed(row['difference'])} {page.interval(row)}"
        return f"{self.benchmark} {self.rule} ({numbers}{f': {reason}' if reason else ''})"

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        names = ("arm", "mean", "baseline_mean", "difference", "low", "high", "metric", "model", "at")
        values = {name: getattr(self, name) for name in ("benchmark", "required", "outcome", "p_holds", "p_broken")}
        return {**values, "rule": str(self.rule), **{name: self.row[name] for name in names}}


@dataclass(frozen=True)
class NoiseFloor:
    """Gates of some repeats of the baseline against its other repeats."""

    gates: int
    broken: int
    undecided: int
    part: int
    """Number of repeats that stood for the new model."""
    repeats: int

    @property
    def sentence(self) -> str:
        """The shares in words."""
        size = self.repeats - self.part
        against = f"{self.part} of its {self.repeats} repeats against the other{'' if size == 1 else f' {size}'}"
        return (
            f"noise floor: of {self.gates} gates of the baseline against itself ({against}), {self.broken} "
            f"({self.broken / self.gates:.0%}) are broken and {self.undecided} undecided"
        )

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {**asdict(self), "share_broken": self.broken / self.gates, "sentence": self.sentence}


@dataclass(frozen=True)
class Gate:
    """The answer to all rules."""

    baseline: str
    lines: Sequence[GateLine]
    missing: Sequence[str] = ()
    """Benchmarks of advisory rules that the data lack."""
    noise: NoiseFloor | None = None
    """None if the baseline has no repeats."""

    @property
    def outcome(self) -> GateWord:
        """Broken if a required rule is broken, else undecided if a required rule is undecided, else it holds."""
        outcomes = {line.outcome for line in self.lines if line.required}
        return "broken" if "broken" in outcomes else "undecided" if "undecided" in outcomes else "holds"

    @property
    def sentence(self) -> str:
        """One line for a log: the outcome, the required rules that decide it, and advisory rules that do not hold."""
        required = [line for line in self.lines if line.required]
        deciding = [line for line in required if line.outcome == self.outcome]
        of = f", {len(deciding)} of {len(required)} rules" if len(deciding) < len(required) else ""
        notes = [f"advisory, {line.outcome}: {line.sentence}" for line in self.lines
                 if not line.required and line.outcome != "holds"]  # fmt: skip
        notes += [f"advisory, not in the data: {name}" for name in self.missing]
        return "; ".join([f"gate {self.outcome}{of}: {', '.join(line.sentence for line in deciding)}", *notes])

    @property
    def error(self) -> McpoError | None:
        """The error that ends the command; None if the gate holds."""
        if self.outcome == "holds":
            return None
        if self.outcome == "broken":
            return GateBroken(self.sentence)
        return GateUndecided(self.sentence, fix="evaluate more problems, seeds or samples, or allow a larger margin")

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        lines = [line.to_json() for line in self.lines]
        noise = self.noise and self.noise.to_json()
        return {"outcome": self.outcome, "sentence": self.sentence, "rules": lines, "missing": list(self.missing),
                "noise_floor": noise}  # fmt: skip

    def markdown(self) -> str:
        """The block for a pull request."""
        columns: Columns = {
            "benchmark": lambda line: line.benchmark,
            "arm": lambda line: line.row["arm"],
            "rule": lambda line: f"{line.rule}{'' if line.required else ' (advisory)'}",
            "outcome": lambda line: line.outcome,
            page.heading(self.baseline): lambda line: share(line.row["baseline_mean"]),
            "arm's": lambda line: share(line.row["mean"]),
            "change": lambda line: signed(line.row["difference"]),
            "interval": lambda line: page.interval(line.row),
        }
        grid = Grid.of("", self.lines, columns, labels=4)
        blocks = [f"**{markup.escaped(self.sentence)}**", markup.pipes(grid)]
        return "\n\n".join([*blocks, *([self.noise.sentence] if self.noise else [])]) + "\n"


def judge(comparison: Comparison, policy: GatePolicy) -> Gate:
    """Judge the rules of a policy on the differences in the headline's metric, for runs at the first cost.

    Raises:
        ConfigError: no difference is about the benchmark of a required rule.
    """
    rows = records(
        comparison.differences.assign(student=pd.Series(comparison.students, dtype=object)),
        metric=comparison.metric,
        at=comparison.axes[0],
        part_of="",
    )
    required = list(_lines(rows, policy.required, required=True))
    keys = [key for key in policy.advisory if _chosen(rows, key)]
    advisory = list(_lines(rows, {key: policy.advisory[key] for key in keys}, required=False))
    missing = [key for key in policy.advisory if key not in keys]
    return Gate(
        comparison.baseline, [*_decided(required, comparison.level), *_decided(advisory, comparison.level)], missing
    )


def _chosen(rows: Sequence[Row], key: str) -> list[Row]:
    """The differences that a rule is about."""
    if not key:
        return [row for row in rows if row["family"] == "headline"]
    if key == EACH:
        return [row for row in rows if row["benchmark"] != AVERAGE]
    return [row for row in rows if row["benchmark"] == (AVERAGE if key == MEAN else key)]


def _lines(rows: Sequence[Row], rule_texts: Mapping[str, str], *, required: bool) -> Iterator[GateLine]:
    for key, text in rule_texts.items():
        matches, rule = _chosen(rows, key), Rule.parse(text)
        if not matches:
            names = [EACH, *(shown(row["benchmark"]) for row in rows)]
            raise ConfigError(
                f"--gate: there is no difference on {key or 'the mean of the benchmarks'}: {nearest(key, names)}",
                fix=rules.option(
                    {(similar(key, names) or EACH) if name == key else name: rule for name, rule in rule_texts.items()}
                ),
                code="unknown_name",
            )
        for row in matches:
            yield GateLine(shown(row["benchmark"]), rule, required, row, *rule.judge(row))


def _decided(lines: Sequence[GateLine], level: float) -> Iterator[GateLine]:
    """The lines with their outcomes, and p-values of broken rules adjusted over all lines."""
    for line, p_broken in zip(lines, stats.holm([line.p_broken for line in lines]), strict=True):
        outcome: GateWord = "broken" if p_broken <= level else "holds" if line.p_holds <= level else "undecided"
        yield replace(line, p_broken=float(p_broken), outcome=outcome)
