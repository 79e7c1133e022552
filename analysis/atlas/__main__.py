"""The atlas: how far methods' gradients are from that of expected accuracy. It trains nothing.

    python -m mcpo_study.analysis.atlas rows method=grpo,rloo > rows.csv
    python -m mcpo_study.analysis.atlas rows methods-baselines > rows.csv
    python -m mcpo_study.analysis.atlas draw experiments/atlas/results/atlas.csv

`rows` prints the rows of all methods, or of the arms of settings or a suite; `draw` prints their table and writes
`atlas.png`.
"""

import argparse
import sys
from pathlib import Path

import pandas as pd

from mcpo_cli.config import plan
from mcpo_cli.errors import McpoError
from mcpo_cli.methods import registry
from mcpo_cli.render import markup

from . import conditions, tables


def main() -> None:
    """Print the rows of methods, or the table of such rows."""
    parser = argparse.ArgumentParser(prog="atlas", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("rows").add_argument("words", nargs="*", help="a suite, settings, or both; by default all methods")
    verbs.add_parser("draw").add_argument("csv", type=Path, help="what `rows` printed")
    args = parser.parse_args()
    if args.verb == "rows":
        of_arms = [row for arm, run in _arms(args.words).items() for row in _rows(arm, run)]
        pd.DataFrame(of_arms, columns=list(tables.COLUMNS)).to_csv(
            sys.stdout, index=False, na_rep="nan", float_format="%.6g"
        )
        return
    rows = pd.read_csv(args.csv, keep_default_na=False, na_values=["nan"])
    result = tables.product("Estimates of the gradient of expected accuracy", rows)
    assert result.figure
    result.figure.savefig("atlas.png")
    print(result.sentence, *(f"{grid.title}\n{markup.pipes(grid)}" for grid in result.grids), *result.notes, sep="\n\n")


def _arms(words: list[str]) -> dict[str, plan.PlannedRun]:
    """A run of each arm that the words name: seeds have no effect."""
    suite, settings = plan.split_suite(words)
    if not words:
        # Penalties on length are not part of accuracy; an odd number of rollouts, as some methods have a pivot.
        settings = ["train.overlong_cache=0", "train.rollouts=17", f"method={','.join(registry())}"]
    suite_plan = plan.from_suite(suite, settings, "") if suite else plan.from_overrides(settings)
    return {run.arm: run for run in reversed(suite_plan.runs)}


def _rows(arm: str, run: plan.PlannedRun) -> list[dict[str, object]]:
    print(arm, file=sys.stderr)
    return conditions.rows(arm, run.spec.method, run.spec.train)


if __name__ == "__main__":
    try:
        main()
    except McpoError as error:
        sys.exit(str(error))
