"""Graders: one file each, found by scanning; each module is a `mcpo_cli.grading.base.Grader`."""
