"""The rules of a gate. Each is about one difference; it holds, is broken, or cannot be decided by the data.

| rule         | it allows                       | it holds if                                              |
|--------------|---------------------------------|----------------------------------------------------------|
| no-worse     | whatever is not found worse     | the two-sided test does not find the difference below 0  |
| no-worse:M   | a difference above -M           | a one-sided test finds it there                          |
| better       | a difference above 0            | the two-sided test finds it there                        |
| better:M     | a difference above M            | the two-sided test finds it there                        |
| equivalent:M | a difference between -M and M   | both one-sided tests find it there (Schuirmann 1987)     |

A rule is broken if the two-sided test finds the difference outside of what the rule allows. All other rules are
undecided: only `no-worse` without a margin holds for want of evidence.

All required rules must hold, so each is tested at the full level (the intersection-union test, Berger 1982,
Technometrics 24, 295-300). One broken rule breaks the gate, so p-values of broken rules are adjusted over all required
rules (Holm 1979): a baseline against itself breaks at most 5 % of the gates, however many rules they have.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

from mcpo_cli.config.reading import read_yaml
from mcpo_cli.convert import convert
from mcpo_cli.errors import ConfigError, mend, nearest
from mcpo_cli.paths import named
from mcpo_cli.render.product import Row
from mcpo_cli.statistics.difference_tests import p_values
from mcpo_cli.statistics.power import ALPHA
from mcpo_cli.statistics.stats import Student

Kind = Literal["no-worse", "better", "equivalent"]
KINDS: dict[str, Kind] = {kind: kind for kind in get_args(Kind)}
MEAN, EACH = "mean", "each"
"""Names in a policy: the mean over benchmarks, and every benchmark by itself."""


@dataclass(frozen=True)
class Rule:
    """The demand of a gate on one difference."""

    kind: Kind
    margin: float | None = None
    """M, in the units of the scores."""

    @classmethod
    def parse(cls, text: str, typed: str = "--gate {}") -> "Rule":
        """`no-worse:0.01` as a rule. typed: the text that it is a part of, with `{}` in its place.

        Raises:
            ConfigError: there is no such rule, or its margin is missing or not a number above 0.
        """
        kind, colon, margin = text.strip().partition(":")
        phrase = typed.replace("{}", text.strip())
        if kind not in KINDS:
            fix = mend(typed.replace("{}", "{}" + colon + margin), kind, KINDS, typed.replace("{}", "no-worse:0.01"))
            raise ConfigError(
                f"{phrase}: there is no rule {kind!r}: {nearest(kind, KINDS)}", fix=fix, code="unknown_name"
            )
        try:
            value = float(margin) if colon else None
        except ValueError:
            value = math.nan
        if (value is None and kind == "equivalent") or not (value is None or 0 < value < math.inf):
            raise ConfigError(
                f"{phrase}: the margin after the colon must be a number above 0",
                fix=typed.replace("{}", f"{kind}:0.01"),
                code="out_of_bounds",
            )
        return cls(KINDS[kind], value)

    def __str__(self) -> str:
        return self.kind if self.margin is None else f"{self.kind}:{self.margin:g}"

    def judge(self, row: Row) -> tuple[float, float]:
        """The p-values of a difference: that the rule holds, and that it is broken; NaN where there is no test."""
        test: Student = row["student"]
        margin = self.margin or 0.0
        low = margin if self.kind == "better" else -margin
        inside, outside = _beyond(row, test, low)
        if self.kind == "better":
            return inside, outside
        if row["identical"]:
            return _by_number(margin, int(row["problems"])) if row["share"] or not margin else math.nan, 1.0
        if self.margin is None:
            return (math.nan if math.isnan(outside) else 0.0), outside
        tests = p_values(test, margin)
        if self.kind == "no-worse":
            return tests.p_not_worse, outside
        _, above = _beyond(row, replace(test, mean=-test.mean), -margin)
        return tests.p_equivalent, min(outside, above)


def _beyond(row: Row, test: Student, bound: float) -> tuple[float, float]:
    """The two-sided p of a difference from `bound`: for a difference above it, and for one below it."""
    shifted = replace(test, mean=test.mean - bound)
    p = row["p"] if bound == 0 else p_values(shifted).p
    return (p, 1.0) if shifted.mean > 0 else (1.0, p)


def too_few(rule: Rule, row: Row) -> str:
    """The reason why equal scores on all problems do not show that a rule holds."""
    if rule.kind == "better" or not rule.margin or not row["share"]:
        return "both sides have the same score on every problem"
    needed = math.ceil(math.log(ALPHA) / math.log(1 - rule.margin)) if rule.margin < 1 else 1
    return (
        f"all {row['problems']:,} problems have the same score on both sides; {needed:,} of them would rule out "
        f"{rule.margin:g}"
    )


def _by_number(margin: float, problems: int) -> float:
    """The probability that `problems` problems all have the same score on both sides if the mean score, of 0 to 1,
    falls by `margin`: then at least this share of problems differs. 0 without a margin."""
    return float((1 - margin) ** problems) if 0 < margin < 1 else 0.0


@dataclass(frozen=True)
class GatePolicy:
    """Rules by benchmark (or MEAN or EACH); the empty name is the headline: the mean, or the only benchmark."""

    required: Mapping[str, str] = field(default_factory=dict)
    advisory: Mapping[str, str] = field(default_factory=dict)
    """Reported, and without effect on the gate; a benchmark that the data lack is no error."""


def policy(text: str) -> GatePolicy:
    """The rules that `--gate` gives, or the rules of a YAML file with the keys `required` and `advisory`.

    Raises:
        ConfigError: the file cannot be read, or a rule has another form.
    """
    if text.endswith((".yaml", ".yml")):
        gate_policy = convert(GatePolicy, read_yaml(named(Path(text))), "")
        if not gate_policy.required:
            raise ConfigError(f"{text}: no rule is required", fix="required: {mean: no-worse:0.01}", code="bad_data")
        for key, rule in (*gate_policy.required.items(), *gate_policy.advisory.items()):
            Rule.parse(rule, f"{key}: {{}} in {text}")
        return gate_policy
    pieces = [piece.rpartition("=") for piece in text.split(",")]
    required = {key: rule for key, _, rule in pieces}
    if len(required) < len(pieces):
        raise ConfigError(
            f"--gate {text}: two rules are about one benchmark",
            fix="--gate mean=better,gsm8k=no-worse:0.01",
            code="duplicate_name",
        )
    for key, rule in required.items():
        Rule.parse(rule, option({**required, key: "{}"}))
    return GatePolicy(required)


def option(required: Mapping[str, str]) -> str:
    """The option `--gate` that gives these rules."""
    return "--gate " + ",".join(f"{key}={rule}" if key else rule for key, rule in required.items())
