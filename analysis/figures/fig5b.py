"""Figure 5b of the paper: the share of all-wrong prompts under DAPO and MCPO."""

from mcpo_cli.analysis.figures.metric import Metric, metric_figure

ALL_WRONG = Metric("mastery/all_wrong", "share", "the share of all-wrong prompts", "all-wrong prompts")
ARTIFACT = metric_figure("fig5b", "All-wrong prompts", ALL_WRONG)
