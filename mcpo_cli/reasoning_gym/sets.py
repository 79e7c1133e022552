"""Data sets that the package reasoning-gym generates (https://github.com/open-thought/reasoning-gym): no download.

`reasoning_gym:NAME` is a training set, `reasoning_gym:NAME:held_out` the benchmark of the problems held out of it. Both
come from the same draws, in which equal questions count once; only the text of a question decides whether it is held
out, so they do not overlap. A problem's gold is the data for its verifier (`grader.py`), not an answer.

Drawing happens in a separate process (`draws.py`): some sets depend on the order in which Python's sets are read, and
the package takes seconds to import. Draws are kept in MCPO_HOME/cache/reasoning-gym.
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import mcpo_cli
from mcpo_cli import extras
from mcpo_cli.data.base import Collection, Dataset, Problem, Reading, Role, held_out
from mcpo_cli.errors import ConfigError, bad_data, no_room
from mcpo_cli.home import home
from mcpo_cli.runs.journal import write_atomic

PREFIX, SUFFIX = "reasoning_gym:", ":held_out"
VERSION = "0.1.25"
"""The version of the package: problems depend on it."""
GRADER = "reasoning_gym"
GALLERY = "https://github.com/open-thought/reasoning-gym/blob/main/GALLERY.md"
"""The question of each set."""
DRAWS = 2400
"""Different questions drawn of a set; one in eight is held out."""
EVALUATED = 200
"""Problems of a benchmark: the first that are held out."""


def role(name: str) -> Role | None:
    """The role of a set called `name`; None if the name is not one of reasoning-gym's."""
    if not name.removeprefix(PREFIX).removesuffix(SUFFIX).isidentifier() or not name.startswith(PREFIX):
        return None
    return "benchmark" if name.endswith(SUFFIX) else "train"


def declared(name: str) -> Dataset | None:
    """The declaration of the set `name`; None for other names. Only drawing checks that the package has it."""
    kind, set_name = role(name), _own(name)
    if kind is None:
        return None
    return Dataset(
        name,
        f"{set_name} of reasoning-gym",
        kind,
        revision=VERSION,
        licence="Apache-2.0",
        size=EVALUATED if kind == "benchmark" else None,
        grader=GRADER,
        draw=partial(_reading, name),
    )


COLLECTION = Collection(PREFIX, declared)


def drawn(name: str, config: Sequence[str] = (), count: int = DRAWS) -> list[Problem]:
    """The first problems of the set `name` whose questions differ, `count` of them or as many as there are.

    Args:
        config: `KEY=VALUE` each, options of the set in reasoning-gym.

    Raises:
        ConfigError: the package is missing or of another version, it has no such set or option, or the verifier of the
            set cannot be used.
    """
    return _draws(_own(name), tuple(config), count)


def answer(problem: Problem) -> str | None:
    """The answer that reasoning-gym gives with a problem; None if it only verifies."""
    answer: str | None = json.loads(problem.gold)["entry"]["answer"]
    return answer


def options(config: Sequence[str]) -> dict[str, Any]:
    """`KEY=VALUE` each as a mapping, values in YAML's words. Raises ConfigError for any other form."""
    import yaml

    pairs = [text.partition("=") for text in config]
    for key, equals, _ in pairs:
        if not (key.isidentifier() and equals):
            raise ConfigError(f"task.config: '{key}{equals}' is not of the form KEY=VALUE", fix="task.config=[]")
    try:
        return {key: yaml.safe_load(value) for key, _, value in pairs}
    except yaml.YAMLError as error:
        raise ConfigError(f"task.config={list(config)}: {error}", fix="task.config=[]") from error


def _own(name: str) -> str:
    return name.removeprefix(PREFIX).removesuffix(SUFFIX)


def _reading(name: str) -> Reading:
    """The problems of `name`, a row each. Raises ConfigError as `drawn`, or if too few are held out."""
    is_benchmark = role(name) == "benchmark"
    problems = [problem for problem in drawn(name) if held_out(problem) == is_benchmark]
    if is_benchmark and len(problems) < EVALUATED:
        raise no_room(
            f"{name}: only {len(problems)} of {DRAWS} problems differ and are held out; a benchmark has {EVALUATED}",
            fix=GALLERY,
        )
    reading = Reading(f"generated:reasoning-gym {VERSION}")
    for row, problem in enumerate(problems[:EVALUATED] if is_benchmark else problems, 1):
        reading.rows += 1
        reading.add(problem.text, problem.gold, row, 1)
    return reading


@cache
def _draws(set_name: str, config: tuple[str, ...], count: int) -> list[Problem]:
    """See `drawn`; from the cache, or drawn now."""
    _installed()
    set_options = options(config)
    request = json.dumps({"set": set_name, "config": set_options, "count": count}, sort_keys=True)
    key = hashlib.sha256(f"{VERSION} {request}".encode()).hexdigest()[:12]
    file = home() / "cache" / "reasoning-gym" / f"{set_name}-{key}.json"
    entries = _kept(file)
    if not entries:
        entries = _asked(set_name, request)
        write_atomic(file, f"{_checksum(entries)}\n{entries}")
    return [
        Problem(entry["question"].strip(), json.dumps({"set": set_name, "config": set_options, "entry": entry}))
        for entry in json.loads(entries)
    ]


def _kept(file: Path) -> str:
    """The entries in a file of draws, whose first line is their checksum; empty if it is not there or damaged."""
    try:
        checksum, _, entries = file.read_text(encoding="utf-8").partition("\n")
    except (FileNotFoundError, UnicodeDecodeError):
        return ""
    return entries if checksum == _checksum(entries) else ""


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _installed() -> None:
    """Raises ConfigError if the package is missing or of another version."""
    fix = extras.command("gym")
    try:
        # pycosat has no wheel, so it may be missing where reasoning-gym is installed.
        version("pycosat")
        gym_version = version("reasoning-gym")
    except PackageNotFoundError as error:
        raise ConfigError(
            f"{PREFIX}NAME needs the package {error.name}, which is not installed", fix=fix, code="not_installed"
        ) from None
    if gym_version != VERSION:
        raise ConfigError(
            f"reasoning-gym is {gym_version}, but problems of {VERSION} are meant", fix=fix, code="not_installed"
        )


def _asked(set_name: str, request: str) -> str:
    """The answer of `draws.py`. Raises ConfigError for its complaint, or if it fails."""
    path = [str(Path(mcpo_cli.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    process = subprocess.run(
        [sys.executable, "-P", "-m", "mcpo_cli.reasoning_gym.draws"],
        input=request,
        env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(path)},
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        complaint = process.stderr.strip().rpartition("\n")[2]
        raise bad_data(f"{PREFIX}{set_name}: reasoning-gym cannot draw its problems: {complaint}", fix="mcpo doctor")
    response = json.loads(process.stdout)
    if isinstance(response, str):
        raise ConfigError(f"{PREFIX}{set_name}: {response}", fix=GALLERY, code="unknown_name")
    return process.stdout
