"""Sections of the report with what the runs of the paper's suites show."""

PAPER = "Tables and figures of the paper"
BEYOND = "Beyond the paper"
SAMPLES = "Samples"


def place(name: str) -> str:
    """The paper's name of the figure `name`: `Figure 2a` of `fig2a`; empty if the paper has no such figure."""
    return f"Figure {name.removeprefix('fig')}" if name.startswith("fig") else ""
