"""`mcpo`: the command line, and the one place where errors become messages and exit codes.

Imports stay light here and in `commands`, so that `mcpo --help` does not wait for libraries it does not use.
"""

import os
import sys
import traceback
from contextlib import suppress
from typing import Annotated, Any

import typer

from mcpo_cli import __version__
from mcpo_cli.commands import data, method, model, runs
from mcpo_cli.commands.ablate import ablate
from mcpo_cli.commands.branch import EPILOG as BRANCH_EXAMPLES
from mcpo_cli.commands.branch import branch
from mcpo_cli.commands.compare import EPILOG as COMPARE_EXAMPLES
from mcpo_cli.commands.compare import compare
from mcpo_cli.commands.doctor import doctor
from mcpo_cli.commands.evaluate import EPILOG, evaluate
from mcpo_cli.commands.export import export
from mcpo_cli.commands.grade import grade
from mcpo_cli.commands.help import help_
from mcpo_cli.commands.options import ErrorStyle, OverridesCommand, Verbs
from mcpo_cli.commands.plan import plan
from mcpo_cli.commands.probe import probe
from mcpo_cli.commands.report import report
from mcpo_cli.commands.reproduce import reproduce
from mcpo_cli.commands.schema import EPILOG as SCHEMA_EXAMPLES
from mcpo_cli.commands.schema import schema
from mcpo_cli.commands.standard_files import standard_files, visible
from mcpo_cli.commands.train import train
from mcpo_cli.commands.ui import ui
from mcpo_cli.errors import UNEXPECTED, ConfigError, McpoError, OutputLost
from mcpo_cli.redaction import redact

START = """\
mcpo plans, runs and reports experiments with MCPO, its baselines and its ablations.

Begin here:
  mcpo train scale=smoke                   one tiny run through every stage, in seconds
  mcpo train method=dapo,mcpo seed=0,1     four runs, one per core at a time
  mcpo plan table1                         the runs of Table 1 and their estimated time
  mcpo reproduce table1                    run what is missing, then print Table 1
  mcpo compare table2                      its arms against a baseline, at equal cost
  mcpo reproduce all                       every table and figure, and a report with verdicts
  mcpo probe mastery                       how mastered prompts fare in later steps
  mcpo ui                                  browse the runs in MLflow
  mcpo doctor                              what this machine has and lacks

Results go to MCPO_HOME (default: the current folder). More: mcpo --help, mcpo train --help
"""

UsageError: type[Any] = typer.BadParameter.__mro__[1]
"""The base class of usage errors in the click that typer bundles; typer does not export it."""
app = typer.Typer(
    cls=Verbs,
    help="Plan, run and report RLVR experiments: MCPO, its baselines and its ablations.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)
for verb in (train, ablate, plan, probe, reproduce, report):
    app.command(cls=OverridesCommand)(verb)
app.command(epilog=COMPARE_EXAMPLES)(compare)
app.command(epilog=BRANCH_EXAMPLES)(branch)
app.command(epilog=EPILOG)(evaluate)
app.command()(grade)
app.command()(export)
app.add_typer(runs.app, name="runs")
app.add_typer(data.app, name="data")
app.add_typer(method.app, name="method")
app.add_typer(model.app, name="model")
app.command()(ui)
app.command()(doctor)
app.command(epilog=SCHEMA_EXAMPLES)(schema)
app.command("help")(help_)


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
    # No process that this one starts imports a module from the current folder, which may be anybody's.
    os.environ["PYTHONSAFEPATH"] = "1"
    with standard_files():
        _run(ErrorStyle())


def _run(style: ErrorStyle) -> None:
    try:
        app(obj=style)
    except OutputLost as error:
        _report(str(error), style)
        sys.exit(error.exit_code)
    except McpoError as error:
        _report(str(error), style)
        if style.as_json:
            _print_error_document(error)
        sys.exit(error.exit_code)
    except SystemExit as end:
        # Typer has printed a usage error and exits while handling it.
        usage: Any = end.__context__
        if style.as_json and isinstance(usage, UsageError):
            _print_error_document(ConfigError(usage.format_message(), fix=f"{usage.ctx.command_path} --help"))
        raise
    except Exception as error:  # a bug of ours: report it without a traceback
        _report(
            f"{type(error).__name__}: {error}\n  this is a bug in mcpo; rerun with --debug for the traceback", style
        )
        sys.exit(UNEXPECTED)


def _report(message: str, style: ErrorStyle) -> None:
    """Print the current error as a message; with --debug, its traceback first."""
    shown = traceback.format_exc() if style.debug else ""
    sys.stderr.write(visible(redact(f"{shown}error: {message}\n")))


def _print_error_document(error: McpoError) -> None:
    from mcpo_cli.commands.console import print_json

    about = {
        "code": error.code,
        "type": type(error).__name__,
        "message": redact(error.message),
        "fix": error.fix and redact(error.fix),
    }
    # Without stdout, the message on stderr and the exit code have to do.
    with suppress(OutputLost):
        print_json({**error.data, "error": {**about, "exit_code": error.exit_code}})


if __name__ == "__main__":
    main()
