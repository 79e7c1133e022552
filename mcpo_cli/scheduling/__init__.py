"""Starting and following the runs of a plan: workers, jobs, limits, estimates, progress."""
