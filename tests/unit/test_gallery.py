"""The pages of methods that `make docs` writes."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest


def loaded() -> Any:
    """`.ci/gallery.py`, which is not in a package."""
    spec = importlib.util.spec_from_file_location("gallery", Path(__file__).parents[2] / ".ci" / "gallery.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


gallery = loaded()


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return dict(gallery.pages())


@pytest.mark.slow
def test_a_page_of_a_method_has_one_heading(pages: dict[str, str]) -> None:
    """A line of a docstring does not become a second one."""
    for name, page in pages.items():
        if name.startswith("methods/"):
            assert re.findall(r"^#.*", page, re.MULTILINE) == [f"# {Path(name).stem}"]


@pytest.mark.slow
def test_curves_that_the_page_shows_are_the_methods_own() -> None:
    up, down = gallery.clipping(1), gallery.clipping(-1)
    assert dict(up["grpo"])[gallery.RATIOS[-1]] == 0 == dict(down["grpo"])[gallery.RATIOS[0]]
    ratio = gallery.RATIOS[40]
    assert abs(dict(up["grpo"])[ratio] - ratio) < 1e-6
    assert abs(dict(down["gpg"])[ratio] + 1) < 1e-6
    assert max(weight for _, weight in gallery.weights()["mcpo"]) == pytest.approx(0.5)
