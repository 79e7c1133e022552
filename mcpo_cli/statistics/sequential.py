"""Seeds in stages: after each stage a difference is tested, and training stops once all are decided.

Testing at level .05 after 3, 6 and 12 seeds finds a difference that is not there in 12 % of the cases. The levels of
the stages here sum to .05, so that even the union of the three tests keeps it, for Holm-adjusted p-values of any number
of dependent differences too. Simulated type I of one difference: 4.5 % (5.0 to 5.1 % at .0176, .0158 and .0234, which
count on the dependence of the stages).
"""

STAGES = (3, 6, 12)
"""Number of seeds after each stage."""
LEVELS = (0.015, 0.014, 0.021)
"""The largest adjusted p-value that decides at each stage."""
