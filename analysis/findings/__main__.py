"""`make findings`: all declared effects, their coverage for new base policies, forest plots, and the tables of pages.

Writes `results/effects.csv`, a picture per question and the tables between markers on the pages of
`experiments/findings`, all from committed rows.
"""

import math
import zlib
from dataclasses import asdict

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mcpo_cli.statistics import clusters

from .. import EXPERIMENTS
from . import effects, forest
from .tables import filled

FOLDER = EXPERIMENTS / "findings"
RECORDS = FOLDER / "results" / "effects.csv"
SEED, TRIALS = 20261127, 4000
"""A coverage of .95 has a standard error of .0035."""


def components(difference: pd.Series, unit: pd.Series) -> tuple[float, float]:
    """Standard deviations between units and between the pairs of one, from the mean squares (0 if below 0)."""
    size = difference.groupby(unit).size()
    if len(size) == len(difference):
        return float(difference.std()), 0.0
    mean = difference.groupby(unit).transform("mean")
    within = float(((difference - mean) ** 2).sum() / (len(difference) - len(size)))
    between = float(((mean - difference.mean()) ** 2).sum() / (len(size) - 1))
    usual = (len(difference) - (size**2).sum() / len(difference)) / (len(size) - 1)
    return math.sqrt(max(0.0, between - within) / usual), math.sqrt(within)


def covers(sd_unit: float, sd_pair: float, unit_N: NDArray[np.str_], name: str) -> tuple[float, float]:
    """How often the intervals over units and over pairs contain the truth for new units, in TRIALS draws."""
    random = np.random.default_rng([SEED, zlib.crc32(name.encode())])
    index_N = np.unique(unit_N, return_inverse=True)[1]
    pair_N, one_N = np.arange(len(index_N)), np.ones(len(index_N))
    hits = np.zeros(2)
    for _ in range(TRIALS):
        value_N = random.normal(0, sd_unit, index_N.max() + 1)[index_N] + random.normal(0, sd_pair, len(index_N))
        for at, cluster_N in enumerate((index_N, pair_N)):
            interval = clusters.mean(value_N, one_N, cluster_N).interval()
            hits[at] += interval.low <= 0 <= interval.high
    return float(hits[0] / TRIALS), float(hits[1] / TRIALS)


def records() -> pd.DataFrame:
    """A row per effect: its estimate, the components of its variance, and what its intervals cover."""
    rows: list[dict[str, object]] = []
    for name, effect in effects.declared().items():
        pairs = effects.values(effect)
        unit = effects.units(pairs)
        sd_unit, sd_pair = components(pairs["difference"], unit)
        coverage = dict(zip(("covers", "pairs_cover"), covers(sd_unit, sd_pair, unit.to_numpy(str), name), strict=True))
        labels = {"id": name, "question": effect.question, "label": effect.label, "registered": effect.registered}
        rows.append(
            labels
            | asdict(effects.of_pairs(pairs, effect))
            | {"sd_unit": sd_unit, "sd_pair": sd_pair, "trials": TRIALS}
            | coverage
        )
    return pd.DataFrame(rows)


def main() -> None:
    """Write records, pictures and tables."""
    declared = effects.declared()
    estimates = {name: effects.estimate(effect) for name, effect in declared.items()}
    RECORDS.parent.mkdir(exist_ok=True)
    records().to_csv(RECORDS, index=False, float_format="%.6g", lineterminator="\n")
    for question in dict.fromkeys(effect.question for effect in declared.values() if effect.question):
        selection = {
            name: effect
            for name, effect in declared.items()
            if effect.question == question and estimates[name].half_width < abs(estimates[name].control)
        }
        forest.draw(selection, estimates).savefig(FOLDER / f"{question}.png")
    for page in FOLDER.glob("*.md"):
        text = page.read_text(encoding="utf-8")
        if (new := filled(text)) != text:
            page.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
