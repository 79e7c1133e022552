r"""Multiple choice: the options that an answer names, where the gold is one letter (A to J).

An answer that begins with an option chooses it: a letter in either case before a bracket, a point, a colon or the end,
or a capital before a comma, a dash, a bracket, `because`, `since` or `is`: `(B)`, `Option B`, `B. 12`, `B, because 3`.
The text of an option may have any words (`(B) not enough information`, `(D) both A and C`), an answer with further
options is several guesses, and words that judge the option may take it back (`(A) is wrong`).
"""

import re

from mcpo_cli.grading.base import Grade, hedged
from mcpo_cli.grading.spelling import CHARACTERS, plain

GOLD = re.compile(r"\W*([A-J])\W*")
DENIES = re.compile(
    r"(?i)\b(?:wrong|incorrect|false|impossible|invalid|excluded|eliminated|rejected|except|excluding|unless|but|rather"
    r"|(?:is|are|was|does|do|ca)n['\u2019]t|cannot|never|none|anything|other than|instead of)\b"
)
"""Words that take back the answer next to them."""
_BEGIN = r"(?:(?:(?i:option|choice|answer)\b|选项?)[\s*_$:]*)?"
_MARKS = r"[*_$]*\s*"
_TURNS = r"(?i:or|and|but|not|neither|nor|either|between|maybe|perhaps|possibly|rather|unless|except|versus|vs)\b"
_STRICT = re.compile(rf"[\s*_$]*{_BEGIN}[\s*_$(]*([A-Ja-j]){_MARKS}(?:[).:]|$)(.*)", re.DOTALL)
_LOOSE = re.compile(
    rf"[\s*_$]*{_BEGIN}([A-HJ]){_MARKS}(?:[,;\u2014]|-+(?=\s)|(?<=\s)(?=\(|(?:because|since|is)\b))"
    rf"(?!\W*(?:{_TURNS}|[A-Z]{{1,3}}\b))((?=.*(?:[a-z]{{3}}|\d\b)).*)",
    re.DOTALL,
)
"""A letter before what may also continue a formula, and a text with a word or a number."""
_BRACKETED = re.compile(r"\(\s*([A-Ja-j])\s*[).:]")
_FURTHER = re.compile(
    rf"(?:[;,&/|+]|\b(?:also\b|{_TURNS}))\s*(?:(?:also|or|and)\s+)*([A-J]){_MARKS}(?:[).:,;\u2014](?=\s|$)|$)"
)
_IN_BRACKETS = re.compile(r"\([^()]{2,}\)")
_OF_OPTIONS = re.compile(r"\W*(?:(?i:both|either|neither|only|all of)\s+)?[A-J](?:,? (?:and|or|nor)|,(?= [A-J]\b))\s")
"""The text of an option that is about other options: both A and C."""
_JUDGES = re.compile(r"(?i)\W*(?:(?:which|that|it|this)\s+)?(?:is|isn|was|can be|would be|has been|must be)\b")
_DOUBTS = re.compile(r"(?i)\b(?:not|maybe|perhaps|possibly)\b")


def _words(text: str) -> str:
    return plain(text.translate(CHARACTERS)).strip()


def _first(words: str) -> re.Match[str] | None:
    """The option that an answer begins with, and its text."""
    return _STRICT.match(words) or _LOOSE.match(words)


def named(text: str) -> set[str]:
    """The options that `text` names: one at the start, any in brackets, and further ones as in `D) 5; C) 4`."""
    words = _words(text)
    first = _first(words)
    if first and _OF_OPTIONS.match(first[2]):
        return {first[1].upper()}
    options = [*([first[1]] if first else []), *_BRACKETED.findall(words)]
    return {option.upper() for option in options + (_FURTHER.findall(_IN_BRACKETS.sub("", words)) if options else [])}


def denied(text: str) -> bool:
    """True if words retract an answer; an option's own text, as in `(E) cannot be determined`, does not."""
    words = _words(text)
    if (first := _first(words)) and not _JUDGES.match(first[2]):
        return False
    return bool(DENIES.search(words) or (first and _DOUBTS.search(first[2])))


def verdict(gold: str, answer: str) -> Grade | None:
    """The grade of an answer that begins with an option; None if it does not, or if the gold is no option."""
    if not GOLD.fullmatch(plain(gold)) or not _first(_words(answer)):
        return None
    options = named(answer)
    if len(options) > 1:
        return hedged(answer, f"several options: {answer}")
    if denied(answer):
        return hedged(answer, f"a word that denies an answer: {answer}")
    return Grade("correct" if options == named(gold) else "wrong", answer)
