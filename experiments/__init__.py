"""Configurations, suites and the paper's published numbers, shipped with the package as data."""
