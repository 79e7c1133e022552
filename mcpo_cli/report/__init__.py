"""Tables, figures and the report of runs: which there are, built where they are stale."""
