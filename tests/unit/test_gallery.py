"""The gallery of methods is the one that its command writes today."""

from tests import gallery


def test_the_page_and_the_curves_of_its_figures_are_current() -> None:
    assert gallery.page() == gallery.PAGE.read_text(), "run: python -m tests.gallery"


def test_curves_that_the_page_shows_are_the_methods_own() -> None:
    up, down = gallery.clipping(1), gallery.clipping(-1)
    assert dict(up["grpo"])[gallery.RATIOS[-1]] == 0 == dict(down["grpo"])[gallery.RATIOS[0]]
    ratio = gallery.RATIOS[40]
    assert abs(dict(up["grpo"])[ratio] - ratio) < 1e-6
    assert abs(dict(down["gpg"])[ratio] + 1) < 1e-6
    assert max(weight for _, weight in gallery.weights()["mcpo"]) == 0.5
