"""Reads a published pair of numbers from a line, or several from a file of rows (`support.py` answers them)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mcpo_cli.config.reading import read_yaml
from mcpo_cli.convert import convert
from mcpo_cli.errors import ConfigError
from mcpo_cli.paths import named
from mcpo_cli.statistics.published import Assumed

EXAMPLE = 'mcpo claim "54.2 vs 51.7, n=30, 32 samples"'
METRIC = re.compile(r"(avg|pass|best|maj)@([1-9]\d*)")
"""avg@k, the mean over all samples, or pass@k, best@k (drawn with replacement) or maj@k."""
NUMBER, AND = r"(?:\d+(?:\.\d*)?|\.\d+)", r"\s*%?\s*(?:vs\.?|and|against)\s*"
CLAUSE = re.compile(
    rf"(?P<a>{NUMBER}){AND}(?P<b>{NUMBER})\s*%?"
    r"|n\s*=\s*(?P<problems>\d+)|(?P<samples>\d+)\s+samples?|(?P<seeds>\d+)\s+(?:seeds?|runs?)"
    rf"|sd\s+(?P<sd>{NUMBER})(?:{AND}(?P<sd_b>{NUMBER}))?\s*%?"
    rf"|se\s+(?P<se>{NUMBER})(?:{AND}(?P<se_b>{NUMBER}))?\s*%?"
    rf"|margin\s+(?P<margin>{NUMBER})\s*%?|(?P<metric>\w+@\d+)|(?P<paired>(?:un)?paired)"
)
"""A clause of a line; clauses are separated by commas, and a metric may also follow a space."""
ROW_KEYS = ("metric", "problems", "samples", "seeds", "paired")
"""Keys of a file that stand for those of rows without them."""


@dataclass(frozen=True)
class Number:
    """A published number: of so many samples per problem and run, and training runs (seeds).

    second: another metric of the same samples, `second_metric`. sd: standard deviation over the runs. se: standard
    error over the problems.
    """

    value: float
    samples: int = field(metadata={"ge": 1})
    seeds: int = field(default=1, metadata={"ge": 1})
    second: float | None = None
    second_metric: str = ""
    sd: float | None = field(default=None, metadata={"gt": 0})
    se: float | None = field(default=None, metadata={"gt": 0})

    def __post_init__(self) -> None:
        if self.sd is not None and self.seeds < 2:
            fix = "give the number of seeds behind the scores, or leave sd out"
            raise ConfigError("sd is over seeds, and there must be at least 2", fix=fix, code="contradiction")


@dataclass(frozen=True)
class PublishedPair:
    """One published pair; rows against the same b (`against`), in the same metric, are averaged.

    paired: both answered the same problems.
    """

    a: Number
    b: Number
    metric: str
    problems: int = field(default=0, metadata={"ge": 2})
    benchmark: str = ""
    model: str = ""
    against: str = ""
    paired: bool = True

    def __post_init__(self) -> None:
        if not self.problems:
            fix = "add the number of problems behind the scores: n=NUMBER, or problems: NUMBER in a file"
            raise ConfigError("the number of problems is missing", fix=fix)
        if self.k > (samples := min(self.a.samples, self.b.samples)):
            fix = "give the number of samples behind the scores, or leave the metric out"
            why = f"{self.metric} needs {self.k} samples per problem, not {samples}"
            raise ConfigError(why, fix=fix, code="contradiction")

    @property
    def k(self) -> int:
        """Number of samples behind a value of the metric, of which avg@k has all."""
        return int(self.metric.partition("@")[2])

    @property
    def of_samples(self) -> bool:
        """True if the metric is the mean over all samples."""
        return self.metric.startswith("avg") or self.k == 1


@dataclass(frozen=True)
class PublishedClaim:
    """All published numbers and all assumptions.

    margin: the largest difference that does not matter. percent: the numbers were in percent, by default if one was
    above 1. digits: printed decimals of the numbers, by default those of the number with the most.
    """

    rows: tuple[PublishedPair, ...]
    title: str = ""
    names: tuple[str, str] = ("a", "b")
    margin: float | None = field(default=None, metadata={"gt": 0})
    percent: bool | None = None
    digits: int | None = field(default=None, metadata={"ge": 0})
    assume: Assumed = field(default_factory=Assumed)

    @property
    def unit(self) -> float:
        """The last printed digit of the numbers, in shares."""
        return (0.01 if self.percent else 1.0) * 10.0 ** -(self.digits or 0)

    def __post_init__(self) -> None:
        for name, bounds in vars(self.assume).items():
            if list(bounds) != sorted(bounds) or bounds[0] < 0 or bounds[2] > 1:
                why = f"assume.{name}={list(bounds)}: must be three numbers in 0..1 that grow"
                raise ConfigError(why, fix=f"leave assume.{name} out", code="out_of_bounds")


def read(what: str) -> PublishedClaim:
    """The claim in a YAML file, or in a line such as `54.2 vs 51.7, n=30, 32 samples`.

    Raises:
        ConfigError: a clause or key is not known, a number is missing, or two of them contradict each other.
    """
    content = read_yaml(named(what)) if what.endswith((".yaml", ".yml")) else _line(what)
    shared = {key: content.pop(key) for key in ROW_KEYS if key in content}
    rows = content.get("rows")
    if not (isinstance(rows, list) and rows and all(isinstance(row, Mapping) for row in rows)):
        raise ConfigError(f"{what}: rows are missing", fix="rows: [{problems: 30, samples: 32, a: 54.2, b: 51.7}]")
    try:
        return _in_shares(convert(PublishedClaim, content | {"rows": [_row(shared | row) for row in rows]}, ""))
    except ConfigError as error:
        # The numbers are facts, so that no other number is suggested.
        fix = "give the number behind the scores" if error.code == "out_of_bounds" else error.fix
        raise ConfigError(f"{what}: {error.message}", fix=fix, code=error.code) from error


def _line(line: str) -> dict[str, Any]:
    """The keys of a file that says what a line says."""
    texts: dict[str, str] = {}
    clauses = re.split(r",|\s(?=\w+@)", re.sub(r"(\d+)\s+(?:problems|questions)", r"n=\1", line))
    for clause in filter(None, map(str.strip, clauses)):
        match = CLAUSE.fullmatch(clause)
        stated = {name: text for name, text in match.groupdict().items() if text} if match else {}
        if not stated or stated.keys() & texts.keys():
            known = "two scores as A vs B, and clauses of n, samples, seeds, sd, se, margin, metric, paired"
            raise ConfigError(f"'{clause}' is not understood or repeated: write {known}", fix=EXAMPLE)
        texts |= stated
    if "a" not in texts:
        raise ConfigError(f"'{line}': two numbers are needed, as in 54.2 vs 51.7", fix=EXAMPLE)
    digits = max(len(texts[side].partition(".")[2]) for side in "ab")
    keys: dict[str, Any] = {key: int(text) if text.isdecimal() else text for key, text in texts.items()}
    keys |= {key: float(text) for key, text in texts.items() if "." in text}
    a, b = ({"value": keys.pop(side)} for side in "ab")
    for name in keys.keys() & {"sd", "se"}:
        a[name] = keys.pop(name)
        b[name] = keys.pop(f"{name}_b", a[name])
    percent = {"percent": True} if "%" in line else {}
    return keys | percent | {"rows": [{"a": a, "b": b}], "digits": digits, "paired": texts.get("paired") != "unpaired"}


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of `PublishedPair`, from a row of a file: a side is a number, or a mapping of metrics and facts."""
    sides = [dict(side) if isinstance(side := row.get(name), Mapping) else {"value": side} for name in "ab"]
    metric = row.get("metric") or next(filter(METRIC.fullmatch, map(str, sides[0])), f"avg@{row.get('samples', 1)}")
    if not METRIC.fullmatch(str(metric)):
        raise ConfigError(f"metric={metric}: write avg@8, pass@8, best@8 or maj@8", fix="metric: avg@8")
    facts = {"samples": int(metric.partition("@")[2])} | {key: row[key] for key in ("samples", "seeds") if key in row}
    for at, side in enumerate(sides):
        scores = {key: side.pop(key) for key in [*side] if METRIC.fullmatch(str(key))}
        values = {"value": scores.pop(metric)} if metric in scores else {}
        if not values and side.get("value") is None:
            raise ConfigError(f"{metric} is missing", fix=f"a: {{{metric}: 54.2}}")
        seconds = dict(zip(("second_metric", "second"), next(iter(scores.items()), ()), strict=False))
        sides[at] = facts | side | values | seconds
    rest = {key: row[key] for key in row if key not in ("a", "b", *facts)}
    return rest | {"a": sides[0], "b": sides[1], "metric": metric}


def _in_shares(claim: PublishedClaim) -> PublishedClaim:
    numbers = [number for row in claim.rows for number in (row.a, row.b)]
    values = [value for number in numbers for value in (number.value, number.second) if value is not None]
    percent = max(values) > 1 if claim.percent is None else claim.percent
    digits = max(len(f"{value:.10f}".rstrip("0").partition(".")[2]) for value in values)

    def scaled(of: Any, *names: str) -> Any:
        known = {name: value for name in names if (value := getattr(of, name)) is not None}
        return replace(of, **{name: value * (0.01 if percent else 1.0) for name, value in known.items()})

    parts = ("value", "second", "sd", "se")
    rows = tuple(replace(row, a=scaled(row.a, *parts), b=scaled(row.b, *parts)) for row in claim.rows)
    digits = digits if claim.digits is None else claim.digits
    in_shares: PublishedClaim = scaled(claim, "margin")
    return replace(in_shares, rows=rows, percent=percent, digits=digits)
