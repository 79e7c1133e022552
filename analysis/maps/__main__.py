"""Maps: suites of arms over a space of settings, and the rows of their runs. They need a checkout.

    python -m mcpo_study.analysis.maps suite experiments/map/spaces/map.yaml --points 64 > map-64.yaml
    mcpo train map-64.yaml
    python -m mcpo_study.analysis.maps rows experiments/map/spaces/map.yaml --points 64 > rows.csv

`suite` prints a suite with an arm for each arm and point, `rows` a row for each of its runs once they are done. What
the committed maps say is among the effects of `analysis/findings`.
"""

import argparse
import sys
from pathlib import Path

import yaml

from mcpo_cli.errors import McpoError

from . import design, rows


def main() -> None:
    """Print a suite, or the rows of its runs."""
    parser = argparse.ArgumentParser(prog="maps", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("suite", "rows"):
        words = verbs.add_parser(verb)
        words.add_argument("space", type=Path, help="the map: its arms, and the design of its points")
        words.add_argument("--points", type=int, default=0, help="only the first ones")
    args = parser.parse_args()
    space = design.read(args.space)
    if args.verb == "suite":
        yaml.safe_dump(space.suite(args.points), sys.stdout, sort_keys=False, width=1000)
    else:
        rows.values(space, args.points).to_csv(sys.stdout, index=False, float_format="%.10g")


if __name__ == "__main__":
    try:
        main()
    except McpoError as error:
        sys.exit(str(error))
