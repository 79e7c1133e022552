"""A hook of the documentation site: its pages link to files of the repository, which the site does not contain.

Such links lead to the repository if its address is known (REPOSITORY_URL), else they become text.
"""

import re
from typing import Any

OUTSIDE = re.compile(r"\[([^\]]*)\]\(\.\./([^)]+)\)")
"""A link from a page in `docs` to a file outside of it."""


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: object) -> str:
    """The text of the page as the site shows it; pages in folders of `docs` are generated and stay as they are."""
    if "/" in page.file.src_uri:
        return markdown
    address = str(config["repo_url"] or "").rstrip("/")
    return OUTSIDE.sub(rf"[\1]({address}/blob/HEAD/\2)" if address else r"\1", markdown)
