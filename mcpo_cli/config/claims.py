"""Declared claims: a comparison of runs, and what is expected of it."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from mcpo_cli.statistics.words import Word

Rule = Literal["nominal", "holm"]
"""The p-values that decide: of each test alone, or after Holm's method over all tests of the file."""


@dataclass(frozen=True)
class Precondition:
    """A condition of a claim: the mean of a statistic over the runs of one arm must be above a bound."""

    statistic: str
    """One number per run (`report/numbers.py`)."""
    above: float
    """The mean over the runs must be larger."""
    arm: str = ""
    """The arm; empty for the claim's baseline, or else the claim's arm."""


@dataclass(frozen=True)
class Claim:
    """A claim of a file (`report/claims_file.py`), or a hypothesis of a branch study (`config/branching.py`)."""

    id: str
    """Its name in tables; no other claim has it."""
    claim: str
    """The claim in a sentence."""
    suite: str
    """The runs; empty in a branch study, whose runs are its trunks."""
    statistic: str
    """One number per run, or one per run and part (`report/numbers.py`); in a branch study one per trunk run."""
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
    """Two arms; their difference at the same seed is subtracted from `arm` minus `baseline`: an interaction."""
    reference: float = 0.0
    """The number that the statistic is compared with."""
    margin: float = 0.0
    """With `within`: the distance from `reference` within which the number is claimed to lie. With `greater` and
    `less`: the largest distance that does not matter; a number that is shown to lie within it is "no difference"."""
    decide: Rule = "nominal"
    """The rule of the verdict: the registered rule, if there is one. A file may set the rule for all of its claims."""
    requires: Precondition | None = None
    """Where this condition is not met, the claim is not testable here."""
    reads: str = ""
    """How the claim is interpreted where the paper's words leave it open."""
    untested: str = ""
    """Why these runs cannot test the claim, if so; its number is shown without a verdict."""

    @property
    def expected(self) -> Word:
        """The word that the claim expects of the number: `better` is above the reference, `worse` below."""
        word_of: dict[str, Word] = {"greater": "better", "less": "worse", "within": "equivalent"}
        return word_of[self.relation]

    @property
    def weights(self) -> Mapping[str, int]:
        """The arms of the tested contrast and the weight of each."""
        weights = Counter([self.arm, *self.beyond[1:]])
        weights.subtract(filter(None, [self.baseline, *self.beyond[:1]]))
        return weights

    @property
    def statistics(self) -> list[str]:
        """The tested statistic, and the statistic of `requires`."""
        condition_statistic = self.requires.statistic if self.requires else ""
        return [name for name in (self.statistic, condition_statistic) if name]

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
