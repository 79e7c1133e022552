r"""Finds the text of a response that is its answer, in time linear in the response's length.

1.  Reasoning is skipped: only the text after the last tag that closes it counts (`mcpo_cli.thinking` has the tags). If
    a tag of reasoning is never closed, there is no answer.
2.  Boxes: every `\boxed{...}` and `\fbox{...}` with balanced braces, also `\boxed 5`, and every `<answer>...</answer>`
    without a box. The last one is the answer. A box inside a box belongs to the outer one, and `\phantom{5}` is
    ignored. A box that is never closed (truncated response), has no visible content (empty, `\quad`) or holds a
    placeholder (`\boxed{your answer here}`, `\boxed{...}`) is ignored.
3.  Without these, lines that begin with the label `Answer:` or `Final answer:`, in a dozen languages, with or without
    markdown, a number after `####` that ends its line, and any text after `####` that ends the response. The text of a
    label may be on the next line; then it needs no colon. The last one is the answer.
4.  Without any, the rest of the line after the last `answer is`.
5.  Otherwise the response marks no answer. A trailing unmarked number is not taken as the answer.

All differing boxes (or labelled lines) are returned: the grader decides whether they mean the same, and if they do not,
the response hedges.

If a labelled line also contains `answer is`, only the text after it counts. Punctuation, markdown and formula
delimiters are removed, as is text after the first sentence or around the only formula, unless it has a digit or a word
that offers a choice.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from mcpo_cli import thinking

_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s*+")
_TOKEN = re.compile(
    _BOX.pattern + r"(?:(\{)|(-?(?:\d\w*+(?:[./,]\w++)*+|(?!a\b|I\b)[A-Za-z]\b)))|\\\\(?=[{}])|\\[{}]|[{}]"
)
_COMMAND_OF_TEXT = re.compile(r"\\(?:text|mathrm|textbf|mathbf|mbox)\s*")
_PHANTOM = re.compile(r"\\[hv]?phantom\s*+\{[^{}]*+\}")
_INVISIBLE = re.compile(
    r"(?:\\hspace\*?\{[^{}]*\}|\\(?:text|mathrm|mbox)\s*\{\s*\}|\\q?quad(?![A-Za-z])"
    r"|\\[,;:! ]|[\s~{}$])*+"
)
_SEPARATOR = re.compile(r"\b(?:and|or)\b|[,;]")
_TAG = re.compile(r"(?i)<(/?)(answer|final_answer|solution)>")
_PLACEHOLDER = re.compile(
    r"(?i)[\s<\[({_]*(?:(?:the|your|my|an?|insert|put|enter|write|final|numerical|numeric|correct|exact|short)[\s_-]*)*"
    r"(?:answer|result|solution|value|number|expression|notation|format|content)(?:[\s_-]*(?:goes|here|only|value))*[\s>\])}_]*"
    r"|(?:\.|…|\\[lcvd]?dots|\\square|\\Box|[_?\s])+"
)
"""Placeholders for an answer, where a response says how it will mark the answer."""
_LABEL = re.compile(
    r"(?im)^[ \t>*_#-]*+(?:(?:the[ \t]++)?(?:(?:final|correct)[ \t]++)*answer[ \t*_]*+(?:[:\uff1a]|$)"
    r"|(?:Antwort|Respuesta|Réponse|Resposta|Risposta|Ответ|Jibu|উত্তর|సమాధానం|คำตอบ|정답|답)(?:[ \t]final\w*+)?"
    r"[ \t*_]*+[:\uff1a]"
    r"|(?:最终|最后|正确)?答[案え][ \t*_]*+(?:[:\uff1a为是は]|$))[\s*_:\uff1a]*+(?=\S)"
)
_HASHES = re.compile(r"(?m)(?<!#)#{4}(?!#)[ \t*]*+(?:(?=[$\\]*-?[$\\]*[\d.][\d,./%$* ]*$)|(?=[^\s#][^\n#]*+\s*\Z))")
_PROSE = re.compile(
    r"(?i)(?:\b(?:answer|correct (?:option|choice))[ \t]++(?:is|equals|=)|答案[是为]|故选(?!项)"
    r"|\b(?:respuesta|resposta|risposta|réponse|antwort)(?:[ \t]final\w*+)?[ \t]++(?:es|é|è|est|ist)\b)[\s:*_\uff1a]*+"
    r"(?:(?:therefore|thus|then|simply)\b[\s,]*+)?(?=\S)"
)
_DOUBTED = re.compile(
    r"(?i)\b(?:false|wrong|incorrect|untrue|impossible|cannot be(?: said)?|can['\u2019]t be|doubt"
    r"|(?:don['\u2019]t|do not) (?:think|believe))(?: that)?(?: the| my| its)?(?: final| correct)?[ \t]*\Z"
)
"""Words that take back `the answer is` if they stand right before it."""
_DOUBT = 60
"""Characters before `answer is` that are searched for such words."""
_FORMULA = re.compile(r"\$\$([^$]++)\$\$|\$([^$]++)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_CLOSING_WORDS = re.compile(r"\. I hope it is correct\b.*")
"""The closing words of answers in Minerva's format (arXiv 2206.14858, appendix D.1), and all that follows them."""
_LONGEST_LINE = 2000
"""Lines and display formulas with more characters are not searched for formulas."""
CHOICE = re.compile(
    r"(?i)(?<![A-Za-z])(?:or|and|either|neither|nor|not|between|maybe|perhaps|possibly|versus|vs)(?![A-Za-z])"
    r"|\\(?:lor|land|vee|wedge)(?![A-Za-z])"
)
"""Words that offer several answers or retract one."""


@dataclass(frozen=True)
class Marked:
    """The answers that a text marks."""

    answers: tuple[str, ...]
    """Each distinct wording once, in order of its last appearance."""
    adjacent: tuple[str, ...]
    """The last answers that are side by side; they are one answer if the gold has several values."""

    @property
    def last(self) -> str:
        """The answer."""
        return self.answers[-1]


def marked(response: str) -> Marked | None:
    """The answers that `response` marks, by the rules in the module docstring; None if there are none."""
    text = thinking.answer(response)
    if text is None:
        return None
    if boxed := sorted([*boxes(text), *_tagged(text)]):
        return _marked([content for _, _, content in boxed], _side_by_side(text, boxed))
    return labelled(text)


def labelled(text: str, tidied: Callable[[str], str] | None = None) -> Marked | None:
    """The answers that `text` marks by labels and words (rules 3 and 4), whatever it has in boxes.

    tidied: makes an answer of the rest of a line; `bare` by default.
    """
    starts = sorted({label.end() for pattern in (_LABEL, _HASHES) for label in pattern.finditer(text)})
    # Of labels on one line, as after a heading `Final answer:`, the last one counts.
    last = [
        start
        for start, following in pairwise([*starts, len(text) + 1])
        if "\n" in text[start:following] or following > len(text)
    ]
    if lines := [line for start in last if not _is_placeholder(line := _line(text, start, tidied or bare))]:
        return _marked(lines, lines[-1:])
    prose = _PROSE.finditer(text)
    ends = [mark.end() for mark in prose if not _DOUBTED.search(text[max(0, mark.start() - _DOUBT) : mark.start()])]
    if not ends:
        return None
    texts = [_line(text, ends[-1], tidied or bare)]
    return _marked(texts, texts)


def given(response: str, extracted: bool) -> tuple[str, ...]:
    """The answers that a response marks; the whole response if it marks none or is an answer that was `extracted`."""
    marks = None if extracted else marked(response)
    return marks.answers if marks else (response.strip(),)


def _marked(answers: list[str], adjacent: list[str]) -> Marked:
    def once(texts: list[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(reversed(texts)))[::-1]

    return Marked(once(answers), once(adjacent))


def boxes(text: str) -> list[tuple[int, int, str]]:
    """Start, end and content of every outermost box with visible content, in order."""
    complete: list[tuple[int, int, str]] = []
    opened: list[tuple[int, int]] = []  # per open brace, the start of its box and content; (-1, 0) if it opens no box

    def keep(start: int, end: int, content: str) -> None:
        while complete and complete[-1][0] > start:
            complete.pop()
        content = _PHANTOM.sub("", _BOX.sub("", content)).strip()
        if not (_INVISIBLE.fullmatch(content) or _is_placeholder(content)):
            complete.append((start, end, content))

    commands = [at for at in (text.find("\\boxed"), text.find("\\fbox")) if at >= 0]
    for token in _TOKEN.finditer(text, min(commands, default=len(text))):
        if token[1]:
            opened.append((token.start(), token.end()))
        elif token[2]:
            keep(token.start(), token.end(), token[2])
        elif token[0] == "{":
            opened.append((-1, 0))
        elif token[0] == "}" and opened:
            start, begin = opened.pop()
            if start >= 0:
                keep(start, token.end(), text[begin : token.start()])
    return complete


def _tagged(text: str) -> list[tuple[int, int, str]]:
    """Start, end and content of every `<answer>` of one line without a box, label or marker of its own."""
    complete, opened = [], None
    for tag in _TAG.finditer(text):
        if not tag[1]:
            opened = tag
        elif opened and opened[2].lower() == tag[2].lower():
            content = text[opened.end() : tag.start()].strip()
            marks = content and not (_INVISIBLE.fullmatch(content) or _is_placeholder(content))
            if marks and "\n" not in content and not _BOX.search(content):
                answer = said.last if (said := labelled(content)) else bare(content)
                complete.append((opened.start(), tag.end(), answer))
            opened = None
    return complete


def _is_placeholder(content: str) -> bool:
    return len(content) < 80 and _PLACEHOLDER.fullmatch(_COMMAND_OF_TEXT.sub("", content)) is not None


def _side_by_side(text: str, boxed: list[tuple[int, int, str]]) -> list[str]:
    """The last boxes that are separated by almost nothing, or by a short text with a comma, `and` or `or`."""
    first = len(boxed) - 1
    while first:
        gap = text[boxed[first - 1][1] : boxed[first][0]]
        if not (len(gap) < 10 or (len(gap) < 70 and _SEPARATOR.search(gap))):
            break
        first -= 1
    return [content for _, _, content in boxed[first:]]


def _line(text: str, start: int, tidied: Callable[[str], str]) -> str:
    """The text from `start` to the end of its line or display formula, `tidied`."""
    for opening, closing in (("$$", "$$"), ("\\[", "\\]")):
        if text.startswith(opening, start) and (end := text.find(closing, start + 2, start + _LONGEST_LINE)) > 0:
            return text[start + 2 : end].strip()
    end = text.find("\n", start)
    line = _CLOSING_WORDS.sub("", text[start : end if end >= 0 else len(text)])
    ends = [mark.end() for mark in _PROSE.finditer(line)]
    return tidied(line[ends[-1] :] if ends else line)


def bare(line: str) -> str:
    """`line` without surrounding punctuation; just its only formula, if nothing around it matters."""
    if len(line) <= _LONGEST_LINE:
        first, _, tail = line.replace("\u3002", ". ").partition(". ")
        line = line if _matters(tail) or first.count("{") != first.count("}") else first
        formulas = list(_FORMULA.finditer(line))
        if len(formulas) == 1 and not _matters(line[: formulas[0].start()] + " " + line[formulas[0].end() :]):
            line = next(filter(None, formulas[0].groups()))
    return line.strip().lstrip("*_`").rstrip(" \t*_`.,;\u3002\\")


def _matters(text: str) -> bool:
    """True if `text` next to an answer may be part of it."""
    return CHOICE.search(text) is not None or any(map(str.isdigit, text))
