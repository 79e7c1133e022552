"""Finds near-duplicate texts in a set, and overlap between two sets. Exact, by inverted indices of n-grams."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

WORD = re.compile(r"[a-z0-9]+|[^\W_]")
"""Words as in appendix C of GPT-3 (arXiv 2005.14165): no case, no punctuation; each non-Latin letter is a word."""
SHINGLE = 3
"""Words of the n-grams whose shares measure similarity."""
SIMILAR = 0.6
"""Least similarity of near-duplicates. Different problems of one competition stay below 0.3."""
LONG = 13
"""Words of a passage; a passage that occurs in both sets counts as overlap (GPT-3, appendix C)."""
COMMON = 10
"""A passage in more texts of the other set than this is ignored as a common phrase (GPT-3, appendix C)."""


@dataclass(frozen=True)
class Pair:
    """Two similar texts."""

    first: int
    """Position of one text in its set."""
    second: int
    """Position of the other text in its set."""
    similarity: float
    """Jaccard similarity of the shingles; in an overlap, the share of the smaller shingle set found in the other."""


def words(text: str) -> list[str]:
    """The words of `text`."""
    return WORD.findall(text.lower())


def grams(text: str, size: int) -> set[str]:
    """All n-grams of `size` words. A shorter text yields one gram that only an identical text shares."""
    sequence = words(text)
    if len(sequence) < size:
        return {" ".join(["^", *sequence, "$"])}
    return {" ".join(sequence[start : start + size]) for start in range(len(sequence) - size + 1)}


def near_duplicates(texts: Sequence[str], threshold: float = SIMILAR) -> list[Pair]:
    """All pairs whose shingles have a Jaccard similarity of at least `threshold`, the most similar first.

    Exact, by prefix filtering (Bayardo, Ma and Srikant 2007): two similar sets share one of their rarest elements.
    """
    shingles = [grams(text, SHINGLE) for text in texts]
    counts = Counter(gram for own in shingles for gram in own)
    index: defaultdict[str, list[int]] = defaultdict(list)
    pairs = []
    for this in sorted(range(len(texts)), key=lambda position: len(shingles[position])):
        own = shingles[this]
        rarest = sorted(own, key=lambda gram: (counts[gram], gram))
        least = math.ceil(threshold * len(own))
        prefix = rarest[: len(own) - least + 1]
        for other in {other for gram in prefix for other in index[gram] if len(shingles[other]) >= least}:
            common = len(own & shingles[other])
            similarity = common / (len(own) + len(shingles[other]) - common)
            if similarity >= threshold:
                pairs.append(Pair(min(this, other), max(this, other), similarity))
        for gram in prefix:
            index[gram].append(this)
    return sorted(pairs, key=lambda pair: (-pair.similarity, pair.first, pair.second))


def overlap(texts: Sequence[str], others: Sequence[str]) -> list[Pair]:
    """Pairs each of `texts` that shares a passage with any of `others` with the most similar of them."""
    index: defaultdict[str, list[int]] = defaultdict(list)
    for position, other in enumerate(others):
        for gram in grams(other, LONG):
            index[gram].append(position)
    pairs = []
    for position, text in enumerate(texts):
        meets = (index[gram] for gram in grams(text, LONG) if gram in index)
        candidates = {other for holders in meets if len(holders) <= COMMON for other in holders}
        if candidates:
            shingles = grams(text, SHINGLE)
            shares = {other: _share(shingles, grams(others[other], SHINGLE)) for other in candidates}
            best = min(shares, key=lambda other: (-shares[other], other))
            pairs.append(Pair(position, best, shares[best]))
    return sorted(pairs, key=lambda pair: (-pair.similarity, pair.first))


def _share(one: set[str], two: set[str]) -> float:
    return len(one & two) / min(len(one), len(two))
