"""Tables 1 and 2 of the paper, its figures, and what else the runs of their suites show."""

from . import rollouts, settings, tables
from .figures import curves, mastery, overview, prompts, weights

ARTIFACTS = (
    *tables.ARTIFACTS,
    overview.ARTIFACT,
    settings.ARTIFACT,
    *curves.ARTIFACTS,
    *mastery.ARTIFACTS,
    *prompts.ARTIFACTS,
    *weights.ARTIFACTS,
    rollouts.ARTIFACT,
)
