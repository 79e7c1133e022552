"""`mcpo components check data`: what a data set contains, and whether metrics measured on it would be wrong."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcpo_cli.commands.reply import Part, Reply, table
from mcpo_cli.errors import ConfigError, Findings, mend

if TYPE_CHECKING:
    from mcpo_cli.data.base import Dataset

SHOWN = 10
"""Most findings per kind in the text report; `--json` has all."""
FIX = "correct the file where the report says WRONG"


def audited(target: str, as_name: str | None, against: Sequence[str]) -> Reply:
    """Rows, copies, gold answers and overlaps of a data set or a file.

    as_name: the declared data set that the file is a copy of. against: data sets to compare with; by default the sets
    in the file's folder or in the cache of the hub.

    Raises:
        ConfigError: there is no such data set or file, or it cannot be read.
    """
    from mcpo_cli import data
    from mcpo_cli.commands import console
    from mcpo_cli.data.audit import audit
    from mcpo_cli.tasks.gold_check import self_graded

    dataset, path = (data.get(as_name), Path(target)) if as_name else _source(target)
    if dataset.draw:
        fix = "mcpo components list data"
        raise ConfigError(f"{dataset.name} is generated, each problem once: no file to check", fix=fix)
    try:
        reading = data.read(dataset, path)
    except ConfigError as error:
        if error.code != "not_found" or not Path(error.fix or "").is_file():
            raise
        raise ConfigError(error.message, fix=f"mcpo components check data {error.fix}", code=error.code) from error
    sources = [_source(word) for word in against] if against else _reachable(dataset, path)
    others = [(other, data.read(other, file)) for other, file in sources]
    document = audit(dataset, reading, others, self_graded, console.talk)
    kinds = dict.fromkeys(finding["kind"] for finding in document["findings"] if finding["serious"])
    message = f"{dataset.name}: metrics measured on it would be wrong: {', '.join(kinds)}"
    return Reply(document, _page(document), Findings(message, fix=FIX) if kinds else None)


def _source(word: str) -> tuple["Dataset", Path | None]:
    """The data set and the file meant by `NAME`, `PATH` or `NAME=PATH`; a PATH's data set is guessed from its name."""
    from mcpo_cli import data, paths

    path = paths.named(word)
    if not path.exists():
        name, equals, file = word.partition("=")
        if equals:
            try:
                return data.get(name), paths.named(file)
            except ConfigError as error:
                fix = mend(f"{{}}={file}", name, data.registry(), "mcpo components list data")
                raise ConfigError(f"{word}: {error.message}", fix=fix, code=error.code) from error
        if path.name == word and not path.suffix:
            return data.get(word), None
    stem = path.name.partition(".")[0]
    return (data.get(stem) if stem in data.names() else data.unnamed(stem)), path


def _reachable(dataset: "Dataset", path: Path | None) -> list[tuple["Dataset", Path | None]]:
    """Other data sets in the folder of `path` or in the cache; nothing is downloaded for a comparison."""
    from mcpo_cli import data
    from mcpo_cli.data import files

    reachable: list[tuple[Dataset, Path | None]] = []
    folder = path if path is None or path.is_dir() else path.parent
    for candidate in data.registry().values():
        matches = files.inside(folder, candidate.name) if folder else []
        if candidate.name != dataset.name and (matches or files.cached(candidate)):
            reachable.append((candidate, matches[0] if matches else None))
    return reachable


def _page(document: dict[str, Any]) -> Iterator[Part]:
    from mcpo_cli.data.audit import copies

    published = f" (published: {document['problems_published']})" if document["problems_published"] else ""
    facts = {
        "data set": f"{document['title']}, {document['role']}",
        "source": document["source"],
        "digest": document["digest"],
        "rows": str(document["rows"]),
        "problems": f"{document['problems']}{published}",
        "copies": copies(document),
        "golds": ", ".join(f"{count} {kind}" for kind, count in document["golds"].items()),
        "not parsable": str(len(document["not_parsable"])),
        "near-duplicates": str(len(document["near_duplicates"])),
    }
    yield "\n".join([document["name"], *(f"  {label:<17}{fact}" for label, fact in facts.items())])
    yield ""
    lengths = ["min", "median", "p95", "max"]
    measures = [name for name in ("characters", "words") if document[name]]
    yield table(["length", *lengths], [[name, *(f"{document[name][key]:g}" for key in lengths)] for name in measures])
    yield ""
    if document["overlaps"]:
        columns = ["overlap with", "role", "the same problem", "a passage", "of"]
        keys = ("name", "role", "same", "passages", "of")
        yield table(columns, [[str(pair[key]) for key in keys] for pair in document["overlaps"]])
    else:
        yield "overlap: no other data set in the file's folder or the cache; compare with --against NAME|PATH"
    yield from _examples(document)
    yield ""
    for finding in document["findings"]:
        yield f"{'WRONG' if finding['serious'] else 'note '}  {finding['kind']}: {finding['text']}"
    if not document["findings"]:
        yield "no problems found"


def _examples(document: dict[str, Any]) -> Iterator[str]:
    examples = {
        "the same problem": [
            f"row {pair['rows'][0]} and row {pair['rows'][1]} of {overlap['name']}: {pair['similarity']:.2f}, "
            f"{'the same gold' if pair['same_gold'] else 'other golds'}"
            for overlap in document["overlaps"]
            for pair in overlap["pairs"][: overlap["same"]]
        ],
        "near-duplicates": [
            f"rows {pair['rows'][0]} and {pair['rows'][1]}: {pair['similarity']:.2f}, "
            f"{'the same gold' if pair['same_gold'] else 'other golds'}"
            for pair in document["near_duplicates"]
        ],
        "not parsable": [f"row {gold['row']}: {gold['gold']!r}: {gold['status']}" for gold in document["not_parsable"]],
        "whole solutions as golds": [f"row {gold['row']}: {gold['gold'][:60]!r}" for gold in document["solutions"]],
        "contradicting golds": [
            f"row {conflict['row']}: {', '.join(conflict['golds'])}" for conflict in document["conflicts"]
        ],
    }
    for heading, lines in examples.items():
        if lines:
            tail = [f"{len(lines) - SHOWN} more: see --json"] if len(lines) > SHOWN else []
            yield "\n".join(["", heading, *(f"  {line}" for line in lines[:SHOWN] + tail)])
