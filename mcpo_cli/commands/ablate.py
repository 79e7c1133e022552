"""`mcpo ablate`: each component of MCPO taken away."""

from mcpo_cli.commands.options import Debug, DryRun, Json, Overrides


def ablate(overrides: Overrides = None, dry_run: DryRun = False, as_json: Json = False, debug: Debug = False) -> None:
    """Train MCPO, MCPO without hinge-KL, without reweighting, and DAPO, over seeds (suite table2)."""
    from mcpo_cli import plan
    from mcpo_cli.commands.execute import execute

    execute(plan.from_suite("table2", overrides or [], "mcpo ablate"), dry_run=dry_run, as_json=as_json)
