"""One run of the local engine, top to bottom: sample, grade, advantages, update, record, evaluate, checkpoint."""

import dataclasses
import json
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerBase

from mcpo_cli import pretrained, prompt_samplers
from mcpo_cli.backends import Stop, checks, corrections, masking, measure
from mcpo_cli.backends.checks import NotFinite
from mcpo_cli.backends.drawing import Drawing, TrainingStream
from mcpo_cli.backends.graded import Graded
from mcpo_cli.backends.local import checkpoint, gradients
from mcpo_cli.backends.local.batch import Sampled, greedy_rewards, rewarded
from mcpo_cli.backends.local.encoding import Grades, Language
from mcpo_cli.backends.local.generate import Rollouts, sample
from mcpo_cli.backends.local.initial_policy import initial_policy
from mcpo_cli.backends.local.policy import Policy
from mcpo_cli.backends.local.precision import product_precision
from mcpo_cli.backends.local.update import GradedBatch, Updater
from mcpo_cli.backends.measure import CostTotals
from mcpo_cli.backends.resampling import Resampler
from mcpo_cli.config.eval_schedule import eval_steps
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.data.base import Problem
from mcpo_cli.errors import Interrupted
from mcpo_cli.methods import State
from mcpo_cli.records import SOURCES, EvalRow
from mcpo_cli.runs import folders, prompts
from mcpo_cli.runs.attempts import Attempt
from mcpo_cli.runs.journal import Journal, write_atomic
from mcpo_cli.seeds import stream


def run(spec: RunSpec, attempt: Attempt, stop: Stop) -> None:
    """Train `spec` to the end, from the checkpoint that the attempt starts after, or from the base policy.

    Raises:
        Interrupted: `stop` returned True. RunFailed: the run cannot continue.
    """
    trainer, steps, interval = begin(spec, attempt, stop), spec.train.steps, spec.compute.checkpoint_every
    with product_precision(trainer.policy):
        trainer.train(stop, {*range(interval, steps, interval), steps})
    with folders.atomic_folder(attempt.folder / "policy", {"step": trainer.step}) as part:
        trainer.policy.save(part, trainer.tokenizer)


def begin(spec: RunSpec, attempt: Attempt, stop: Stop) -> "Trainer":
    """The trainer of `spec` in the state that the attempt starts from. Raises as `initial_policy`."""
    torch.set_num_threads(spec.compute.threads)
    trainer = Trainer(spec, attempt, *initial_policy(spec, attempt, stop))
    if sources := trainer.problems.sources():
        write_atomic(attempt.folder.parent / SOURCES, json.dumps(sources, indent=2))
    if spec.model.path:
        prompts.check_run(attempt.folder.parent, spec, trainer.problems, trainer.language.prompt)
    if start := attempt.status["start_step"]:
        trainer.restore(folders.checkpoints(attempt.folder.parent)[start])
    return trainer


@dataclass
class Clock:
    """Seconds by phase of one global step."""

    seconds: dict[str, float] = field(default_factory=dict)
    cpu_before: float = field(default_factory=time.process_time)
    """CPU time of the process (all threads) at the start of the step, in seconds."""

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Adds the time spent inside to `name`."""
        start = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


class Trainer:
    """The state of one run between global steps: weights, optimizer, memories, position in the training stream."""

    def __init__(self, spec: RunSpec, attempt: Attempt, policy: Policy, tokenizer: PreTrainedTokenizerBase) -> None:
        self.spec, self.attempt, self.policy, self.tokenizer = spec, attempt, policy, tokenizer
        closed = not spec.model.path
        ends = () if closed else pretrained.stop_ids(spec.model)
        self.language = Language(spec.task, tokenizer, ends, closed=closed)
        self.problems = spec.task.problems(spec.train, self.language.tokens)
        self.stream = TrainingStream(self.problems, spec.seed)
        self.updater = Updater(policy, spec.method, spec.train, spec.compute, spec.seed)
        self.method_state: State = {}
        self.sampler_state: prompt_samplers.State = {}
        self.step = 0
        self.cursor = 0
        self._follow_journal()

    def train(self, stop: Stop, checkpoint_steps: Collection[int]) -> None:
        """From the current step to the last of `checkpoint_steps`, with a checkpoint after each of them."""
        last_step = max(checkpoint_steps)
        if self.step == 0:
            self.evaluate()
            self.save()
        while self.step < last_step:
            if stop():
                self.save()
                raise Interrupted(f"stopped after step {self.step} of {last_step}")
            self.step += 1
            self.attempt.phase(f"step {self.step} of {last_step}")
            self.global_step()
            if self.costs.evaluation_due:
                self.evaluate()
            if self.step in checkpoint_steps:
                self.save()

    def global_step(self) -> None:
        """One batch of rollouts, the gradient steps on it, one row of metrics."""
        clock = Clock()
        with clock.phase("sample"):
            sampled = self.collect()
        with clock.phase("update"):
            batch, self.method_state = self.batch(sampled)
        with clock.phase("probe"):
            probe_metrics = self.probe(sampled.graded) | self.gradients(sampled, batch)
        with clock.phase("update"):
            updates, mini_batches = self.updater.global_step(batch, self.step)
            self.method_state = self.spec.method.learn(self.method_state, updates)
        self.costs.add(
            rollouts=int(sampled.rollouts.drawn_PG.sum()),
            sampled_tokens=int(sampled.rollouts.length_PG.sum()),
            trained_tokens=self.updater.trained_tokens,
            gradient_steps=len(mini_batches),
            seconds=clock.seconds["sample"] + clock.seconds["update"],
        )
        with clock.phase("record"):
            self.record(sampled, with_samples=self.costs.evaluation_due)
            self.attempt.journal.rows("mini_batches", self.step, mini_batches)
            weights = checkpoint.digest(self.policy.weights())
        entropy = sampled.rollouts.entropy_PGT.sum() / sampled.rollouts.length_PG.sum()
        row = measure.global_step(
            self.step,
            self.spec,
            sampled.graded,
            sampled.batch_index.tolist(),
            batch.signals.advantage_PG,
            entropy=float(entropy),
            updates=updates,
            probed=probe_metrics,
            costs=self.costs.totals,
            seconds=clock.seconds,
            of_backend=measure.process(time.process_time() - clock.cpu_before, sum(clock.seconds.values())),
        )
        row["weights"] = weights
        self.attempt.journal.step(row)

    def observe(self) -> None:
        """A batch of rollouts and its probes under the policy as it is: recorded, not trained on."""
        sampled = self.sample_round(self.stream.problems(range(self.spec.train.prompts)), 0, 0)
        self.probe(sampled.graded)
        self.gradients(sampled, self.batch(sampled)[0])
        self.record(sampled, with_samples=self.step in eval_steps(self.spec))

    def collect(self) -> Sampled:
        """Sample the groups that the sampler draws until the batch is full.

        Raises:
            RunFailed: the sampler used up the rollouts of a step, or broke its contract.
        """
        rounds = list[Sampled]()
        drawing = Drawing(self.spec, self.stream, self.step, self.cursor, self.sampler_state)
        while not drawing.is_full:
            problems, groups_before = drawing.draw(), len(drawing.groups)
            rounds.append(self.sample_round(problems, drawing.round, groups_before, drawing.rollouts))
            drawing.add(rounds[-1].graded.p_P.tolist(), rounds[-1].graded.rollouts_P.tolist())
        self.cursor, self.sampler_state = drawing.cursor, drawing.state()
        return Sampled.joined(rounds, drawing.batch)

    def sample_round(
        self, problems: Sequence[Problem], number: int, groups_before: int, counts: Sequence[int] = ()
    ) -> Sampled:
        """Graded rollouts of `problems`: round `number` (from 0) of the step, after `groups_before` other groups of it.

        counts: the number of rollouts of each problem; `train.rollouts` by default.
        """
        train = self.spec.train
        rollouts, grades = self.sample_groups(problems, stream(self.spec.seed, "rollout", self.step, number), counts)
        start = self.step, groups_before
        seen_PG, reward_PG = rewarded(self.language, self.spec, start, problems, rollouts, grades.correct_PG)
        return Sampled(
            temperature=train.temperature,
            problems=list(problems),
            rollouts=rollouts,
            correct_PG=grades.correct_PG,
            graded_PG=grades.graded_PG,
            seen_PG=seen_PG,
            answers=grades.answers,
            reward_PG=reward_PG,
            batch_index=torch.arange(len(problems), device=reward_PG.device),
        )

    def batch(self, sampled: Sampled) -> tuple[GradedBatch, State]:
        """The groups that are trained on with the method's signals, and its state after them."""
        method, indices, train = self.spec.method, sampled.batch_index, self.spec.train
        sampler_PGT = sampled.batch.logp_PGT
        if train.sampler_rounding:
            exact_PGT = self.updater.log_probs(sampled.rollouts)
            sampled = dataclasses.replace(sampled, rollouts=dataclasses.replace(sampled.rollouts, logp_PGT=exact_PGT))
        step, used_PG = sampled.for_method(method.needs, train.max_response), sampled.used(method)
        if "collision" in method.needs:
            step = dataclasses.replace(step, collision_PGT=self.updater.collisions(sampled.batch))
        if "greedy_reward" in method.needs:
            problems = [sampled.problems[index] for index in indices]
            reward_P, graded_P, tokens = greedy_rewards(self.policy, self.language, self.spec, self.step, problems)
            used_PG = used_PG & graded_P[:, None]
            self.costs.add_untrained(rollouts=len(problems), sampled_tokens=tokens)
            step = dataclasses.replace(step, greedy_reward_P=reward_P)
        with checks.at(f"step {self.step}"):
            signals, state = masking.signals(method, step, self.method_state, used_PG)
        index_P = torch.arange(len(indices), device=indices.device)
        if train.sampler_rounding:
            extra_columns = corrections.columns(train, sampled.batch.logp_PGT, sampler_PGT, sampled.batch.mask_PGT)
            signals = dataclasses.replace(signals, columns={**signals.columns, **extra_columns})
        return GradedBatch(sampled.batch, sampled.correct_PG[indices], signals, index_P, used_PG), state

    def sample_groups(
        self, problems: Sequence[Problem], seed: int, counts: Sequence[int] = ()
    ) -> tuple[Rollouts, Grades]:
        """A group of rollouts of each problem from stream `seed`, and the verdicts on them. See `sample_round`."""
        train = self.spec.train
        shape = max(counts, default=train.rollouts), train.max_response, train.temperature
        with checks.at(f"step {self.step}"):
            rollouts = self.sample(problems, *shape, seed, train.sampler_rounding, counts)
        return rollouts, self.language.grade(problems, rollouts)

    def sample(
        self,
        problems: Sequence[Problem],
        rollouts: int,
        max_response: int,
        temperature: float,
        seed: int,
        rounding: float = 0.0,
        counts: Sequence[int] = (),
    ) -> Rollouts:
        """Groups of rollouts of `problems` under the current policy; see `generate.sample`."""
        language, prompt_PS = self.language, self.language.prompts(problems).to(self.policy.device)
        shape = rollouts, max_response, temperature
        count_P = prompt_PS.new_tensor(counts) if counts else None
        return sample(self.policy, prompt_PS, *shape, language.eos, seed, language.stops, rounding, count_P)

    def probe(self, graded: Graded) -> dict[str, float]:
        """Resample the prompts that are due at this step, under the policy that sampled `graded`; returns metrics."""
        due_prompts = self.resampler.due(self.step, graded)
        n_P, c_P = list[int](), list[int]()
        if due_prompts:
            _, grades = self.sample_groups(
                [prompt.problem for prompt in due_prompts], stream(self.spec.seed, "reroll", self.step)
            )
            n_P, c_P = grades.graded_PG.sum(-1).tolist(), grades.correct_PG.sum(-1).tolist()
        rows, metrics = self.resampler.record(self.step, due_prompts, n_P, c_P)
        if rows:
            self.attempt.journal.rows("rerolls", self.step, rows)
        return metrics

    def gradients(self, sampled: Sampled, batch: GradedBatch) -> dict[str, float]:
        """Measure single prompts' gradients at the steps where that is due; returns metrics."""
        probe, train = self.spec.probe, self.spec.train
        # The first step is among them: it shows the base policy.
        if not probe.gradients_every or (self.step - 1) % probe.gradients_every:
            return {}
        mixed_indices = batch.mixed_P.nonzero()[: probe.gradient_prompts]
        mastered_indices = sampled.graded.mastered_P.nonzero()[: probe.gradient_prompts]
        texts = [problem.text for problem in sampled.problems]
        directions = [
            gradients.update_direction(self.updater, texts[sampled.batch_index[index]], batch.select(index))
            for index in mixed_indices
        ]
        directions += [
            gradients.likelihood_direction(self.policy, texts[index], sampled.rollouts.select(index))
            for index in mastered_indices
        ]
        rows = gradients.rows(self.step, directions)
        if rows:
            self.attempt.journal.rows("gradients", self.step, rows)
        return measure.gradients(rows, int(batch.mixed_P.sum()) * train.mini_batch / train.prompts)

    def record(self, sampled: Sampled, *, with_samples: bool) -> None:
        """Write the group rows of this step and, if asked, some full responses: where the policy is evaluated."""
        in_batch = set(sampled.batch_index.tolist())
        self.attempt.journal.rows("groups", self.step, measure.group_rows(self.step, sampled.graded, in_batch))
        if with_samples:
            samples = sampled.rollouts.select(torch.arange(len(sampled.problems))[: self.spec.compute.sample_groups])
            rows = measure.sample_rows(self.step, sampled.graded, self.language.shown(samples))
            self.attempt.journal.rows("samples", self.step, rows)

    def evaluate(self) -> None:
        """One row per problem of every held-out tier under the current policy, in the tiers' order."""
        self.attempt.phase(f"evaluation after step {self.step} of {self.spec.train.steps}")
        settings, rows = self.spec.eval, list[EvalRow]()
        shape = settings.samples, self.spec.train.max_response, settings.temperature
        for number, (tier, problems) in enumerate(self.problems.tiers(settings.problems).items()):
            with checks.at(f"evaluation after step {self.step}"):
                rollouts = self.sample(problems, *shape, stream(self.spec.seed, "eval", self.step, number))
            grades = self.language.grade(problems, rollouts, tier)
            counts = zip(problems, grades.graded_PG.sum(-1).tolist(), grades.correct_PG.sum(-1).tolist(), strict=True)
            for problem, n, c in counts:
                rows.append(measure.eval_row(self.step, tier, problem.text, (settings.samples, n, c)))
        self.attempt.journal.rows("eval", self.step, rows)

    def save(self) -> None:
        """Write a checkpoint of the current step, after which its records are final.

        Raises:
            NotFinite: a weight is NaN or infinite. RunFailed: the disk cannot be written.
        """
        if not all(weight.isfinite().all() for weight in self.policy.parameters()):
            raise NotFinite(f"step {self.step}: a weight of the policy is NaN or infinite")
        # The rows of a checkpoint must survive a power cut if the checkpoint does.
        self.attempt.journal.sync()
        memories = {"method": self.method_state, "sampler": checkpoint.as_tensors(self.sampler_state)}
        state = self.updater.state() | {name: memory for name, memory in memories.items() if memory}
        new_checkpoint = folders.Checkpoint(self.step, self.cursor, state)
        checkpoint.save(self.attempt.folder, new_checkpoint, self.spec.compute.checkpoints)
        self.attempt.durable(self.step)

    def restore(self, folder: Path) -> None:
        """Continue from a checkpoint."""
        old_checkpoint = folders.load(folder)
        self.step, self.cursor = old_checkpoint.step, old_checkpoint.cursor
        self.updater.load_state(old_checkpoint.tensors)
        state = old_checkpoint.tensors.get("method", self.method_state)
        self.method_state = {name: tensor.to(self.policy.device) for name, tensor in state.items()}
        self.sampler_state = checkpoint.as_columns(old_checkpoint.tensors.get("sampler", {}))
        self._follow_journal()

    def _follow_journal(self) -> None:
        """Continue from the journal's records of the steps so far."""
        journal, panel = Journal(self.attempt.folder.parent), self.spec.probe.panel
        self.resampler = Resampler(self.spec, journal, self.step, self.problems.training(self.spec.seed, 0, panel))
        self.costs = CostTotals(self.spec, journal, self.step)
