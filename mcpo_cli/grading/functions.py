"""Python functions of users as graders and rewards: `FILE.py:FUNCTION`, called as `function(problem, response, gold)`.

It returns a number, the reward; a coroutine is awaited. As a grader, a response is correct if the number is at least 1
(True counts as 1). The file is loaded alone, in grading processes only: its imports must be installed, and its hash
identifies it.
"""

import ast
import asyncio
import importlib
import importlib.util
import inspect
import json
import math
import re
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from mcpo_cli import paths
from mcpo_cli.errors import ConfigError, first_line, nearest
from mcpo_cli.grading.base import AnyGold, Grade, Grader

REFERENCE = re.compile(r"(.+\.py):([A-Za-z_]\w*)")
CALLED = "function(problem, response, gold)"
LARGEST = 1e12
"""Largest size of a reward: the square of a larger one, or its share in a loss, exceeds the range of floats."""
SHOWN = 60
"""Most characters of a response that an error quotes."""


@dataclass(frozen=True)
class Function:
    """A user's function as a `Grader`; an error in it is an `infra_error`."""

    reference: str
    call: Callable[[str, str, str], object]

    def version(self) -> str:
        """The file's name and the function's; the hash of the file is in the run's settings."""
        return Path(self.reference).name

    def grade(self, gold: str, response: str, extracted: bool) -> Grade:
        """The verdict with the returned number as its score; gold: as `question` returns it."""
        problem, answer = json.loads(gold)
        try:
            returned = self.call(problem, response, answer)
            score = _number(asyncio.run(returned) if inspect.iscoroutine(returned) else returned)
        except MemoryError:
            raise
        except (Exception, SystemExit) as error:
            excerpt = response if len(response) <= SHOWN else f"{response[:SHOWN]}..."
            return Grade("infra_error", detail=f"{_blamed(self.reference, error)}; the response was {excerpt!r}")
        return Grade("correct" if score >= 1 else "wrong", score=score)


def _number(returned: object) -> float:
    """A function's value as a number; it may be a truth value, a Decimal, or an array or tensor of one number.

    Raises:
        TypeError: it is no number. ValueError: it is not finite, or its size exceeds LARGEST.
    """
    if returned is None:
        raise TypeError("it returned None, not a number: a return is missing")
    if isinstance(returned, str | bytes) or not hasattr(returned, "__float__"):
        raise TypeError(f"it returned {type(returned).__name__}, not a number")
    score = float(returned)
    if not math.isfinite(score):
        raise ValueError(f"it returned {score}")
    if abs(score) > LARGEST:
        raise ValueError(f"it returned {score:g}; the largest reward is {LARGEST:g}")
    return score


def is_function(grader: str) -> bool:
    """True if `grader` names a function in a file rather than a registered grader."""
    return REFERENCE.fullmatch(grader) is not None


def file_of(reference: str) -> Path:
    """The file that `reference` names."""
    return paths.named(_split(reference)[0])


def absolute(grader: str) -> str:
    """`grader` with the absolute path of its file: processes on a cluster may work in another folder."""
    return f"{file_of(grader).absolute()}:{_split(grader)[1]}" if is_function(grader) else grader


def question(grader: str, problem: str, gold: str) -> str:
    """The gold of `problem` in the form for `grader`: a function also gets the problem's text."""
    return json.dumps([problem, gold]) if is_function(grader) else gold


def check(setting: str, reference: str) -> None:
    """Check, without running it, that the file of `reference` can be parsed and has a function of three arguments.

    setting: the setting that names it, for the message.

    Raises:
        ConfigError: the file cannot be parsed, or lacks such a function.
    """
    file, name = file_of(reference), _split(reference)[1]
    try:
        body = ast.parse(file.read_bytes(), str(file)).body
    except OSError as error:
        raise ConfigError(
            f"{setting}={reference}: {file} cannot be read: {error.strerror}",
            fix=f"{setting}=FILE.py:FUNCTION",
            code="not_found",
        ) from error
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise ConfigError(f"{setting}={reference}: {file}{line}: {first_line(error)}", code="bad_function") from error
    functions = {node.name: node.args for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    if name not in functions and name in _bound(body):
        return  # an instance, a lambda, a partial or an import: what it takes is seen when it is called
    if name in {node.name for node in body if isinstance(node, ast.ClassDef)}:
        raise ConfigError(
            f"{setting}={reference}: '{name}' is a class, and an instance is called",
            fix=f"write INSTANCE = {name}() in {file.name}, then {setting}={_split(reference)[0]}:INSTANCE",
            code="bad_function",
        )
    if name not in functions:
        raise ConfigError(
            f"{setting}={reference}: {file} has no function '{name}'"
            + (f": {nearest(name, functions)}" if functions else ""),
            fix=f"{setting}={_split(reference)[0]}:{next(iter(functions))}" if functions else None,
            code="bad_function",
        )
    arguments = functions[name]
    places = len(arguments.posonlyargs + arguments.args)
    needed = places - len(arguments.defaults) + arguments.kw_defaults.count(None)
    if not needed <= 3 <= (math.inf if arguments.vararg else places):
        raise ConfigError(
            f"{setting}={reference}: '{name}' is called as {CALLED}, and does not take these three",
            fix=f"def {name}(problem, response, gold):",
            code="bad_function",
        )


def _bound(body: list[ast.stmt]) -> set[str]:
    """The names that a module binds by assignments and imports."""
    targets = [node for stmt in body if isinstance(stmt, ast.Assign | ast.AnnAssign) for node in ast.walk(stmt)]
    imported = [alias for stmt in body if isinstance(stmt, ast.Import | ast.ImportFrom) for alias in stmt.names]
    stored = {node.id for node in targets if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return stored | {alias.asname or alias.name for alias in imported}


def load(location: str) -> Grader:
    """The grader at `location`: a module, `module:name` of an object in it, or a user's function.

    A function gets several golds as one list in JSON; any other grader is called with each gold.
    """
    if is_function(location):
        return _run(location)
    module, _, name = location.partition(":")
    loaded = importlib.import_module(module)
    return AnyGold(cast(Grader, getattr(loaded, name) if name else loaded))


def _run(reference: str) -> Function:
    """The function, after running its file. Ends the process with one line of text if that fails."""
    file, name = file_of(reference), _split(reference)[1]
    spec = importlib.util.spec_from_file_location(f"mcpo_function_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
        if not callable(call := getattr(module, name)):
            raise TypeError(f"{name} is {type(call).__name__}, which cannot be called as {CALLED}")
        return Function(reference, call)
    except (Exception, SystemExit) as error:
        sys.exit(_blamed(reference, error))


def _split(reference: str) -> tuple[str, str]:
    file, _, name = reference.rpartition(":")
    return file, name


def _blamed(reference: str, error: BaseException) -> str:
    """The function, the last line of its file that `error` passed, and the error."""
    file = str(file_of(reference))
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == file]
    place = f", line {lines[-1]}" if lines else ""
    return f"{Path(reference).name}{place}: {type(error).__name__}: {first_line(error)}"
