"""Effective sample size: to how many rollouts of equal weight the batch of a global step amounts."""

from mcpo_cli.analysis.figures.metric import Metric, metric_figure

KISH = Metric(
    "weight/effective_sample", "rollouts", "the effective sample size", "effective rollouts", "rollouts", digits=0
)
NOTES = (
    "Kish's effective number of rollouts, (sum |A|)^2 / sum A^2 over the advantages A that a global step trains on. "
    "Rollouts with the advantage 0 do not count.",
)
ARTIFACT = metric_figure(
    "effective-sample", "Effective sample size", KISH, suite="table2", section="beyond", notes=NOTES
)
