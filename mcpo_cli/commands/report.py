"""`mcpo report`: write all tables, figures and verdicts on the paper's claims to one page."""

from mcpo_cli.commands.options import Debug, Json, Overrides


def report(overrides: Overrides = None, as_json: Json = False, debug: Debug = False) -> None:
    """Build everything whose runs are done, and write report.html and report.md. Trains nothing."""
    from mcpo_cli.collector import lasting

    with lasting():
        from mcpo_cli.commands import build_artifacts

    build_artifacts.report(overrides or [], as_json=as_json)
