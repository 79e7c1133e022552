"""Figure 4 of the paper: the weight of a prompt under MCPO."""

from mcpo_cli.analysis.figures.query_weights import weight_figure

ARTIFACT = weight_figure("fig4", "Query weight with reweighting", reweighted=True)
