"""The words of a verdict: for a difference, each with its rule; for a claim that expected a word; and for a gate.

All tests are at the level that is given, .05 unless the data are looked at several times (`power.look_level`), on
p-values adjusted over a family (Holm 1979). `m` is the margin: the largest difference that does not matter, declared
before looking.

| word          | rule                                                                                      |
|---------------|-------------------------------------------------------------------------------------------|
| identical     | both sides have the same score in each seed, or on each problem: there is nothing to test   |
| not testable  | there is no p-value; the sentence next to it gives the reason                              |
| equivalent    | a margin is declared, and both one-sided tests (Schuirmann 1987) find |difference| < m     |
| better        | the two-sided test finds a difference, and it is above 0                                   |
| worse         | the same, and it is below 0                                                                |
| not worse     | a margin is declared, and a one-sided test finds the difference above -m                   |
| undecided     | none of these                                                                              |

The first rule that applies gives the word (`difference_tests.word`). `undecided` does not mean that there is no
difference.

A claim expects better (than its reference), worse or equivalent. It is `supported` by that word and `contradicted` by
another word, with three exceptions: it is `no difference` if the word is equivalent in place of better or worse,
`unresolved` if the word is undecided, and `not testable` if that is the word.
"""

from collections.abc import Mapping
from typing import Literal, get_args

Word = Literal["identical", "equivalent", "better", "worse", "not worse", "undecided", "not testable"]
ClaimWord = Literal["supported", "contradicted", "no difference", "unresolved", "not testable"]
CLAIM_WORDS: tuple[ClaimWord, ...] = get_args(ClaimWord)
DECIDED: tuple[Word, ...] = ("better", "worse", "equivalent", "not worse")
OPEN = ("undecided", "unresolved", "not testable")
"""Words that leave a difference or a claim open."""
TONES: Mapping[str, str] = {
    **dict.fromkeys(("better", "not worse", "equivalent", "supported"), "good"),
    **dict.fromkeys(("worse", "contradicted"), "bad"),
    **dict.fromkeys(("undecided", "identical", "unresolved", "no difference", "not testable"), "open"),
}
"""How pages and terminals mark each word."""
GateWord = Literal["holds", "broken", "undecided"]
"""The words for a rule of a gate (`compare/gate.py`), by one-sided tests of what it demands and of its opposite."""


def claim_word(word: Word, expected: Word) -> ClaimWord:
    """The word for a claim that expected the word `expected` of a difference that has the word `word`."""
    if word == expected:
        return "supported"
    words: dict[Word, ClaimWord] = {
        "equivalent": "no difference",
        "undecided": "unresolved",
        "not testable": "not testable",
    }
    return words.get(word, "contradicted")
