"""Random overrides and random journals give a valid result, or one error with a message, but never a traceback."""

import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcpo_cli.config import load, plan, presets
from mcpo_cli.errors import ConfigError, McpoError
from mcpo_cli.home import is_plain, run_dir
from mcpo_cli.runs import attempts
from mcpo_cli.runs.journal import Journal, Kind
from tests.fakes import write_run

Strategy = st.SearchStrategy[Any]
TEXT = st.text(max_size=10)
ODD = [
    *("", " ", "null", "???", "${seed}", "${train}", "${nope}", "${a", "${oc.env:HOME}", "'", '"x"', "a b", "\\"),
    *("[]", "[1,2]", "[[1]]", "0,1,2", "choice(1,2)", "range(0,3)", "range(3,0)", "range(0,3,0)", "glob(*)"),
    *("sort(3,1)", "int(3)", "float(1)", "bool(1)", "json_str(1)", "extend_list(1)", "a=b", "=", "tag(a,1)", "{a:1}"),
    *("nan", "inf", "-inf", "1e999", "1e18", "9" * 30, "9" * 5000, "x" * 300, "true", "yes", "on", "-1", "0x10"),
    *("é", "\ud800", "\x00", "a\nb", "\udcff", "--help", "1_000", "٤", "/", "../.."),
    *("1e-3", "0.5", "2", "64", "2048", "mcpo", "smoke", "paper", "verl", "auto"),
]
VALUES = st.one_of(st.sampled_from(ODD), TEXT, st.integers(0, 300).map(str), st.floats(0, 2).map(repr))
KEYS = st.sampled_from(
    [*presets.keys(), *presets.groups(), "nope", "hydra.run.dir", "", "~seed", "+x", "model@a", "train", ".."]
)
OVERRIDES = st.lists(st.builds("{}={}".format, KEYS, VALUES) | TEXT, max_size=3)


def explore(count: int, strategy: Strategy, test: Callable[[Any], None]) -> None:
    """Call `test` with `count` examples or a few more."""
    kept = settings(max_examples=count, database=None, suppress_health_check=list(HealthCheck))
    kept(given(strategy)(test))()


@pytest.mark.slow
def test_overrides() -> None:
    """Every run has a valid folder name, and reading its settings back gives the same run."""
    loaded = 0

    def one(case: tuple[str, list[str]]) -> None:
        nonlocal loaded
        suite, words = case
        overrides = ["scale=smoke", *words]
        try:
            planned = plan.from_suite(suite, overrides, "mcpo train") if suite else plan.from_overrides(overrides)
        except ConfigError:
            return
        specs = [run.spec for run in planned.runs]
        loaded += bool(words)
        for spec in specs[:5]:
            assert is_plain(spec.run_id)
            assert load.from_dict(spec.to_dict()).run_id == spec.run_id

    explore(500, st.tuples(st.sampled_from(["", "table1"]), OVERRIDES), one)
    assert loaded, "the input is so bad that it tests nothing else"


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """`content` with a few bits flipped, cut short, or with bytes put in."""
    data, place = bytearray(content), draw(st.integers(0, len(content) - 1))
    kind = draw(st.sampled_from(["flipped", "cut", "longer"]))
    if kind == "flipped":
        data[place] ^= 1 << draw(st.integers(0, 7))
    elif kind == "cut":
        del data[place:]
    else:
        data[place:place] = draw(st.binary(min_size=1, max_size=4))
    return bytes(data)


@pytest.mark.parametrize("kind", ["steps", "groups", "eval"])
@pytest.mark.parametrize("sealed", [True, False])
def test_journals(kind: Literal["steps", "groups", "eval"], sealed: bool, mcpo_home: Path) -> None:
    """Damaged files of a done run are not read; those of an active run give valid rows only."""
    (spec,) = load.load(["scale=smoke", "compute.tracking_uri=offline"])
    write_run(spec)
    folder = run_dir(spec.run_id)
    journal = Journal(folder)
    path = folder / "attempt_1" / ("metrics.jsonl" if kind == "steps" else f"{kind}/step_000003.jsonl")
    whole = path.read_bytes()
    if not sealed:
        (folder / "attempt_1" / "sums.json").unlink()

    def rows() -> list[Any]:
        return journal.steps() if kind == "steps" else list(journal.rows(typing.cast(Kind, kind)))

    def one(content: bytes) -> None:
        if content == whole:
            return
        path.write_bytes(content)
        try:
            found = rows()
        except McpoError:
            pass
        else:
            assert not sealed
            assert all(type(row) is dict for row in found)
        if sealed and kind != "groups":
            assert attempts.state(folder, spec) == "failed"

    explore(60, damaged(whole), one)
    path.write_bytes(whole)
    assert rows()
