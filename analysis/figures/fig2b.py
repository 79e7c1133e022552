"""Figure 2b of the paper, with the control it lacks: mastered prompts one step later under DAPO without its filter."""

from mcpo_cli.analysis.figures import base
from mcpo_cli.analysis.figures.next_step import next_step_figure

PUBLISHED: float = base.published("figure2b")["falls_to"]
ARTIFACT = next_step_figure(
    "fig2b", "Mastered prompts rolled again under DAPO", "mastery", estimate=True, published=PUBLISHED
)
