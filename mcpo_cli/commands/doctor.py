"""`mcpo doctor`: check what this machine provides and what it lacks."""

from mcpo_cli.commands.options import Debug, Json


def doctor(as_json: Json = False, debug: Debug = False) -> None:
    """Check Python, packages, GPUs, verl, MLflow store, hub, disk, limits, plug-ins; exit 1 if mcpo cannot train."""
    from dataclasses import asdict

    from mcpo_cli.commands import console
    from mcpo_cli.commands.machine_checks import examine
    from mcpo_cli.errors import Findings

    lines = examine()
    broken = [line for line in lines if line.needed_by == "local" and line.state != "ok"]
    document = {"ok": not broken, "lines": [asdict(line) for line in lines]}
    if not as_json:
        rows = [[line.name, line.needed_by, line.state, line.found, line.fix] for line in lines]
        console.print_table(["", "for", "state", "found", "fix"], rows)
        lacking = ", ".join(line.name for line in lines if line not in broken and line.state != "ok")
        where = "backend=verl, the hub or plug-ins"
        console.print_text(f"\nmissing for {where}: {lacking}" if lacking else "\nnothing is missing")
    elif not broken:
        console.print_json(document)
    if broken:
        names = ", ".join(line.name for line in broken)
        raise Findings(f"mcpo cannot train here: {names}", fix=broken[0].fix or None, data=document)
