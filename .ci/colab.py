"""A hook of mkdocs: adds to the page of the notebooks a link that opens each in Colab.

Colab opens public notebooks on GitHub, so there are links only if `repo_url` (REPOSITORY_URL) names a repository
there. https://colab.research.google.com/github/googlecolab/colabtools/blob/main/notebooks/colab-github-demo.ipynb
describes the addresses.
"""

import re
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.pages import Page

PAGE = "notebooks.md"
ROW = re.compile(r"^\| `(\w+\.ipynb)` \|", re.MULTILINE)
GITHUB = re.compile(r"https://github\.com/([\w.-]+/[\w.-]+?)(?:\.git)?/?")


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """The page with `open in Colab` after the name of each notebook."""
    repository = GITHUB.fullmatch(config.repo_url or "")
    if page.file.src_uri != PAGE or not repository:
        return markdown
    base = f"https://colab.research.google.com/github/{repository[1]}/blob/HEAD/notebooks/"
    return ROW.sub(rf"| `\1` ([open in Colab]({base}\1)) |", markdown)
