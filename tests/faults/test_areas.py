"""Numbers of attacks of each kind: those in docs/reliability.md equal those in the tables of the tests."""

import re
from pathlib import Path

from tests import hostile
from tests.cli import test_named_paths
from tests.faults import (
    test_attacks,
    test_extremes,
    test_foreign_files,
    test_foreign_models,
    test_kills,
    test_postgres,
    test_secrets,
    test_sharing,
    test_surroundings,
    test_ui_gate,
)
from tests.faults.attacks import AREAS, ODD
from tests.unit import test_bundle

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"


def counts() -> dict[str, int]:
    """Number of cases by area."""
    files, models = test_foreign_files, test_foreign_models
    sent = {area: sum(attack.count for attack in attacks.values()) for area, attacks in AREAS.items()}
    return {
        "logs of other tools": sent["logs"],
        "answers to be graded, and gradings": sent["grading"] + len(files.GRADINGS) + len(hostile.ANSWERS),
        "suites and claims in YAML": sent["YAML"],
        "data": sent["data"],
        "models": len(models.MODELS) + len(models.HEADERS),
        "records of runs, and bundles of them": sum(
            map(len, (files.RECORDS, files.OUTSIDE, test_bundle.RECORDS, test_bundle.NAMES, test_bundle.FILES))
        ),
        "plug-ins": len(files.PLUGINS),
        "names that lead elsewhere, or that no file can have": 3 * len(files.VERBS) + 2 * len(test_named_paths.VERBS),
        "what a report says of where its runs were trained": len(test_attacks.RECORDED) * len(ODD),
        "requests to `mcpo ui`": len(test_ui_gate.REFUSED),
        "texts with secrets": sum(map(len, (test_secrets.SETTINGS, test_secrets.CASES, test_secrets.SLOW))),
        "clocks that are wrong": len(test_extremes.CLOCKS) * (len(test_extremes.COMMANDS) + 1),
        "little memory": len(test_surroundings.MEMORY),
        "PostgreSQL": len(test_postgres.INJURIES),
        "commands on a run that goes on": len(test_sharing.MEANWHILE),
        "signals at runs and their schedulers": sum(test_kills.MOMENTS.values()) + 2 * len(test_kills.SIGNALS),
    }


def test_the_page_says_how_many() -> None:
    found = {name: int(number) for name, number in re.findall(r"^\| (.+) \| (\d+) \|$", PAGE.read_text(), re.MULTILINE)}
    found.pop("all", None)
    table = "\n".join(f"| {name} | {number} |" for name, number in counts().items())
    assert found == counts(), f"the table of the page is now:\n{table}"
