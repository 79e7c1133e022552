"""Tasks as a mechanism: found by scanning, chosen by name, and unknown by name to all other code."""

import ast
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mcpo_cli import tasks
from mcpo_cli.config import load, presets
from mcpo_cli.config.reading import read_yaml
from mcpo_cli.data.base import Problem
from mcpo_cli.tasks.chains import Arithmetic
from tests.errors import refused

PACKAGE = Path(tasks.__file__).parents[1]
PRESETS = [path for path in presets.CONF.glob("*/*.yaml") if "tasks" in read_yaml(path)]


def elsewhere() -> Iterator[Path]:
    """The modules of mcpo except those of tasks, of `gym`, and of graders, some of which are named like their tasks."""
    for folder in (PACKAGE, PACKAGE / "analysis"):  # a link, which rglob does not follow
        # `gym` is an extra, too.
        own = {PACKAGE / name for name in ("tasks", "reasoning_gym", "grading", "extras.py")}
        yield from (path for path in folder.rglob("*.py") if not own & {path, *path.parents})


def keys(tree: ast.AST) -> Iterator[ast.AST]:
    """The keys of mappings in a module: a column of records may have the name of a task."""
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(slice=key) | ast.Call(func=ast.Attribute(attr="pop" | "explode"), args=[key]):
                yield key
            case ast.Dict(keys=several):
                yield from filter(None, several)


@pytest.mark.slow
def test_nothing_else_branches_on_which_task_it_is() -> None:
    """No comparison with a task's name, no import of its module: a new task is one file."""
    names, own = set(tasks.registry()), {kind.__module__ for kind in tasks.registry().values()}
    found, seen = [], 0
    for path in elsewhere():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        columns = set(keys(tree))
        for node in ast.walk(tree):
            is_name = isinstance(node, ast.Constant) and node.value in names and node not in columns
            is_import = isinstance(node, ast.ImportFrom) and node.module in own
            found += [f"{path}:{node.lineno}"] if is_name or is_import else []
        seen += 1
    assert seen > 150
    assert found == []


DRAWN = [
    *((name, {}) for name in tasks.registry() if name not in ("math", "gym")),
    *(("arithmetic", {"skills": 3}), ("sums", {"sorts": ("2-1", "1*1")})),
]
"""Tasks that draw their problems here, with options; `gym` draws them with a package, and has its own test."""


@pytest.mark.parametrize(("name", "options"), DRAWN)
def test_nothing_trained_on_is_ever_evaluated(name: str, options: dict[str, Any]) -> None:
    for one in (tasks.get(name, **options), tasks.get(name, **options, pool=64)):
        tiers = one.tiers(200)
        assert {tier: len(problems) for tier, problems in tiers.items()} == one.tier_sizes(200)
        evaluated = {problem.text for problems in tiers.values() for problem in problems}
        assert len(evaluated) == sum(one.tier_sizes(200).values())
        trained = {problem.text for seed in range(2) for problem in one.training(seed, 0, 1000)}
        if isinstance(one, tasks.ClosedTask):
            trained |= {problem.text for step in range(20) for problem in one.demonstrations(0, step, 128)}
        assert not (evaluated | trained) & {question for question, _ in getattr(one, "worked", ())}
        assert not evaluated & trained
        assert {one.holds_out(Problem(text, "")) for text in evaluated} == {True}
        assert {one.holds_out(Problem(text, "")) for text in trained} == {False}
        for tier, problems in tiers.items():
            assert {one.tier_of(problem.text) for problem in problems} == {tier}


@pytest.mark.parametrize(("name", "options"), DRAWN)
def test_streams_do_not_depend_on_how_they_are_read_and_a_pool_comes_back_in_another_order(
    name: str, options: dict[str, Any]
) -> None:
    plain, pooled = tasks.get(name, **options), tasks.get(name, **options, pool=64)
    for one in (plain, pooled):
        whole = one.training(7, 100, 100)
        assert [*one.training(7, 100, 37), *one.training(7, 137, 63)] == whole
        assert one.training(8, 100, 100) != whole
        assert one.tiers(20) == one.tiers(20)
    first, second = pooled.training(0, 0, 64), pooled.training(0, 64, 64)
    assert len({problem.text for problem in first}) == 64
    assert {problem.text for problem in first} == {problem.text for problem in second}
    assert first != second


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_what_a_preset_changes_of_a_task_is_an_option_of_it(path: Path) -> None:
    for name, options in read_yaml(path)["tasks"].items():
        changed = tasks.get(name, **options)
        assert changed != tasks.get(name)
        (spec,) = load.load([f"{path.parent.name}={path.stem}", f"task={name}"])
        assert spec.task == changed


@dataclass(frozen=True)
class Few(Arithmetic):
    """Problems of one difficulty, of which only a few exist, and all but a few draws give the same one."""

    def draw(self, rng: random.Random) -> Problem:
        return Problem(f"{0 if rng.random() < 0.99 else rng.randrange(self.max_ops)} =", "0")

    def draw_of_tier(self, rng: random.Random, tier: str) -> Problem:
        return self.draw(rng)

    def every(self, tier: str) -> None:
        return None


@pytest.mark.parametrize("option", ["task.pool", "eval.problems"])
def test_a_task_with_fewer_problems_than_asked_for_says_so_soon(option: str) -> None:
    began, few = time.process_time(), Few(pool=50)
    with refused("no_room", option.removeprefix("eval.").removeprefix("task.")):
        few.check() if option == "task.pool" else few.tiers(50)
    assert time.process_time() - began < 20
