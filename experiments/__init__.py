"""One folder per study; the wheel ships the suites of the paper's tables and figures as data."""
