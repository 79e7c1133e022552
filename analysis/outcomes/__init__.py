"""Outcomes of the suites on retention, on opposite weights and on whole runs of SmolLM2-135M."""

from . import tables

ARTIFACTS = tables.ARTIFACTS
