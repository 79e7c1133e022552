"""`mcpo plan`: what would run."""

from mcpo_cli.commands.options import Debug, Json, PlanOverrides


def plan(overrides: PlanOverrides = None, as_json: Json = False, debug: Debug = False) -> None:
    """Show the runs of a suite, or of a train command: ids, states, estimated time. Starts nothing."""
    from mcpo_cli import plan as plans
    from mcpo_cli.commands.execute import show_plan

    words = overrides or []
    if words and "=" not in words[0]:
        suite, *rest = words
        show_plan(plans.from_suite(suite, rest, f"mcpo reproduce {suite}"), as_json=as_json)
    else:
        show_plan(plans.from_overrides(words), as_json=as_json)
