"""Tables, figures and instruments of the studies in `experiments`; a package of its own, `mcpo_study.analysis`.

Its packages declare in their `__init__` what mcpo finds by entry points, as it finds the packages of users.
"""

from pathlib import Path

EXPERIMENTS = Path(__file__).resolve().parents[1] / "experiments"
"""The studies; an installation has only `paper`."""
