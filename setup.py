"""What pyproject.toml cannot say: where the packages of `mcpo_study` are, and addresses.

`mcpo_study` is the record of the studies: the folders `analysis` and `experiments` of a checkout. Packages of so
general a name in site-packages would hide those of users. A wheel has only the paper's suites and what they draw.

REPOSITORY_URL is set where a release is built: a registry shows README.md, whose links must then be absolute.
"""

import os
import re
from pathlib import Path

from setuptools import find_packages, setup

FOLDERS = ["analysis", *find_packages(include=["analysis.paper", "analysis.paper.*"]), "experiments"]
STUDY = {f"mcpo_study.{name}": name.replace(".", "/") for name in FOLDERS}
REPOSITORY = os.environ.get("REPOSITORY_URL", "").rstrip("/")
LINK = re.compile(r"(!?\[[^\]]*\]\()(?!https?://|#)([^)\s]+)")
"""A link or picture of Markdown whose target is a file of the repository."""


def readme() -> str:
    """README.md, with absolute links if the address of the repository is known."""
    text = Path("README.md").read_text(encoding="utf-8")
    return LINK.sub(_absolute, text) if REPOSITORY else text


def _absolute(link: re.Match[str]) -> str:
    """Pictures as files, pages as the service shows them."""
    return f"{link[1]}{REPOSITORY}/{'raw' if link[1].startswith('!') else 'blob'}/HEAD/{link[2]}"


def addresses() -> dict[str, str]:
    """The links that a registry shows beside the project."""
    paper = {"Paper": "https://arxiv.org/abs/2604.16972"}
    pages = {"Source": "", "Issues": "/issues", "Changelog": "/blob/HEAD/CHANGELOG.md"}
    return paper | {name: REPOSITORY + page for name, page in pages.items() if REPOSITORY}


setup(
    packages=[*find_packages(include=["mcpo_cli*"]), *STUDY],
    package_dir=STUDY,
    long_description=readme(),
    long_description_content_type="text/markdown",
    project_urls=addresses(),
)
