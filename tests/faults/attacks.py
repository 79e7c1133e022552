"""Attacks by files of others: files for a command in an empty folder, by area (`test_attacks.py`)."""

import gzip
import io
import json
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

Content = str | bytes | Callable[[Path], object]


@dataclass(frozen=True)
class Attack:
    """words: the command; a word that names a file of `files` becomes its path. code: the exit code."""

    files: dict[str, Content]
    words: tuple[str, ...]
    code: int = 2


SCRIPT = "<script>parent.hacked=1</script><img src=x onerror=alert(1)>\"'><svg/onload=alert(2)>"
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x1b[31m\x9b31m\r\x08"
BIDI = "abc\u202etxt.exe\u2066\u2069\u200f\ufeff"
HUGE = "9" * 1_000_000
ODD = {
    "a script": SCRIPT,
    "escape sequences": ESCAPES,
    "right to left": BIDI,
    "a template": "{{ 7*7 }}{% for x in ().__class__.__base__.__subclasses__() %}{{ x }}{% endfor %}",
    "formulas of mathematics": "$\\frac{1$ $x_$ $$ \\$",
    "TeX": "\\input{/etc/passwd}\\write18{id} $x$ % & # _ ^ ~ }",
    "Markdown": "[x](javascript:alert(1)) ![x](http://127.0.0.1/x) `a` | b\n# h\n<b>",
    "rich": "[link=http://127.0.0.1]x[/link][/][bold red]",
    "a path": "../../../etc/passwd\0",
    "a megabyte": "x" * 1_000_000,
}


def lines(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def log(correct: int) -> str:
    """Six samples, and one for each odd text in each field."""
    plain = [{"problem": f"p{i}", "correct": correct} for i in range(6)]
    common = {"correct": correct, "gold": "1", "answer": "2", "response": "3"}
    return lines(
        *plain,
        *(
            {"problem": f"odd {field} {i}", **common, field: text}
            for field in ("problem", "response", "prompt", "answer", "gold")
            for i, text in enumerate(ODD.values())
        ),
    )


def taken(text: str) -> int:
    """The exit code of a command that uses the text as a heading: 0 if it can be shown."""
    return 0 if text.isprintable() and len(text) <= 200 else 2


SHOWN = {text: name for name, text in ODD.items() if not taken(text)}
"""The texts that can be headings, with their names."""


def table(content: Content, kind: str = "csv", code: int = 2) -> Attack:
    """An attack by a table of somebody else, compared with one of ours."""
    good = log(1)
    return Attack({f"theirs.{kind}": content, "ours.jsonl": good}, ("compare", f"theirs.{kind}", "ours.jsonl"), code)


def rows(heading: str, row: str, code: int = 0, end: str = "\n") -> Attack:
    """A CSV file of six problems, like ours."""
    return table(end.join([heading, *(row.format(i) for i in range(6)), ""]), code=code)


def named(name: str, content: Content, code: int = 2) -> Attack:
    return Attack({name: content, "ours.jsonl": log(1)}, ("compare", name, "ours.jsonl"), code)


def endless_rows(path: Path) -> None:
    """21 000 000 rows of two values in a few kB."""
    schema = pa.schema([("problem", pa.dictionary(pa.int32(), pa.string())), ("correct", pa.bool_())])
    rows = 7_000_000
    batch = pa.table(
        [
            pa.DictionaryArray.from_arrays(pa.array([0] * 10, pa.int32()), ["p"]).take(pa.array([0] * rows, pa.int8())),
            pa.array([True]).take(pa.array([0] * rows, pa.int8())),
        ],
        schema=schema,
    )
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for _ in range(3):
            writer.write_table(batch, row_group_size=rows)


def zipped(name: str, content: bytes, compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", compression) as archive:
        archive.writestr(name, content)
    return packed.getvalue()


PROBLEM = {"doc_id": 1, "filter": "none", "metrics": ["acc"], "acc": 1.0, "target": "x", "doc": {}, "resps": [["a"]]}
SAMPLES = "samples_t_2026-01-01T00.jsonl"


def compared(**changes: object) -> Attack:
    """Changed samples of lm-evaluation-harness against others of the same task: a verdict."""
    ours = "samples_t_2026-01-02T00.jsonl"
    rows = [{**PROBLEM, "doc_id": number} for number in range(3)]
    theirs = lines(*({**row, **changes} for row in rows))
    return Attack({SAMPLES: theirs, ours: lines(*rows)}, ("compare", SAMPLES, ours), 0)


BROKEN: dict[str, tuple[str, Content]] = {
    "a column given twice": ("x.csv", "problem,correct,correct\na,1,0\n"),
    "an open quote": ("x.csv", 'problem,correct\n"a,1\n'),
    "a score of 2": ("x.csv", "problem,correct\na,2\n"),
    "a list as score": ("x.jsonl", '{"problem": "a", "correct": [1]}\n'),
    "lists as rows": (SAMPLES, '["doc_id", "filter", "metrics"]\n'),
    "metrics that are a number": (SAMPLES, '{"doc_id": 1, "filter": "f", "metrics": 5}\n'),
}
LOGS: dict[str, Attack] = {
    **{name: named(file, content) for name, (file, content) in BROKEN.items()},
    "odd texts": Attack({"a.jsonl": log(0), "b.jsonl": log(1)}, ("compare", "a.jsonl", "b.jsonl"), 0),
    "odd models": Attack(
        {
            "theirs.jsonl": lines(
                *({"problem": f"p{i}", "correct": 0, "model": text} for text in SHOWN for i in range(6))
            ),
            "ours.jsonl": log(1),
        },
        ("compare", "ours.jsonl", "theirs.jsonl", "--baseline", "ours"),
        0,
    ),
    **{
        f"{name} as {field}": table(
            lines(*({"problem": f"p{i}", "correct": 0, field: text} for i in range(6))), "jsonl"
        )
        for field, texts in (("model", ODD.keys() - SHOWN.values()), ("benchmark", ("a script", "a path")))
        for name, text in ((name, ODD[name]) for name in sorted(texts))
    },
    "a seed of 10^30": table(lines({"problem": "p0", "correct": 1, "seed": 10**30}), "jsonl"),
    "10 000 columns": table(",".join(["problem", "correct", *map(str, range(10_000))]) + "\n" + ",".join("1" * 10_002)),
    "formulas": Attack(
        {
            name: lines(
                *({"problem": f"{sign}cmd|' /C calc'!A{i}", "correct": correct} for i in range(6) for sign in "=+-@")
            )
            for name, correct in (("a.jsonl", 0), ("b.jsonl", 1))
        },
        ("compare", "a.jsonl", "b.jsonl"),
        0,
    ),
    "a line of 100 MB": table(lambda path: path.write_text("problem,correct\n" + "x" * 100_000_000 + ",1\n")),
    "a score in full width": rows("problem,correct", "p{},\N{FULLWIDTH DIGIT ONE}", 2),
    "a response that is a list": table(lines({"problem": "p0", "correct": 1, "response": [[1], {"a": 2}]}), "jsonl"),
    "a table that is a folder": table(lambda path: path.mkdir()),
    "a table that links to a device": table(lambda path: path.symlink_to("/dev/zero")),
    "half of a surrogate pair as a response": compared(resps=[["\ud800"]]),
    "a metric that is a path": named(SAMPLES, lines({**PROBLEM, "metrics": ["../x"], "../x": 1.0})),
    "1 000 filters": named(SAMPLES, lines(*({**PROBLEM, "filter": str(i)} for i in range(1000)))),
    "an .eval that is a bomb": named("x.eval", lambda path: path.write_bytes(zipped("header.json", bytes(50_000_000)))),
}

ANSWER = {"gold": "42", "response": "\\boxed{42}"}


def answers(*rows: object, code: int = 0, words: tuple[str, ...] = ()) -> Attack:
    return Attack({"x.jsonl": lines(*rows)}, ("grade", "x.jsonl", "--workers", "1", *words), code)


GRADING: dict[str, Attack] = {
    "odd texts": Attack(
        {"x.jsonl": lines(*({"gold": "42", "response": text, "id": text} for text in ODD.values()))},
        ("grade", "x.jsonl", "--workers", "1"),
        0,
    ),
    "odd values": answers(
        {"gold": HUGE, "response": f"\\boxed{{{HUGE}}}"},
        {**ANSWER, "id": {"a": [ESCAPES]}},
        {**ANSWER, "prediction": "41"},
        {"gold": "", "response": "\\boxed{}"},
    ),
    "a gold of infinity": answers({"gold": float("inf"), "response": "x"}, code=2),
    "an int of 5 000 digits": Attack(
        {"x.jsonl": '{"gold": ' + "9" * 5000 + ', "response": "x"}\n'}, ("grade", "x.jsonl"), 2
    ),
    "a gzip bomb of one line": Attack(
        {"x.jsonl.gz": lambda path: path.write_bytes(gzip.compress(bytes(100_000_000), 1))}, ("grade", "x.jsonl.gz"), 2
    ),
    "a grader that is a path": answers(ANSWER, code=2, words=("--grader", "../../x.py:f")),
}


SUITES: dict[str, Content] = {
    "a list in itself": "a: &a [*a]",
    "a number of 5 000 digits": "arms: {a: [" + "9" * 5000 + "]}",
    "an arm with an escape sequence": 'arms: {"\\e[31m": [seed=0]}',
    "a sweep of NaN": "arms: {a: [seed=0]}\nsweep: {train.lr: [.nan, .inf]}",
    "an override that refers to itself": "arms: {a: ['seed=${seed}']}",
    "a key given twice": "arms: {a: [seed=0], a: [seed=1]}",
    "a setting of the environment": "arms: {a: ['model.name=${oc.env:HOME}']}",
    "a sweep of 10 000 runs": "arms: {a: []}\nsweep: {seed: [" + ",".join(map(str, range(10_000))) + "]}",
    "a bomb of aliases": "a: &a [x,x]\nb: &b [*a,*a]\narms: {a: *b}",
}
ARM = "arms: {a: [seed=0], b: [seed=1]}\n"


def suite(content: Content, code: int = 2) -> Attack:
    return Attack({"s.yaml": content}, ("train", "--dry-run", "s.yaml", "scale=smoke"), code)


def claim(content: str, code: int = 2) -> Attack:
    return Attack({"c.yaml": content}, ("claim", "c.yaml"), code)


YAML: dict[str, Attack] = {
    **{name: suite(content) for name, content in SUITES.items()},
    **{
        f"{name} as an arm": suite(f"arms: {{{json.dumps(text)}: [seed=0], b: [seed=1]}}\n", taken(text))
        for name, text in ODD.items()
    },
    **{
        f"{name} as a title": suite(f"{ARM}title: {json.dumps(ODD[name])}\n", taken(ODD[name]))
        for name in ("escape sequences", "rich")
    },
    "a tracking address": suite("arms: {a: ['compute.tracking_uri=http://127.0.0.1:1']}\n", 0),
    "a reward of the system": suite("arms: {a: ['train.reward=os:system']}\n"),
    "2 000 arms": suite("arms:\n" + "".join(f"  a{i}: [seed={i}]\n" for i in range(2000))),
    "100 MB of arms": suite(lambda path: path.write_text("arms:\n" + "  a: [seed=0]\n" * 7_000_000)),
    "a pipe": suite(os.mkfifo),
    "a claim of infinity": claim("rows: {AIME: 'inf vs 40, n=30'}\n"),
    "a claim of 10^30 problems": claim(f"rows: {{AIME: '50 vs 40, n={10**30}'}}\n"),
    "a claim with 10^9 samples": claim("rows: {AIME: '50 vs 40, n=30, 1000000000 samples'}\n", 0),
    "a claim with odd names": claim(
        f"rows: {{{json.dumps(SCRIPT)}: '50 vs 40, n=30', {json.dumps(ODD['TeX'])}: '50 vs 40, n=30'}}\n", 0
    ),
}

LINES: dict[str, bytes] = {
    "a line nested 100 000 deep": b"[" * 100_000,
    "a number of 100 000 digits": b'{"problem": "x", "answer": ' + b"9" * 100_000 + b"}",
    "half of a surrogate pair": b'{"problem": "\\ud800", "answer": "1"}',
    "keys given twice": b'{"problem": 1, "problem": [1], "answer": {}}',
}
DATA: dict[str, Attack] = {
    **{
        f"{name} {verb}": Attack({"d.jsonl": line + b"\n"}, (*verb.split(), "d.jsonl"))
        for name, line in LINES.items()
        for verb in ("components check data", "grade")
    },
    "a pointer of Git LFS": Attack(
        {"d.jsonl": "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"},
        ("components", "check", "data", "d.jsonl"),
    ),
    "half of a surrogate pair in a list of golds": Attack(
        {"d.jsonl": lines({"problem": "x", "answer": json.dumps(["\ud800", "1"])})},
        ("components", "check", "data", "d.jsonl"),
    ),
    "odd problems": Attack(
        {"d.jsonl": lines(*({"problem": text, "answer": "1"} for text in ODD.values()))},
        ("components", "check", "data", "d.jsonl"),
        0,
    ),
    "endless rows in a small file": Attack({"d.parquet": endless_rows}, ("components", "check", "data", "d.parquet")),
    "columns of all kinds": Attack(
        {"d.jsonl": lines({ESCAPES: 1, SCRIPT: 2})}, ("components", "check", "data", "d.jsonl")
    ),
}

AREAS: dict[str, dict[str, Attack]] = {"logs": LOGS, "grading": GRADING, "YAML": YAML, "data": DATA}
