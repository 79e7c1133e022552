"""Tables, figures and the report of runs: their list, and their builder, which builds what is stale."""
