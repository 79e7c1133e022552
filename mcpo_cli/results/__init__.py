"""Graded samples of any tool, as sides that can be compared: `mcpo compare lm-eval-folder other-folder`."""
