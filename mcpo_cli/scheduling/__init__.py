"""Starts and follows the runs of a plan: worker processes, SLURM jobs, limits, estimates, progress."""
