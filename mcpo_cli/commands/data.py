"""`mcpo data`: list data sets and audit their contents."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mcpo_cli.commands.verbs import Debug, Family, Json, starting_with
from mcpo_cli.errors import ConfigError, Findings, mend

if TYPE_CHECKING:
    from mcpo_cli.data.base import Dataset

app = typer.Typer(cls=Family, help="List and audit data sets.", no_args_is_help=True)
SHOWN = 10
"""Most findings per kind in the text report; `--json` has all."""
FIX = "correct the file where the report says WRONG"


def complete_names(incomplete: str) -> list[str]:
    """Names of the declared data sets."""
    from mcpo_cli import data

    return starting_with(incomplete, data.names())


Target = Annotated[
    str, typer.Argument(metavar="NAME|PATH", help="A data set, or a local file.", autocompletion=complete_names)
]
As = Annotated[
    str | None,
    typer.Option("--as", help="The declared data set that PATH is a copy of.", autocompletion=complete_names),
]
Against = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME|PATH|NAME=PATH",
        help="Data set to compare with; repeatable. Default: those in PATH's folder or in the Hugging Face cache.",
        autocompletion=complete_names,
    ),
]


@app.command("list")
def list_data(as_json: Json = False, debug: Debug = False) -> None:
    """List the declared data sets."""
    from mcpo_cli import data
    from mcpo_cli.commands import console

    rows = [
        {
            "name": dataset.name,
            "role": dataset.role,
            "problems": dataset.size,
            "licence": dataset.licence,
            "source": dataset.origin.removeprefix("hub:"),
            "title": dataset.title,
        }
        for dataset in data.registry().values()
    ]
    columns = {key: key for key in ("name", "role", "problems", "licence", "source")}
    console.print_list("datasets", rows, columns, as_json=as_json)


@app.command("audit")
def audit_data(
    target: Target, as_name: As = None, against: Against = None, as_json: Json = False, debug: Debug = False
) -> None:
    """Count a data set's rows, copies, gold answers and overlaps; exit 1 if metrics measured on it would be wrong."""
    from mcpo_cli import data
    from mcpo_cli.commands import console
    from mcpo_cli.data.audit import audit

    dataset, path = (data.get(as_name), Path(target)) if as_name else _source(target)
    if dataset.draw:
        raise ConfigError(f"{dataset.name} is generated, each problem once: no file to audit", fix="mcpo data list")
    reading = data.read(dataset, path)
    chosen = [_source(other) for other in against] if against else _reachable(dataset, path)
    others = [(other, data.read(other, file)) for other, file in chosen]
    document = audit(dataset, reading, others, _self_grade, console.talk)
    serious = [finding for finding in document["findings"] if finding["serious"]]
    if not as_json:
        _print(document)
    elif not serious:
        console.print_json(document)
    if serious:
        kinds = ", ".join(dict.fromkeys(finding["kind"] for finding in serious))
        raise Findings(f"{dataset.name}: metrics measured on it would be wrong: {kinds}", fix=FIX, data=document)


def _source(given: str) -> tuple["Dataset", Path | None]:
    """The data set and the file meant by `NAME`, `PATH` or `NAME=PATH`; a PATH's data set is guessed from its name."""
    from mcpo_cli import data, paths

    path = paths.named(given)
    if not path.exists():
        name, equals, file = given.partition("=")
        if equals:
            try:
                return data.get(name), paths.named(file)
            except ConfigError as error:
                fix = mend(f"{{}}={file}", name, data.registry(), f"{file}  (without NAME=, a file of yours)")
                raise ConfigError(f"{given}: {error.message}", fix=fix, code=error.code) from error
        if path.name == given and not path.suffix:
            return data.get(given), None
    stem = path.name.partition(".")[0]
    return (data.get(stem) if stem in data.names() else data.unnamed(stem)), path


def _reachable(dataset: "Dataset", path: Path | None) -> list[tuple["Dataset", Path | None]]:
    """Other data sets in the folder of `path` or in the cache; nothing is downloaded for a comparison."""
    from mcpo_cli import data
    from mcpo_cli.data import files

    reachable: list[tuple[Dataset, Path | None]] = []
    folder = path if path is None or path.is_dir() else path.parent
    for other in data.registry().values():
        beside = files.inside(folder, other.name) if folder else []
        if other.name != dataset.name and (beside or files.cached(other)):
            reachable.append((other, beside[0] if beside else None))
    return reachable


def _self_grade(golds: Sequence[str]) -> list[str]:
    from mcpo_cli.grading import Pool

    with Pool() as pool:
        return [verdict.status for verdict in pool.grade(((gold, gold) for gold in golds), extracted=True)]


def _print(document: dict[str, Any]) -> None:
    from mcpo_cli.commands import console
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
    console.print_text("\n".join([document["name"], *(f"  {label:<17}{fact}" for label, fact in facts.items())]))
    console.print_text("")
    lengths = ["min", "median", "p95", "max"]
    measures = [name for name in ("characters", "words") if document[name]]
    console.print_table(
        ["length", *lengths], [[name, *(f"{document[name][key]:g}" for key in lengths)] for name in measures]
    )
    console.print_text("")
    if document["overlaps"]:
        columns = ["overlap with", "role", "the same problem", "a passage", "of"]
        rows = [[str(pair[key]) for key in ("name", "role", "same", "passages", "of")] for pair in document["overlaps"]]
        console.print_table(columns, rows)
    else:
        console.print_text(
            "overlap: no other data set in the file's folder or the cache; compare with --against NAME|PATH"
        )
    _print_examples(document)
    console.print_text("")
    for finding in document["findings"]:
        console.print_text(f"{'WRONG' if finding['serious'] else 'note '}  {finding['kind']}: {finding['text']}")
    if not document["findings"]:
        console.print_text("no problems found")


def _print_examples(document: dict[str, Any]) -> None:
    from mcpo_cli.commands import console

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
        "contradicting golds": [
            f"row {conflict['row']}: {', '.join(conflict['golds'])}" for conflict in document["conflicts"]
        ],
    }
    for heading, lines in examples.items():
        if lines:
            more = [f"{len(lines) - SHOWN} more: see --json"] if len(lines) > SHOWN else []
            console.print_text("\n".join(["", heading, *(f"  {line}" for line in lines[:SHOWN] + more)]))
