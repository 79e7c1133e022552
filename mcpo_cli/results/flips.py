"""Responses to the problems whose score changed most, from the logs of both sides."""

import pandas as pd

from mcpo_cli.results.log import TEXTS, Side

SHOWN = 50
"""Most problems of a pair of sides and a benchmark whose responses are given, those that changed most."""
LONGEST = 4000
"""Most characters of a text; what is longer loses its middle, as answers stand at the end."""
OF_PROBLEM = ("prompt", "gold")
"""Texts of a problem; the others are of a response, one for each side."""


def largest(flips: pd.DataFrame, most: int) -> pd.DataFrame:
    """The first `most` flips by the size of the change, of all benchmarks and sides together."""
    size = (flips["score"] - flips["baseline_score"]).abs()
    return flips.loc[size.sort_values(ascending=False, kind="stable").index[:most]]


def with_texts(flips: pd.DataFrame, side: Side, baseline: Side) -> pd.DataFrame:
    """Add what the logs hold of `results.log.TEXTS` to the first SHOWN flips: of one benchmark, largest first.

    Of the side that scores more on a problem it is the first of its best samples, of the other the first of its worst:
    what separates them. Texts of `baseline` are in columns that begin with its word: `baseline_response`.
    """
    shown = flips.head(SHOWN)
    if shown.empty:
        return flips
    rises = shown.set_index("problem")["score"] > shown.set_index("problem")["baseline_score"]
    mine, theirs = _texts(side, shown, rises), _texts(baseline, shown, ~rises)
    texts = theirs.add_prefix("baseline_").rename(columns={f"baseline_{name}": name for name in OF_PROBLEM})
    whole = mine.combine_first(texts) if not mine.empty else texts
    return flips.join(whole, on="problem")


def _texts(side: Side, shown: pd.DataFrame, best: pd.Series) -> pd.DataFrame:
    """By problem: the texts of one sample, the best where `best` says so, else the worst."""
    names = [name for name in TEXTS if name in side.samples]
    if not names:
        return pd.DataFrame(index=pd.Index([], name="problem"))
    samples = side.samples
    of_these = samples["problem"].isin(shown["problem"]) & (samples["benchmark"] == shown["benchmark"].iloc[0])
    own = samples.loc[of_these, ["problem", "correct", *names]]
    own = own.assign(problem=own["problem"].astype(str))
    found = own.groupby("problem")["correct"]
    high, low = found.idxmax(), found.idxmin()
    chosen = own.loc[high.where(best.reindex(high.index), low)].set_index("problem")[names]
    texts: pd.DataFrame = chosen.map(_cut, na_action="ignore")
    return texts


def _cut(text: object) -> str:
    whole = str(text)
    if len(whole) <= LONGEST:
        return whole
    left_out = len(whole) - LONGEST
    return f"{whole[: LONGEST // 4]}\n[... {left_out} characters ...]\n{whole[-(LONGEST - LONGEST // 4) :]}"
