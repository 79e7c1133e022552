"""The one prompt template that training and evaluation share; its name is part of a run's identity.

Published files come with a template already applied. `strip` undoes it, so that a problem is the same text, and has
the same id, wherever it was read from.
"""

from typing import Literal

Template = Literal["plain", "boxed", "dapo"]

WRAPPERS: dict[Template, tuple[str, str]] = {
    # Of generated tasks: their prompts are complete.
    "plain": ("", ""),
    "boxed": ("", "\n\nPlease reason step by step, and put your final answer within \\boxed{}."),
    # As published in BytedTsinghua-SIA/DAPO-Math-17k and in DAPO's AIME 2024 (arXiv 2503.14476).
    "dapo": (
        "Solve the following math problem step by step. The last line of your response should be of the form "
        "Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n",
        '\n\nRemember to put your answer on its own line after "Answer:".',
    ),
}
"""What stands before and after the problem. `boxed` is the instruction that Qwen2.5-Math publishes."""


def render(template: Template, problem: str) -> str:
    """The user's turn for `problem`."""
    before, after = WRAPPERS[template]
    return before + problem + after


def strip(text: str) -> str:
    """The problem in a user's turn; a text that no template made comes back as it is."""
    for before, after in WRAPPERS.values():
        is_wrapped = bool(before + after) and text.startswith(before) and text.endswith(after)
        if is_wrapped and len(text) >= len(before) + len(after):
            return text[len(before) : len(text) - len(after)]
    return text
