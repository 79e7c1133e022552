"""Graded samples of any tool as sides of a comparison: `mcpo compare lm-eval-folder other-folder`."""
