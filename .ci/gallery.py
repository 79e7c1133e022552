"""Writes docs/methods.md with its figures, and a page for each method: `python .ci/gallery.py`.

Its sources are the methods themselves and the committed comparison with verl and TRL. None of the pages is in git.
"""

import functools
import json
import math
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from matplotlib.figure import Figure

from mcpo_cli import components
from mcpo_cli.methods import Method, MiniBatch, TokenBatch, describe, reduce, registry
from mcpo_cli.render.figures import base

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE, REFERENCES = DOCS / "methods.md", DOCS / "method-references.json"
ROLLOUTS = 16
RATIOS = [0.3 + 0.01 * place for place in range(171)]
"""Ratios of new to old probability, .3 to 2."""
Curve = list[tuple[float, float]]
Curves = Mapping[str, Curve]
ABREAST, WIDEST = 4, 25
"""Panels side by side, and characters of a line above a panel."""
HEAD = """# Methods

Every method that `mcpo train method=NAME` takes. [Weights and checks](methods-compared.md) has what they do with a
prompt and a token, and what was checked. `mcpo components show method NAME` prints a method and its options.
`python .ci/gallery.py` writes these pages and their pictures from the methods themselves.

{index}
"""
COMPARED = """# Methods: weights and checks

What the [methods](methods.md) do with a prompt and with a token, and what they were compared with.

## How much a prompt weighs

![Query weight by accuracy](methods-weights.png)

W(p) = mean of (c - p) A over a group of 16 rollouts of which a share p is correct (c = 1): the factor of the gradient
of p. Methods of one curve share a panel; grey: `grpo`. A method whose advantage depends on the whole batch, on lengths,
on log-probabilities or on the past has no curve: {without}.

## Gradient of a token by its ratio

![Gradient by ratio](methods-clipping.png)

The gradient of the objective with respect to log pi of a token over the ratio of its new to its old probability, for a
response of that one token. Flat at 0 is clipped; grey: without clipping. Methods of one curve share a panel; methods
that decide by the whole mini-batch are left out: {undrawn}.

## Equal to others' code and to worked numbers

Largest deviation from the functions of verl and TRL, executed in float64 on 5 random mini-batches
(`.ci/references.py`). Where verl adds an epsilon to a standard deviation or a length, or TRL computes in float32, the
deviation is that. Worked numbers are those that the tests of a method compare with: of the authors' released functions
or of closed forms worked out by hand, to six digits, so up to 5e-7 is their rounding (`tests/golden`). There the value
is an advantage, and the gradient a loss or its gradient.

{references}
"""
HASH = re.compile(r"^#", re.MULTILINE)
"""A number sign at the start of a docstring's line, which Markdown would turn into a heading."""


def weights() -> Curves:
    found = {name: describe.curve(kind(), ROLLOUTS) for name, kind in sorted(registry().items())}
    return {name: curve for name, curve in found.items() if curve}


@functools.cache
def clipping(A: float) -> Curves:
    """Minus the gradient of the loss of one token with advantage `A`, by its ratio."""
    return {
        name: [(ratio, gradient(kind(), A, ratio)) for ratio in RATIOS]
        for name, kind in sorted(registry().items())
        if not getattr(kind, "prepares", False) and name != "copo"
    }


def gradient(method: Method, A: float, ratio: float) -> float:
    logp_old_BT = torch.full((1, 1), -1.0, dtype=torch.float64)
    logp_BT = (logp_old_BT + torch.tensor(ratio).log()).requires_grad_()
    none = {name: torch.zeros(1, dtype=torch.float64) for name in method.columns}
    batch = TokenBatch(
        logp_BT=logp_BT,
        logp_old_BT=logp_old_BT,
        mask_BT=torch.ones(1, 1, dtype=torch.bool),
        advantage_BT=torch.full((1, 1), A, dtype=torch.float64),
        group_B=torch.zeros(1, dtype=torch.long),
        total=MiniBatch(1, 1, 1, 1, dict.fromkeys(none, 0.0)),
        columns=none,
        logp_previous_BT=logp_old_BT,
        logp_reference_BT=logp_old_BT,
    )
    (found_BT,) = torch.autograd.grad(reduce(method.token_loss(batch), batch.mask_BT), logp_BT)
    return -float(found_BT)


def shared(*all_curves: Curves) -> dict[tuple[float, ...], list[str]]:
    """The names of the methods that share their curves in all of `all_curves`, by the numbers of the curves."""
    names: dict[tuple[float, ...], list[str]] = {}
    for name in all_curves[0]:
        names.setdefault(tuple(round(y, 6) for curves in all_curves for _, y in curves[name]), []).append(name)
    return names


def draw(xlabel: str, ylabel: str, curves: Mapping[str, Curves], grey: Mapping[str, Curve]) -> Figure:
    """One panel for each group of methods whose curves are equal.

    Args:
        curves: the curves of all methods by their names in the legend, which is left out for a single one.
        grey: the curves that each panel shows for comparison, by the same names.
    """
    groups = list(shared(*curves.values()).values())
    lines = math.ceil(len(groups) / ABREAST)
    with base.drawing():
        figure, panels = base.canvas(lines, ABREAST, width=base.PAGE, height=1.25, sharex=True, sharey=True)
        for axes, group in zip(panels, groups, strict=False):
            for look, (label, found) in zip((base.DAPO, base.MCPO), curves.items(), strict=False):
                axes.plot(*zip(*grey[label], strict=True), color=base.GREY, linewidth=0.7, alpha=0.6)
                axes.plot(*zip(*found[group[0]], strict=True), color=look.color, label=label)
            title = textwrap.fill(", ".join(group), WIDEST, break_long_words=False)
            axes.set_title(title, fontsize=6, loc="left", verticalalignment="bottom")
            axes.tick_params(labelbottom=True)
        for axes in panels[len(groups) :]:
            axes.remove()
        figure.supxlabel(xlabel, fontsize=8)
        figure.supylabel(ylabel, fontsize=8)
        if len(curves) > 1:
            base.legend(figure)
    return figure


def references() -> Iterator[str]:
    yield "| method | options | equals | largest deviation of the value | of the gradient |"
    yield "|---|---|---|---:|---:|"
    for package, found in json.loads(REFERENCES.read_text()).items():
        for row in sorted(found["rows"], key=lambda row: str(row["method"])):
            value, gradient = ("-" if row[key] is None else f"{row[key]:.1e}" for key in ("value", "gradient"))
            reference = f"{package} {found['version']}, {row['reference']}"
            yield f"| `{row['method']}` | {row['options'] or '-'} | {reference} | {value} | {gradient} |"


def pages() -> dict[str, str]:
    """The page of all methods and the page of each, by their name below `docs`."""
    kinds, curves, up = dict(sorted(registry().items())), weights(), clipping(1)
    without, undrawn = (", ".join(f"`{name}`" for name in kinds if name not in drawn) for drawn in (curves, up))
    head = HEAD.format(index="\n".join(index()))
    compared = COMPARED.format(
        without=without,
        undrawn=undrawn,
        references="\n".join(references()) + "\n",
    )
    return {
        PAGE.name: head,
        "methods-compared.md": compared,
        **{f"methods/{name}.md": described(name) for name in kinds},
    }


def index() -> Iterator[str]:
    yield "| method | what it is |"
    yield "|---|---|"
    for name, kind in sorted(registry().items()):
        about = describe.summary(kind).replace("|", "\\|")
        yield f"| [`{name}`](methods/{name}.md) | {about} |"


def described(name: str) -> str:
    """The page of a method: source and formula, needs, backends, an example, options, and how much a prompt weighs."""
    kind = registry()[name]
    backends = [f"{key} ({asks})" if asks else key for key, asks in describe.backends(kind()).items()]
    needs = ", ".join(sorted(kind().needs)) or "nothing but rewards and lengths"
    text = HASH.sub(r"\\#", describe.text(kind))
    rows = ["| option | default | allowed | meaning |", "|---|---|---|---|"]
    for option in components.options(kind()):
        cells = [f"`method.{option['name']}`", f"`{option['value']}`", option["allowed"], option["meaning"]]
        rows.append(f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in cells)} |")
    curve = describe.curve(kind(), ROLLOUTS)
    weight = "\n".join(["```text", *describe.bars(curve), "```"]) if curve else "It depends on more than accuracy."
    example = f"```console\n$ mcpo train method={name}\n$ mcpo compare method=grpo,{name} seed=0,1,2\n```"
    parts = [
        f"# {name}", text, f"Needs: {needs}. Backends: {', '.join(backends)}.", example, "## Options", "\n".join(rows),
        f"## Weight of a prompt with {ROLLOUTS} rollouts, by the share that is correct", weight,
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def main(folder: Path = PAGE.parent) -> None:
    found = pages()
    for name, page in found.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(page)
    for path in (folder / "methods").glob("*.md"):
        if f"methods/{path.name}" not in found:
            path.unlink()
    of_grpo, unclipped = {"W(p)": weights()["grpo"]}, {f"A = {A}": [(x, A * x) for x in RATIOS] for A in (1, -1)}
    signs = {f"A = {A}": clipping(A) for A in (1, -1)}
    for name, figure in {
        "methods-weights.png": draw("accuracy p", "query weight W(p)", {"W(p)": weights()}, of_grpo),
        "methods-clipping.png": draw("ratio", "gradient", signs, unclipped),
    }.items():
        figure.savefig(folder / name, dpi=200)


if __name__ == "__main__":
    main()
