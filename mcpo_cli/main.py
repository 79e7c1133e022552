"""`mcpo`: the command line, and the one place where errors become messages and exit codes.

Imports stay light here and in `commands`, so that `mcpo --help` does not wait for libraries it does not use.
"""

import os
import re
import shlex
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout, suppress
from typing import Annotated, NoReturn

import typer

from mcpo_cli import __version__, extras, plugins
from mcpo_cli.commands import (
    claim,
    compare,
    components,
    fork,
    models,
    probe,
    reference,
    reproduce,
    runs,
    training,
    verify,
)
from mcpo_cli.commands.output import Output
from mcpo_cli.commands.reply import ErrorStyle
from mcpo_cli.commands.ui import ui
from mcpo_cli.commands.usage import UsageError, as_error
from mcpo_cli.commands.verbs import OverridesCommand, Verbs
from mcpo_cli.errors import UNEXPECTED, ConfigError, McpoError, OutputLost, RunFailed, first_line
from mcpo_cli.redaction import redact, visible

START = """\
mcpo plans, runs and reports experiments with MCPO, its baselines and its ablations.

Begin here:
  mcpo train scale=smoke                   one tiny run through every stage, in seconds
  mcpo train method=dapo,mcpo seed=0,1     four runs, one per core at a time
  mcpo train table1 --dry-run              the runs of Table 1 and their estimated time
  mcpo reproduce table1                    run what is missing, then print Table 1
  mcpo compare table2                      its arms against a baseline, at equal cost
  mcpo reproduce all                       every table and figure, and a report with verdicts
  mcpo probe mastery                       how mastered prompts fare in later steps
  mcpo ui                                  browse the runs in MLflow
  mcpo doctor                              what this machine has and lacks

Results go to ./mcpo-results, or to the folder MCPO_HOME. More: mcpo --help, mcpo train --help
"""

LONGEST_LINE = 2000
"""Largest number of characters per line of a message."""
NO_MEMORY = re.compile(
    r"^.*(failed to map segment|cannot allocate memory|can't start new thread|without setting an exception|"
    r"without exception set).*$",
    re.MULTILINE | re.IGNORECASE,
)
"""Messages when memory runs out: the system's, also when a library cannot be loaded or a thread has no room for its
stack, and the interpreter's when no memory was left even for a MemoryError."""
app = typer.Typer(
    cls=Verbs,
    help="Plan, run and report RLVR experiments: MCPO, its baselines and its ablations.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # importing rich would take most of the time of --help
    context_settings={"help_option_names": ["--help", "-h"]},
)
for verb in (training.train, training.ablate):
    app.command(cls=OverridesCommand, epilog=training.EXAMPLES[verb.__name__])(verb)
app.command(cls=OverridesCommand, epilog=reproduce.EXAMPLES)(reproduce.reproduce)
app.command(epilog=compare.EXAMPLES)(compare.compare)
app.command(epilog=claim.EXAMPLES)(claim.claim)
app.command(cls=OverridesCommand, epilog=probe.EXAMPLES)(probe.probe)
app.add_typer(runs.app, name="runs")
app.command(epilog=models.EVALUATE_SETTINGS)(models.evaluate)
app.command()(models.grade)
app.command()(ui)
app.command(epilog=fork.EXAMPLES)(fork.fork)
app.command(epilog=verify.EXAMPLES)(verify.verify)
app.command()(models.export)
app.add_typer(components.app, name="components")
app.command()(reference.doctor)
app.command("help")(reference.help_)


@app.callback(invoke_without_command=True)
def begin(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    if version:
        sys.stdout.write(f"{__version__}\n")
    elif context.invoked_subcommand is None:
        sys.stdout.write(START)


def main() -> None:
    """Run the command line; ends the process with an exit code of `mcpo_cli.errors`."""
    # Child processes must not import modules from the current folder, which may belong to others.
    os.environ["PYTHONSAFEPATH"] = "1"
    with redirect_stdout(Output(sys.stdout, fails=True)), redirect_stderr(Output(sys.stderr, fails=False)):
        _run(ErrorStyle())


def _run(style: ErrorStyle) -> None:
    try:
        sys.exit(app(obj=style, standalone_mode=False) or 0)
    except OutputLost as error:
        _report(str(error), style)
        sys.exit(error.exit_code)
    except McpoError as error:
        _end(error, style)
    except UsageError as usage:
        if not style.words or usage.message.startswith("Usage: "):  # a family without a verb shows its help
            usage.show()
            sys.exit(usage.exit_code)
        _end(as_error(usage, style.words), style)
    except Exception as error:
        if extra_error := extras.missing(error):
            _end(extra_error, style)
        if sentence := _lack_of_memory(error):
            fix = "the same command where more memory is free, or a smaller file"
            memory_error = RunFailed(f"memory ran out: {sentence}", fix=fix, code="no_memory")
            try:
                _end(memory_error, style)
            finally:  # without the libraries' clean-up, which would run out of memory again
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(memory_error.exit_code)
        if isinstance(error, PermissionError) and error.filename:
            fix = f"ls -ld {shlex.quote(str(error.filename))}  (shows who may use it)"
            _end(ConfigError(f"{error.filename} cannot be used: {error.strerror}", fix=fix), style)
        if plugins.raised_at(error):
            fix = "correct the plug-in, then repeat the command; --debug shows the traceback"
            _end(RunFailed(f"a plug-in failed: {plugins.described(error)}", fix=fix, code="bad_function"), style)
        # A bug of ours: report it without a traceback.
        _report(
            f"{type(error).__name__}: {error}\n  this is a bug in mcpo; rerun with --debug for the traceback", style
        )
        sys.exit(UNEXPECTED)


def _lack_of_memory(error: BaseException | None) -> str:
    """The line that says that memory ran out, of the error or one of its causes; empty if no line says so."""
    while error:
        match = NO_MEMORY.search(str(error))
        if match or isinstance(error, MemoryError):
            return match[0].strip() if match else first_line(error)
        error = error.__cause__ or error.__context__
    return ""


def _end(error: McpoError, style: ErrorStyle) -> NoReturn:
    _report(str(error), style)
    if style.as_json:
        _print_error_document(error)
    sys.exit(error.exit_code)


def _report(message: str, style: ErrorStyle) -> None:
    """Print the current error as a message; with --debug, its traceback first."""
    trace = traceback.format_exc() if style.debug else ""
    # A message quotes the wrong input, which may be somebody else's file.
    lines = (line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}..." for line in message.split("\n"))
    sys.stderr.write(visible(redact(f"{trace}error: " + "\n".join(lines) + "\n")))


def _print_error_document(error: McpoError) -> None:
    from mcpo_cli.commands.console import print_json

    fields = {
        "code": error.code,
        "type": type(error).__name__,
        "message": redact(error.message),
        "fix": error.fix and redact(error.fix),
    }
    # Without stdout, the message on stderr and the exit code must suffice.
    with suppress(OutputLost):
        print_json({**error.data, "error": {**fields, "exit_code": error.exit_code}})


if __name__ == "__main__":
    main()
