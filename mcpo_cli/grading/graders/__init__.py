"""Graders: one file each; each module is a `mcpo_cli.grading.base.Grader`."""
