"""Maps: what arms add to a baseline over a space of settings. It needs scikit-learn, and a checkout.

    python -m mcpo_study.analysis.maps suite experiments/map/spaces/map.yaml --points 64 > map-64.yaml
    mcpo train map-64.yaml
    python -m mcpo_study.analysis.maps rows experiments/map/spaces/map.yaml --points 64 > rows.csv
    python -m mcpo_study.analysis.maps draw experiments/map/spaces/map.yaml experiments/map/results/map.csv

`suite` prints a suite with an arm for each arm and point, `rows` a row for each of its runs once they are done, and
`draw` writes `map.png` and prints the tables of such rows.
"""

import argparse
import sys
from pathlib import Path

import pandas as pd
import yaml

from mcpo_cli.errors import McpoError
from mcpo_cli.render import markup

from . import design, response


def main() -> None:
    """Print a suite, the rows of its runs, or the tables of such rows."""
    parser = argparse.ArgumentParser(prog="maps", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("suite", "rows", "draw"):
        words = verbs.add_parser(verb)
        words.add_argument("space", type=Path, help="the map: its arms, and the design of its points")
        if verb == "draw":
            words.add_argument("rows", type=Path, help="CSV of `rows`")
        else:
            words.add_argument("--points", type=int, default=0, help="only the first ones")
    given = parser.parse_args()
    space = design.read(given.space)
    if given.verb == "suite":
        yaml.safe_dump(space.suite(given.points), sys.stdout, sort_keys=False, width=1000)
    elif given.verb == "rows":
        response.values(space, given.points).to_csv(sys.stdout, index=False, float_format="%.10g")
    else:
        drawn = response.product(space, pd.read_csv(given.rows))
        assert drawn.figure
        drawn.figure.savefig("map.png")
        print(
            drawn.sentence, *(f"{grid.title}\n{markup.pipes(grid)}" for grid in drawn.grids), *drawn.notes, sep="\n\n"
        )


if __name__ == "__main__":
    try:
        main()
    except McpoError as error:
        sys.exit(str(error))
