"""The figure of the report's first screen: the headline differences of Table 1, with their intervals."""

from collections.abc import Mapping

from matplotlib.figure import Figure

from mcpo_cli.compare.comparison import Comparison, Question, records
from mcpo_cli.compare.equal_cost import UNITS
from mcpo_cli.compare.runs import of_runs
from mcpo_cli.measures.frames import Runs
from mcpo_cli.render.figures import base
from mcpo_cli.render.product import SUMMARY, Artifact, Product

from .declare import titled

SUITE = "table1"
TITLE = "MCPO against DAPO at a glance"
ROW, FRAME = 0.34, 0.65
"""Height of a row and of the figure's frame, in inches."""
NOTES = (
    "Points: mean over seeds of the arm's average pass@1 minus the baseline's, paired by seed. Bars: 95% t-interval; "
    "there is none for fewer than three seeds. Open points: p is above .05.",
)


def build(data: Mapping[str, Runs]) -> Product:
    """One row per model, arm and axis of cost: the difference of the average pass@1 to the baseline's."""
    runs = data[SUITE]
    compared = of_runs(runs, Question())
    columns = ["model", "arm", "at", "metric", "difference", "low", "high", "seeds"]
    frame = compared.headline[columns]
    title = titled(TITLE, runs)
    return Product(title, _sentence(compared), frame, notes=NOTES, figure=_figure(compared))


def _sentence(compared: Comparison) -> str:
    """One line: each arm's words with the costs at which they hold, and arms that end below the base policies."""
    costs_of: dict[str, dict[str, None]] = {}
    for row in records(compared.headline):
        sentence = f"{row['arm']} {compared.trained.in_words(row, compared.baseline)}"
        costs_of.setdefault(sentence, {})[f"equal {UNITS[row['at']]}"] = None
    parts = "; ".join(f"{sentence} at {' and '.join(costs)}" for sentence, costs in costs_of.items())
    gains = records(compared.trained.gains, at=compared.axes[0], metric=compared.metric)
    below = " and ".join(f"{row['arm']} on {row['model']}" for row in gains if row["mark"])
    return f"{parts}." + (f" {below} end below where they started." if below else "")


def _figure(compared: Comparison) -> Figure:
    """A row for each difference, the first on top."""
    looks, rows = base.looks(compared.names), list(enumerate(reversed(records(compared.headline))))
    with base.drawing():
        figure, (axes,) = base.canvas(height=FRAME + ROW * len(rows))
        axes.axvline(0, color=base.GREY, linewidth=0.9)
        for row, entry in rows:
            look = looks[entry["arm"]]
            fill = "white" if entry["verdict"] == "undecided" else look.color
            axes.errorbar(
                [entry["difference"]],
                [row],
                xerr=[entry["high"] - entry["difference"]],
                fmt=look.marker,
                color=look.color,
                markerfacecolor=fill,
                markersize=6,
            )
        axes.set_yticks(
            [row for row, _ in rows],
            [f"{entry['arm']}, {entry['model']},\nequal {UNITS[entry['at']]}" for _, entry in rows],
        )
        axes.margins(y=0.5 / len(rows))
        for fill, meaning in ((base.GREY, "p is below .05"), ("white", "undecided")):
            axes.plot([], [], "s", color=base.GREY, markerfacecolor=fill, label=meaning)
        base.legend(figure)
        axes.set_xlabel(f"{compared.metric} minus that of {compared.baseline} (share)\nbars: 95 % interval")
        axes.locator_params(axis="x", nbins=6)
    return figure


ARTIFACT = Artifact("overview", TITLE, SUMMARY, (SUITE,), build, failed_too=True)
