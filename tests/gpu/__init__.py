"""`make gpu-check`: checks backend=verl and the local engine on a machine with one GPU, in seven parts.

`parts/` has one module per part; each part computes in a separate process (`process.py`), so that a killed part does
not lose the figures of others. `conftest.py` collects them into a report (`report.py`). With `--rehearse` the same
parts run at tiny sizes on CPU, which only shows that they work.
"""
