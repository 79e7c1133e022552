"""Reads a published pair of numbers from a line, or several from a file of rows (`support.py` answers them)."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from mcpo_cli.convert import convert
from mcpo_cli.errors import ConfigError, nearest
from mcpo_cli.paths import named
from mcpo_cli.statistics.published import Assumed

EXAMPLE = 'mcpo claim "54.2 vs 51.7, n=30, 32 samples"'
KINDS = ("avg", "pass", "best", "maj")
METRIC = re.compile(rf"({'|'.join(KINDS)})@(\d+)")
NUMBER = r"(\d+(?:\.\d*)?|\.\d+)"
PAIR = rf"{NUMBER}\s*%?(?:\s*(?:vs\.?|and|against)\s*{NUMBER}\s*%?)?"
CLAUSES = {
    "numbers": re.compile(rf"{NUMBER}\s*%?\s*(?:vs\.?|against)\s*{NUMBER}\s*%?"),
    "problems": re.compile(r"n\s*=\s*(\d+)|(\d+)\s+(?:problems|questions)"),
    "samples": re.compile(r"(\d+)\s+samples?"),
    "seeds": re.compile(r"(\d+)\s+(?:seeds?|runs?)"),
    "sd": re.compile(rf"sd\s+{PAIR}"),
    "se": re.compile(rf"se\s+{PAIR}"),
    "margin": re.compile(rf"margin\s+{NUMBER}\s*%?"),
    "metric": METRIC,
    "paired": re.compile(r"(un)?paired"),
}
"""The forms of the clauses of a line, which are separated by commas."""


@dataclass(frozen=True)
class Row:
    """One published pair, as a file gives it; the keys of the file replace fields that it leaves out."""

    a: Any
    """A number, or a mapping: avg@8, pass@8, ... to numbers (the first is compared), sd, se, seeds, samples."""
    b: Any
    benchmark: str = ""
    model: str = ""
    against: str = ""
    """Name of b, if rows differ in it; rows against the same b, in the same metric, are averaged."""
    metric: str = ""
    problems: int | None = field(default=None, metadata={"ge": 2})
    samples: int | None = field(default=None, metadata={"ge": 1})
    """Number of samples per problem and run."""
    seeds: int | None = field(default=None, metadata={"ge": 1})
    """Number of training runs behind each number."""
    paired: bool | None = None
    """True if both answered the same problems, which is the default."""


@dataclass(frozen=True)
class Document:
    """A file of rows; `mcpo claim FILE.yaml`."""

    rows: tuple[Row, ...]
    title: str = ""
    names: tuple[str, str] = ("a", "b")
    metric: str = ""
    problems: int | None = field(default=None, metadata={"ge": 2})
    samples: int | None = field(default=None, metadata={"ge": 1})
    seeds: int | None = field(default=None, metadata={"ge": 1})
    paired: bool | None = None
    margin: float | None = field(default=None, metadata={"gt": 0})
    """The largest difference that does not matter, in the unit of the numbers."""
    percent: bool | None = None
    """True if numbers are in percent; by default they are if one is above 1."""
    digits: int | None = field(default=None, metadata={"ge": 0})
    """Printed decimals of the numbers; by default those of the number with the most."""
    assume: Assumed = field(default_factory=Assumed)


@dataclass(frozen=True)
class Metric:
    """avg@k, the mean over all samples, or pass@k, best@k (drawn with replacement) or maj@k."""

    kind: str
    k: int

    @property
    def of_samples(self) -> bool:
        """True if it is the mean over all samples."""
        return self.kind == "avg" or self.k == 1

    def sets(self, samples: int) -> float:
        """Number of its values from the samples of a problem: one per sample, or per disjoint set of k."""
        return samples if self.of_samples else max(1.0, samples / self.k)

    def __str__(self) -> str:
        return f"{self.kind}@{self.k}"


@dataclass(frozen=True)
class Number:
    """A published number with the facts stated on it; all in shares."""

    value: float
    second: tuple[Metric, float] | None
    """Another metric of the same samples."""
    sd: float | None
    se: float | None
    samples: int
    seeds: int


@dataclass(frozen=True)
class Pair:
    """One published pair of numbers, complete."""

    a: Number
    b: Number
    metric: Metric
    problems: int
    paired: bool
    benchmark: str
    model: str
    against: str


@dataclass(frozen=True)
class Claim:
    """All published numbers and all assumptions."""

    title: str
    names: tuple[str, str]
    pairs: tuple[Pair, ...]
    unit: float
    """The last printed digit of the numbers, in shares."""
    percent: bool
    """True if the numbers were in percent."""
    margin: float | None
    assumed: Assumed


def read(what: str) -> Claim:
    """The claim in a YAML file, or in a line such as `54.2 vs 51.7, n=30, 32 samples`.

    Raises:
        ConfigError: a clause or key is not known, a number is missing, or two of them contradict each other.
    """
    if what.endswith((".yaml", ".yml")):
        path = named(what)
        if not path.is_file():
            raise ConfigError(f"there is no file {path}", fix=f"ls {path.parent}", code="not_found")
        from mcpo_cli.config.reading import read_yaml

        return claim(_stated(read_yaml(path), what), what)
    return claim(_document(what), "the claim")


def _document(line: str) -> Document:
    """The document equivalent to a line."""
    said: dict[str, Any] = {}
    for clause in filter(None, (part.strip() for part in line.split(","))):
        for name, value in _clauses(clause):
            if name in said:
                raise ConfigError(f"'{clause}': {name} is said twice", fix=EXAMPLE)
            said[name] = value
    if "numbers" not in said:
        raise ConfigError(f"'{line}': two numbers are needed, as in 54.2 vs 51.7", fix=EXAMPLE)
    sides = [{"": number} for number in said.pop("numbers")]
    for name in ("sd", "se"):
        if values := said.pop(name, None):
            for side, value in zip(sides, (values[0], values[1] or values[0]), strict=True):
                side[name] = value
    a, b = ({name or "value": float(number) for name, number in side.items()} for side in sides)
    digits = max(len(side[""].partition(".")[2]) for side in sides)
    percent = True if "%" in line else None
    rest = {name: float(value) if name == "margin" else value for name, value in said.items()}
    return _stated({"rows": [{"a": a, "b": b}], "digits": digits, "percent": percent, **rest}, f"'{line}'")


def _stated(said: Mapping[str, Any], where: str) -> Document:
    """The document of the statements in `said`; its numbers are facts, so errors suggest no other number."""
    try:
        return convert(Document, said, "")
    except ConfigError as error:
        if error.code != "out_of_bounds":
            raise
        raise ConfigError(
            f"{where}: {error.message}", fix="give the number behind the scores", code=error.code
        ) from error


def _clauses(clause: str) -> Iterator[tuple[str, Any]]:
    """The statements of a clause in order: `54.2 vs 51.7 pass@8` has two."""
    rest = clause
    while rest:
        name, found = next(((name, hit) for name, form in CLAUSES.items() if (hit := form.match(rest))), ("", None))
        if found is None:
            known = ", ".join(name for name in CLAUSES if name != "numbers")
            why = f"'{rest}' is not understood: write two scores as A vs B, and clauses of {known}"
            raise ConfigError(why, fix=EXAMPLE)
        groups = found.groups()
        match name:
            case "paired":
                yield name, groups[0] is None
            case "metric":
                yield name, found[0]
            case "numbers" | "sd" | "se":
                yield name, groups
            case "margin":
                yield name, groups[0]
            case _:
                yield name, int(next(filter(None, groups)))
        rest = rest[found.end() :].strip()


def claim(document: Document, where: str) -> Claim:
    """The claim of a document, in shares. where: names it in messages.

    Raises:
        ConfigError: a number is missing or invalid, or two of them contradict each other.
    """
    if not document.rows:
        raise ConfigError(f"{where}: rows is empty", fix="rows: [{problems: 30, samples: 32, a: 54.2, b: 51.7}]")
    _check_assumed(document.assume)
    scores = [list(_scores(side)) for row in document.rows for side in (row.a, row.b)]
    values = [value for side in scores for _, value in side]
    percent = document.percent if document.percent is not None else max(values, default=0.0) > 1
    scale = 0.01 if percent else 1.0
    digits = document.digits if document.digits is not None else max(map(_decimals, values), default=0)
    pairs = tuple(
        _pair(row, document, scale, f"{where}, row {at}" if len(document.rows) > 1 else where)
        for at, row in enumerate(document.rows, 1)
    )
    margin = None if document.margin is None else document.margin * scale
    return Claim(document.title, document.names, pairs, scale * 10.0**-digits, percent, margin, document.assume)


def _check_assumed(assumed: Assumed) -> None:
    for one in fields(assumed):
        bounds = getattr(assumed, one.name)
        if list(bounds) != sorted(bounds) or bounds[0] < 0 or bounds[2] > 1:
            raise ConfigError(
                f"assume.{one.name}={list(bounds)}: must be three numbers in 0..1 that grow",
                fix=f"assume: {{{one.name}: {list(getattr(Assumed(), one.name))}}}",
                code="out_of_bounds",
            )


def _scores(side: Any) -> Iterator[tuple[str, float]]:
    """The metrics of a side with their numbers; the metric of a plain number, or of `value`, is empty."""
    if isinstance(side, Mapping):
        for name, value in side.items():
            if name == "value" or METRIC.fullmatch(str(name)):
                yield "" if name == "value" else str(name), _real(value, str(name))
    else:
        yield "", _real(side, "a number")


def _real(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ConfigError(f"{name}: {value!r} is not a number", fix=EXAMPLE)
    return float(value)


def _decimals(value: float) -> int:
    return len(f"{value:.10f}".rstrip("0").partition(".")[2])


def _pair(row: Row, document: Document, scale: float, where: str) -> Pair:
    said = {name: getattr(row, name) for name in ("metric", "problems", "samples", "seeds", "paired")}
    said = {name: value if value not in (None, "") else getattr(document, name) for name, value in said.items()}
    named = [name for name, _ in _scores(row.a) if name]
    name = said["metric"] or (named[0] if named else f"avg@{said['samples'] or 1}")
    metric = _metric(name)
    if said["problems"] is None:
        raise ConfigError(
            f"{where}: the number of problems is missing",
            fix="add the number of problems behind the scores: n=NUMBER, or problems: NUMBER in a file",
        )
    samples = said["samples"] or metric.k
    a, b = (_number(side, metric, samples, said["seeds"] or 1, scale, where) for side in (row.a, row.b))
    against = row.against or document.names[1]
    return Pair(a, b, metric, said["problems"], said["paired"] is not False, row.benchmark, row.model, against)


def _metric(name: str) -> Metric:
    found = METRIC.fullmatch(name)
    if not found or not int(found[2]):
        known = [f"{kind}@8" for kind in KINDS]
        raise ConfigError(f"metric={name}: {nearest(name, known)}", code="out_of_bounds")
    return Metric(found[1], int(found[2]))


def _number(side: Any, metric: Metric, samples: int, seeds: int, scale: float, where: str) -> Number:
    scores = {name or str(metric): value * scale for name, value in _scores(side)}
    rest = side if isinstance(side, Mapping) else {}
    more = convert(_More, {key: rest[key] for key in rest if key != "value" and key not in scores}, where)
    if str(metric) not in scores:
        raise ConfigError(f"{where}: {metric} is missing", fix=f"a: {{{metric}: 54.2}}")
    value = scores.pop(str(metric))
    second = next(((_metric(name), other) for name, other in scores.items()), None)
    sd, se = (None if one is None else one * scale for one in (more.sd, more.se))
    found = Number(value, second, sd, se, more.samples or samples, more.seeds or seeds)
    if found.sd is not None and found.seeds < 2:
        raise ConfigError(
            f"{where}: sd is over seeds, and there must be at least 2, not {found.seeds}",
            fix="give the number of seeds behind the scores, or leave sd out",
            code="contradiction",
        )
    if metric.k > found.samples:
        raise ConfigError(
            f"{where}: {metric} needs {metric.k} samples per problem, not {found.samples}",
            fix="give the number of samples behind the scores, or leave the metric out",
            code="contradiction",
        )
    return found


@dataclass(frozen=True)
class _More:
    """Keys that a side may have besides its numbers."""

    sd: float | None = field(default=None, metadata={"gt": 0})
    se: float | None = field(default=None, metadata={"gt": 0})
    samples: int | None = field(default=None, metadata={"ge": 1})
    seeds: int | None = field(default=None, metadata={"ge": 1})
