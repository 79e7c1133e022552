"""Completion in the shell: what a word may stand for, and one function that offers these names."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path

import typer

Words = Sequence[str]
"""The suites, runs and settings on the command line so far."""


def completing(*kinds: str, commas: bool = False) -> Callable[[typer.Context, str], list[str]]:
    """A function that completes names of these kinds: components, kinds in OTHERS, or fixed words.

    A suite or a run is offered as the first word only. commas: the word is a list of names; its last one is completed.
    """

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        head, comma, stem = incomplete.rpartition(",") if commas else ("", "", incomplete)
        words = [word for word in ctx.params.get("overrides") or ctx.params.get("what") or [] if word != "="]
        choices = [kind for kind in kinds if not words or kind not in ("run", "suite")]
        # After the kind of a component: its names.
        choices = [ctx.params.get("kind") or "" if kind == "component" else kind for kind in choices]
        offered = (name for kind in choices for name in _names(kind, words))
        return [f"{head}{comma}{name}" for name in offered if name.startswith(stem)]

    return complete


def _names(kind: str, words: Words) -> Iterable[str]:
    from mcpo_cli.components import KINDS

    if kind in OTHERS:
        return OTHERS[kind](words)
    return sorted(KINDS[kind].registry()) if kind in KINDS else (kind,)


def _overrides(words: Words) -> Iterator[str]:
    """Presets and settings; after a group of presets such as `method`, its names."""
    from mcpo_cli.config.presets import groups, keys

    # bash splits words at "=": `method=mc` arrives as `method`, `=` and the incomplete `mc`.
    if words and words[-1] in groups():
        yield from groups()[words[-1]]
        return
    for group, names in groups().items():
        yield from (f"{group}={name}" for name in names)
    yield from (f"{key}=" for key in keys())


def _settings(_: Words) -> Iterable[str]:
    """Keys of settings, groups of presets, and the groups of keys."""
    from mcpo_cli.config.presets import groups, keys

    return sorted({*keys(), *groups(), *(key.partition(".")[0] for key in keys())})


def _arms(words: Words) -> Iterable[str]:
    """The arms of the suite among the words, or without a suite the arms of all suites."""
    from mcpo_cli.config import plan

    suites = [word for word in words if plan.is_suite(word)]
    return dict.fromkeys(arm for suite in suites or plan.suites() for arm in plan.read(suite).arms)


def _runs(_: Words) -> Iterable[str]:
    from mcpo_cli import home
    from mcpo_cli.runs import catalog

    return (path.name for path in catalog.folders(home.location()))


def _deleted(_: Words) -> Iterable[str]:
    from mcpo_cli import home
    from mcpo_cli.runs import trash

    return (path.name for path in trash.contents(home.location()))


def _evaluations(_: Words) -> Iterable[str]:
    from mcpo_cli import home

    return sorted(path.name for path in (home.location() / "evals").glob("*") if path.is_dir())


def _listed(module: str, names: str) -> Callable[[Words], Iterable[str]]:
    """`names` of `mcpo_cli.MODULE`, a collection or a function that returns one; imported when the words are typed."""

    def offer(_: Words) -> Iterable[str]:
        listed = getattr(import_module(f"mcpo_cli.{module}"), names)
        offered: Iterable[str] = listed() if callable(listed) else listed
        return offered

    return offer


OTHERS: dict[str, Callable[[Words], Iterable[str]]] = {
    "override": _overrides,
    "setting": _settings,
    "arm": _arms,
    "kind": _listed("components", "KINDS"),
    "run": _runs,
    "deleted run": _deleted,
    "evaluation": _evaluations,
    "file": lambda _: sorted(map(str, Path().glob("*"))),
    "axis": _listed("compare.equal_cost", "AXES"),
    "reader": _listed("compare.readers", "readers"),
    "benchmark": _listed("evaluation.scope", "evaluable"),
    "branch study": _listed("config.branching", "studies"),
}
"""Names besides the names of components, by what they name."""
