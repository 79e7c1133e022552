r"""Rewrites the plain notation of mathematics, `sqrt(2)/2`, `2*pi*r`, `x**2 + 1`, and signs of Unicode, as LaTeX.

Both golds and answers pass through it, so one notation is compared with the other. Letters inside `\text{}` stay.
"""

import re

_GREEK = (
    "alpha|beta|gamma|delta|epsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|"
    "xi|pi|rho|sigma|tau|upsilon|phi|chi|psi|omega"
)
_ALPHABET = (chr(code) for code in range(0x3B1, 0x3CA) if code not in (0x3BF, 0x3C2))
"""The small letters of `_GREEK`: without omicron and the sigma that ends words."""
_FUNCTIONS = "sinh|cosh|tanh|coth|sin|cos|tan|cot|csc|arcsin|arccos|arctan|ln|log|exp"
_INVERSE = {f"a{name}": f"arc{name}" for name in ("sin", "cos", "tan")}
_WORD = r"(?<![\\A-Za-z])"
"""No letter and no backslash before a name."""

SIGNS = {
    **{sign: f"^{{{k}}}" for k, sign in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
    **{sign: f"^{{{digit}}}" for sign, digit in zip("⁺⁻ⁿ", "+-n", strict=True)},
    **{sign: f"_{{{k}}}" for k, sign in enumerate("₀₁₂₃₄₅₆₇₈₉")},
    **{sign: rf"\frac{{{top}}}{{{bottom}}}" for sign, top, bottom in (
        ("½", 1, 2), ("⅓", 1, 3), ("⅔", 2, 3), ("¼", 1, 4), ("¾", 3, 4), ("⅕", 1, 5), ("⅖", 2, 5), ("⅗", 3, 5),
        ("⅘", 4, 5), ("⅙", 1, 6), ("⅚", 5, 6), ("⅛", 1, 8), ("⅜", 3, 8), ("⅝", 5, 8), ("⅞", 7, 8),
    )},
    **{sign: rf"\{name} " for sign, name in zip(_ALPHABET, _GREEK.split("|"), strict=True)},
    **{sign: rf"\{name} " for sign, name in (
        ("≈", "approx"), ("∞", "infty"), ("\u222a", "cup"), ("∩", "cap"), ("∈", "in"), ("≤", "leq"), ("≥", "geq"),
        ("≠", "neq"), ("±", "pm"), ("\u00d7", "times"), ("·", "cdot"), ("⋅", "cdot"), ("∅", "emptyset"), ("∠", "angle"),
        ("⟨", "langle"), ("⟩", "rangle"), ("→", "to"),
    )},
    "°": r"^\circ", "℃": r"^\circ C", "÷": "/", "√": "sqrt", "∛": "cbrt",
}  # fmt: skip
"""LaTeX, or plain notation, by the sign."""

_NAMES = (
    (r"(?<=\^\{[-+\dn])\}\^\{|(?<=_\{\d)\}_\{", ""),  # signs above or below the line, one after the other
    (r"\\lg(?![A-Za-z])", r"\\log_{10} "),
    (r"\\degrees?(?![A-Za-z])", r"^\\circ "),
    (r"\\colon(?![A-Za-z])", ":"),
    (r"\\(?:operatorname\*?|mathrm|text)\s*\{\s*(" + _FUNCTIONS + r")\s*\}", r"\\\1 "),
    (_WORD + r"([dtc]?frac|sqrt)(?=\s*\{)", r"\\\1"),
    (r"(?<=[\w)\]}!])\s*\*\s*(?=[\w({\\|+-])", r" \\cdot "),
    (r"\^\s*(-?\d{2,})", r"^{\1}"),
    (r"(?<=[A-Za-z])_(\d{2,})", r"_{\1}"),
    (r"(?<![<>=!\\])<=(?!=)", r"\\leq "),
    (r"(?<![<>=!\\])>=(?!=)", r"\\geq "),
    (r"!=(?!=)", r"\\neq "),
    (r"\+\s*/?\s*-(?=\s*[\w\\(])", r"\\pm "),
    (_WORD + r"log_?(2|10)\s*\(", r"\\log_{\1}("),
    (_WORD + r"(sec|max|min|gcd|lcm|det)(?=\s*\()", r"\\\1"),
    *((_WORD + rf"{name}(?![A-Za-z])", rf"\\{latex} ") for name, latex in _INVERSE.items()),
    (_WORD + r"(" + _FUNCTIONS + r")(?![A-Za-z])", r"\\\1 "),
    (_WORD + r"(" + _GREEK + r")(?![A-Za-z])", r"\\\1 "),
    (_WORD + r"(?:infinity|inf|oo)(?![A-Za-z])", r"\\infty "),
)
"""Names and operators, and their LaTeX, in this order; `min` and `sec` without brackets are units of time."""
_THOUSANDS = re.compile(r"(?<![\w.])\d{1,3}(?:_\d{3})+(?!\w)")
_MODULE = re.compile(_WORD + r"(?:math|np|numpy|sp|sympy)\.(?=[a-z])")
_POWER = re.compile(r"(?<=[\w)\]}!])\s*\*\*\s*(?=[\w({\\+-])")
_RULES = tuple((re.compile(pattern), latex) for pattern, latex in _NAMES)
_CALL = re.compile(r"(?:\\?(sqrt|cbrt)|(?<![A-Za-z\\])(abs|exp)|(\^))\s*\(")
_ROOT = re.compile(r"(?<![A-Za-z\\])(sqrt|cbrt)\s*(\d+(?:\.\d+)?|[A-Za-z](?![A-Za-z]))")
_BRACKETS = {"sqrt": r"\sqrt{%s}", "cbrt": r"\sqrt[3]{%s}", "abs": "|%s|", "exp": "e^{%s}", "^": "^{%s}"}
_HAS_NAME = re.compile(r"[a-z]{2}|[*^_!<>+√]")
_QUOTED = re.compile(r"(\\(?:text|textbf|textit|textrm|mbox)\s*\{[^{}]*\})")


def latex(text: str) -> str:
    """`text` in LaTeX, as far as its notation is plain."""
    if not _HAS_NAME.search(text):
        return text
    parts = _QUOTED.split(text)
    return "".join(part if k % 2 else _part(part) for k, part in enumerate(parts))


def _part(text: str) -> str:
    text = _THOUSANDS.sub(lambda number: number[0].replace("_", ""), text)
    text = _MODULE.sub("", _POWER.sub("^", text))
    for call in reversed(list(_CALL.finditer(text))):
        if close := _closing(text, call.end()):
            content = text[call.end() : close]
            text = text[: call.start()] + _BRACKETS[call[1] or call[2] or call[3]] % content + text[close + 1 :]
    text = _ROOT.sub(lambda root: _BRACKETS[root[1]] % root[2], text)
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return re.sub(" {2,}", " ", text)


def _closing(text: str, start: int) -> int:
    """The place of the bracket that closes the one before `start`; 0 if none does."""
    depth = 1
    for place in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return place
    return 0
