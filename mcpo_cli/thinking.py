"""The tags between which models reason before they answer, for many models in one table.

| models | reasoning |
|---|---|
| DeepSeek, Qwen, GLM, Seed, LongCat and most others | `<think>`, also `<thinking>`, `<thought>`, `<seed:think>` |
| models trained to the format of R1's papers | `<reasoning>`, `<scratchpad>` |
| Mistral, Kimi, Cohere, OpenThinker, Apertus | `[THINK]`, `◁think▷`, `<|START_THINKING|>`, `<|begin_of_thought|>` |
| gpt-oss, with and without its special tokens | `<|channel|>analysis<|message|>`, then `final` |
| Gemma, MedGemma | `<|channel>thought`, `<unused94>thought` |
| Granite | `Here is my thought process:`, then `Here is my response:` |
"""

import re

_XML = r"(?:\w{1,20}[:_])?(?:think(?:ing)?|thoughts?|reason(?:ing)?|scratchpad)"
_OPENS = (
    rf"<{_XML}>|<\|think(?:ing)?\|>|\[THINK\]|◁think▷|<\|begin_of_thought\|>|<\|START_THINKING\|>|<\|inner_prefix\|>"
    r"|<\|channel\|>(?:analysis|commentary)\b[^<\n]{0,40}<\|message\|>|<\|channel>thought|<unused94>(?:thought)?"
    r"|Here is my thought process:"
)
_CLOSES = (
    rf"</{_XML}>|<\|/think(?:ing)?\|>|</\|think(?:ing)?\|>|\[/THINK\]|◁/think▷|<\|end_of_thought\|>|<\|END_THINKING\|>"
    r"|<\|inner_suffix\|>|<\|channel\|>final\b[^<\n]{0,40}<\|message\|>|assistantfinal|<channel\|>|<unused95>"
    r"|Here is my response:"
)
_TAG = re.compile(rf"(?i)(?P<opens>{_OPENS})|{_CLOSES}")
_OPENED = re.compile(rf"(?i)(?:{_OPENS})\s*\Z")


def opened(prompt: str) -> str:
    """The tag of reasoning with which a prompt ends, and the space after it; empty if it ends otherwise."""
    match = _OPENED.search(prompt)
    return match[0] if match else ""


def answer(response: str) -> str | None:
    """The text after the reasoning; None if a tag of reasoning is open at the end."""
    tags = list(_TAG.finditer(response))
    if tags and tags[-1]["opens"]:
        return None
    return response[tags[-1].end() :] if tags else response
