"""The two samplers that `method.dynamic_sampling` chooses between: the stream as it is, and DAPO's filter."""

from dataclasses import dataclass
from typing import ClassVar

from mcpo_cli.prompt_samplers.base import Draw, Request, Sampler, State


@dataclass(frozen=True)
class Uniform(Sampler):
    """The training stream in its order; every group is trained on. What GRPO does, and `method.dynamic_sampling=false`.

    Checked: the same run ids and bits as before samplers had names (`tests/e2e/test_sampler_runs.py`).
    """

    name: ClassVar[str] = "uniform"
    by_outcome: ClassVar[bool] = False

    def draw(self, request: Request, state: State) -> Draw:
        return Draw.of_fresh(request, request.prompts)


@dataclass(frozen=True)
class Refill(Sampler):
    """DAPO's dynamic sampling (arXiv 2503.14476, Section 3.2), as `method.dynamic_sampling=true` says.

    Batches of the stream are rolled until enough groups are kept; for most methods, groups with 0 < p < 1
    (`Method.keeps`). The first ones in the order of the stream make the batch. Rollouts of the others count as costs.

    Checked: the same run ids and bits as before samplers had names (`tests/e2e/test_sampler_runs.py`).
    """

    name: ClassVar[str] = "refill"
    filters: ClassVar[bool] = True

    def draw(self, request: Request, state: State) -> Draw:
        return Draw.of_fresh(request, min(request.prompts, request.budget))


def of_option(dynamic_sampling: bool) -> Sampler:
    """The sampler that `method.dynamic_sampling` chooses."""
    return Refill() if dynamic_sampling else Uniform()


def is_of_option(sampler: Sampler) -> bool:
    """True if a method's option chooses `sampler`."""
    return type(sampler) in (Uniform, Refill)
