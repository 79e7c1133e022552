"""Figure 5a of the paper: the share of mastered prompts under DAPO and MCPO."""

from mcpo_cli.analysis.figures.metric import Metric, metric_figure

MASTERED = Metric("mastery/mastered", "share", "the share of mastered prompts", "mastered prompts")
ARTIFACT = metric_figure("fig5a", "Mastered prompts", MASTERED)
