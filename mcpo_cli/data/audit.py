"""Reports the contents of a data set, and defects that would make a metric measured on it incorrect.

Serious findings would corrupt a metric: copies or contradicting golds in a benchmark; golds that are missing, of the
wrong kind, whole solutions, or not gradable; a number of problems other than the published one; a training problem that
also occurs in a benchmark. All other findings are notes.
"""

import math
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mcpo_cli.data.base import Dataset, Reading, digest, integer
from mcpo_cli.golds import alternatives

WORD = re.compile(
    r"[a-z0-9]+|[^\W_]|[+*/=<>^\u2212\u00d7\u00f7\u00b1\u2260\u2264\u2265]|(?<![a-z]{2})-|-(?![a-z]{2})"
    r"|(?<!\\)[(\[](?!\w[)\]])|(?<!\\)(?<![(\[]\w)[)\]]"
)
"""Words as in appendix C of GPT-3 (arXiv 2005.14165): no case, no punctuation; each non-Latin letter is a word, and so
is each operator of mathematics, but no hyphen of a word, and each bracket, but none around one sign, as in `(A)`."""
SHINGLE = 3
"""Words of the n-grams whose shares measure similarity."""
SIMILAR = 0.6
"""Least similarity of near-duplicates. Different problems of one competition stay below 0.3."""
LONG = 13
"""Words of a passage; a passage that occurs in both sets counts as overlap (GPT-3, appendix C)."""
COMMON = 10
"""A passage in more texts of the other set than this is ignored as a common phrase (GPT-3, appendix C)."""


@dataclass(frozen=True)
class SimilarPair:
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


def near_duplicates(texts: Sequence[str], threshold: float = SIMILAR) -> list[SimilarPair]:
    """All pairs whose shingles have a Jaccard similarity of at least `threshold`, the most similar first.

    Exact, by prefix filtering (Bayardo, Ma and Srikant 2007): two similar sets share one of their rarest elements.
    """
    shingles = [grams(text, SHINGLE) for text in texts]
    counts = Counter(gram for bag in shingles for gram in bag)
    index: defaultdict[str, list[int]] = defaultdict(list)
    pairs = []
    for place in sorted(range(len(texts)), key=lambda position: len(shingles[position])):
        bag = shingles[place]
        rarest = sorted(bag, key=lambda gram: (counts[gram], gram))
        minimum = math.ceil(threshold * len(bag))
        prefix = rarest[: len(bag) - minimum + 1]
        for other in {other for gram in prefix for other in index[gram] if len(shingles[other]) >= minimum}:
            common = len(bag & shingles[other])
            similarity = common / (len(bag) + len(shingles[other]) - common)
            if similarity >= threshold:
                pairs.append(SimilarPair(min(place, other), max(place, other), similarity))
        for gram in prefix:
            index[gram].append(place)
    return sorted(pairs, key=lambda pair: (-pair.similarity, pair.first, pair.second))


def overlap(texts: Sequence[str], others: Sequence[str]) -> list[SimilarPair]:
    """Pairs each of `texts` that shares a passage with one of `others` with the most similar of `others`."""
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
            grams_of = {other: grams(others[other], SHINGLE) for other in candidates}
            shares = {other: len(shingles & bag) / min(len(shingles), len(bag)) for other, bag in grams_of.items()}
            best = min(shares, key=lambda other: (-shares[other], other))
            pairs.append(SimilarPair(position, best, shares[best]))
    return sorted(pairs, key=lambda pair: (-pair.similarity, pair.first))


Talk = Callable[[str], None]
Graded = Callable[[Sequence[str]], list[str]]
GOLDS = {
    "decimal": re.compile(r"[+-]?\d*\.\d+"),
    "fraction": re.compile(r"[+-]?(\d+/\d+|\\[dt]?frac\s*(\{[^{}]*\}|\d)\s*(\{[^{}]*\}|\d))"),
    "list or interval": re.compile(r".*,.*", re.DOTALL),
    "text": re.compile(r"\\text\w*\{.*\}|[^\W\d_]{2,}([ -][^\W\d_]+)*"),
}
"""Kinds of non-integer golds. The first match counts; a gold without a match is an expression."""

ANY = "any of several"
"""The kind of a gold that is a list of answers, each of them correct."""
SOLUTION = 12
"""Words of a gold, or a line break in it, beyond which it is taken for a whole solution."""
MARKED = re.compile(r"\\(?:boxed|fbox)\b|(?i:\banswer\b)")
"""Marks by which a grader finds the answer in a whole solution."""


@dataclass(frozen=True)
class DataProblem:
    """One result of an audit."""

    kind: str
    serious: bool
    """True if it would corrupt a metric."""
    text: str


def audit(
    dataset: Dataset, reading: Reading, others: Sequence[tuple[Dataset, Reading]], self_grade: Graded, talk: Talk
) -> dict[str, Any]:
    """The audit of `reading`, as plain data.

    Args:
        others: the data sets that its problems are compared with.
        self_grade: grades each gold against itself and returns the statuses.
        talk: receives one line of progress.
    """
    texts = list(reading.problems)
    talk(f"comparing {len(texts)} problems for near-duplicates")
    pairs = near_duplicates(texts)
    overlaps = []
    for other, content in others:
        talk(f"overlap with {other.name}")
        overlaps.append(_overlap(dataset, reading, other, content))
    items = [
        (reading.first[text], gold)
        for text, counts in reading.problems.items()
        for gold_list in counts
        for gold in alternatives(gold_list)
    ]
    golds = list(dict.fromkeys(gold for _, gold in items))
    talk(f"grading {len(golds)} different golds as answers to themselves: each must be correct")
    statuses = dict(zip(golds, self_grade(golds), strict=True))
    counts = Counter(sum(rows.values()) for rows in reading.problems.values())
    document = {
        "name": dataset.name,
        "title": dataset.title,
        "role": dataset.role,
        "source": reading.source,
        "digest": digest(reading.agreed),
        "rows": reading.rows,
        "rows_published": dataset.rows or dataset.size,
        "problems": len(texts),
        "problems_published": dataset.size,
        # Number of copies -> number of problems with that many copies.
        "copies": {f"{count}": problems for count, problems in sorted(counts.items())},
        "golds": dict(Counter(kind(gold) for counts in reading.problems.values() for gold in counts).most_common()),
        "not_parsable": [
            {"row": row, "gold": gold, "status": statuses[gold]} for row, gold in items if statuses[gold] != "correct"
        ],
        "solutions": [
            {"row": row, "gold": gold, "marked": bool(MARKED.search(gold))} for row, gold in items if _is_solution(gold)
        ],
        "conflicts": [
            {"row": reading.first[text], "golds": counts, "problem": text} for text, counts in reading.conflicts.items()
        ],
        "defects": [asdict(defect) for defect in reading.defects],
        "characters": _distribution([len(text) for text in texts]),
        "words": _distribution([len(text.split()) for text in texts]),
        "near_duplicates": [_near(pair, texts, reading) for pair in pairs],
        "overlaps": overlaps,
    }
    return {**document, "findings": [asdict(finding) for finding in findings(dataset, document)]}


def unmatched(golds: Sequence[str], self_grade: Graded) -> list[str]:
    """The golds that no answer matches: whole solutions that mark no answer, and golds unlike themselves."""
    return [
        gold
        for gold, status in zip(golds, self_grade(golds), strict=True)
        if status != "correct" or (_is_solution(gold) and not MARKED.search(gold))
    ]


def _is_solution(gold: str) -> bool:
    return "\n" in gold or len(gold.split()) > SOLUTION


def kind(gold: str) -> str:
    """The kind of a gold: any of several, integer, decimal, fraction, list or interval, text, or expression."""
    if len(alternatives(gold)) > 1:
        return ANY
    if integer(gold) is not None:
        return "integer"
    bare = gold.strip("$ ")
    return next((name for name, pattern in GOLDS.items() if pattern.fullmatch(bare)), "expression")


def findings(dataset: Dataset, document: dict[str, Any]) -> list[DataProblem]:
    """The findings in an audit's `document`, serious ones first."""
    is_benchmark = dataset.role == "benchmark"
    results = [DataProblem(f"{defect['kind']}", True, _defect(defect)) for defect in document["defects"]]
    if document["problems"] != dataset.size is not None:
        text = f"{document['problems']} problems instead of the published {dataset.size}"
        results.append(DataProblem("size", is_benchmark, text))
    if set(document["copies"]) - {"1"}:
        note = ", as published" if document["rows"] == dataset.rows else ""
        text = f"{document['rows']} rows hold {copies(document)}{note}; each is used once"
        results.append(DataProblem("copies", is_benchmark, text))
    if document["conflicts"]:
        left = document["problems"] - len(document["conflicts"])
        text = (
            f"problems with contradicting golds: {len(document['conflicts'])}; training leaves them out and has "
            f"{left or 'no'} problems"
        )
        results.append(DataProblem("conflicts", is_benchmark, text))
    if document["not_parsable"]:
        text = f"golds that are not correct when graded against themselves: {len(document['not_parsable'])}"
        results.append(DataProblem("not parsable", True, text))
    unmarked = sum(not solution["marked"] for solution in document["solutions"])
    if unmarked:
        text = f"golds that are whole solutions, in which no answer is marked: {unmarked}"
        results.append(DataProblem("solutions", True, text))
    if marked := len(document["solutions"]) - unmarked:
        text = f"golds that are whole solutions, of which the marked answer counts: {marked}"
        results.append(DataProblem("solutions", False, text))
    if count := document["golds"].get(ANY):
        text = f"problems with a list of golds, of which each is taken for correct: {count}"
        results.append(DataProblem("several golds", False, text))
    if document["near_duplicates"]:
        text = f"near-duplicate problems: {len(document['near_duplicates'])} pairs"
        results.append(DataProblem("near-duplicates", False, text))
    for pair in document["overlaps"]:
        if pair["same"]:
            text = f"problems that also occur in {pair['name']}: {pair['same']}"
            results.append(DataProblem("overlap", "train" in (pair["role"], dataset.role), text))
    return sorted(results, key=lambda finding: not finding.serious)


def copies(document: dict[str, Any]) -> str:
    """Problems and copies as text, for example `30 problems x 32 copies` or `30 problems x 1 to 3 copies`."""
    counts = list(document["copies"])
    if counts == ["1"]:
        return f"none: {document['problems']} problems occur once each"
    return f"{document['problems']} problems x {' to '.join(dict.fromkeys(counts[:1] + counts[-1:]))} copies"


def _distribution(lengths: Sequence[int]) -> dict[str, float]:
    if not lengths:
        return {}
    ordered = sorted(lengths)
    # Nearest-rank percentile: always a length that occurs.
    p95 = ordered[max(0, -(-len(ordered) * 95 // 100) - 1)]
    return {"min": ordered[0], "median": statistics.median(ordered), "p95": p95, "max": ordered[-1]}


def _near(pair: SimilarPair, texts: Sequence[str], reading: Reading) -> dict[str, Any]:
    first, second = texts[pair.first], texts[pair.second]
    return {
        "similarity": round(pair.similarity, 4),
        "rows": [reading.first[first], reading.first[second]],
        "same_gold": reading.problems[first].keys() == reading.problems[second].keys(),
        "problems": [first, second],
    }


def _overlap(dataset: Dataset, reading: Reading, other: Dataset, content: Reading) -> dict[str, Any]:
    """The overlap of two data sets; between a training set and a benchmark, it counts the benchmark's problems."""
    texts, others = list(reading.problems), list(content.problems)
    is_turned = other.role == "benchmark" and dataset.role == "train"
    pairs = overlap(others, texts) if is_turned else overlap(texts, others)
    if is_turned:
        pairs = [SimilarPair(pair.second, pair.first, pair.similarity) for pair in pairs]
    twins = [pair for pair in pairs if pair.similarity >= SIMILAR]
    return {
        "name": other.name,
        "role": other.role,
        "source": content.source,
        "of": len(others if is_turned else texts),
        "same": len(twins),
        "passages": len(pairs) - len(twins),
        "pairs": [
            {
                "similarity": round(pair.similarity, 4),
                "rows": [reading.first[texts[pair.first]], content.first[others[pair.second]]],
                "same_gold": reading.problems[texts[pair.first]].keys() == content.problems[others[pair.second]].keys(),
            }
            for pair in pairs
        ],
    }


def _defect(defect: dict[str, Any]) -> str:
    repeats = f" and {defect['count'] - 1} rows like it" if defect["count"] > 1 else ""
    return f"row {defect['row']}{repeats}: {defect['kind']}: {defect['shown'][:60]!r}"
