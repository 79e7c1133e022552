"""Forgetting by component of MCPO, and how much of the drop of mastered prompts is selection."""

from . import figures, tables

ARTIFACTS = (tables.ARTIFACT, *figures.ARTIFACTS)
