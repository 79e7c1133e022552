"""Tables 1 and 2 of the paper, with its published numbers beside those that were measured."""

from mcpo_cli.analysis.tables.comparison import comparison

from .published import paper

ARTIFACTS = tuple(
    comparison(suite, paper=paper(), place=place) for suite, place in {"table1": "Table 1", "table2": "Table 2"}.items()
)
