"""Throughput of the pool of graders, against the loop that users of math-verify write."""

import json
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import rows
from mcpo_cli.grading import Pool
from mcpo_cli.machine import cores

SHARED = Path(__file__).resolve().parents[1].parent / "shared" / "data" / "grading" / "qwen25_math_cot100x8.jsonl"
SAMPLES = 8
PROBLEMS = 60
REPEATS = 5

Item = tuple[str, str, bool]
"""Gold, response, and whether the response is correct."""

WORK = r"""To solve the problem, we first rewrite the given condition. Let $a={a}$ and $b={b}$, so that
\[
\frac{{a}}{{b}} + \frac{{1}}{{b}} = \frac{{{a}+1}}{{{b}}}.
\]
Since \(b > 0\), the function $f(x) = {a}x^2 - {b}x + \sqrt{{{b}}}$ is least at $x = \frac{{{b}}}{{2 \cdot {a}}}$.

1. **Substitute.** We get $f(1) = {a} - {b} + \sqrt{{{b}}}$, which we compare with $\pi \approx 3.14159$.
2. **Simplify.** Multiplying both sides by ${b}$ and collecting terms gives the claim.

Therefore, the answer is \(\boxed{{{answer}}}\)."""


def latex(rng: random.Random) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """A gold, other ways to write it, and incorrect answers."""
    p, q, r = rng.randint(2, 60), rng.choice((7, 11, 13, 17, 19, 23)), rng.randint(2, 9)
    p += p % q == 0
    kinds = (
        (rf"\frac{{{p}}}{{{q}}}", (rf"\dfrac{{{p * r}}}{{{q * r}}}", f"{p}/{q}"), (rf"\frac{{{p + 1}}}{{{q}}}",)),
        (rf"{r}\sqrt{{{q}}}", (rf"\sqrt{{{r * r * q}}}",), (rf"{r + 1}\sqrt{{{q}}}", rf"\sqrt{{{r * q}}}")),
        (f"({p},{q})", (rf"\left({p}, {q}\right)",), (f"({q},{p})",)),
        (rf"\frac{{{p}\pi}}{{{q}}}", (rf"\frac{{{p}}}{{{q}}}\pi",), (rf"\frac{{{p + 1}\pi}}{{{q}}}",)),
        (f"{p}x^2+{q}x", (f"x({p}x+{q})",), (f"{p}x^2-{q}x",)),
        (rf"[{p},\infty)", (rf"[{p}, +\infty)",), (rf"({p},\infty)",)),
    )
    return rng.choice(kinds)


def integer(rng: random.Random) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """As `latex`, for the answers of AIME: integers from 0 to 999."""
    gold = rng.randint(0, 998)
    return str(gold), (f"{gold:03d}",), (str(gold + 1),)


def made(
    kind: Callable[[random.Random], tuple[str, tuple[str, ...], tuple[str, ...]]], problems: int, seed: int
) -> list[Item]:
    """`SAMPLES` responses to each of `problems` problems, two in three of them correct."""
    rng = random.Random(seed)
    items = []
    for _ in range(problems):
        gold, right, wrong = kind(rng)
        for _ in range(SAMPLES):
            correct = rng.random() < 2 / 3
            answer = rng.choice((gold, *right) if correct else wrong)
            text = WORK.format(a=rng.randint(2, 99), b=rng.randint(2, 99), answer=answer)
            items.append((gold, text, correct))
    return items


def published() -> list[Item]:
    """Answers of a real model, if the file exists."""
    if not SHARED.exists():
        return []
    rows = [json.loads(line) for line in SHARED.read_text(encoding="utf-8").splitlines()]
    return [(row["gold"], row["response"], row["correct"]) for row in rows]


def serial(pairs: list[tuple[str, str]]) -> float:
    """Seconds of the plain loop."""
    from math_verify import parse, verify

    start = time.perf_counter()
    for gold, response in pairs:
        verify(parse(f"${gold}$"), parse(response))
    return time.perf_counter() - start


def pooled(pool: Pool, items: list[Item]) -> float:
    """Seconds of the pool; its verdicts must be the labels of the items, but for one in 500."""
    start = time.perf_counter()
    verdicts = pool.grade([(gold, response) for gold, response, _ in items])
    seconds = time.perf_counter() - start
    unlike = sum((verdict.status == "correct") != right for verdict, (*_, right) in zip(verdicts, items, strict=True))
    assert unlike <= len(items) / 500, f"{unlike} of {len(items)} verdicts are not the label"
    return seconds


def against_serial() -> Iterator[rows.Measurement]:
    """Throughput of the pool over the loop's, by kind of answers; they take turns.

    Every turn has a new pool and, except for the published ones, new items, because verdicts are cached.
    """
    os.environ["SYMPY_GROUND_TYPES"] = "python"  # the same arithmetic for both
    kinds: dict[str, Callable[[int], list[Item]]] = {
        "latex": lambda turn: made(latex, PROBLEMS, turn),
        "integers": lambda turn: made(integer, PROBLEMS, turn),
        "model": lambda turn: published(),
    }
    for name, items_of in kinds.items():
        plain_s, pool_s = [], []
        for turn in range(REPEATS if items_of(0) else 0):
            items = items_of(turn)
            with Pool() as pool:
                for warm in (pool.grade, serial):
                    warm([item[:2] for item in made(latex, PROBLEMS // 4, turn + REPEATS)])
                pool_s.append(pooled(pool, items))
            plain_s.append(serial([item[:2] for item in items]))
        if plain_s:
            medians = statistics.median(plain_s), statistics.median(pool_s)
            numbers = {"ratio": medians[0] / medians[1], "serial_seconds": medians[0], "pool_seconds": medians[1]}
            yield "grading against the serial loop", {"answers": name, "workers": cores()}, numbers
