"""Answers made to hang, crash, exhaust or fool a grader. None of them is correct."""

import random

GOLDS = ("42", r"\frac{3}{7}", r"2\sqrt{13}", "(3,1)", r"\{1,2\}", "x+1")
"""Ordinary golds: none is the value of a hostile answer."""


def box(content: str) -> str:
    """A response that marks `content`."""
    return rf"So the answer is \boxed{{{content}}}."


def nested(depth: int, opening: str, inner: str, closing: str) -> str:
    """`inner` within `depth` pairs of delimiters."""
    return opening * depth + inner + closing * depth


BOXED = {
    "power tower": "9^{9^{9^{9}}}",
    "huge exponent": "2^{10^{12}}",
    "huge root": r"\sqrt[99999999]{2^{99999999}+1}",
    "modulus of a tower": r"7^{7^{7^{7}}} \mod 1000",
    "factorial of 10^8": "100000000!",
    "sum to 10^9": r"\sum_{k=1}^{10^9} \frac{1}{k^2+k+\sin k}",
    "integral": r"\int_0^{\infty} \frac{\sin(x^3) e^{-x^2} \ln(x+1)}{\sqrt{x^5+x+1}} dx",
    "limit": r"\lim_{x \to 0} \frac{\sin(\tan x) - \tan(\sin x)}{\arcsin(\arctan x) - \arctan(\arcsin x)}",
    "expansion": "(a+b+c+d+e+f+g+h)^{60} - (a+b+c+d+e+f+g+h)^{59}(a+b+c+d+e+f+g+h) + 41",
    "20 000 digits": "7" * 20_000,
    "long decimal": "0." + "3" * 20_000,
    "2 000 nested parentheses": nested(2_000, "(", "41", ")"),
    "60 nested fractions": nested(60, r"\frac{1}{1+", "1", "}"),
    "500 nested functions": nested(500, r"\sin(", "1", ")"),
    "list of 5 000": ",".join(map(str, range(5_000))),
    "power of a matrix": r"\begin{pmatrix}1&2\\3&4\end{pmatrix}^{1000000}",
    "determinant": r"\det\begin{pmatrix}"
    + r"\\".join("&".join(f"a_{{{i}{j}}}" for j in range(9)) for i in range(9))
    + r"\end{pmatrix}",
    "NUL bytes": "4\x001\x00",
    "lone surrogate": "41\ud800",
    "megabyte of spaces": "4" + " " * 2**20 + "1",
    "megabyte of text": "no " * 2**18,
    "regex bait: spaces": r"\text{ " + " " * 50_000 + "41",
    "regex bait: permutations": "(" + "a " * 3_000 + ")_" + "b" * 3_000,
    "broken fraction": r"\frac{1}{",
    "unknown commands": r"\foo{41}\bar\baz",
    "python": "__import__('os').system('sleep 100')",
    "hedged: or": r"41 \text{ or } 42",
    "hedged: chain": "x = 41 = 42",
    "hedged: plus or minus": r"42 \pm 1",
    "hedged: in words": r"42 \text{ (or maybe 41)}",
}
WHOLE = {
    "empty": "",
    "nothing": "I do not know.",
    "cut in its box": r"So the answer is \boxed{42",
    "1 000 different boxes": " ".join(rf"\boxed{{{k}}}" for k in range(1_000)),
    "100 000 open boxes": r"\boxed{" * 100_000,
    "100 000 closing braces": "}" * 100_000 + r"\boxed{41" + "}" * 100_000,
    "megabyte of boxes": r"\boxed" * 2**17,
    "megabyte of labels": "Answer: $$\n" * 2**16,
    "megabyte of formulas": r"Answer: " + r"\(" * 2**19,
    "megabyte of thoughts": "<think>" * 2**17,
    "two boxes": r"\boxed{41} or \boxed{42}",
    "two lines": "Answer: 41\nAnswer: 42",
    "thinking only": r"<think> maybe \boxed{42}",
}
ANSWERS = {**{name: box(content) for name, content in BOXED.items()}, **WHOLE}


def items(count: int, seed: int) -> list[tuple[str, str]]:
    """(gold, hostile response) pairs, drawn uniformly."""
    rng = random.Random(seed)
    answers = list(ANSWERS.values())
    return [(rng.choice(GOLDS), answers[i % len(answers)]) for i in range(count)]
