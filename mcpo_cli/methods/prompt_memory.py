"""What a method remembers of each prompt from step to step: numbers by prompt, as tensors of its state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mcpo_cli.methods.base import State

if TYPE_CHECKING:
    from torch import Tensor


def rows(state: State, prompt_P: Tensor, blank: Mapping[str, float]) -> tuple[dict[str, Tensor], Tensor]:
    """The numbers of all prompts that were ever seen, those of this step among them.

    Args:
        prompt_P: the prompts of this step; one may be there twice.
        blank: names of the numbers, with what they are of a prompt that is new.

    Returns:
        The state with a place for each prompt (`prompt`, rising), and place_P of this step's; `state` stays as it is.
    """
    known_N = state.get("prompt", prompt_P[:0])
    every = prompt_P.new_zeros(len(known_N) + len(prompt_P))
    every[: len(known_N)], every[len(known_N) :] = known_N, prompt_P
    prompt_M, place = every.unique(return_inverse=True)
    found = {"prompt": prompt_M}
    for name, value in blank.items():
        found[name] = prompt_M.double() * 0 + value
        if name in state:
            found[name][place[: len(known_N)]] = state[name]
    return found, place[len(known_N) :]
