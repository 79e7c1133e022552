"""`mcpo train`: train one run, or a sweep."""

from mcpo_cli.commands.options import Debug, DryRun, Json, Overrides, Verbose


def train(
    overrides: Overrides = None,
    dry_run: DryRun = False,
    verbose: Verbose = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Train one run, or a sweep. Completed runs are skipped, unfinished ones continue."""
    from mcpo_cli.commands.start_runs import execute
    from mcpo_cli.config import plan

    execute(plan.from_overrides(overrides or []), dry=dry_run, verbose=verbose, as_json=as_json)
