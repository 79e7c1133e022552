"""Texts that say nearly the same, and texts of one set that stand in another: exact, by inverted indices of n-grams."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

WORD = re.compile(r"[a-z0-9]+|[^\W_]")
"""Words as in appendix C of GPT-3 (arXiv 2005.14165): no case, no punctuation; a letter that is not Latin is a word."""
SHINGLE = 3
SIMILAR = 0.6
"""Similarity from which on two texts are near-duplicates. Different problems of one competition stay below 0.3."""
LONG = 13
"""Words of a passage whose presence in another set is overlap (GPT-3, appendix C)."""
COMMON = 10
"""A passage in more texts of the other set than this is a common phrase and is ignored (GPT-3, appendix C)."""


@dataclass(frozen=True)
class Pair:
    """Texts `first` and `second`, by position.

    similarity: of their shingles, by Jaccard; in an overlap, the share of the shorter one's that the other has.
    """

    first: int
    second: int
    similarity: float


def words(text: str) -> list[str]:
    """The words of `text`."""
    return WORD.findall(text.lower())


def grams(text: str, size: int) -> set[str]:
    """All runs of `size` words; of a shorter text, all its words as one, which only the same whole text has."""
    found = words(text)
    if len(found) < size:
        return {" ".join(["^", *found, "$"])}
    return {" ".join(found[start : start + size]) for start in range(len(found) - size + 1)}


def near_duplicates(texts: Sequence[str], threshold: float = SIMILAR) -> list[Pair]:
    """All pairs whose shingles have a Jaccard similarity of at least `threshold`, the most similar first.

    Exact, by prefix filtering (Bayardo, Ma and Srikant 2007): of two similar sets, the rarest few elements must meet.
    """
    shingles = [grams(text, SHINGLE) for text in texts]
    counts = Counter(gram for found in shingles for gram in found)
    index: defaultdict[str, list[int]] = defaultdict(list)
    pairs = []
    for this in sorted(range(len(texts)), key=lambda position: len(shingles[position])):
        found = shingles[this]
        rarest = sorted(found, key=lambda gram: (counts[gram], gram))
        least = math.ceil(threshold * len(found))
        prefix = rarest[: len(found) - least + 1]
        for other in {other for gram in prefix for other in index[gram] if len(shingles[other]) >= least}:
            common = len(found & shingles[other])
            similarity = common / (len(found) + len(shingles[other]) - common)
            if similarity >= threshold:
                pairs.append(Pair(min(this, other), max(this, other), similarity))
        for gram in prefix:
            index[gram].append(this)
    return sorted(pairs, key=lambda pair: (-pair.similarity, pair.first, pair.second))


def overlap(texts: Sequence[str], others: Sequence[str]) -> list[Pair]:
    """For each of `texts` that shares a passage with one of `others`: the most similar one."""
    index: defaultdict[str, list[int]] = defaultdict(list)
    for position, other in enumerate(others):
        for gram in grams(other, LONG):
            index[gram].append(position)
    pairs = []
    for position, text in enumerate(texts):
        meets = (index[gram] for gram in grams(text, LONG) if gram in index)
        candidates = {other for found in meets if len(found) <= COMMON for other in found}
        if candidates:
            shingles = grams(text, SHINGLE)
            shares = {other: _share(shingles, grams(others[other], SHINGLE)) for other in candidates}
            best = min(shares, key=lambda other: (-shares[other], other))
            pairs.append(Pair(position, best, shares[best]))
    return sorted(pairs, key=lambda pair: (-pair.similarity, pair.first))


def _share(one: set[str], two: set[str]) -> float:
    return len(one & two) / min(len(one), len(two))
