r"""Rewrites equivalent spellings of an answer to one, as text, before math-verify parses it (`reading`).

The tables `SPELLINGS`, `IN_WORDS` and `NUMBERS`, and four rules that a pattern cannot express:

- parts labelled in order, `(a) 3, (b) 4`, become a tuple: `(3, 4)`;
- names of points, `A(1,2), B(3,4)`, are dropped; `C(5,2)` is a binomial coefficient and stays;
- an equation that ends with a lone variable, `42 = x`, is reversed;
- words before a number, `The largest n is 34`, are dropped.
"""

import re
from collections.abc import Callable
from functools import lru_cache

from mcpo_cli.grading import notation
from mcpo_cli.grading.extract import CHOICE, bare

LONGEST_SPELLING = 2000
"""Texts with more characters are not rewritten."""
SPACE = r"(?:[\s~]|\\[,;:! ]|\\thinspace )"
WORDS = r"\\(?:text(?:bf|it|rm|sf|tt|normal)?|math(?:rm|bf|sf)|mbox)\s*"
TEXT = re.compile(WORDS + r"\{([^{}]*)\}")
r"""Text inside a formula: words, or an upright number."""
_ORDINAL = rf"{WORDS}\{{\s*(?:st|nd|rd|th)\s*\}}"
_SIZE = r"(?:\\(?:left|right|[bB]igg?[lr]?))?"
_SCALES = {
    "hundred thousand": 5,
    "hundreds?": 2,
    "thousands?": 3,
    "millions?": 6,
    "billions?": 9,
    "trillions?": 12,
    "tenths?": -1,
    "lakhs?": 5,
    "crores?": 7,
    r"(?:[百백][万萬만]|млн|миллион\w*)": 6,
    "[千천][万萬만]": 7,
    "[万萬만]": 4,
    "[亿億억]": 8,
    r"(?:[千천](?![米克瓦])|тыс\w*)": 3,
    "hundredths?": -2,
    "thousandths?": -3,
    "ten-thousandths?": -4,
    "millionths?": -6,
}
_PARTS = {"halves": 2, "thirds": 3, "fourths": 4, "fifths": 5, "sixths": 6, "sevenths": 7, "eighths": 8, "ninths": 9}
_FOREIGN = "\u00c0-\u024f\u0400-\u1fff\u3040-\uffef"
"""Letters of no formula."""
_OPTION = r"(?:[Oo]ption\s+)?(?:\([A-J][).:]|[A-J](?:\)|[.:](?=[\s\d\\$(}-])))"
_SAYS = r"is|are|be|was|were|has|have|had|equals|equal to|comes to|gives"
_AFTER = {
    "dozen": r" \\cdot 12",
    "squared": "^{2}",
    "cubed": "^{3}",
    "factorial": "!",
    **{word: rf" \\cdot \\frac{{1}}{{{parts}}}" for word, parts in _PARTS.items()},
}
_NUMBER = r"(-?(?:[\d.]+(?:/\d+)?|\\frac\{\d+\}\{\d+\}|\\infty))"
_AMOUNT = r"\d[\d,]*(?:\.\d+)?"
_NO = r"(?:(?:there|it) (?:is|are|has|exists?) )?no"
_KINDS = "real |valid |positive |negative |integer |integral |possible "
_REALS = r"(?:\w+ is )?(?:all |any )?(?:the )?(?:real )?(?:numbers? |values? )?(?:of \w+ )?(?:that are )?"

CHARACTERS = str.maketrans(
    {
        **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u00ad"),  # invisible
        **dict.fromkeys("\u00a0\u2009\u202f", " "),
        **{chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)},  # of full width
        **dict.fromkeys("\u2212\u2013", "-"),
        **dict.fromkeys("\u2019\u2032", "'"),
        "€": r"\text{ euros }",
        "£": r"\text{ sterling }",
        "¥": r"\text{ yen }",
        "₹": r"\text{ rupees }",
        "¢": r"\text{ cents }",
        **notation.SIGNS,
        "\x0c": r"\f",  # of \frac, in data sets that were unescaped once too often
        "\u3001": ",",
        "或": " or ",
        "和": " and ",
    }
)


def _joined(number: re.Match[str]) -> str:
    return re.sub(r"\D", "", number[0])


def _repeating(number: re.Match[str]) -> str:
    r"""A repeating decimal as a fraction: `0.1\overline{6}` is `\frac{15}{90}`."""
    first, *periods = number.groups("")
    digits = re.sub(r"\D", "", first)
    period = "".join(periods)
    decimals = len(first.partition(".")[2])
    numerator = int(digits + period) - int(digits or 0)
    return rf"\frac{{{numerator}}}{{{10**decimals * (10 ** len(period) - 1)}}}"


def _listed(system: re.Match[str]) -> str:
    """The lines of a system of equations, as a list."""
    return re.sub(r",?\s*\\\\", ",", system[2].strip().removesuffix(r"\\"))


SPELLINGS: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    # decoration
    (rf"^{WORDS}\{{([^{{}}]*\d[^{{}}]*)\}}(\^\{{?\d\}}?)?$", r"\1\2"),
    (r"^[\s{]*\{([^{},;]*)\}[\s}]*$", r"\1"),
    (r"\\mathbf\s*\{\s*([NQRZ])\s*\}", r"\\mathbb{\1}"),
    (r"^(?:\\left)?(?:\\\{)?\s*\\begin\{(cases|array)\}(?:\{l\})?([^&]*=[^&]*)\\end\{\1\}(?:\s*\\right\.?)?$", _listed),
    (r"\\(?:underline|boldsymbol|bm|bf)\s*\{([^{}]*)\}", r"{\1}"),
    (r"\\(?:text)?color\s*\{\w+\}", ""),
    (r"\\(?:mathrm|rm)\s*\{\s*(e|i|\\pi)\s*\}", r" \1"),
    # upright letters after a number that are no unit: a variable, a thousand or a million
    (rf"(?<=[\d}}]){SPACE}*{WORDS}\{{\s*((?![gshdmlLuJNWVCKATFH])[A-Za-z](?:\^\d)?|pi|bn|mn)\s*\}}", r" \1 "),
    (rf"(?<=\d){WORDS}\{{([KT])\}}", r" \1 "),
    # sums of money: the currency is a unit
    (rf"^\s*(-?)\s*(?:(?:US)?\\?\$|USD)\s*({_AMOUNT})(?![\w^])\s*$", r"\1\2\\text{ dollars}"),
    (rf"{WORDS}\{{\s*(\\text\{{[^{{}}]*\}})\s*\}}", r"\1"),
    (rf"^\s*(-?)\s*(?:{WORDS}\{{\s*)?(?:Rs\.?|INR)\s*\}}?\s*({_AMOUNT})\s*$", r"\1\2\\text{ rupees }"),
    (r"\\pounds?(?![A-Za-z])", r"\\text{ sterling }"),
    (r"\\euros?(?![A-Za-z])", r"\\text{ euros }"),
    (rf"^\s*(-?)\s*(\\text\{{ (?:euros|sterling|yen|rupees) \}})\s*({_AMOUNT})\s*$", r"\1\3\2"),
    (rf"^\s*(\\text\{{ cents \}})\s*({_AMOUNT})\s*$", r"\2\1"),
    (r"\\cents?(?![A-Za-z])", r"\\text{ cents}"),
    # vectors in angle brackets, which math-verify reads without them
    (r"\\(?:left\s*\\)?langle(?![A-Za-z])\s*", "("),
    (r"\s*\\(?:right\s*\\)?rangle(?![A-Za-z])", ")"),
    (r"^\s*(?:\\left)?<\s*([^<>]*,[^<>]*?)\s*(?:\\right)?>\s*$", r"(\1)"),
    # text before an answer
    (rf"^(?:{WORDS}\{{\s*{_OPTION}\s*\}}|{_OPTION}){SPACE}*(?!.*\b[A-J][).:])(?=[^\s^_=+*/,;'!])", ""),
    (rf"^{WORDS}\{{(?![^{{}}]*\bthan\b)[^{{}}\d]*(?::|=|\b(?:{_SAYS}))[\s~]*\}}", ""),
    (rf"^(?:{WORDS}\{{)?\s*(?:approximately|approx\.?|about|roughly)(?:\s*\}}|\s)\s*(?=[-\d\\$])", ""),
    (r"^\s*(?:[=~]|\\(?:approx|simeq|sim|doteq)(?![A-Za-z]))\s*", ""),
    (rf"^(?:{WORDS}\{{)?\s*(?:negative|minus)(?:\s*\}}|\s)\s*(?=[\d\\])", "-"),
    # arguments without braces
    (r"\\([dtc]?frac)\s*(\d)\s*(\d)", r"\\\1{\2}{\3}"),
    (r"(\\[dtc]?frac\s*\{[^{}]*\})\s*([0-9A-Za-z])", r"\1{\2}"),
    (r"\\[dt]?binom\s*([0-9A-Za-z])\s*([0-9A-Za-z])", r"\\binom{\1}{\2}"),
    (r"\\[dt]binom(?![A-Za-z])", r"\\binom"),
    (r"\\log_\s*(\d)", r"\\log_{\1}"),
    (r"\^\s*(-\d+)", r"^{\1}"),
    # numbers
    (rf"(?<![\d.,])(\d{{1,3}})((?:(?:{SPACE}|')\d{{3}})++)(?!\d)", _joined),
    (r"(?<=[A-Za-z] )(\d{1,3})((?:,\d{3})++)(?![\d,])", _joined),
    (r"(?<![\d.,])\d{1,3}(?:\.\d{3}){2,}(?![\d.])", _joined),
    (r"(?<![\d.])(\d*\.\d*)\\dot\s*\{?\s*(\d)\s*\}?(\d*)\\dot\s*\{?\s*(\d)\s*\}?", _repeating),
    (r"(?<![\d.])(\d*\.\d*)\\(?:overline|bar|dot)\s*(?:\{\s*(\d+)\s*\}|(\d))", _repeating),
    (rf"(?<![\w.,/^\\}}])(\d+){SPACE}+(\d+)\s*/\s*(\d+)(?![\d/])", r"\1\\frac{\2}{\3}"),
    (r"(?<![\w.\\])(\d+(?:\.\d+)?)[eE]\+?(-?)0*(\d+)(?![\w.])", r"\1 \\times 10^{\2\3}"),
    (r"(?<=\d)\s*[x*]\s*10\s*\^", r" \\times 10^"),
    *(
        (rf"(?<=\d){SPACE}*{WORDS}\{{[\s~]*{word}(?![A-Za-z])", rf" \\times 10^{{{k}}}\\text{{")
        for word, k in _SCALES.items()
    ),
    *((rf"(?<=\d){SPACE}*{word}(?![A-Za-z])", rf" \\times 10^{{{k}}}") for word, k in _SCALES.items()),
    *((rf"(?<=\d){SPACE}*(?:{WORDS}\{{)?\s*{word}\b(?:\s*\}})?", sign) for word, sign in _AFTER.items()),
    # units: of two words, and in other scripts
    (rf"\\[dt]?frac\{{{WORDS}\{{([^{{}}\d]*)\}}\}}\{{{WORDS}\{{([^{{}}\d]*)\}}\}}", r"\\text{ \1/\2}"),
    (rf"(?:(?<=[\d}}])|(?<=\\pi))(?:\s+|(?=[{_FOREIGN}]))([a-z ]*[{_FOREIGN}][A-Za-z{_FOREIGN} /.]*)$", r"\\text{ \1}"),
    (rf"(?<=\d)(?:(?:st|nd|rd|th)\b|\s*\^?\s*{_ORDINAL}|\s*\^\s*\{{\s*{_ORDINAL}\s*\}})", ""),
    (r"\(([\dA-F]+)\)(?=_)", r"\1"),
    (rf",\s*(?=(?:{WORDS}\{{\s*)?(?:and|or)\b)", " "),
    # sets by a condition
    (rf"^\s*{_SIZE}\\\{{\s*[A-Za-z]\s*(?:\||:|\\mid|\\middle\|)((?:(?!\\[{{}}]).)*?){_SIZE}\\\}}\s*$", r"\1"),
    # primes, which math-verify drops: of functions, of units, and others
    (r"\^\s*\{?\s*\\prime\s*\}?", "'"),
    (r"(?<=[A-Za-z])''(?![A-Za-z'])", "_{primes}"),
    (r"(?<=[A-Za-z])'(?![A-Za-z'])", "_{prime}"),
    (r"(?<=\d)'+\s*$", ""),
    (r"(?<=\d)'(?=\d)", " "),
)
r"""Patterns and replacements, applied in this order."""
IN_WORDS: tuple[tuple[str, str], ...] = (
    (r"all real numbers|all reals|any real number", r"(-\\infty,\\infty)"),
    (rf"{_NO} (?:{_KINDS})*(?:solutions?|roots?|answers?)(?: exists?)?", r"\\emptyset"),
    (rf"{_NO} (?:such (?:{_KINDS})*\w+(?: exists?)?|(?:{_KINDS})*\w+(?: of \w+)? exists?)", r"\\emptyset"),
    (r"(?:the )?(?:empty|null) set|none|[无無]解|\\varnothing|\\\{\s*\\\}", r"\\emptyset"),
    (r"dne|(?:the limit |it )?does(?: not|n't) exist|nonexistent", r"\\text{does not exist}"),
    (r"(?:there are )?(?:infinitely many|an infinite number of)(?: solutions)?|infinity", r"\\infty"),
    (rf"{_REALS}(?:greater|more|larger) than {_NUMBER}", r"(\1,\\infty)"),
    (rf"{_REALS}(?:greater|more|larger) than or equal to {_NUMBER}|{_REALS}at least {_NUMBER}", r"[\1\2,\\infty)"),
    (rf"{_REALS}(?:less|smaller) than {_NUMBER}", r"(-\\infty,\1)"),
    (rf"{_REALS}(?:less|smaller) than or equal to {_NUMBER}|{_REALS}at most {_NUMBER}", r"(-\\infty,\1\2]"),
    (rf"{_REALS}(?:strictly )?between {_NUMBER} and {_NUMBER}", r"(\1,\2)"),
    (rf"{_REALS}(?:between|from) {_NUMBER} (?:and|to) {_NUMBER},? inclusive", r"[\1,\2]"),
)
"""Sets in words: a pattern for the whole answer, and its LaTeX."""

_ONES = [
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
NUMBERS = {word: str(k) for k, word in enumerate(_ONES)}
NUMBERS |= {ten: str(10 * k) for k, ten in enumerate(_TENS, 2)}
NUMBERS |= {f"{ten} {unit}": str(10 * k + j) for k, ten in enumerate(_TENS, 2) for j, unit in enumerate(_ONES[1:10], 1)}
_FRACTIONS = {**_PARTS, "quarters": 4, "tenths": 10}
_SINGLE = {"half": 2, **{parts[:-1]: n for parts, n in _FRACTIONS.items()}}
NUMBERS |= {f"{top} {parts}": rf"\frac{{{k}}}{{{n}}}" for k, top in enumerate(_ONES) for parts, n in _FRACTIONS.items()}
NUMBERS |= {f"{top} {part}": rf"\frac{{1}}{{{n}}}" for top in ("a", "an", "one") for part, n in _SINGLE.items()}
"""Numbers in words: whole ones below 100, and fractions such as `one half` and `two thirds`."""

_SPELLINGS = tuple((re.compile(pattern), replacement) for pattern, replacement in SPELLINGS)
_IN_WORDS = tuple((re.compile(pattern, re.IGNORECASE), replacement) for pattern, replacement in IN_WORDS)
_FOREIGN_DIGIT = re.compile(r"[^\D0-9]")
_PART = re.compile(rf"(?:^|(?<=[\s,;}}]))(?:{WORDS}\{{)?\s*\(?([a-h]|i{{1,3}}|iv|v)(?:\)|\.(?!\d)|:)\s*\}}?\s*")
_PART_ENDS = re.compile(r"(?:[\s,;]|\\text\s*\{[\s,;]*and[\s,;]*\}|\band\b)+$")
_BETWEEN = re.compile(r"(?<!\\)[,;](?!\d{3}(?!\d))|\band\b")
_POINT = r"[ABD-Z]?\s*=?\s*(?:\\left\s*)?\([^()]*,[^()]*\)"
_POINTS = re.compile(rf"\s*(?:(?:{WORDS}\{{)?\s*[Pp]oints?\s*\}}?)?\s*{_POINT}(?:\s*[,;]\s*{_POINT})*\s*")
_POINT_NAME = re.compile(r"(?:^.*?[Pp]oints?\s*\}?\s*)?[ABD-Z]?\s*=?\s*(?=(?:\\left\s*)?\()")
_NAME = re.compile(r"^\s*[A-Za-z][\w ]*(?:\(\w+\))?\s*[=:]")
_LABELS = (tuple("abcdefgh"), ("i", "ii", "iii", "iv", "v"))
_EQUALS = re.compile(r"(?<![\\<>!:])=(?!=)|[{}()\[\]]")
_ITEMS = re.compile(_BETWEEN.pattern + r"|\bor\b|[{}()\[\]]")
_ENCLOSED = re.compile(r"(?:\\left\s*)?(?:\(|\\\{)([^()]*?)(?:\\right\s*)?(?:\)|\\\})")
_COMMAS = re.compile(r",|[{}()\[\]]")
_LONE = re.compile(r"\s*[A-Za-z](?:_\{?\w+\}?)?\s*")
_ARTICLE = re.compile(r"(?:an?|the) (?=[a-z]{2})")
_DECIMAL_COMMA = re.compile(r"(-?(?:\d+|[1-9]\d{0,2}(?:\.\d{3})+)),(?!\d{3}$)(\d+)")
_COMMAND = re.compile(r"\\[A-Za-z]+")
_BEFORE = re.compile(
    rf"^(?:[^\d=\\]*[A-Za-z]{{2}}[^\d=\\]*\b(?:{_SAYS})\s*:?|[A-Za-z ]{{3,}}:)"
    r"\s+(?=[-$\d\\(.])"
)


@lru_cache(maxsize=512)
def spelled(text: str) -> str:
    """`text` without decoration, with equivalent spellings rewritten to one."""
    text = bare(_FOREIGN_DIGIT.sub(lambda digit: str(int(digit[0])), text.translate(CHARACTERS)))
    if len(text) > LONGEST_SPELLING:
        return text
    text = notation.latex(text)
    for pattern, replacement in _SPELLINGS:
        text = pattern.sub(replacement, text)
    words = " ".join(plain(text).split())
    for pattern, replacement in _IN_WORDS:
        if match := pattern.fullmatch(words):
            return match.expand(replacement)
    if number := NUMBERS.get(words.casefold().replace("-", " ")):
        return number
    if (before := _BEFORE.match(text)) and not CHOICE.search(before[0]):
        text = text[before.end() :]
    if _POINTS.fullmatch(text):
        text = _POINT_NAME.sub("", text)
    return ",".join(map(_both_signs, _outside(_turned(_named_parts(text)), _COMMAS))).strip()


def _both_signs(text: str) -> str:
    r"""`text` with both values of a sign in brackets, `\frac{1 \pm \sqrt{5}}{2}`, which math-verify cannot read."""
    if text.count(r"\pm") != 1 or r"\{" in text or len(_outside(text.partition(r"\pm")[0] + ",", _COMMAS)) > 1:
        return text
    value = text.rpartition("=")[2]
    return ", ".join(value.replace(r"\pm", sign).replace(r"\mp", other) for sign, other in ("+-", "-+"))


def _named_parts(text: str) -> str:
    """A tuple of the parts labelled a, b, ... or i, ii, ...; `text` if there are none."""
    matches = list(_PART.finditer(text))
    labels = tuple(part[1] for part in matches)
    if len(matches) < 2 or matches[0].start() > 0 or not any(labels == names[: len(labels)] for names in _LABELS):
        return text
    ends = [*(part.start() for part in matches[1:]), len(text)]
    parts = [_PART_ENDS.sub("", text[part.end() : end]) for part, end in zip(matches, ends, strict=True)]
    return f"({', '.join(parts)})" if all(parts) else text


def _turned(text: str) -> str:
    """`text` with a lone variable at the end of its equation moved to the front, if the rest has no variable."""
    *sides, last = sides_of(text)
    values = "".join(sides)
    letters = any(map(str.isalpha, _COMMAND.sub("", values)))
    turns = sides and _LONE.fullmatch(last) and any(map(str.isdigit, values)) and not letters
    return "=".join([last, *sides]) if turns else text


def sides_of(answer: str) -> list[str]:
    """The sides of `answer` between equals signs outside brackets."""
    return _outside(answer, _EQUALS)


def items_of(text: str) -> list[str]:
    """The items of a list, in brackets or not, between commas, semicolons and words, without names."""
    text = plain(text)
    match = _ENCLOSED.fullmatch(text)
    return [_NAME.sub("", item) for item in _outside(match[1] if match else text, _ITEMS)]


def _outside(text: str, separators: re.Pattern[str]) -> list[str]:
    """The parts of `text` between separators outside brackets; the pattern also finds the brackets."""
    depth, parts, start = 0, [], 0
    for sign in separators.finditer(text):
        if sign[0] in "{}()[]":
            depth += 1 if sign[0] in "{([" else -1
        elif depth == 0:
            parts.append(text[start : sign.start()])
            start = sign.end()
    return [*parts, text[start:]]


def unnamed(text: str) -> list[str]:
    """The parts of `text` between commas, semicolons and "and", without names before `=` or `:`."""
    return [_NAME.sub("", part) for part in _parts(text)]


def _parts(text: str) -> list[str]:
    return [part for part in _BETWEEN.split(plain(text)) if part.strip()]


def named_values(text: str) -> dict[str, str]:
    """The values of `x = 1, y = 2` by their names; empty unless each of several parts has a name of its own."""
    parts = [part.split("=") for part in _parts(text)]
    values = {part[0].strip(): part[-1] for part in parts if len(part) == 2}
    return values if len(values) == len(parts) > 1 else {}


def same_text(gold: str, answer: str) -> bool:
    """True if two texts are equal up to case, decoration and a decimal comma."""
    return _key(gold) == _key(answer)


def _key(text: str) -> str:
    if number := _DECIMAL_COMMA.fullmatch(text):
        return f"{number[1].replace('.', '')}.{number[2]}"
    return _ARTICLE.sub("", re.sub(r"\s*([,:])\s*", r"\1", plain(text).casefold().rstrip(".")))


def plain(text: str) -> str:
    r"""`text` without text commands such as \text{}."""
    return TEXT.sub(r"\1", text).strip()
