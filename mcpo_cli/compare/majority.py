"""maj@k of logs: the score of the most frequent answer among k samples, exactly."""

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import cast

import numpy as np
import pandas as pd

from mcpo_cli.compare.log import Side
from mcpo_cli.compare.scores import Scores
from mcpo_cli.errors import ConfigError
from mcpo_cli.statistics import stats
from mcpo_cli.statistics.stats import Floats


def majority(side: Side, benchmark: str, scores: Scores, sizes: Sequence[int]) -> dict[int, Floats]:
    """maj@k of each seed and problem, for each k that is asked for; NaN if a cell has fewer than k samples.

    Exact over all subsets of k samples, without drawing any, which is unbiased for k new samples. All correct samples
    give one answer; incorrect answers are the same if their texts are, apart from white space; equally frequent answers
    share the win, and a sample without an answer does not vote.

    Raises:
        ConfigError: the side has no answers, or scores other than 0 and 1.
    """
    if not sizes:
        return {}
    samples = side.samples[side.samples["benchmark"] == benchmark]
    name = f"maj@{max(sizes)}"
    if "answer" not in samples or samples["answer"].isna().all():
        raise ConfigError(
            f"{side.name} has no answers on {benchmark}, which {name} needs",
            fix="name the column of answers: --columns answer=NAME",
        )
    if not scores.binary:
        raise ConfigError(f"{benchmark}: {name} needs scores that are 0 or 1", fix="--metric pass@1")
    wrong_SP = _wrong(samples, scores)
    cells = list(np.ndindex(scores.samples_SP.shape))
    votes = {}
    for k in sizes:
        value_C = [_exact(int(scores.sum_SP[cell]), wrong_SP[cell], int(scores.samples_SP[cell]), k) for cell in cells]
        votes[k] = np.array(value_C).reshape(scores.samples_SP.shape)
    return votes


def _wrong(samples: pd.DataFrame, scores: Scores) -> dict[tuple[int, ...], tuple[int, ...]]:
    """Number of samples of each cell with each incorrect answer, most frequent first."""
    rows = samples[(samples["correct"] == 0) & samples["answer"].notna()]
    seed_N, problem_N = (
        rows[name].cat.set_categories(list(names)).cat.codes.to_numpy()
        for name, names in (("seed", scores.seeds), ("problem", scores.problems))
    )
    text_N = rows["answer"].astype(str).str.replace(r"\s+", "", regex=True).to_numpy()
    counts = pd.Series(1, index=pd.MultiIndex.from_arrays([seed_N, problem_N, text_N])).groupby(level=[0, 1, 2]).sum()
    keys, sizes = cast(list[tuple[int, int, str]], counts.index.to_list()), counts.to_list()
    sizes_of: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for (seed, problem, text), size in zip(keys, sizes, strict=True):
        if text:
            sizes_of[seed, problem].append(int(size))
    return defaultdict(tuple, {cell: tuple(sorted(of_cell, reverse=True)) for cell, of_cell in sizes_of.items()})


@lru_cache(maxsize=2**18)
def _exact(correct: int, wrong: tuple[int, ...], samples: int, k: int) -> float:
    """maj@k of one combination of counts; cached, because many cells have the same counts."""
    return stats.maj_at_k(correct, wrong, samples - correct - sum(wrong), k)
