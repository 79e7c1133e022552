"""Tables of other tools: names stay text, only the columns asked for are read, and no file can end the process."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mcpo_cli.data import tables
from tests.errors import refused

NAMES = [
    "1",
    "01",
    "001",
    "2024-01-01",
    "12:30",
    "1e3",
    "NA",
    "null",
    "true",
    "9007199254740993",
    "a b",
    "a\nb",
    'a"b',
    "",
]


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize(
    "name", ["x.csv", "x.csv.gz", "packed.csv", "x.TSV", "x.parquet", "x.jsonl", "plain.jsonl.gz", "x.json"]
)
def test_names_are_text(tmp_path: Path, name: str) -> None:
    """Whether a table is packed is seen from its bytes, not from its name."""
    path = tmp_path / name
    if name.endswith(".parquet"):
        pq.write_table(pa.table({"id": NAMES}), path)
    elif "json" in name:
        write(path, "\n".join(json.dumps({"id": each}) for each in NAMES))
    else:
        text = "id\n" + "".join('"' + each.replace('"', '""') + '"\n' for each in NAMES)
        write(path, gzip.compress(text.encode()) if "packed" in name or name.endswith(".gz") else text)
    assert list(map(tables.text, tables.columns(path, ["id"])["id"])) == NAMES


def test_numbers_that_floats_cannot_hold(tmp_path: Path) -> None:
    exact = [2**53 + 1, 2**63, 10**20 + 1]
    path = write(tmp_path / "x.jsonl", "".join(f'{{"id": {number}}}\n' for number in exact))
    assert tables.columns(path, ["id"])["id"] == exact
    pq.write_table(pa.table({"id": exact[:1]}), tmp_path / "x.parquet")
    assert [tables.text(row["id"]) for _, row in tables.rows(tmp_path / "x.parquet", ["id"])] == ["9007199254740993"]


def test_other_columns_are_not_read(tmp_path: Path) -> None:
    """Types that mix, bytes that are no UTF-8, a heading twice: nobody asked for them."""
    mixed = [{"id": "a", "meta": 1}, {"id": "b", "meta": {"x": [1, "y"]}}, {"id": "c"}]
    assert tables.columns(write(tmp_path / "x.jsonl", "\n".join(map(json.dumps, mixed))), ["id"]) == {
        "id": ["a", "b", "c"]
    }
    latin = write(tmp_path / "x.csv", "id,note,note\na,\u00e9,\n".encode("latin-1"))
    assert tables.heading(latin) == ["id", "note", "note"]
    assert tables.columns(latin, ["id"]) == {"id": ["a"]}
    with refused("bad_data", "'note' twice"):
        tables.columns(latin, ["note"])
    pq.write_table(pa.table({"id": ["a"], "blob": [b"\xff"]}), tmp_path / "x.parquet")
    assert list(tables.rows(tmp_path / "x.parquet", ["id", "absent"])) == [(1, {"id": "a"})]


@pytest.mark.parametrize(
    "content",
    ["id;n\na;1\n", "id\tn\na\t1\n", "id|n\na|1\n", "\ufeffid,n\r\na,1\r\n", "id, n\na,1\n", '"id","n"\n"a","1"\n'],
    ids=["semicolon", "tab", "bar", "mark and CRLF", "blank", "quotes"],
)  # fmt: skip
def test_dialects_of_csv(tmp_path: Path, content: str) -> None:
    assert list(tables.rows(write(tmp_path / "x.csv", content))) == [(1, {"id": "a", "n": "1"})]


def test_names_of_columns_may_have_bars(tmp_path: Path) -> None:
    assert tables.heading(write(tmp_path / "x.csv", "seed,suite|gsm8k|0\n0,.5\n")) == ["seed", "suite|gsm8k|0"]


def test_a_key_given_twice_is_refused_where_it_is_asked_for(tmp_path: Path) -> None:
    inside = '{"id": 1, "note": {"id": 2}, "text": "\\"id\\": 3"}\n'
    path = write(tmp_path / "x.jsonl", inside + '{"id": 1, "n": 1, "n": 2}\n')
    assert tables.columns(path, ["id"]) == {"id": [1, 1]}
    with refused("bad_data", "line 2: it has 'n' twice"):
        tables.columns(path, ["id", "n"])


def test_kilobytes_that_state_gigabytes(tmp_path: Path) -> None:
    """82 GB of equal texts are one text; a table with more rows than can be read is refused by its own metadata."""
    rows, path = 1_000_000, tmp_path / "x.parquet"
    places = pa.array([0] * rows, pa.int32())
    long = pa.DictionaryArray.from_arrays(places, pa.array(["x" * 2**16]))
    pq.write_table(pa.table({"long": long, "turns": pa.StructArray.from_arrays([long], ["text"])}), path)
    assert path.stat().st_size < 2**16
    for number, row in tables.rows(path):
        assert len(row["long"]) == len(row["turns"]["text"]) == 2**16
        if number == 2 * tables.BATCH:
            break
    assert len(set(map(id, tables.columns(path, ["long"])["long"]))) <= rows // tables.BATCH + 1


@pytest.mark.parametrize("deep", [1_100, 20_000, 1_000_000])
def test_nested_brackets_are_refused(tmp_path: Path, deep: int) -> None:
    path = write(tmp_path / "x.jsonl", '{"id": 1, "meta": ' + "[" * deep + "]" * deep + "}")
    with refused("bad_data", "line 1", "nested too deeply"):
        tables.columns(path, ["id"])
