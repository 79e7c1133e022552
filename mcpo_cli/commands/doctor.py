"""`mcpo doctor`: what this machine has and lacks."""

from mcpo_cli.commands.options import Debug, Json


def doctor(as_json: Json = False, debug: Debug = False) -> None:
    """Check Python, packages, GPUs, verl, store, hub, disk, limits, plug-ins; exit 1 where mcpo cannot train."""
    from dataclasses import asdict

    from mcpo_cli.commands import console
    from mcpo_cli.commands.machine_checks import examine
    from mcpo_cli.errors import Findings

    lines = examine()
    broken = [line for line in lines if line.needed_by == "local" and line.state != "ok"]
    document = {"ok": not broken, "lines": [asdict(line) for line in lines]}
    if not as_json:
        rows = [[line.name, line.needed_by, line.state, line.found, line.fix] for line in lines]
        console.print_table(["", "for", "state", "found", "mended by"], rows)
        lacking = ", ".join(line.name for line in lines if line not in broken and line.state != "ok")
        console.print_text(
            f"\nbackend=verl, the hub or plug-ins lack: {lacking}" if lacking else "\nnothing is missing"
        )
    elif not broken:
        console.print_json(document)
    if broken:
        names = ", ".join(line.name for line in broken)
        raise Findings(f"mcpo cannot train here: {names}", fix=broken[0].fix or None, data=document)
