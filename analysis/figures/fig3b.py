"""Figure 3b of the paper: the weight of a prompt under GRPO and DAPO."""

from mcpo_cli.analysis.figures.query_weights import weight_figure

ARTIFACT = weight_figure("fig3b", "Query weight without reweighting", reweighted=False)
