"""The texts that evaluating verifiers of reasoning-gym see: none runs as a program; correct answers stay correct."""

import builtins
import inspect
import io
import json
import keyword
import random
import time
import tokenize
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import psutil
import pytest

from mcpo_cli.grading import Pool
from mcpo_cli.grading.pool import ENVIRONMENT, INHERITED
from mcpo_cli.reasoning_gym import grader, guard

pytest.importorskip("pycosat", reason="reasoning-gym needs it, and it takes a C compiler to build")

import reasoning_gym
from reasoning_gym.factory import DATASETS

PACKAGE = "reasoning_gym"
EVALUATORS = frozenset(
    {"eval", "exec", "compile", "literal_eval", "parse_expr", "parse_latex", "sympify", "S", "lambdify", "Poly"}
    | {"__import__", "import_module", "unsafe_load", "system", "Popen", "check_output", "run_module"}
)
"""Names of functions that run a text as a program, or pass it to one that does."""


def names(code: CodeType) -> set[str]:
    """Every global, attribute and method that a piece of code names, also in its inner functions."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*map(names, inner))


def reached(function: Any, owner: Any, seen: set[Any]) -> Iterator[str]:
    """The evaluators that `function` reaches through functions and classes of the package."""
    function = getattr(function, "__func__", function)
    if not isinstance(function, FunctionType) or function in seen:
        return
    seen.add(function)
    for name in names(function.__code__):
        found = getattr(owner, name, None) or function.__globals__.get(name)
        own = getattr(found, "__module__", None) or ""
        if inspect.isclass(found) and own.startswith(PACKAGE):
            for method in vars(found).values():
                yield from reached(method, found, seen)
        elif own.startswith(PACKAGE):
            yield from reached(found, owner, seen)
        elif name in EVALUATORS:
            yield name
        if isinstance(found, ModuleType) and found.__name__.startswith(PACKAGE):
            for value in vars(found).values():
                yield from reached(value, found, seen)


def test_every_set_whose_verifier_evaluates_has_a_guard() -> None:
    evaluating = {name for name, (kind, _) in DATASETS.items() if set(reached(kind.score_answer, kind, set()))}
    assert evaluating == set(guard.GUARDS)
    assert {"eval", "exec", "compile", "__import__"} <= set(dir(builtins)) & EVALUATORS


# correct answers

SPELLED: dict[str, list[tuple[str, str]]] = {
    "countdown": [(" ", ""), ("*", " * "), ("(", "( ")],
    "puzzle24": [(" ", ""), ("*", " * "), ("-", " - ")],
    "simple_integration": [("+ C", "+ 7"), ("+ C", "- c"), ("*", " * "), ("C", "C1"), ("+ C", "")],
    "intermediate_integration": [("+ C", "+ pi/2"), ("exp(x)", "E**x"), ("log(", "ln("), (" ", "\n ")],
    "polynomial_multiplication": [(" ", ""), ("**2", "**(1 + 1)"), ("*", "*1*")],
}
"""Replacements in a set's own answers; other answers stay as they are."""


def drawn(name: str, count: int = 25) -> list[dict[str, Any]]:
    kept = reasoning_gym.create_dataset(name, seed=0, size=count)
    return [json.loads(json.dumps(kept[i])) for i in range(count)]


SLOW = {"intermediate_integration", "simple_integration", "puzzle24"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in guard.GUARDS]
)
def test_right_answers_reach_the_verifier(name: str) -> None:
    """The guard keeps all answers that the verifier alone accepts, and all of the set's own answers."""
    verifier = reasoning_gym.create_dataset(name, seed=0, size=1)
    for entry in drawn(name):
        gold = json.dumps({"set": name, "config": {}, "entry": entry})
        assert grader.grade(gold, entry["answer"], True).status == "correct"
        for old, new in SPELLED.get(name, []):
            answer = entry["answer"].replace(old, new)
            alone = "correct" if verifier.score_answer(answer, entry) == 1.0 else "wrong"
            assert grader.grade(gold, answer, True).status == alone
            assert not guard.objection(name, answer, entry)


# attacks


def attacks(file: Path) -> list[str]:
    run = f"__import__('os').system('touch {file}')"
    return [
        run,
        f"[{run}]",
        f"(lambda: {run})()",
        f'f"{{{run}}}"',
        f"eval({run!r})",
        f"S({run!r})",
        f"open({str(file)!r}, 'w')",
        f"x.__class__.__init__.__globals__['sys'].modules['os'].system('touch {file}')",
        f"().__class__.__mro__[1].__subclasses__()[0]('touch {file}')",
        f"1 if {run} else 2",
        f"(y := {run})",
        f"\N{FULLWIDTH LOW LINE}\N{FULLWIDTH LOW LINE}import\N{FULLWIDTH LOW LINE}_('os').system('touch {file}')",
        f"\N{MATHEMATICAL BOLD SMALL E}val({run!r})",
        f"e\N{LATIN SMALL LETTER LONG S}val or {run}",
        f"\N{MATHEMATICAL SANS-SERIF SMALL O}pen({str(file)!r}, 'w')",
        f"\ufeff{run}",
        f"1 #\n{run}",
        f"1\\\n+{run}",
        f"{'(' * 50}{run}{')' * 50}",
        f"x\x00{run}",
        f"1.0.__class__ or {run}",
        f"3!.__class__ or {run}",
        f"@{run}",
        f"{run} # 6*(98 - 54) - 34 - 66",
    ]


REPLACING = (
    "__import__('gc').get_objects and [setattr(type(o), 'score_answer', lambda *a: 1.0) for o in "
    "__import__('gc').get_objects() if hasattr(type(o), 'score_answer')]"
)
"""Makes every later answer correct if it runs in a process that grades more than one answer."""


def problem(name: str) -> dict[str, Any]:
    return drawn(name, 1)[0]


@pytest.mark.parametrize("name", guard.GUARDS)
def test_no_response_runs_as_a_program(name: str, tmp_path: Path) -> None:
    """In one process, so that the effects of an attack would show in the verdicts after it."""
    entry, file = problem(name), tmp_path / "ran"
    gold = json.dumps({"set": name, "config": {}, "entry": entry})
    for extracted in (True, False):
        for text in [*attacks(file), REPLACING, "99"]:
            assert grader.grade(gold, text, extracted).status == "wrong"
        assert grader.grade(gold, entry["answer"], True).status == "correct"
    assert not file.exists()


def test_the_attacks_run_where_nothing_guards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the tests above could not fail."""
    monkeypatch.setattr(guard, "GUARDS", {})
    entry, file = problem("countdown"), tmp_path / "ran"
    gold, ran = json.dumps({"set": "countdown", "config": {}, "entry": entry}), 0
    for text in attacks(file):
        grader.grade(gold, text, True)
        ran += file.exists()
        file.unlink(missing_ok=True)
    assert ran > 5


@pytest.mark.parametrize("name", ["polynomial_multiplication", "number_sorting", "bitwise_arithmetic"])
def test_no_problem_runs_as_a_program(name: str, tmp_path: Path) -> None:
    """A gold may come from somebody else's file of answers."""
    entry, file = problem(name), tmp_path / "ran"
    for attack in attacks(file):
        bad = {**entry, "answer": attack, "metadata": {**entry["metadata"], "problem": attack, "integrand": attack}}
        with pytest.raises(guard.UnsafeGold, match=f"a problem of {name} that must not be evaluated"):
            grader.grade(json.dumps({"set": name, "config": {}, "entry": bad}), "[1]", True)
    assert not file.exists()


@pytest.mark.parametrize("name", ["countdown", "intermediate_integration", "n_queens"])
def test_random_texts_of_allowed_words_hold_no_attribute_text_or_keyword(name: str) -> None:
    """The guard passes only tokens of Python that neither name an attribute nor quote, index or assign."""
    alphabet = [*"0123456789+-*/(),. \t\nxXCeEQ_'\"[]{}\\:;=!@#\u00aa\uff3f", "sin", "exp", "log", "lambda", "if", "is"]
    draw, passed = random.Random(0), 0
    for _ in range(20_000):
        text = "".join(draw.choices(alphabet, k=draw.randint(1, 7)))
        if guard.GUARDS[name].objection(text):
            continue
        passed += 1
        try:
            tokens = list(tokenize.generate_tokens(io.StringIO(f"({text})").readline))
        except (tokenize.TokenError, IndentationError):
            continue
        for token in tokens:
            assert token.type not in (tokenize.STRING, tokenize.COMMENT)
            assert token.string not in {".", "[", "{", ":", "=", ":=", "@"}
            assert not keyword.iskeyword(token.string)
            assert text.isascii()
    assert passed > 100


# separate processes


GRADER = """
import os
import sys
from mcpo_cli.grading.base import Grade
RIGHT = set()
def version():
    return "pliable 1"
def evaluates(gold):
    return gold == "apart"
def grade(gold, response, extracted):
    if response == "cheat":
        RIGHT.update({"apart", "here"})
    if response == "die":
        os._exit(1)
    while response == "hang":
        pass
    if response == "talk":
        sys.stdout.write(sys.stdin.read())
        for descriptor in range(1, 64):
            try:
                os.write(descriptor, b"\\n{}\\n")
            except OSError:
                pass
    if response == "look":
        return Grade("wrong", " ".join(os.environ))
    return Grade("correct" if gold in RIGHT or response == "right" else "wrong", response)
"""
"""A grader whose answers can act on the process like those of an evaluating verifier."""


@pytest.fixture
def pliable(plugin_folder: Path) -> str:
    (plugin_folder / "pliable.py").write_text(GRADER)
    return "pliable"


@pytest.mark.slow
def test_an_answer_cannot_touch_the_next_one(pliable: str) -> None:
    answers = ["cheat", "x", "die", "right", "hang", "x", "talk", "x"]
    with Pool(pliable, workers=1, timeout=1.5) as pool:
        said = [verdict.status for verdict in pool.grade([("apart", answer) for answer in answers])]
        here = [verdict.status for verdict in pool.grade([("here", "cheat"), ("here", "x")])]
    assert said[:6] == ["correct", "wrong", "infra_error", "correct", "timeout", "wrong"]
    assert said[-1] == "wrong"
    assert here == ["correct", "correct"]  # effects that a fork prevents


def test_workers_get_no_secrets(pliable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for secret in ("PGPASSWORD", "HF_TOKEN", "MLFLOW_TRACKING_URI", "AWS_SECRET_ACCESS_KEY", "APIKEY"):
        monkeypatch.setenv(secret, "swordfish")
    with Pool(pliable, workers=1) as pool:
        (verdict,) = pool.grade([("here", "look")])
    assert verdict.answer is not None
    found = set(verdict.answer.split())
    assert {"PATH", "PYTHONHASHSEED", "MCPO_PLUGINS"} <= found
    assert not {name for name in found if not INHERITED.fullmatch(name)} - set(ENVIRONMENT) - {"LC_CTYPE"}


@pytest.mark.slow
def test_a_fork_that_hangs_ends_with_its_pool(pliable: str) -> None:
    before = set(psutil.Process().children(recursive=True))
    pool = Pool(pliable, workers=1, timeout=60)
    pool.submit("apart", "hang")
    family: set[psutil.Process] = set()
    deadline = time.monotonic() + 60
    while len(family) < 3 and time.monotonic() < deadline:  # supervisor, child and fork
        family = set(psutil.Process().children(recursive=True)) - before
        time.sleep(0.05)
    pool.close()
    assert len(family) == 3
    assert not psutil.wait_procs(family, timeout=30)[1]
