"""Random overrides and random journals: a result that is in order, or one error with a message; never a traceback."""

import contextlib
import dataclasses
import io
import itertools
import math
import re
import shutil
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcpo_cli import methods
from mcpo_cli.config import load
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import ConfigError, McpoError
from mcpo_cli.home import is_plain, run_dir
from mcpo_cli.main import main
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
]
VERBS = (("train", "--dry-run"), ("plan",), ("plan", "table1"), ("probe", "sanity", "--dry-run"))


def fields(cls: type, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Key, type and metadata of every single setting of a dataclass."""
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(typing.cast(Any, cls)):
        if field.name == "method" and cls is RunSpec:
            for method in methods.registry().values():
                yield from fields(method, "method.")
        elif dataclasses.is_dataclass(hints[field.name]):
            yield from fields(hints[field.name], f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", hints[field.name], field.metadata


def values(hint: Any, bounds: Any) -> Strategy:
    """Values of a type, within its bounds and a little beyond."""
    if get_origin(hint) is Literal:
        return st.sampled_from([str(choice).lower() for choice in get_args(hint)])
    if get_origin(hint) is tuple:
        return st.lists(values(get_args(hint)[0], {}), max_size=3).map(lambda found: f"[{','.join(found)}]")
    least, most = bounds.get("ge", bounds.get("gt", -2)), bounds.get("le", bounds.get("lt"))
    if hint is int:
        high = least + 300 if most is None else most + 1
        return st.one_of(st.integers(int(least) - 1, int(high)), st.sampled_from([2**k for k in range(34)])).map(str)
    if hint is float:
        return st.floats(least - 1, 2 * (least + 2) if most is None else most + 1).map(repr)
    return st.booleans().map(lambda value: str(value).lower()) if hint is bool else TEXT


SETTINGS = {key: values(hint, bounds) for key, hint, bounds in fields(RunSpec)}
KNOWN = SETTINGS | {group: st.sampled_from(names) for group, names in load.groups().items()}
KEYS = st.sampled_from([*KNOWN, "nope", "hydra.run.dir", "", "~seed", "+x", "model@a", "train", "model.", ".."])


@st.composite
def overrides(draw: st.DrawFn) -> list[str]:
    """Some settings with values of their type, some with anything."""
    found = [f"scale={draw(st.sampled_from(['smoke', 'paper', 'verl-cpu']))}"] if draw(st.booleans()) else []
    for kind in draw(st.lists(st.integers(0, 9), max_size=4)):
        anything = draw(st.one_of(st.sampled_from(ODD), TEXT))
        key = draw(st.sampled_from([*KNOWN]))
        found.append(f"{key}={draw(KNOWN[key])}" if kind < 6 else f"{draw(KEYS)}={anything}" if kind < 9 else anything)
    return found


def examples(quick: int, slow: int) -> pytest.MarkDecorator:
    """The number of examples, in the quick suite and with the slow tests."""
    return pytest.mark.parametrize("count", [quick, pytest.param(slow, marks=pytest.mark.slow)])


def explore(count: int, strategy: Strategy, test: Callable[[Any], None]) -> None:
    """Call `test` with `count` examples or a few more."""
    kept = settings(max_examples=count, database=None, suppress_health_check=list(HealthCheck))
    kept(given(strategy)(test))()


def in_order(value: Any, hint: Any, metadata: Any) -> bool:
    """Whether a value is of its type, finite, and within the bounds of its field."""
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_origin(hint) is tuple:
        return isinstance(value, tuple) and all(in_order(item, get_args(hint)[0], {}) for item in value)
    if get_origin(hint) is Mapping:
        return value == {}  # plug-ins, of which there are none
    if hint is float:
        bounds = {"ge": value.__ge__, "gt": value.__gt__, "le": value.__le__, "lt": value.__lt__}
        held = [bounds[name](float(bound)) for name, bound in metadata.items() if name in bounds]
        return isinstance(value, float) and math.isfinite(value) and all(held)
    if hint is int:
        least, most = metadata.get("ge", -math.inf), metadata.get("le", math.inf)
        return type(value) is int and least <= value <= most and abs(value) < 2**31
    return type(value) is hint and (hint is not str or not re.search(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]", value))


def wrong(part: Any, prefix: str = "") -> Iterator[str]:
    """The settings of a run that are out of order."""
    hints = typing.get_type_hints(type(part))
    for field in dataclasses.fields(part):
        value, hint = getattr(part, field.name), hints[field.name]
        if get_origin(hint) is types.UnionType:
            if value is None:
                continue
            (hint,) = (one for one in get_args(hint) if one is not type(None))
        if dataclasses.is_dataclass(value):
            yield from wrong(value, f"{prefix}{field.name}.")
        elif not in_order(value, hint, field.metadata):
            yield f"{prefix}{field.name}={value!r}"


@pytest.mark.slow
@examples(60, 1000)
def test_overrides(count: int) -> None:
    """Every run is in order, names a folder, and is the same run when its settings are read back."""
    loaded = 0

    def one(words: list[str]) -> None:
        nonlocal loaded
        try:
            specs = load.load(words)
        except ConfigError:
            return
        loaded += 1
        for spec in specs[:5]:
            assert list(wrong(spec)) == []
            assert is_plain(spec.run_id)
            assert load.from_dict(spec.to_dict()).run_id == spec.run_id

    explore(count, overrides(), one)
    assert loaded, "the input is so bad that it tests nothing else"


@examples(25, 250)
def test_command_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("MCPO_HOME", str(home))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)

    def one(words: list[str]) -> None:
        shutil.rmtree(home, ignore_errors=True)  # so that a failure is that of these words
        monkeypatch.setattr(sys, "argv", ["mcpo", *words])
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as talk:
            try:
                main()
                code: Any = 0
            except SystemExit as end:
                code = end.code
        said = talk.getvalue()
        assert code in (None, 0, 2), said
        assert len(re.findall(r"^error: |─ Error ─", said, re.MULTILINE)) == (code == 2), said
        assert "Traceback" not in said
        assert not home.exists()

    extra = st.lists(st.sampled_from(["--json", "--debug=1", "--nope", "-x", "--", "table1"]) | TEXT, max_size=1)
    explore(
        count, st.builds(lambda *parts: [*itertools.chain(*parts)], st.sampled_from(VERBS), overrides(), extra), one
    )


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


@examples(60, 600)
@pytest.mark.parametrize("kind", ["steps", "groups", "eval"])
@pytest.mark.parametrize("sealed", [True, False])
def test_journals(kind: Literal["steps", "groups", "eval"], sealed: bool, count: int, mcpo_home: Path) -> None:
    """No damaged file of a done run is read; of a run that goes on, what is read are rows."""
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

    explore(count, damaged(whole), one)
    path.write_bytes(whole)
    assert rows()
