"""Chat templates are programs of others: rendered as transformers does, within limits, from files and settings only."""

import time
from pathlib import Path
from typing import Any

import pytest
import torch

from mcpo_cli import chat_template
from mcpo_cli.backends.local.tokenizer import Stops
from mcpo_cli.chat_template import Renderer, TemplateError, rendered
from mcpo_cli.tokenization import TEXT, load, prompt_ids
from tests.errors import refused
from tests.models import TEMPLATE, words

TURNS = [{"role": "system", "content": "Add."}, {"role": "user", "content": "1 + 2?"}]
QWEN = (
    "{%- if messages[0].role == 'system' %}\n"
    "    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}\n"
    "{%- endif %}\n{%- for message in messages %}\n    {%- if message.role != 'system' %}\n"
    "        {{- '<|im_start|>' + message.role + '\\n' + message.content | trim + '<|im_end|>\\n' }}\n"
    "    {%- endif %}\n"
    "    {%- if loop.index > 99 %}{% break %}{% endif %}\n{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' }}\n"
    "    {%- if enable_thinking is defined and enable_thinking is false %}\n"
    "        {{- '<think>\\n\\n</think>\\n\\n' }}\n"
    "    {%- endif %}\n{%- endif %}"
)
TEMPLATES = {
    "plain": TEMPLATE,
    "qwen": QWEN,
    "special tokens, tools and JSON": (
        "{{ bos_token }}{% if tools is not none %}T{% endif %}{{ messages | tojson }}"
        "{% generation %}G{% endgeneration %}"
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{{ m['content'] }}{{ ns.n }}\n"
        "{% endfor %}"
    ),
}


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return words()


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
@pytest.mark.parametrize("given", [{}, {"enable_thinking": False}, {"enable_thinking": True}], ids=str)
def test_the_text_is_that_of_transformers(template: str, given: dict[str, bool], tokenizer: Any) -> None:
    tokenizer.chat_template = template
    options = {"add_generation_prompt": True, "return_dict": False, **given}
    assert prompt_ids(tokenizer, TURNS, given) == list(tokenizer.apply_chat_template(TURNS, **options))


def test_the_clock_stands_still(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the day, the time zone and the language of the machine."""
    template = "{{ strftime_now('%A %d %B %Y %H:%M %Z %s ') }}{{ messages[0].content }}"
    context = {"messages": TURNS[:1]}
    text = "Friday 26 July 2024 00:00 UTC 1721952000 Add."
    assert rendered("m", template, context) == text
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    assert Renderer().render(template, context) == text


def test_an_address_that_a_problem_has_is_no_address_of_the_template() -> None:
    turns = [{"role": "user", "content": "What is <object at 0x7f0123456789>?"}]
    assert rendered("m", "{{ messages[0].content }}", {"messages": turns}) == turns[0]["content"]


REFUSED = {
    "its own words": ("{{ raise_exception('System role not supported') }}", "System role not supported"),
    "without a user turn": ("{{ messages[0].content }}", "leaves out the user turn '1 + 2?'"),
    "without a system turn": ("{{ messages[1].content }}", "leaves out the system turn 'Add.'"),
    "changed text": (
        "{{ messages[0].content }}{{ messages[1].content.replace('+', '-') }}",
        "leaves out the user turn",
    ),
    "broken": ("{% for %}", "Expected"),
    "an unknown name": ("{{ messages[0].content.nope.nope }}", "nope"),
    "chance": ("{{ messages | random }}", "random"),
    "chance in words": ("{{ lipsum(n=1) }}", "lipsum"),
    "an address of memory": ("{{ joiner() }}", "changes between processes"),
    "an address in a text": ("{{ joiner() ~ '' }}", "changes between processes"),
    "a method": ("{{ messages[0].items | string }}", "changes between processes"),
    "memory": ("{{ 'x' * 10**10 }}", "memory"),
    "memory by a filter": ("{{ 'x'.ljust(10**10) }}", "memory"),
    "a long text": ("{{ 'x'.ljust(10**7) }}", "writes more than"),
    "endless calls": ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
    "code": ("{{ ''.__class__.__mro__[1].__subclasses__()[0]() }}", ""),
    "files": ("{% include '/etc/passwd' %}", ""),
}


@pytest.mark.parametrize(("template", "named"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(template: str, named: str) -> None:
    with refused("bad_model", named):
        rendered("m", template, {"messages": TURNS})


def test_endless_loops_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the next prompt is rendered."""
    monkeypatch.setattr(chat_template, "SECONDS", 0.5)
    renderer = Renderer()
    assert renderer.render("{{ 1 + 1 }}", {}) == "2"
    began = time.monotonic()
    with pytest.raises(TemplateError, match="more than"):
        renderer.render("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", {})
    assert time.monotonic() - began < 5
    assert renderer.render("{{ 1 + 2 }}", {}) == "3"


def test_thoughts_of_earlier_turns_may_be_left_out() -> None:
    """As templates of reasoning models do."""
    template = "{% for m in messages %}{{ m.content.split('</think>')[-1].strip() }}\n{% endfor %}"
    turns = [{"role": "assistant", "content": "<think>\nhm\n</think>\n\nIt is 3."}, *TURNS]
    assert rendered("m", template, {"messages": turns}) == "It is 3.\nAdd.\n1 + 2?\n"


def test_the_default_of_several_templates(tokenizer: Any) -> None:
    tokenizer.chat_template = {"rag": "R", "default": TEMPLATE}
    several = prompt_ids(tokenizer, TURNS)
    tokenizer.chat_template = TEMPLATE
    assert several == prompt_ids(tokenizer, TURNS)
    tokenizer.chat_template = {"rag": TEMPLATE, "tool_use": TEMPLATE}
    with refused("bad_model", "rag, tool_use"):
        prompt_ids(tokenizer, TURNS)


def test_a_panic_of_the_tokenizer_is_an_error_of_the_model() -> None:
    """The library's Rust code raises one for some normalizers; it is no Exception. An interrupt passes."""

    class PanicException(BaseException):
        pass

    class Broken:
        chat_template, name_or_path = None, "models/broken"

        def __call__(self, text: str, **options: object) -> None:
            raise PanicException("index out of bounds") if text == "1" else KeyboardInterrupt

    with refused("bad_model", "broken: ", "index out of bounds"):
        prompt_ids(Broken(), [{"role": TEXT, "content": "1"}])
    with pytest.raises(KeyboardInterrupt):
        prompt_ids(Broken(), [{"role": TEXT, "content": "2"}])


@pytest.mark.parametrize(("single", "before"), [("<|begin|> $A <|end|>", [0]), ("$A <|end|>", []), ("$A", [])])
def test_a_plain_prompt_is_its_text_and_nothing_after_it(single: str, before: list[int], tmp_path: Path) -> None:
    """Tokenizers may put an end token after each text, which a model would take for the end of its prompt."""
    from tokenizers.processors import TemplateProcessing

    made = words()
    special = [(name, made.get_vocab()[name]) for name in ("<|begin|>", "<|end|>")]
    made.backend_tokenizer.post_processor = TemplateProcessing(single=single, special_tokens=special)
    made.save_pretrained(tmp_path)
    tokenizer = load(tmp_path)
    text = tokenizer("1 + 2 =", add_special_tokens=False)["input_ids"]
    assert prompt_ids(tokenizer, [{"role": TEXT, "content": "1 + 2 ="}]) == before + text


def test_an_end_token_whose_number_is_beyond_the_count_of_tokens(tokenizer: Any) -> None:
    """Numbers of tokens may have gaps."""
    end = len(tokenizer) + 5
    assert Stops(tokenizer, [1, end], ()).reached(torch.tensor([[1], [2], [end]])).tolist() == [True, False, True]
