"""Figure 2a of the paper: the share of mastered prompts under DAPO without its filter."""

from mcpo_cli.analysis.figures import base
from mcpo_cli.analysis.figures.fig5a import MASTERED
from mcpo_cli.analysis.figures.metric import metric_figure

PUBLISHED: float = base.published("figure2a")["rises_to"]
ARTIFACT = metric_figure("fig2a", "Mastered prompts under DAPO", MASTERED, suite="mastery", published=PUBLISHED)
