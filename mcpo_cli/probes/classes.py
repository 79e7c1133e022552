"""The four classes of prompts by the accuracy p of their rollouts (Figs. 2a and 5)."""

CLASSES = ("all_wrong", "minority", "majority_correct", "mastered")
"""In this order: p = 0, 0 < p <= 0.5, 0.5 < p < 1, p = 1."""


def class_of(p: float) -> str:
    """The class of accuracy p, one of CLASSES."""
    if p in (0, 1):
        return CLASSES[-1] if p else CLASSES[0]
    return "minority" if p <= 0.5 else "majority_correct"
