"""Graders, found by scanning: each module here implements `mcpo_cli.grading.base.Grader`."""
