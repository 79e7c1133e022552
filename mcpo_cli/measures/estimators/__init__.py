"""Estimators of policy gradients measured where every response can be listed; `atlas.py` one level up is the probe."""
