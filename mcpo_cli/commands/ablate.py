"""`mcpo ablate`: train a method with its components removed or changed one at a time."""

from mcpo_cli.commands.options import Debug, DryRun, Json, SuiteOverrides


def ablate(
    overrides: SuiteOverrides = None, dry_run: DryRun = False, as_json: Json = False, debug: Debug = False
) -> None:
    """Train all arms of a suite. Default: table2 (MCPO, MCPO without hinge-KL, without reweighting, DAPO)."""
    from mcpo_cli.commands.start_runs import execute
    from mcpo_cli.config import plan

    suite, rest = plan.split_suite(overrides or [])
    command = f"mcpo ablate {suite}".strip()
    execute(plan.from_suite(suite or "table2", rest, command), dry_run=dry_run, as_json=as_json)
