"""`mcpo report`: every table and figure whose runs are done, verdicts on the paper's claims, on one page."""

from mcpo_cli.commands.options import Debug, Json, Overrides


def report(overrides: Overrides = None, as_json: Json = False, debug: Debug = False) -> None:
    """Build everything from the runs that are done and write report.html and report.md. Trains nothing."""
    from mcpo_cli.commands import build_artifacts

    build_artifacts.report(overrides or [], as_json=as_json)
