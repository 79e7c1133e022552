"""Tables that people's tools write (CSV, TSV, JSON lines, JSON lists, Parquet), read by the columns that are asked for.

- The cells of CSV are texts, whatever they look like: `007` is not 7, and a date stays as it is written. JSON and
  Parquet keep their types. Cells of other columns are neither converted nor checked.
- JSON is read by what it is, not by the suffix: a file that begins with `[` is a list, any other has an object a line.
- Memory is bounded before anything is unpacked, because a kilobyte of Parquet may state gigabytes: its texts are read
  as numbers of a dictionary, so equal texts are one object. JSON is read line by line.
"""

import csv
import gzip
import io
import json
import math
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast

import orjson

from mcpo_cli.errors import bad_data

FORMATS = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
"""Suffixes of tables, in any case; a suffix of a text may be followed by `.gz`."""
LONGEST_LINE = 64 << 20
"""Most bytes of a line, and of a block of CSV: a small compressed file may hold a line that exceeds any memory."""
MOST_ROWS = 20_000_000
MOST_BYTES = 16 << 30
"""Most rows, and most bytes of the columns that are read, of a Parquet file as its own metadata states them."""
BATCH = 32768
"""Rows of a Parquet file held in memory at once: with fewer, each part costs more than its rows."""
LOOKED_AT = 1000
"""Rows of JSON whose keys are the heading."""
PACKED = b"\x1f\x8b"
"""The beginning of a file that gzip has packed."""
POINTER = b"version https://git-lfs"
FIX = "write the table again as CSV, JSON lines or Parquet"

Row = tuple[int, Mapping[str, Any]]
"""The number of a row, from 1 (the line of JSON lines), and its cells by column."""

_SUFFIX = re.compile(r"(?i)\.(?:parquet|(?:jsonl|ndjson|json|csv|tsv)(?:\.gz)?)$")
_BIG = re.compile(rb"\d{19}")
"""orjson reads an integer above 2^64 as a float, which has other digits."""
_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a surrogate pair: JSON can escape it, but UTF-8 cannot encode it."""


def suffix(name: str) -> str:
    """The end of a file's name that says that it is a table: `.jsonl`, `.csv.gz`; empty if it is none."""
    match = _SUFFIX.search(name)
    return match[0] if match else ""


def heading(path: Path) -> list[str]:
    """The names of a table's columns; for JSON, the keys of its first rows.

    Raises:
        ConfigError: the file cannot be read.
    """
    with _Reading(path):
        if _is(path, "parquet"):
            import pyarrow.parquet as pq

            return list(pq.read_schema(path).names)
        if _is(path, "csv", "tsv"):
            return _csv_heading(path)[0]
        return list(dict.fromkeys(name for _, row in islice(_json_rows(path), LOOKED_AT) for name in row))


def rows(path: Path, names: Iterable[str] | None = None) -> Iterator[Row]:
    """The rows of a table with the columns `names` (default: all); a row of JSON may lack some.

    Raises:
        ConfigError: the file cannot be read, or has one of these columns twice.
    """
    with _Reading(path):
        if not _is(path, "parquet", "csv", "tsv"):
            selection = None if names is None else frozenset(names)
            for number, row in _json_rows(path, selection or ()):
                yield number, row if selection is None else {name: row[name] for name in row if name in selection}
            return
        number = 0
        for batch in _batches(path, names):
            keys = list(batch)
            for cells in zip(*batch.values(), strict=True):
                number += 1
                yield number, dict(zip(keys, cells, strict=True))


def columns(path: Path, names: Iterable[str]) -> dict[str, list[Any]]:
    """The cells of the columns `names`, None where a row lacks one. Raises ConfigError as `rows` does."""
    keys = list(names)
    values: dict[str, list[Any]] = {name: [] for name in keys}
    for batch in batches(path, keys):
        for name, cells in batch.items():
            values[name].extend(cells)
    return values


def batches(path: Path, names: Iterable[str]) -> Iterator[dict[str, Iterable[Any]]]:
    """`columns` some rows at a time, for tables whose cells do not fit into memory. Raises ConfigError as `rows`."""
    keys = list(names)
    with _Reading(path):
        if _is(path, "parquet", "csv", "tsv"):
            yield from _batches(path, keys)
            return
        numbered = _json_rows(path, keys)
        while batch := [row for _, row in islice(numbered, BATCH)]:
            yield {name: [row.get(name) for row in batch] for name in keys}


class _Reading:
    """Turns what the libraries raise on a damaged file into one message that names it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        with self.path.open("rb") as file:
            if file.read(len(POINTER)) == POINTER:
                raise bad_data(f"{self.path} is a pointer of Git LFS, not the file", fix="git lfs pull")

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        import pyarrow as pa

        if isinstance(error, UnicodeDecodeError) or (isinstance(error, pa.ArrowInvalid) and "UTF8" in str(error)):
            raise bad_data(f"{self.path}: not UTF-8", fix="iconv -t UTF-8 -f CHARSET FILE") from error
        if isinstance(
            error, pa.ArrowException | OSError | EOFError | ValueError | OverflowError | zlib.error | csv.Error
        ):
            raise bad_data(f"{self.path} cannot be read: {str(error).partition(chr(10))[0]}", fix=FIX) from error


def _is(path: Path, *kinds: str) -> bool:
    return suffix(path.name).lower().removesuffix(".gz").removeprefix(".") in kinds


def _open(path: Path) -> IO[bytes]:
    """The bytes of a text, unpacked where they are packed, whatever the suffix."""
    file = path.open("rb")
    return cast(IO[bytes], gzip.GzipFile(fileobj=file)) if file.peek(2)[:2] == PACKED else file


# CSV and Parquet


def _batches(path: Path, names: Iterable[str] | None) -> Iterator[dict[str, Iterable[Any]]]:
    """Some rows at a time: their cells by column."""
    if _is(path, "parquet"):
        return _parquet(path, names)
    return _csv(path, names)


def _chosen(path: Path, header: list[str], names: Iterable[str] | None) -> list[str]:
    keys = list(dict.fromkeys(header if names is None else (name for name in names if name in header)))
    if twice := next((name for name in keys if header.count(name) > 1), None):
        raise bad_data(f"{path}: it has the column {twice!r} twice", fix="rename one of them")
    return keys


def _csv_heading(path: Path) -> tuple[list[str], str]:
    """The names of the columns, and the most frequent of comma, semicolon and tab; | where none of these stands."""
    with _open(path) as file:
        line = file.readline(LONGEST_LINE).decode("utf-8-sig")
    # A name of a column may have bars, as tasks of lighteval do.
    separators = ",;\t" if any(map(line.count, ",;\t")) else "|"
    separator = "\t" if _is(path, "tsv") else max(separators, key=line.count)
    names = next(csv.reader(io.StringIO(line, newline=""), delimiter=separator), [])
    return [name.strip() for name in names], separator


def _csv(path: Path, names: Iterable[str] | None) -> Iterator[dict[str, Iterable[Any]]]:
    import pyarrow as pa
    from pyarrow import csv as arrow

    header, separator = _csv_heading(path)
    keys = _chosen(path, header, names)
    # By place: a heading may hold blanks, and need not be unique where no name is asked for.
    places = [f"{header.index(name)}" for name in keys]
    with _open(path) as text:
        packed = isinstance(text, gzip.GzipFile)
    with pa.input_stream(str(path), compression="gzip" if packed else None) as file:
        reader = arrow.open_csv(
            file,
            arrow.ReadOptions(
                column_names=[f"{k}" for k in range(len(header))], skip_rows=1, block_size=LONGEST_LINE // 4
            ),
            arrow.ParseOptions(delimiter=separator, newlines_in_values=True),
            arrow.ConvertOptions(
                column_types=dict.fromkeys(places, pa.string()),
                include_columns=places,
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
        for batch in reader:
            yield {name: batch[place].to_pylist() for name, place in zip(keys, places, strict=True)}


def _parquet(path: Path, names: Iterable[str] | None) -> Iterator[dict[str, Iterable[Any]]]:
    import pyarrow.parquet as pq

    # Checksums are verified where the file's writer stored them.
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        footer = file.metadata
        keys = _chosen(path, file.schema_arrow.names, names)
        leaves = [k for k in range(len(footer.schema)) if footer.schema.column(k).path.partition(".")[0] in keys]
        size = sum(
            footer.row_group(group).column(leaf).total_uncompressed_size
            for group in range(footer.num_row_groups)
            for leaf in leaves
        )
        if footer.num_rows > MOST_ROWS:
            raise ValueError(f"it says that it has {footer.num_rows} rows; {MOST_ROWS} are the most")
        if size > MOST_BYTES:
            raise ValueError(f"it says that {size >> 30} GiB are to be read; {MOST_BYTES >> 30} GiB are the most")
        texts = [footer.schema.column(k).path for k in leaves if footer.schema.column(k).physical_type == "BYTE_ARRAY"]
    with pq.ParquetFile(path, page_checksum_verification=True, read_dictionary=texts) as file:
        for batch in file.iter_batches(batch_size=BATCH, columns=keys):
            yield {name: _cells(batch[name]) for name in keys}


def _cells(cells: Any) -> Iterable[Any]:
    """The values of an Arrow array, equal texts as one object; nested values are made on demand."""
    import pyarrow as pa

    if isinstance(cells, pa.DictionaryArray):
        values = cells.dictionary.to_pylist()
        return [None if place is None else values[place] for place in cells.indices.to_pylist()]
    if pa.types.is_nested(cells.type):
        return (cell.as_py() for cell in cells)
    return cast(list[Any], cells.to_pylist())


# JSON


def _json_rows(path: Path, names: Iterable[str] = ()) -> Iterator[Row]:
    """The rows; a row that gives a value of `names` twice is refused, because readers differ in which they take."""
    with _open(path) as file:
        begin = file.read(1 << 16).removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    yield from _json_list(path) if begin == b"[" else _json_lines(path, names)


def _json_list(path: Path) -> Iterator[Row]:
    with _open(path) as file:
        content = file.read(MOST_BYTES >> 3)
    for number, row in enumerate(_parsed(content, f"{path}"), 1):
        yield number, _object(row, f"{path}, item {number}")


def _json_lines(path: Path, names: Iterable[str]) -> Iterator[Row]:
    keys = [json.dumps(name).encode() for name in names]
    with _open(path) as file:
        for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE + 1), b""), 1):
            place = f"{path}, line {number}"
            if len(line) > LONGEST_LINE:
                raise bad_data(f"{place}: more than {LONGEST_LINE >> 20} MiB", fix=FIX)
            if not line.strip():
                continue
            row = _object(_parsed(line, place), place)
            if any(line.count(key) > 1 for key in keys):
                _refuse_twice(line, names, place)
            yield number, row


def _refuse_twice(line: bytes, names: Iterable[str], place: str) -> None:
    objects: list[list[str]] = []
    json.loads(line, object_pairs_hook=lambda pairs: objects.append([name for name, _ in pairs]))
    outermost = objects[-1]
    if twice := next((name for name in names if outermost.count(name) > 1), None):
        raise bad_data(f"{place}: it has {twice!r} twice", fix="leave one of them out")


def _parsed(content: bytes, place: str) -> Any:
    try:
        return parsed(content)
    except UnicodeDecodeError as error:
        raise bad_data(f"{place}: not UTF-8 (byte {error.start})", fix="iconv -t UTF-8 -f CHARSET FILE") from error
    except RecursionError as error:
        raise bad_data(f"{place}: broken JSON: it is nested too deeply", fix=FIX) from error
    except ValueError as error:  # broken, or a number with thousands of digits
        raise bad_data(f"{place}: broken JSON: {error}", fix="correct it, or write one JSON object per line") from error


def parsed(content: bytes) -> Any:
    """The value of a JSON text: integers exact, NaN and half of a surrogate pair as Python's tools write them.

    Raises:
        UnicodeDecodeError, ValueError, RecursionError: not UTF-8, broken, nested more than about 1,000 levels deep.
    """
    content = content.removeprefix(b"\xef\xbb\xbf")
    if not _BIG.search(content):
        with suppress(orjson.JSONDecodeError):
            return orjson.loads(content)
    return json.loads(content.decode())  # it says where a text is broken


def _object(row: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(row, dict):
        raise bad_data(f"{place}: {type(row).__name__} instead of an object with the cells of a row", fix=FIX)
    return row


def text(value: Any) -> str:
    """A cell as text, by which it is named: `27.0` becomes `27`, a list is joined by commas, None is empty.

    Raises:
        ValueError: it is neither text nor a number, or cannot be written as UTF-8.
    """
    if value is None:
        return ""
    if isinstance(value, str) and not _SURROGATE.search(value):
        return value
    if isinstance(value, list):
        return ", ".join(map(text, value))
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return str(int(value)) if value == int(value) else repr(value)
    raise ValueError(f"{json.dumps(value, default=str)[:60]} is neither text nor a number")
