"""Pure numbers: estimates, intervals and curves from arrays. Nothing here reads a file or knows of a run."""
