"""Measures that one study's claims and tables alone use, found by the entry point of `mcpo.probes`."""
