"""A hook of mkdocs: links to files outside of `docs` lead to the repository, and notebooks open in Colab.

Both need `repo_url` (REPOSITORY_URL). Colab opens public notebooks on GitHub, so it must name a repository there. https://colab.research.google.com/github/googlecolab/colabtools/blob/main/notebooks/colab-github-demo.ipynb
describes the addresses.
"""

import re
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.pages import Page

PAGE = "notebooks.md"
OUTSIDE = re.compile(r"\]\(\.\./([^)]+)\)")
"""The target of a link from a page in `docs` itself to another folder of the repository."""
ROW = re.compile(r"^\| `(\w+\.ipynb)` \|", re.MULTILINE)
GITHUB = re.compile(r"https://github\.com/([\w.-]+/[\w.-]+?)(?:\.git)?/?")


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """The page with links into the repository, and with `open in Colab` after the name of each notebook."""
    if config.repo_url and "/" not in page.file.src_uri:
        markdown = OUTSIDE.sub(rf"]({config.repo_url.rstrip('/')}/blob/HEAD/\1)", markdown)
    repository = GITHUB.fullmatch(config.repo_url or "")
    if page.file.src_uri != PAGE or not repository:
        return markdown
    base = f"https://colab.research.google.com/github/{repository[1]}/blob/HEAD/notebooks/"
    return ROW.sub(rf"| `\1` ([open in Colab]({base}\1)) |", markdown)
