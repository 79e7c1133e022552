"""`make gpu-check`: what backend=verl and the local engine do on a machine with one GPU, in seven parts.

`parts/` has a module a part; each part computes in a process of its own (`process.py`), so that one that is killed
loses nobody's figures. `conftest.py` collects them into a report (`report.py`). With `--rehearse` the same parts run at
tiny sizes on CPU, which shows that they work and nothing else.
"""
