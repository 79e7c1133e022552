"""Tables of effects on pages, between markers."""

import re

from . import effects, forest

BLOCK = re.compile(r"(<!-- effects: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(question: str) -> str:
    """The effects of a question as a table in Markdown."""
    lines = [
        "| rows | without | effect, new base policies | below 0 | pairs |",
        "|---|---|---|---|---|",
    ]
    for effect in effects.declared().values():
        if effect.question == question:
            estimate = effects.estimate(effect)
            # With three decimals a small half-width would be known to one digit only.
            digits = 4 if abs(estimate.control) < 0.1 or estimate.half_width < 0.0055 else 3
            star = "" if effect.registered else " *"
            cells = (
                effect.label + star, forest.share(estimate.control, digits),
                f"{forest.signed(estimate.value, digits)} ± {forest.share(estimate.half_width, digits)}",
                f"{estimate.below} of {estimate.units}", str(estimate.pairs),
            )  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def filled(text: str) -> str:
    """A page with the tables between its markers."""
    return BLOCK.sub(lambda match: f"{match[1]}{table(match[2])}\n{match[3]}", text)
