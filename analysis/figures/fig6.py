"""Figure 6 of the paper: the entropy of the policy under DAPO and MCPO."""

from mcpo_cli.analysis.figures.metric import Metric, metric_figure

ENTROPY = Metric("train/entropy", "entropy", "the policy's entropy", "entropy (nats a token)", "nats")
NOTES = (
    "Mean over the tokens of a global step's rollouts; with backend=verl of the groups that enter the batch alone, "
    "so that a method that filters is shown on other prompts than one that does not.",
    "The paper shades an optimal zone and gives no bounds of it: it is not drawn.",
)
ARTIFACT = metric_figure("fig6", "Policy entropy", ENTROPY, notes=NOTES)
