"""Random input that is nearly right: override lists, command lines, suites, presets, data and answers."""

import dataclasses
import gzip
import json
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from hypothesis import strategies as st

from mcpo_cli import methods
from mcpo_cli.config import load
from mcpo_cli.config.schema import RunSpec

Strategy = st.SearchStrategy[Any]
TEXT = st.text(max_size=10)
ODD = [
    *("", " ", "null", "???", "${seed}", "${train}", "${nope}", "${a", "${oc.env:HOME}", "'", '"x"', "a b", "\\"),
    *("[]", "[1,2]", "[[1]]", "0,1,2", "choice(1,2)", "range(0,3)", "range(3,0)", "range(0,3,0)", "glob(*)"),
    *("sort(3,1)", "shuffle(1,2)", "int(3)", "float(1)", "bool(1)", "json_str(1)", "extend_list(1)", "a=b", "="),
    *("nan", "inf", "-inf", "1e999", "1e18", "9" * 30, "9" * 5000, "x" * 300, "[" * 60 + "]" * 60, "true", "yes", "on"),
    *("é", "\ud800", "\x00", "a\nb", "\udcff", "--help", "-1", "0x10", "1_000", "٤", "/", "../..", "tag(a,1)", "{a:1}"),
]


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
PRESETS = {group: st.sampled_from(names) for group, names in load.groups().items()}
KEYS = st.sampled_from(
    [*SETTINGS, *PRESETS, "nope", "hydra.run.dir", "", "~seed", "+x", "model@a", "train", "model.", ".."]
)


@st.composite
def overrides(draw: st.DrawFn) -> list[str]:
    """Some settings with values of their type, some with anything."""
    found = []
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.integers(0, 9))
        if kind < 6:
            key = draw(st.sampled_from([*SETTINGS, *PRESETS]))
            found.append(f"{key}={draw({**SETTINGS, **PRESETS}[key])}")
        elif kind < 9:
            found.append(f"{draw(KEYS)}={draw(st.one_of(st.sampled_from(ODD), TEXT))}")
        else:
            found.append(draw(st.one_of(st.sampled_from(ODD), TEXT)))
    if draw(st.booleans()):
        found.insert(0, f"scale={draw(st.sampled_from(['smoke', 'paper', 'one-gpu', 'verl-cpu']))}")
    return found


VERBS = (
    ("train", "--dry-run"),
    ("plan",),
    ("plan", "table1"),
    ("ablate", "--dry-run"),
    ("reproduce", "table2", "--dry-run"),
    ("probe", "sanity", "--dry-run"),
    ("evaluate", "nothing/here", "--dry-run"),
)


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """A verb that starts nothing, with random settings, options and words."""
    extra = draw(
        st.lists(st.one_of(st.sampled_from(["--json", "--debug=1", "--nope", "-x", "--", "table1"]), TEXT), max_size=1)
    )
    return [*draw(st.sampled_from(VERBS)), *draw(overrides()), *extra]


LEAVES = st.one_of(st.none(), st.booleans(), st.integers(-3, 2**40), st.floats(), TEXT, st.sampled_from(ODD))
JUNK = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=5
)
ARM = st.lists(
    st.one_of(st.sampled_from(["method=dapo", "method=mcpo", "seed=1", "train.lr=0.1", "method.beta=2"]), LEAVES),
    max_size=3,
)
SWEEP = st.dictionaries(
    st.sampled_from(["seed", "model", "regime", "train.lr", "nope"]),
    st.one_of(st.lists(st.sampled_from([0, 1, "toy-s", "toy-m", "drift", 0.1]), min_size=1, max_size=2), JUNK),
    max_size=2,
)
SETTING = st.sampled_from(["method=dapo", "method=mcpo", "train.lr=0.1", "train.steps=3", "eval.every=1"])
RIGHT = st.fixed_dictionaries(
    {"arms": st.dictionaries(st.text("abc ", min_size=1), st.lists(SETTING, max_size=2), min_size=1, max_size=2)},
    optional={
        "title": st.text("abc"),
        "sweep": st.fixed_dictionaries({}, optional={"seed": st.just([0, 1]), "model": st.just(["toy-m"])}),
    },
)
"""A suite whose arms may contradict themselves, and that is else in order."""
SUITE = RIGHT | st.fixed_dictionaries(
    {"arms": st.one_of(st.dictionaries(TEXT, ARM, max_size=2), JUNK)},
    optional={"title": LEAVES, "question": LEAVES, "sweep": SWEEP, "sweep_at_scale": JUNK, "nope": LEAVES},
)
GROUPS = sorted({key.partition(".")[0] for key in SETTINGS if "." in key} - {"method"})


def group(name: str) -> Strategy:
    """Settings of one group, a few by their type and a few by anything."""
    inside = {key: value for key, value in SETTINGS.items() if key.startswith(f"{name}.")}
    own = {key.rpartition(".")[2]: value.map(_read) for key, value in inside.items()}
    typed = st.fixed_dictionaries({}, optional=own)
    return st.one_of(typed, st.dictionaries(st.sampled_from([*own, "nope"]), LEAVES, max_size=2), JUNK)


def _read(text: str) -> Any:
    """A value as YAML reads it, where it does."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


PRESET = st.fixed_dictionaries({}, optional={name: group(name) for name in [*GROUPS, "nope"]})


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """`content`, often as it is, else with a few bits flipped, cut short, or with bytes put in."""
    kind, data = draw(st.integers(0, 5)), bytearray(content)
    if kind > 2 or not data:
        return content
    for place in draw(st.lists(st.integers(0, len(data) - 1), max_size=3)):
        data[place] ^= 1 << draw(st.integers(0, 7))
    if kind == 1:
        del data[draw(st.integers(0, len(data))) :]
    if kind == 2:
        place = draw(st.integers(0, len(data)))
        data[place:place] = draw(st.binary(max_size=4))
    return bytes(data)


@st.composite
def yaml_files(draw: st.DrawFn, content: Strategy) -> bytes:
    """A YAML file of `content`, or one of anything, perhaps damaged."""
    data = draw(st.one_of(content, content, JUNK))
    try:
        text = yaml.safe_dump(data, allow_unicode=True).encode()
    except (yaml.YAMLError, UnicodeEncodeError):
        text = repr(data).encode(errors="replace")
    return draw(damaged(text))


CELLS = st.one_of(
    st.integers(0, 999).map(str),
    st.integers(),
    st.floats(),
    TEXT,
    st.sampled_from([None, True, [], ["1", "2"], {}, 10**400, "\ud800", "x" * 500, "[[" * 300]),
    st.recursive(st.just("1"), lambda inner: st.lists(inner, min_size=1, max_size=1), max_leaves=40),
)


def rows(names: dict[str, Strategy], other: list[str]) -> Strategy:
    """Rows that mostly have the columns `names`, and sometimes others."""
    return st.builds(
        lambda first, more, without: {key: value for key, value in {**first, **more}.items() if key != without},
        st.fixed_dictionaries(names),
        st.dictionaries(st.sampled_from([*other, "id", ""]), CELLS, max_size=1),
        st.sampled_from(["nothing", "nothing", "nothing", *names]),
    )


PROBLEM, GOLD = st.one_of(TEXT, TEXT, CELLS), st.one_of(st.integers(0, 999).map(str), CELLS)
PLAIN = rows({"problem": PROBLEM, "answer": GOLD}, ["question", "solution"])
TURNS = st.one_of(TEXT.map(lambda text: [{"role": "user", "content": text}]), CELLS)
TRUTH = st.one_of(GOLD.map(lambda gold: {"ground_truth": gold}), CELLS)
OF_VERL = rows({"prompt": TURNS, "reward_model": TRUTH}, ["data_source"])
PROBLEMS = st.one_of(st.lists(PLAIN, max_size=4), st.lists(OF_VERL, max_size=4))
ANSWERS = st.lists(rows({"gold": GOLD, "response": PROBLEM}, ["prediction"]), max_size=4)


@st.composite
def files(draw: st.DrawFn, content: Strategy) -> tuple[str, bytes]:
    """Suffix and bytes of a file of rows."""
    found = draw(content)
    suffix = draw(st.sampled_from([".jsonl", ".jsonl", ".json", ".jsonl.gz", ".parquet"]))
    if suffix == ".json":
        text = json.dumps(found).encode()
    elif suffix == ".parquet":
        text = _parquet(found)
    else:
        text = b"\n".join(json.dumps(row).encode() for row in found)
        text = gzip.compress(text, mtime=0) if suffix.endswith("gz") else text
    return suffix, draw(damaged(text))


def _parquet(found: list[dict[str, Any]]) -> bytes:
    sink = pa.BufferOutputStream()
    try:
        pq.write_table(pa.Table.from_pylist(found), sink)
    except (pa.ArrowException, OverflowError, ValueError, TypeError, OSError):
        pq.write_table(pa.table({key: pa.array([b"\xff"]) for key in ("problem", "answer")}), sink)
    return bytes(sink.getvalue())


def put(folder: Path, name: str) -> Callable[[tuple[str, bytes]], Path]:
    """Writes a file of `files` into `folder`."""

    def write(file: tuple[str, bytes]) -> Path:
        path = folder / f"{name}{file[0]}"
        path.write_bytes(file[1])
        return path

    return write
