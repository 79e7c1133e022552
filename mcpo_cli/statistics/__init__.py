"""Estimates, intervals and curves computed from arrays. Nothing here reads files or knows about runs."""
