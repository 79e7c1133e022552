"""Designs of simulated logs with a known truth, and their draws.

An answer is correct with probability expit(problem + arm x problem + run + run x problem), all four normal; arms are
equal on average. With one training run an interval is about these two models alone, so runs have no effect there,
except in designs that ask what such an interval says of recipes.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import special

from mcpo_cli.statistics import stats
from mcpo_cli.statistics.stats import LEAST, Floats, Ints

PROBLEM, OWN = 1.5, 0.4
"""Standard deviations, in logits, of problems and of the effect of an arm on each."""
LOST = 3.0
"""Logits that a collapsed run loses."""
WRONG = np.array([0.5, 0.2, 0.1, 0.1, 0.1])
"""Probabilities of the distinct incorrect answers, for maj@k; the last is that of no answer."""


@dataclass(frozen=True)
class Design:
    """Two arms of logs."""

    seeds: int
    problems: tuple[int, ...]
    """Number of problems of each benchmark."""
    samples: int
    run: float = 0.3
    """Standard deviation of runs, and of run x problem, in logits."""
    level: float = 0.0
    """Mean of problems, in logits: 0 is an accuracy of .5."""
    metric: str = "pass@1"
    same_seeds: bool = True
    missing: float = 0.0
    """Share of cells without samples."""
    uneven: bool = False
    """Cells have 1 to `samples` samples."""
    other_seeds: int = 0
    """Seeds of the second arm, if it has another number."""
    other_samples: int = 0
    """Samples of the second arm, if it has another number."""
    template: int = 1
    """Number of problems that are made from one template and share a part of the arm's effect."""
    shared: float = 1.0
    """Share of the variance of an arm's effect that problems of a template have in common."""
    collapse: float = 0.0
    """Probability that a run loses 3 logits."""

    @property
    def name(self) -> str:
        """The design's name in the table."""
        words = [
            "" if self.same_seeds else "seeds not paired",
            f"{self.missing:.0%} of cells missing" if self.missing else "",
            "1 to n samples" if self.uneven else "",
            f"accuracy {self.truth:.2f}" if self.level else "",
            "runs alike" if not self.run and self.seeds > 1 else "",
            "about recipes" if self.run and self.seeds < LEAST else "",
            f"against {self.other_seeds} seeds" if self.other_seeds else "",
            f"against {self.other_samples} samples" if self.other_samples else "",
            f"templates of {self.template}" if self.template > 1 else "",
            "half shared" if self.template > 1 and self.shared < 1 else "",
            f"{self.collapse:.0%} of runs collapse" if self.collapse else "",
            f"run sd {self.run:g}" if self.run not in (0.0, 0.3) else "",
        ]
        problems = " + ".join(map(str, self.problems))
        return f"{self.metric}, {self.seeds} x {problems} x {self.samples}" + "".join(
            f", {word}" for word in words if word
        )

    @property
    def truth(self) -> float:
        """True pass@1 of both arms."""
        return mean_of_expit(self.level, math.sqrt(PROBLEM**2 + OWN**2 + 2 * self.run**2), 1)


DESIGNS = (
    *(
        Design(seeds, (problems,), samples)
        for seeds, problems, samples in itertools.product((3, 5, 10, 30), (20, 200), (1, 8))
    ),
    *(Design(seeds, (1000,), 1) for seeds in (3, 10)),
    Design(3, (30,), 64),
    Design(10, (100,), 64),
    *(Design(seeds, (200,), 4, same_seeds=False) for seeds in (3, 5, 10)),
    Design(5, (200,), 4, missing=0.15),
    Design(10, (60,), 4, missing=0.15, same_seeds=False),
    Design(5, (200,), 16, uneven=True),
    *(Design(seeds, (200,), 4, run=0.0) for seeds in (3, 10)),
    *(Design(5, (200,), 4, level=level) for level in (-3.0, 3.0)),
    *(Design(1, (problems,), samples, run=0.0) for problems, samples in ((20, 1), (30, 8), (200, 1), (1000, 1))),
    Design(1, (200,), 1, run=0.0, level=3.0),
    Design(5, (40, 200), 4),
    Design(3, (30, 30, 100), 8),
    *(
        Design(seeds, (100,), 8, run=run, metric=metric)
        for seeds, run in ((1, 0.0), (5, 0.3))
        for metric in ("pass@4", "maj@4")
    ),
    Design(3, (30,), 16, metric="pass@8"),
    Design(3, (200,), 16, metric="maj@8"),
    # Designs for which `mcpo compare` names a limit: few problems, or few that differ.
    Design(3, (10,), 8),
    Design(1, (10,), 1, run=0.0),
    Design(1, (30,), 8, run=0.0, level=4.0),
    *(Design(1, (problems,), 1, run=0.0, level=5.0) for problems in (30, 100)),
    # What people compare: few problems, one or two seeds, many samples against one, hard and easy sets, lost runs.
    Design(1, (5,), 8, run=0.0),
    Design(3, (5,), 8),
    *(Design(seeds, (60,), 8) for seeds in (3, 5, 10)),
    Design(1, (60,), 8, run=0.0),
    Design(5, (200,), 4),
    Design(1, (100,), 4),
    Design(2, (100,), 4),
    Design(2, (1000,), 1),
    *(Design(1, (30,), 8, run=0.0, level=level, metric="pass@8") for level in (-3.0,)),
    Design(3, (30,), 8, level=-3.0, metric="pass@8"),
    Design(1, (50,), 1, run=0.0),
    Design(3, (100,), 4, level=5.0),
    Design(5, (30,), 1, level=5.0),
    Design(3, (60,), 8, level=-5.0),
    Design(3, (100,), 4, other_seeds=10, same_seeds=False),
    *(Design(seeds, (100,), 1, run=run, other_samples=16) for seeds, run in ((1, 0.0), (5, 0.3))),
    Design(5, (100,), 4, collapse=0.1),
    Design(3, (100,), 4, collapse=0.2),
    Design(3, (500,), 1, run=0.6),
    # Problems that are no independent draws: near copies, and every problem twice.
    Design(1, (100,), 4, run=0.0, template=5),
    Design(5, (100,), 4, template=5, shared=0.5),
    Design(1, (200,), 4, run=0.0, template=2),
)
FAMILIES = ((2, 6, 3), (3, 3, 5), (3, 3, 10))
"""Arms besides the baseline x benchmarks x seeds; 60 problems x 8 samples each, adjusted together."""
MARGINS = (Design(1, (300,), 4, run=0.0), Design(3, (200,), 4), Design(5, (200,), 4), Design(3, (60,), 8))
"""Designs in which an arm is worse by exactly the margin, so that no verdict of `not worse` or `equivalent` is true."""
LOOKS = (2, 3, 5)


def drawn(design: Design, random: np.random.Generator, shift: float = 0.0) -> Iterator[Floats]:
    """The metric of each arm by seed and problem; NaN where a cell is missing. shift: of the first arm, in logits."""
    problems = sum(design.problems)
    problem_P = random.normal(design.level, PROBLEM, problems)
    shape = design.seeds, problems
    # Every problem and every seed keep a cell that both arms have.
    mask = np.zeros(shape, bool)
    mask[random.integers(design.seeds, size=problems), np.arange(problems)] = True
    mask[:, random.integers(problems, size=2)] = True
    for arm in range(2):
        samples = design.other_samples or design.samples if arm else design.samples
        if arm and design.other_seeds:
            shape = design.other_seeds, problems
        own_P = random.normal(0, OWN, problems)
        if design.template > 1:
            of_template_P = np.repeat(random.normal(0, OWN, problems // design.template), design.template)
            own_P = math.sqrt(1 - design.shared) * own_P + math.sqrt(design.shared) * of_template_P
        run_SP = random.normal(0, design.run, (shape[0], 1)) + random.normal(0, design.run, shape)
        if design.collapse:
            run_SP = run_SP - LOST * (random.random((shape[0], 1)) < design.collapse)
        chance_SP = special.expit(problem_P + own_P + run_SP + (shift if arm == 0 else 0.0))
        count_SP = random.integers(1, samples + 1, shape) if design.uneven else np.full(shape, samples)
        value_SP = _metric(design.metric, count_SP, chance_SP, random)
        # Without missing cells nothing is drawn for them: the arms may have tables of two sizes.
        lost_SP = (random.random(shape) < design.missing) & ~mask if design.missing else False
        yield np.where(lost_SP, math.nan, value_SP)


def _metric(name: str, count_SP: Ints, chance_SP: Floats, random: np.random.Generator) -> Floats:
    kind, k = name.split("@")
    right_SP = random.binomial(count_SP, chance_SP)
    if name == "pass@1":
        return np.asarray(right_SP / count_SP)
    if kind == "pass":
        return np.asarray(stats.pass_at_k(count_SP, right_SP, int(k)))
    wrong_SPA = random.multinomial(count_SP - right_SP, WRONG)
    cells = zip(right_SP.ravel(), np.sort(wrong_SPA[..., :-1]).reshape(-1, 4), wrong_SPA[..., -1].ravel(), strict=True)
    values = [majority(int(right), tuple(map(int, wrong)), int(blank), int(k)) for right, wrong, blank in cells]
    return np.array(values).reshape(right_SP.shape)


@cache
def majority(right: int, wrong: tuple[int, ...], blank: int, k: int) -> float:
    return stats.maj_at_k(right, wrong, blank, k)


def mean_of_expit(level: float, spread: float, k: int) -> float:
    """Mean of 1 - (1 - p)^k where the logit of p is normal."""
    node_K, weight_K = points(level, spread)
    return float(weight_K @ (1 - special.expit(-node_K) ** k))


@cache
def points(level: float, spread: float) -> tuple[Floats, Floats]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    return level + spread * nodes, weights / weights.sum()
