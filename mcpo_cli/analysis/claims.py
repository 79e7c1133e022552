"""Declared claims, in files of a study or of a user."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from mcpo_cli.analysis.numbers import meaning
from mcpo_cli.config import plan
from mcpo_cli.config.reading import read_yaml
from mcpo_cli.convert import convert
from mcpo_cli.errors import ConfigError, mend, nearest

Rule = Literal["nominal", "holm"]
"""The p-values that decide: those of the test alone, or after Holm's method over all tests of the file."""


@dataclass(frozen=True)
class Precondition:
    """A condition of a claim: the mean of a statistic over the runs of one arm must be above a bound."""

    statistic: str
    """One number per run (`numbers.py`)."""
    above: float
    """The mean over the runs must be larger."""
    arm: str = ""
    """Empty for the baseline, or else the arm, of the claim."""


@dataclass(frozen=True)
class Claim:
    """An entry of `claims.yaml`."""

    id: str
    """Its name in tables; no other claim has it."""
    claim: str
    """The claim in a sentence."""
    suite: str
    """The runs."""
    statistic: str
    """One number per run, or one per run and part (`numbers.py`)."""
    arm: str
    """The arm tested."""
    relation: Literal["greater", "less", "within"]
    """The claimed relation of the number to `reference`: greater, less, or within `margin` of it."""
    where: str = ""
    """Place in the paper."""
    quote: str = ""
    """The paper's words."""
    baseline: str = ""
    """The arm whose number at the same seed is subtracted."""
    beyond: tuple[str, ...] = ()
    """Two arms, whose difference at the same seed is subtracted from that of `arm` and `baseline`: an interaction."""
    reference: float = 0.0
    """The number that it is compared with."""
    margin: float = 0.0
    """With `within`: the distance from `reference` within which the number is claimed to lie. With `greater` and
    `less`: the largest distance that does not matter; a number that is shown to lie within it is "no difference"."""
    decide: Rule = "nominal"
    """The rule of the verdict: the registered one, if there is one. A file may set it for all of its claims."""
    requires: Precondition | None = None
    """Where this condition is not met, the claim is not testable here."""
    reads: str = ""
    """How the claim is interpreted where the paper's words leave it open."""
    untested: str = ""
    """Why these runs cannot test the claim, if so; its number is shown without a verdict."""

    @property
    def weights(self) -> Mapping[str, int]:
        """The arms of the tested contrast and what each counts."""
        plus, minus = [self.arm, *self.beyond[1:]], [self.baseline, *self.beyond[:1]]
        return dict.fromkeys(plus, 1) | {arm: -1 for arm in minus if arm}

    @property
    def statistics(self) -> list[str]:
        """The statistic tested, and that of `requires`."""
        needed = self.requires.statistic if self.requires else ""
        return [name for name in (self.statistic, needed) if name]

    @property
    def arms(self) -> list[str]:
        """The arms whose runs its verdict depends on."""
        return list(dict.fromkeys([*self.weights, self.required_arm]))

    @property
    def required_arm(self) -> str:
        """The arm in whose runs `requires` must occur."""
        return (self.requires.arm if self.requires else "") or self.baseline or self.arm

    @property
    def tested(self) -> str:
        """The test as a formula: `pass@1: MCPO - DAPO > 0`."""
        arms = f"{self.arm} - {self.baseline}" if self.baseline else self.arm
        if self.beyond:
            arms = f"({arms}) - ({' - '.join(self.beyond)})"
        sign = {"greater": ">", "less": "<", "within": "="}[self.relation]
        margin = f" ± {self.margin:g}" if self.relation == "within" else ""
        return f"{self.statistic}: {arms} {sign} {self.reference:g}{margin}"


def read(path: Path) -> list[Claim]:
    """Read and check the claims.

    Raises:
        ConfigError: a key, suite, arm or statistic is unknown, a key is missing, or an id is used twice.
    """
    claims: list[Claim] = []
    content = read_yaml(path)
    entries, rule = content.get("claims"), {key: content[key] for key in ("decide",) if key in content}
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ConfigError(f"{path}: claims must be a list of claims", fix=f"edit {path}")
    for number, entry in enumerate(entries, start=1):
        try:
            claim = _claim(rule | entry)
            if claim.id in {one.id for one in claims}:
                raise ConfigError("the id is used twice")
        except ConfigError as error:
            where = f"{path.name}, claim {number} ({entry.get('id', 'without id')})"
            raise ConfigError(f"{where}: {error.message}", fix=error.fix or f"edit {path}") from error
        claims.append(claim)
    return claims


def _claim(entry: Mapping[str, Any]) -> Claim:
    needed = [one.name for one in fields(Claim) if one.default is MISSING and one.default_factory is MISSING]
    if missing := [name for name in needed if name not in entry]:
        raise ConfigError(f"{', '.join(missing)} must be given")
    claim = convert(Claim, entry, "")
    arms = plan.read(claim.suite).arms
    _check_name("arm", claim.arm, arms)
    for name in (claim.baseline or claim.arm, *claim.beyond):
        _check_name("baseline", name, arms)
    if claim.beyond and not (claim.baseline and len(claim.beyond) == 2):
        raise ConfigError("beyond needs two arms and a baseline")
    for name in claim.statistics:
        meaning(name)
    _check_name("arm", claim.required_arm, arms)
    return claim


def _check_name(what: str, name: str, choices: Mapping[str, Any]) -> None:
    if name not in choices:
        raise ConfigError(f"unknown {what} '{name}': {nearest(name, choices)}", fix=mend(what + ": {}", name, choices))
