"""Figure 5b of the paper: the share of all-wrong prompts under DAPO and MCPO."""

from mcpo_cli.analysis.figures.shares import share_figure

ARTIFACT = share_figure("fig5b", "Figure 5b", "mastery/all_wrong", "All-wrong prompts", "all wrong")
