"""Reads published pairs of numbers: one from a line, or several from a file of lines; `published_support` answers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from mcpo_cli.config.reading import read_yaml
from mcpo_cli.convert import convert
from mcpo_cli.errors import ConfigError
from mcpo_cli.paths import named
from mcpo_cli.statistics.published import Assumed

EXAMPLE = 'mcpo claim "54.2 vs 51.7, n=30, 32 samples"'
ROWS = "rows: {AIME24: '54.2 vs 51.7, n=30, 32 samples'}"
NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)"


def _sides(name: str, number: str) -> str:
    """The pattern of one number of both sides, or of one for each: `NUMBER vs NUMBER`."""
    return rf"(?P<a_{name}>{number})(?:\s*%?\s*(?:vs\.?|and|against)\s*(?P<b_{name}>{number}))?\s*%?"


CLAUSE = re.compile(
    rf"{_sides('value', NUMBER)}|n\s*=\s*(?P<problems>\d+)|(?P<metric>(?:avg|pass|best|maj)@[1-9]\d*)"
    rf"|{_sides('samples', '[0-9]+')}\s*samples?|{_sides('seeds', '[0-9]+')}\s*(?:seeds?|runs?)"
    rf"|sd\s+{_sides('sd', f'(?:{NUMBER}|-)')}|se\s+{_sides('se', f'(?:{NUMBER}|-)')}"
    rf"|margin\s+(?P<margin>{NUMBER})\s*%?|(?P<paired>(?:un)?paired)"
)
"""A clause of a line; clauses are separated by commas, and a metric may also follow a space."""


@dataclass(frozen=True)
class PublishedNumber:
    """A published share, with its numbers of samples per problem and run, and of training runs (seeds).

    sd: standard deviation over the runs. se: standard error over the problems.
    """

    value: float = field(metadata={"ge": 0, "le": 1})
    samples: int = field(metadata={"ge": 1})
    seeds: int = field(default=1, metadata={"ge": 1})
    sd: float | None = field(default=None, metadata={"gt": 0})
    se: float | None = field(default=None, metadata={"gt": 0})


@dataclass(frozen=True)
class PublishedPair:
    """Two published numbers in one metric: avg@k, the mean over all samples, pass@k, maj@k, or best@k (drawn with
    replacement).

    paired: both answered the same problems. margin: the largest difference that does not matter. percent: they were in
    percent. unit: their last printed digit, in shares. label: their name in a file.
    """

    label: str
    a: PublishedNumber
    b: PublishedNumber
    metric: str
    percent: bool
    unit: float
    problems: int = field(metadata={"ge": 2})
    paired: bool = True
    margin: float | None = field(default=None, metadata={"gt": 0})

    def __post_init__(self) -> None:
        for number in (self.a, self.b):
            if number.sd is not None and number.seeds < 2:
                fix = "give the number of seeds behind the scores, or leave sd out (sd 1.2 vs -: of one side alone)"
                raise ConfigError("sd is over seeds, and there must be at least 2", fix=fix, code="contradiction")
            if number.samples < self.k:
                fix = "give the number of samples behind the scores, or leave the metric out"
                message = f"{self.metric} needs {self.k} samples per problem, not {number.samples}"
                raise ConfigError(message, fix=fix, code="contradiction")

    @property
    def k(self) -> int:
        """Number of samples behind a value of the metric, for avg@k all samples."""
        return int(self.metric.partition("@")[2])

    @property
    def of_samples(self) -> bool:
        """True if the metric is the mean over all samples."""
        return self.metric.startswith("avg") or self.k == 1


@dataclass(frozen=True)
class PublishedPairs:
    """The content of a file: a line for each pair, by its label, and assumptions in place of the defaults."""

    rows: Mapping[str, str]
    assume: Assumed = field(default_factory=Assumed)

    def __post_init__(self) -> None:
        if not self.rows:
            raise ConfigError("rows are missing", fix=ROWS)
        for name, bounds in vars(self.assume).items():
            if list(bounds) != sorted(bounds) or bounds[0] < 0 or bounds[2] > 1:
                message = f"assume.{name}={list(bounds)}: must be three numbers in 0..1 that grow"
                raise ConfigError(message, fix=f"leave assume.{name} out")


def read(source: str) -> tuple[list[PublishedPair], Assumed]:
    """The pairs of a line such as `54.2 vs 51.7, n=30, 32 samples`, or of a YAML file, and what is assumed of them.

    Raises:
        ConfigError: a clause or key is not known, a number is missing, or two of them contradict each other.
    """
    content = read_yaml(named(source)) if source.endswith((".yaml", ".yml")) else {"rows": {"": source}}
    place, pairs = source, list[PublishedPair]()
    try:
        document = convert(PublishedPairs, content, "")
        for label, line in document.rows.items():
            place = f"{source}, {label}" if label else source
            pairs.append(_pair(label, line))
    except ConfigError as error:
        # The numbers are facts, so that no other number is suggested.
        fix = "give the number behind the scores" if error.code == "out_of_bounds" else error.fix or ROWS
        raise ConfigError(f"{place}: {error.message}", fix=fix, code=error.code) from error
    return pairs, document.assume


def _pair(label: str, line: str) -> PublishedPair:
    texts: dict[str, str] = {}
    in_percent: set[str] = set()
    clauses = re.split(r",|\s(?=\w+@)", re.sub(r"(\d+)\s+(?:problems|questions)", r"n=\1", line))
    for clause in filter(None, map(str.strip, clauses)):
        match = CLAUSE.fullmatch(clause)
        stated = {name: text for name, text in match.groupdict().items() if text} if match else {}
        if not stated or stated.keys() & texts.keys():
            form = "two scores as A vs B, and clauses of n, samples, seeds, sd, se, margin, metric, paired"
            raise ConfigError(f"'{clause}' is not understood or repeated: write {form}", fix=EXAMPLE)
        texts |= stated
        in_percent |= stated.keys() if "%" in clause else set()
    if not {"b_value", "problems"} <= texts.keys():
        raise ConfigError("two numbers and their number of problems are needed", fix=EXAMPLE)
    printed = texts["a_value"], texts["b_value"]
    percent = "a_value" in in_percent or max(map(float, printed)) > 1
    scale, digits = 0.01 if percent else 1.0, max(len(text.partition(".")[2]) for text in printed)
    metric, paired = texts.pop("metric", f"avg@{texts.get('a_samples', 1)}"), texts.pop("paired", "") != "unpaired"
    numbers: dict[str, float | None] = {"a_samples": int(metric.partition("@")[2])}
    for name, text in texts.items():
        is_count = name.endswith(("samples", "seeds", "problems"))
        unit = 0.01 if name in in_percent else scale
        numbers[name] = int(text) if is_count else None if text == "-" else float(text) * unit
    a, b = ({name[2:]: value for name, value in numbers.items() if name.startswith(side)} for side in ("a_", "b_"))
    facts = {"label": label, "a": a, "b": a | b, "metric": metric, "percent": percent, "unit": scale * 10.0**-digits}
    facts |= {"problems": numbers["problems"], "paired": paired, "margin": numbers.get("margin")}
    return convert(PublishedPair, facts, "")
