"""The answer of a verb: a document for programs and a page for people. `verb` prints the requested one."""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Union

import typer

from mcpo_cli.errors import McpoError

if TYPE_CHECKING:
    from mcpo_cli.render.markup import Grid

Part = Union[str, "Grid", Callable[[], object]]
"""Part of a page: text, a table, or a function that prints."""


@dataclass(frozen=True)
class Reply:
    """The answer of a verb."""

    document: Mapping[str, Any]
    """The output of `--json`."""
    page: str | Iterable[Part] = ()
    """The output without `--json`, part by part."""
    error: McpoError | None = None
    """The error that ends the verb once the page is printed; with `--json`, the document has it, too."""


@dataclass
class ErrorStyle:
    """The way in which `main` shows an error; the options set it through the parser's context."""

    as_json: bool = False
    """Also print one JSON document on stdout."""
    debug: bool = False
    """Print the traceback."""
    words: tuple[str, ...] = ()
    """The words of the command after `mcpo`."""


def _set_style(ctx: typer.Context, param: typer.CallbackParam, value: bool) -> bool:
    setattr(ctx.ensure_object(ErrorStyle), str(param.name), value)
    return value


def json_option(keys: str) -> Any:
    """The option `--json` of a verb whose document has these keys."""
    text = f"Print one JSON document on stdout; its keys: schema_version, {keys}."
    return typer.Option("--json", help=text, callback=_set_style, is_eager=True)


Debug = Annotated[
    bool, typer.Option("--debug", help="Print the traceback of an error.", callback=_set_style, is_eager=True)
]


def verb(keys: str) -> Callable[[Callable[..., Reply]], Callable[..., None]]:
    """Decorates a function that answers: its command has the options `--json` and `--debug`, and prints the reply.

    keys: the keys of the reply's document, for the help of `--json`.
    """
    options = tuple(
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=annotation)
        for name, annotation in (("as_json", Annotated[bool, json_option(keys)]), ("debug", Debug))
    )

    def decorated(answer: Callable[..., Reply]) -> Callable[..., None]:
        signature = inspect.signature(answer, eval_str=True)

        @functools.wraps(answer)
        def command(*, as_json: bool, debug: bool, **arguments: Any) -> None:
            _print(answer(**arguments), as_json=as_json)

        parameters = (*signature.parameters.values(), *options)
        command.__signature__ = signature.replace(parameters=parameters, return_annotation=None)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return command

    return decorated


def _print(reply: Reply, *, as_json: bool) -> None:
    if not as_json:
        show(reply.page)
    if reply.error:
        reply.error.data = reply.document
        raise reply.error
    if as_json:
        from mcpo_cli.commands import console

        console.print_json(reply.document)


def show(page: str | Iterable[Part]) -> None:
    """Print a page on stdout."""
    from mcpo_cli.commands import console

    for part in [page] if isinstance(page, str) else page:
        if isinstance(part, str):
            console.print_text(part)
        elif callable(part):
            part()
        else:
            console.print_grid(part)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> "Grid":
    """A table of names and texts, without a title."""
    from mcpo_cli.render.markup import Grid

    return Grid("", columns, list(rows), labels=len(columns))
