"""The prompt templates that training and evaluation share; a template's name is part of a run's identity.

Some published files have a template already applied. `strip` removes it, so that a problem has the same text and id
in every file.
"""

from typing import Literal

Template = Literal["plain", "boxed", "dapo"]

WRAPPERS: dict[Template, tuple[str, str]] = {
    # Prompts of generated tasks need no template.
    "plain": ("", ""),
    "boxed": ("", "\n\nPlease reason step by step, and put your final answer within \\boxed{}."),
    # From BytedTsinghua-SIA/DAPO-Math-17k and DAPO's AIME 2024 (arXiv 2503.14476).
    "dapo": (
        "Solve the following math problem step by step. The last line of your response should be of the form "
        "Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n",
        '\n\nRemember to put your answer on its own line after "Answer:".',
    ),
}
"""The text before and after the problem. `boxed` is the instruction that Qwen2.5-Math publishes."""


def render(template: Template, problem: str) -> str:
    """The user's turn for `problem`."""
    before, after = WRAPPERS[template]
    return before + problem + after


def strip(text: str) -> str:
    """The problem in a user's turn; text without a template is returned unchanged."""
    for before, after in WRAPPERS.values():
        is_wrapped = bool(before + after) and text.startswith(before) and text.endswith(after)
        if is_wrapped and len(text) >= len(before) + len(after):
            return text[len(before) : len(text) - len(after)]
    return text
