"""The prompts of a global step, for any backend: a sampler is asked round by round until the batch is full."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from mcpo_cli.backends.graded import FEWEST
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.data.base import Problem
from mcpo_cli.errors import RunFailed
from mcpo_cli.prompt_samplers import Draw, Finished, Group, Request, State, is_of_option
from mcpo_cli.seeds import stream
from mcpo_cli.tasks import Problems

EPOCHS = 64
"""Epochs of a finite stream that are kept, by reference."""


class TrainingStream:
    """The training stream of a run by positions (`prompt_samplers.Stream`)."""

    def __init__(self, problems: Problems, seed: int) -> None:
        self.distinct = problems.distinct
        self._training = problems.training
        self._seed = seed
        # A sampler that looks back asks for scattered positions, and a task shuffles a whole epoch for each answer.
        self._epoch = lru_cache(EPOCHS)(lambda epoch: problems.training(seed, epoch * self.distinct, self.distinct))

    def problems(self, positions: Sequence[int]) -> list[Problem]:
        """The problem at each position."""
        if self.distinct:
            return [self._epoch(position // self.distinct)[position % self.distinct] for position in positions]
        runs = list[list[int]]()
        for position in positions:
            if runs and position == runs[-1][-1] + 1:
                runs[-1].append(position)
            else:
                runs.append([position])
        return [problem for run in runs for problem in self._training(self._seed, run[0], len(run))]

    def numbers(self, positions: Sequence[int]) -> list[int]:
        """See `prompt_samplers.Stream`."""
        return [problem.number for problem in self.problems(positions)]


class Drawing:
    """One global step: `draw` and `add` in turns until `is_full`.

    Args:
        step: the global step, from 1.
        cursor: the first position that the run has not reached; advances with every draw.
        state: the sampler's state after the previous step.
    """

    def __init__(self, spec: RunSpec, training: TrainingStream, step: int, cursor: int, state: State) -> None:
        self.cursor, self.groups = cursor, list[Group]()
        self._spec, self._training, self._step, self._state = spec, training, step, state
        self._round, self._drawn = -1, dict[int, Problem]()
        self._uninformed = set[int]()
        self.rollouts: Sequence[int] = ()
        """Rollouts of each problem that was drawn last."""

    @property
    def round(self) -> int:
        """The round that was drawn last, from 0."""
        return self._round

    @property
    def batch(self) -> list[int]:
        """Indices, among all groups of the step, of the groups that are trained on: the first that are kept."""
        return [index for index, group in enumerate(self.groups) if group.kept][: self._spec.train.prompts]

    @property
    def is_full(self) -> bool:
        """True if the batch is complete."""
        return len(self.batch) == self._spec.train.prompts

    def draw(self) -> list[Problem]:
        """The problems of the next round.

        Raises:
            RunFailed: the step has sampled all that it may (`train.max_refills`), or the sampler broke its contract.
        """
        train, sampler = self._spec.train, self._spec.sampler
        budget = train.prompts * (1 + train.max_refills) - len(self.groups)
        self._round += 1
        request = Request(
            step=self._step,
            round=self._round,
            prompts=train.prompts,
            rollouts=train.rollouts,
            budget=budget,
            cursor=self.cursor,
            stream=self._training,
            groups=tuple(self.groups),
            seed=stream(self._spec.seed, "sampler", self._step, self._round),
        )
        if not budget:
            raise starved(self._step, len(self.groups), self._spec)
        draw = sampler.draw(request, self._state)
        if not draw.positions and sampler.filters:
            raise RunFailed(
                f"step {self._step}: sampler={sampler.name} found only {len(self.batch)} of {train.prompts} prompts "
                f"for the batch among the {len(self.groups)} that it could roll",
                fix=f"more training problems (such as task.pool={2 * len(self.groups)}), or sampler=uniform",
            )
        self._check(draw, request)
        problems = self._training.problems(draw.positions)
        self.rollouts = draw.rollouts or [train.rollouts] * len(problems)
        self.cursor, self._drawn = draw.cursor, dict(zip(draw.positions, problems, strict=True))
        return problems

    def add(self, p_P: Sequence[float], graded_P: Sequence[int] = ()) -> None:
        """Add the accuracies of the groups that were drawn last, in their order.

        graded_P: the number of graded rollouts of each group; by default all of its `rollouts`. A group with fewer than
        FEWEST has no accuracy: a filter drops it, and the sampler does not get it after the step.
        """
        method, sampler = self._spec.method, self._spec.sampler
        for (position, problem), p, rollouts in zip(self._drawn.items(), p_P, graded_P or self.rollouts, strict=True):
            if rollouts < FEWEST:
                self._uninformed.add(position)
                group = Group(position, problem.number, 0.0, False, self._round, not sampler.filters, rollouts=rollouts)
                self.groups.append(group)
                continue
            group = Group(position, problem.number, p, bool(method.keeps(p)), self._round, rollouts=rollouts)
            self.groups.append(replace(group, kept=not sampler.filters or sampler.keeps(group)))

    def state(self) -> State:
        """The sampler's state after the step."""
        groups = tuple(group for group in self.groups if group.position not in self._uninformed)
        finished = Finished(self._step, groups)
        return checked(self._spec.sampler.after(finished, self._state), self._spec.sampler.name)

    def _check(self, draw: Draw, request: Request) -> None:
        """Raise RunFailed if the sampler's draw breaks its contract."""
        sampler, positions = self._spec.sampler, draw.positions
        earlier_positions = [group.position for group in self.groups]
        limit = request.budget if sampler.filters else request.prompts
        if not (1 if sampler.filters else request.prompts) <= len(positions) <= limit:
            raise self._broken(f"it drew {len(positions)} prompts, of at most {limit}")
        if len({*earlier_positions, *positions}) < len(earlier_positions) + len(positions):
            raise self._broken("it drew a position twice")
        if min(positions) < 0 or draw.cursor < request.cursor:
            raise self._broken("it went back to before the stream's beginning, or before its cursor")
        if draw.rollouts is not None:
            self._check_rollouts(draw.rollouts, len(positions))

    def _check_rollouts(self, rollouts: Sequence[int], prompts: int) -> None:
        """Raises RunFailed unless a step has as many rollouts as if all groups had the same number."""
        sampler, total = self._spec.sampler, prompts * self._spec.train.rollouts
        if not sampler.uneven_groups or sampler.filters:
            raise self._broken("it gives prompts numbers of rollouts, which takes `uneven_groups` and no filter")
        if len(rollouts) != prompts or min(rollouts) < FEWEST:
            raise self._broken(f"it gave {len(rollouts)} of {prompts} prompts rollouts, the fewest {min(rollouts)}")
        if sum(rollouts) != total:
            raise self._broken(f"it gave prompts {sum(rollouts)} rollouts in all, not {total}")

    def _broken(self, reason: str) -> RunFailed:
        name = self._spec.sampler.name
        return RunFailed(f"step {self._step}: sampler={name}: {reason}", fix=f"mcpo components check sampler {name}")


def starved(step: int, prompts: int, spec: RunSpec) -> RunFailed:
    """The error of a batch that a sampler with a filter could not fill from that many prompts."""
    train = spec.train
    override = "method.dynamic_sampling=false" if is_of_option(spec.sampler) else "sampler=uniform"
    return RunFailed(
        f"step {step}: dynamic sampling found fewer than {train.prompts} prompts with mixed answers among {prompts} "
        f"(train.max_refills={train.max_refills}); the others were all right or all wrong",
        fix=f"train.max_refills={2 * train.max_refills or 1}, fewer train.steps, or {override}",
    )


def checked(state: State, name: str) -> State:
    """`state` if it consists of columns of numbers, as checkpoints need; otherwise raises RunFailed."""
    if isinstance(state, Mapping) and all(
        isinstance(key, str) and all(type(value) in (int, float) for value in column) for key, column in state.items()
    ):
        return state
    raise RunFailed(
        f"sampler={name} returned a state that is not columns of numbers by name",
        fix=f"mcpo components check sampler {name}",
    )
