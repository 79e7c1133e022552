"""Figure 5a of the paper: the share of mastered prompts under DAPO and MCPO."""

from mcpo_cli.analysis.figures.shares import share_figure

ARTIFACT = share_figure("fig5a", "Figure 5a", "mastery/mastered", "Mastered prompts", "mastered")
