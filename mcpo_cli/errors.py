"""The errors that users see, with their exit codes.

| class           | exit | meaning                                                        |
|-----------------|------|----------------------------------------------------------------|
| `ConfigError`   | 2    | bad input: nothing was started                                 |
| `RunFailed`     | 1    | a run ended in an error; its records are kept, it can continue |
| `Findings`      | 1    | `components check` or `doctor` found problems to fix first     |
| `MissingRuns`   | 3    | a table or figure needs runs that are not done                 |
| `StoreError`    | 4    | the disk is full, or the MLflow store cannot be used           |
| `OutputLost`    | 1    | standard output cannot be written; records are not affected    |
| `Differs`       | 5    | `verify`: a step that was trained again is not as recorded     |
| `GateBroken`    | 1    | `compare --gate`: a required rule is broken                    |
| `GateUndecided` | 6    | `compare --gate`: the data cannot tell whether the rules hold  |
| `Interrupted`   | 130  | stopped by a signal; it can continue                           |
| anything else   | 70   | a bug: `--debug` shows where                                   |

Only `mcpo_cli.main` turns an exception into an exit code; everything else raises. Besides its message, an error has a
`code` (`CODES`) that stays the same when the wording changes: programs and tests rely on it.
"""

import difflib
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import takewhile
from typing import Any

UNEXPECTED = 70
"""Exit code of any other error: EX_SOFTWARE of sysexits.h."""
MOST_LISTED = 20
"""Most names that a message lists; commands such as `mcpo components list` list all."""
SIMILAR = 0.6
"""The least similarity (of difflib, 0 to 1) at which a known name is suggested for an unknown one."""


CODES: dict[str, str] = {
    "bad_input": "any other wrong input; nothing was started",
    "run_failed": "any other failure of a run; its records are kept",
    "problems_found": "`components check` or `doctor` found problems to fix first",
    "missing_runs": "a table or figure needs runs that are not done",
    "differs": "`verify`: a global step that was trained again is not what the run recorded",
    "gate_broken": "`compare --gate`: a required rule is broken",
    "gate_undecided": "`compare --gate`: the data cannot tell whether the required rules hold",
    "store_failed": "the MLflow store could not be read or written",
    "output_lost": "standard output cannot be written",
    "interrupted": "stopped by a signal; the same command continues",
    "unknown_key": "there is no such setting",
    "unknown_name": "there is no such verb, option, method, task, data set, grader, model, suite or run",
    "duplicate_name": "two files declare, or two runs match, the same name",
    "out_of_bounds": "a value is outside the bounds or the choices of its setting",
    "contradiction": "settings contradict each other, or one has no effect with another",
    "no_room": "prompts, answers or problems do not fit into a length, a window or a number that is set",
    "not_found": "there is no such file or folder",
    "bad_data": "a file of problems or answers cannot be read, or contradicts itself",
    "bad_model": "a model's files are incomplete, damaged, or of a kind that the engine does not compute",
    "unsafe": "a file could run code, or leads to another folder",
    "credential": "a password or token was given as a setting",
    "changed": "a file, plug-in or package is not what it was when the run was planned",
    "damaged": "a record does not match its checksum, is incomplete, or belongs to another run",
    "not_installed": "a package is missing or has another version",
    "unreachable": "a model or package is not in the cache and cannot be fetched",
    "cannot_write": "a disk is full or read-only",
    "no_memory": "memory ran out, or a limit on it was reached",
    "needs_gpu": "the device is not on this machine, or its memory is too small",
    "ungraded": "too many answers could not be graded",
    "grader_failed": "a grading process does not start",
    "bad_function": "a function or plug-in of yours is missing, raised an error, hung, or returned no number",
    "nothing_pairs": "the sides of a comparison share no benchmark, or too few problems of one",
}
"""Every code with its meaning (`docs/command-line.md` shows this table)."""


class McpoError(Exception):
    """An error with a message for users: what is wrong, and (in `fix`) the command that fixes it.

    data: partial results as plain data, which `--json` prints with the error. code: by default the code of the class.
    """

    exit_code = 1
    code = "run_failed"

    def __init__(
        self, message: str, *, fix: str | None = None, data: Mapping[str, Any] | None = None, code: str = ""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.fix = fix
        self.data = data or {}

    def __str__(self) -> str:
        return f"{self.message}\n  fix: {self.fix}" if self.fix else self.message


class ConfigError(McpoError):
    """The input names something that does not exist or contradicts itself; nothing was started."""

    exit_code = 2
    code = "bad_input"


class RunFailed(McpoError):
    """At least one run ended in an error; its records are kept and it can be continued."""


class Findings(McpoError):
    """A check of data or of the machine found problems to fix first; the report lists them."""

    code = "problems_found"


class MissingRuns(McpoError):
    """A table or figure needs runs that are not done; the message names the command that completes them."""

    exit_code = 3
    code = "missing_runs"


class StoreError(McpoError):
    """The disk has no room for a run, which was not started; or the MLflow store cannot be reached, read or written."""

    exit_code = 4
    code = "store_failed"


class Differs(McpoError):
    """A global step that was trained again differs from its records; the message names the first value."""

    exit_code = 5
    code = "differs"


class GateBroken(McpoError):
    """A required rule of a gate is broken; the message names it with its numbers."""

    code = "gate_broken"


class GateUndecided(McpoError):
    """No required rule of a gate is broken, and the data cannot tell whether all hold."""

    exit_code = 6
    code = "gate_undecided"


class OutputLost(McpoError):
    """Standard output could not be written: a full disk, a closed file, or a reader that has gone."""

    code = "output_lost"


class Interrupted(McpoError):
    """Stopped by SIGINT or SIGTERM after a checkpoint was written."""

    exit_code = 130
    code = "interrupted"


bad_data = partial(ConfigError, code="bad_data")
bad_model = partial(ConfigError, code="bad_model")
no_room = partial(ConfigError, code="no_room")


def nearest(wanted: str, known: Iterable[str]) -> str:
    """A hint "did you mean 'x'?", with two names if they are equally near, or the `known` names if none is close."""
    names = sorted(set(known))
    if guesses := _alike(wanted, names):
        return f"did you mean {' or '.join(map(repr, guesses))}?"
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return f"one of: {', '.join(names[:MOST_LISTED])}{more}"


def similar(wanted: str, known: Iterable[str]) -> str:
    """The known name whose spelling is similar to `wanted`, in any case; empty if no name is similar."""
    return next(iter(_alike(wanted, known)), "")


def _alike(text: str, names: Iterable[str]) -> list[str]:
    """The names whose spelling is nearest to `text`, several if they are equally near.

    A name of the same letters in another order is nearest, as `mcpo` is to `mpco`. The longest common beginning comes
    first: `dappo` is as near to `dapo` as to `dppo`, but few slips are at the beginning of a word.
    """
    name_of = {name.lower(): name for name in sorted(names, reverse=True)}
    word = text.lower()
    matches = difflib.get_close_matches(word, name_of, n=max(1, len(name_of)), cutoff=SIMILAR)
    likeness = {name: difflib.SequenceMatcher(None, name, word).ratio() for name in matches}
    anagrams = [name for name in matches if sorted(name) == sorted(word)]
    nearest_words = anagrams or [name for name in matches if likeness[name] == max(likeness.values())]
    return [name_of[name] for name in sorted(nearest_words, key=lambda name: (-_same_beginning(name, word), name))]


def _same_beginning(first: str, second: str) -> int:
    """The length of the common prefix of two words, in letters."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))


def mend(form: str, wanted: str, known: Iterable[str], otherwise: str | None = None) -> str | None:
    """The fix `form` with the name that was probably meant in place of `{}`; `otherwise` if none is similar."""
    guess = similar(wanted, known)
    return form.replace("{}", guess) if guess else otherwise


def one_line(text: str) -> str:
    """Several lines of text as one."""
    return "; ".join(line.strip() for line in text.splitlines())


def first_line(error: BaseException) -> str:
    """The first line of a library's error; if its message is empty, of its cause, or else its class name."""
    if text := str(error).strip():
        return text.splitlines()[0]
    return first_line(error.__cause__) if error.__cause__ else type(error).__name__
