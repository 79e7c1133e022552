"""The MCPO study: suites, claims, tables and figures, which mcpo finds by entry points, like a user's package.

Its packages are the folders `analysis` and `experiments` of a checkout. An installation has copies of them in this
folder, since packages of so general a name in site-packages would hide those of users, and users' those of mcpo.
"""

from pathlib import Path

_INSTALLED = Path(__file__).resolve().parent
ROOT = _INSTALLED if (_INSTALLED / "experiments").is_dir() else _INSTALLED.parents[1]
"""The folder that has `analysis` and `experiments`."""
EXPERIMENTS = ROOT / "experiments"
__path__ = [str(ROOT)]
