"""Long tables as aligned text."""

from mcpo_cli.render.markup import Grid, aligned


def test_columns_are_as_wide_as_their_widest_cell_and_numbers_end_together() -> None:
    grid = Grid("", ("run", "arm", "score"), (("é", "mcpo lr=0.1", ".5"), ("日本", "dapo", "10.25")), labels=2)
    assert list(aligned(grid)) == [
        "run   arm          score",
        "é     mcpo lr=0.1     .5",
        "日本  dapo         10.25",
    ]
