"""The documentation links to Colab only if the address of the repository is known."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))


def test_the_page_lists_all_notebooks() -> None:
    page = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+\.ipynb)` \|", page, re.MULTILINE) == NOTEBOOKS


@pytest.mark.slow
def test_a_notebook_opens_in_colab_where_github_has_it(tmp_path: Path) -> None:
    environment = os.environ | {"REPOSITORY_URL": "https://github.com/lab/mcpo"}
    build = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, env=environment, check=True)
    shown = (tmp_path / "notebooks" / "index.html").read_text(encoding="utf-8")
    for name in NOTEBOOKS:
        assert f"https://colab.research.google.com/github/lab/mcpo/blob/HEAD/notebooks/{name}" in shown
    assert "colab.research" not in (tmp_path / "laptop" / "index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("address", [None, "https://code.example/lab/mcpo", "https://github.com/lab"])
def test_elsewhere_there_is_no_link(address: str | None) -> None:
    spec = importlib.util.spec_from_file_location("colab", ROOT / ".ci" / "colab.py")
    assert spec
    assert spec.loader
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    page = SimpleNamespace(file=SimpleNamespace(src_uri=hook.PAGE))
    text = f"| `{NOTEBOOKS[0]}` | shows |"
    assert hook.on_page_markdown(text, page=page, config=SimpleNamespace(repo_url=address)) == text
    known = SimpleNamespace(repo_url="https://github.com/lab/mcpo.git")
    assert "/lab/mcpo/blob/" in hook.on_page_markdown(text, page=page, config=known)
