LEFT_OUT = "MCPO_TESTS_LEFT_OUT"
"""An environment variable of runs: installed packages that verl's processes do without, separated by commas.

verl and transformers import some packages wherever they are installed, used or not: a third of the 11 seconds of
processor time in which each of a run's eight processes starts.
"""
