"""verl's synchronous trainer with our loop, batches, advantages, loss and records.

Our loop records, evaluates and saves in an order from which a run can resume. Sampling, log-probabilities, the engine
and the checkpoints are verl's.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import transfer_queue as tq
from omegaconf import open_dict
from verl.trainer.ppo.v1 import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils import tensordict_utils as tu
from verl.utils.debug import marked_timer
from verl.utils.metric import reduce_metrics
from verl.utils.py_functional import append_to_dict, rename_dict
from verl.utils.skip import SkipManager

from mcpo_cli.backends import checks, corrections
from mcpo_cli.backends.drawing import starved
from mcpo_cli.backends.graded import Graded
from mcpo_cli.backends.measure import CostTotals
from mcpo_cli.backends.resampling import Resampler
from mcpo_cli.backends.verl import batch as batches
from mcpo_cli.backends.verl import checkpoint, data, engine, queue
from mcpo_cli.backends.verl.batch import Group, Prompt
from mcpo_cli.backends.verl.engine import Returned, Rounding
from mcpo_cli.backends.verl.loss import METRIC, gradient_steps, kept_policies, loss, noise_floor
from mcpo_cli.backends.verl.overrides import draws_by_position
from mcpo_cli.backends.verl.records import Records, Trained, seconds
from mcpo_cli.config.load import from_dict
from mcpo_cli.errors import Interrupted, RunFailed
from mcpo_cli.methods import State
from mcpo_cli.records import MiniBatchRow
from mcpo_cli.runs.journal import Journal, read_json
from mcpo_cli.seeds import Stream, stream


@register_trainer("mcpo")  # `trainer_mode` in settings.yaml
class Trainer(PPOTrainerSync):
    """The trainer of one run.

    root: the folder of the checkpoints; sealed: the step of the newest complete one. Of the current step: prompts: all
    submitted ones. kept, discarded: groups in the batch, and groups that dynamic sampling dropped. output: the method's
    `MethodOutput`. passes: keys of the sequences in each pass for old log-probabilities. updates, probed: metrics.
    mini_batches: rows of gradient steps. trained_tokens: tokens of the sequences of all updates, prompts included.
    """

    def __init__(self, config: Any) -> None:
        attempt = Path(config.mcpo.attempt)
        self.spec = from_dict(read_json(attempt / "spec.json"))
        with open_dict(config):
            # Our name has selected this class; verl itself expects "sync".
            config.trainer.v1.trainer_mode = "sync"
        self.root, self.sealed = Path(config.trainer.default_local_dir), 0
        self.prompts: dict[str, Prompt] = {}
        self.kept: list[Group] = []
        self.discarded: list[Group] = []
        self.passes: list[list[str]] = []
        self.output: Any = None
        self.updates: dict[str, float] = {}
        self.probed: dict[str, float] = {}
        self.mini_batches: list[MiniBatchRow] = []
        self.trained_tokens = 0
        self.engine_metrics: dict[str, float] = {}
        self.method_state: State = {}
        super().__init__(config)
        self.records = Records(self.spec, attempt)
        self.curr_step_profile = False

    def _build_replay_buffer(self) -> queue.Buffer:
        return queue.Rounds(self) if draws_by_position(self.spec) else queue.Buffer(self)

    def check_alive(self) -> None:
        """Raise RunFailed if one of the actors has died."""
        engine.check_alive(self)

    def _setup(self) -> None:
        self.records.phase("loading the model")
        super()._setup()
        self.actor_rollout_wg.set_loss_fn(partial(loss, self.spec.method, train=self.spec.train))
        self.log_probs = self.actor_rollout_wg.compute_log_prob
        self.actor_rollout_wg.compute_log_prob = self._as_in_the_update
        step, self.sealed = self.global_steps, self.global_steps
        if step == 0:
            self.on_each_rank(partial(engine.draw_lora, stream(self.spec.seed, "init")))
        self.method_state = checkpoint.method_state(self.root, step) or self.method_state
        self.kept_policies, folder = kept_policies(self.spec.method), checkpoint.folder(self.root, step)
        self.replay_buffer.restore(folder)
        for policy in self.kept_policies:
            self.on_each_rank(partial(engine.load, policy, folder) if step else partial(engine.remember, policy))
        rows = islice(iter(self.train_dataset), self.spec.probe.panel)
        panel = [batches.problem(row["extra_info"], row["reward_model"]) for row in rows]
        journal = Journal(self.records.run_dir)
        self.resampler = Resampler(self.spec, journal, step, panel)
        self.costs = CostTotals(self.spec, journal, step)

    def on_each_rank(self, call: Callable[[Any], Returned]) -> list[Returned]:
        """See `engine.on_each_rank`."""
        return engine.on_each_rank(self.actor_rollout_wg, call)

    def fit(self, agent_loop_manager: Any) -> None:
        """Train from the checkpoint's step to the last one, as `backends.local.train` does; see `Backend.run`."""
        self.agent_loop_manager, steps = agent_loop_manager, self.spec.train.steps
        SkipManager.init(self.config)
        if self.spec.cluster.rollout == "vllm":
            self.engine_metrics = {"vllm_v2_model_runner": float(engine.uses_v2_runner(self))}
        with closing(self.records):
            if self.global_steps == 0:
                self.evaluate()
            while self.global_steps < steps:
                if self.records.channel.asked_to_stop():
                    if self.sealed < self.global_steps:
                        self.write_checkpoint()
                        self.seal_checkpoint()
                    raise Interrupted(f"stopped after step {self.global_steps} of {steps}")
                self.global_steps += 1
                self.records.phase(f"step {self.global_steps} of {steps}")
                is_due = self.global_steps % self.spec.compute.checkpoint_every == 0 or self.global_steps == steps
                self.global_step(with_checkpoint=is_due)
                if self.costs.evaluation_due:
                    self.evaluate()
                if is_due:
                    self.seal_checkpoint()

    def global_step(self, *, with_checkpoint: bool) -> None:
        """Sample one batch, take its gradient steps and record them.

        with_checkpoint: write the files of a checkpoint before the rollout engine takes up its memory again.
        """
        self.prompts, self.discarded, self.output, self.timing_raw = {}, [], None, dict[str, float]()
        metrics: dict[str, Any] = dict(self.engine_metrics)
        start = time.monotonic()
        batch = self.step(metrics, self.timing_raw)
        if with_checkpoint:
            checkpoint_start = time.monotonic()
            self.write_checkpoint()
            start += time.monotonic() - checkpoint_start
        self.on_step_end()
        self.timing_raw["step"] = time.monotonic() - start
        self._compute_metrics(batch, metrics, self.timing_raw, global_steps=self.global_steps, epoch=0)
        self.updates["sanity/logp_difference"] = queue.logp_difference(batch.keys)
        self.kept = queue.with_entropy(self.kept, batch.keys, self.prompts)
        tq.kv_clear(keys=batch.keys, partition_id=batch.partition_id)
        self.records.journal.rows("mini_batches", self.global_steps, self.mini_batches)
        length = [len(tokens) for group in (*self.kept, *self.discarded) for tokens in group.tokens]
        phases = seconds(self.timing_raw)
        self.costs.add(
            rollouts=len(length),
            sampled_tokens=sum(length),
            trained_tokens=self.trained_tokens,
            gradient_steps=len(self.mini_batches),
            seconds=phases["sample"] + phases["update"],
        )
        advantage_PG = self.output.signals.advantage_PG
        trained = Trained(self.kept, self.discarded, advantage_PG, self.updates, self.probed, metrics, phases)
        self.records.step(self.global_steps, trained, self.costs, self.tokenizer)

    def evaluate(self) -> None:
        """Evaluate the current policy on all held-out problems; raises as `sample_groups` does."""
        self.records.phase(f"evaluation after step {self.global_steps} of {self.spec.train.steps}")
        (rows,) = self.val_dataloader  # in one batch
        with checks.at(f"evaluation after step {self.global_steps}"):
            groups = self.sample_groups(rows, "eval")
        self.records.evaluation(self.global_steps, groups)

    def probe(self) -> dict[str, float]:
        """Resample the prompts due at this step, under the policy that sampled its batch; returns metrics."""
        graded = self._graded(batches.in_order([*self.kept, *self.discarded]))
        prompts, groups = self.resampler.due(self.global_steps, graded), list[Group]()
        if prompts:
            rows = [data.row(self.spec, prompt.source, "reroll", i, prompt.problem) for i, prompt in enumerate(prompts)]
            # `__rollout_n__`: verl's column for a prompt's own number of rollouts.
            settings = {"__rollout_n__": self.spec.train.rollouts, "temperature": self.spec.train.temperature}
            groups = self.sample_groups(batches.columns(rows), "reroll", **settings)
        n_P, c_P = [sum(group.graded) for group in groups], [sum(group.correct) for group in groups]
        reroll_rows, metrics = self.resampler.record(self.global_steps, prompts, n_P, c_P)
        if reroll_rows:
            self.records.journal.rows("rerolls", self.global_steps, reroll_rows)
        return metrics

    def sample_groups(self, rows: dict[str, Any], name: Stream, **settings: Any) -> list[Group]:
        """Sample one group per row outside of training, with random numbers from the stream `name`.

        settings: replace verl's evaluation settings. Raises RunFailed if a rollout or its grading raised an error, or
        if too many answers could not be graded; NotFinite as `queue.read` does.
        """
        rows["uid"] = np.array([f"{name}{i}" for i in range(len(rows["raw_prompt"]))], dtype=object)
        prompts = batches.prompts(rows, 0)
        batch = tu.get_tensordict(rows)
        tu.assign_non_tensor(batch, global_steps=self.global_steps, validate=True, **settings)
        self._seed(batch, name, 0)
        tag = {"is_prompt": True, "status": "pending", "global_steps": self.global_steps}
        tq.kv_batch_put(keys=list(prompts), partition_id="val", tags=[dict(tag) for _ in prompts])
        self.agent_loop_manager.generate_sequences(batch)
        metadata, _ = self.replay_buffer.sample(self.global_steps, "val", len(prompts))
        groups = queue.read(metadata.keys, "val", prompts)
        tq.kv_clear(keys=metadata.keys, partition_id="val")
        batches.check(self.spec, groups)
        return groups

    def _seed(self, batch: Any, name: Stream, start: int) -> None:
        """Give each prompt of `batch` the seed that `agent.py` reads; `start`: index of the first in the step."""
        indices = range(start, start + len(batch))
        seeds = [stream(self.spec.seed, name, self.global_steps, index) for index in indices]
        tu.assign_non_tensor(batch, seed=seeds)

    def write_checkpoint(self) -> None:
        """Write the files of a checkpoint of the current step.

        Raises:
            NotFinite: a weight is NaN or infinite. RunFailed: the files cannot be written.
        """
        step, folder = self.global_steps, checkpoint.folder(self.root, self.global_steps)
        self.records.phase(f"checkpoint of step {step}")
        if not all(self.on_each_rank(engine.is_finite)):
            raise checks.NotFinite(f"step {step}: a weight of the policy is NaN or infinite")
        try:
            self._save_checkpoint()
            checkpoint.save_method_state(self.root, step, self.method_state)
            self.replay_buffer.save(folder)
            for policy in self.kept_policies:
                self.on_each_rank(partial(engine.save, policy, folder))
        # On a full disk torch raises RuntimeError, also from other processes; our own files raise the others.
        except (OSError, RuntimeError, RunFailed) as error:
            raise checkpoint.failed(self.root, step, error) from error

    def seal_checkpoint(self) -> None:
        """Complete the checkpoint of the current step, which makes its records final; RunFailed if that fails."""
        self.records.journal.sync()
        try:
            checkpoint.seal(self.root, self.global_steps)
        except OSError as error:
            raise checkpoint.failed(self.root, self.global_steps, error) from error
        self.sealed = self.global_steps
        self.records.durable(self.global_steps)

    def prepare_step(self) -> dict[str, Any]:
        """Let verl submit the batch of its data loader, unless the buffer draws the prompts."""
        return {} if self.replay_buffer.draws else super().prepare_step()

    def _submit_batch_to_rollout(self, batch: Any) -> int:
        train = self.spec.train
        if len(self.prompts) + len(batch) > train.prompts * (1 + train.max_refills):
            raise starved(self.global_steps, len(self.prompts), self.spec)
        self._seed(batch, "rollout", len(self.prompts))
        self.prompts |= batches.prompts(batch, len(self.prompts))
        return super()._submit_batch_to_rollout(batch)

    def on_sample_end(self) -> None:
        """Runs when the batch is complete, while the rollout engine still has the weights that sampled it."""
        self.kept = self.read(self.replay_buffer.partitions["train"])
        batches.check(self.spec, [*self.kept, *self.discarded])
        with marked_timer("probe", self.timing_raw), checks.at(f"step {self.global_steps}"):
            self.probed = self.probe()
        super().on_sample_end()

    def discard(self, uids: set[str]) -> None:
        """Record groups that dynamic sampling is about to drop."""
        keys = [key for key in self.replay_buffer.partitions["train"] if batches.uid_of(key) in uids]
        self.discarded += self.read(keys)

    def read(self, keys: Iterable[str]) -> list[Group]:
        """The groups of these trajectories of the training batch, with the rewards of `train.reward`."""
        with checks.at(f"step {self.global_steps}"):
            batch = queue.read(keys, "train", self.prompts)
        if self.spec.train.reward == "random":
            return [group.rewarded_at_random(self.spec.seed, self.global_steps) for group in batch]
        return batch

    def _balance_batch(self, batch: Any, metrics: dict[str, Any], **_options: Any) -> Any:
        """Sort the batch by the order of the stream: the ids of its prompts are random.

        Each pass shares its own sequences between the ranks (`balance_ranks`). verl would split groups over
        mini-batches, whose totals would then depend on the number of ranks.
        """
        batch.reorder(sorted(range(len(batch)), key=lambda i: batches.index_of(batch.keys[i], self.prompts)))
        return batch

    def _trained(self, batch: Any) -> Iterator[tuple[list[str], list[str]]]:
        """For each mini-batch, the keys of its update's sequences (all without an output yet), and of the others."""
        has_gradient = [True] * len(batch)
        if self.output:
            has_gradient = [bool(self.output.has_gradient_PG[index]) for index in self._indices(batch.keys)]
        # GPUs that split one sequence among them count as one rank.
        ranks = int(max(self.actor_rollout_wg._query_dispatch_info("actor"))) + 1
        size, tokens = self.spec.train.mini_batch * self.spec.train.rollouts, [tag["seq_len"] for tag in batch.tags]
        for parts in batches.mini_batches(has_gradient, tokens, size, ranks):
            trained_keys, other_keys = ([batch.keys[i] for i in indices] for indices in parts)
            yield trained_keys, other_keys

    def _compute_old_log_prob(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Compute log-probabilities and entropies of all sequences; the sequences of an update are computed together.

        A method whose signals depend on them cannot mark the sequences of an update before.
        """
        if not self._signals_need_logp:
            self._apply_method(batch.keys, "rollout_log_probs")
        self.passes = [keys for parts in self._trained(batch) for keys in parts if keys]
        return super()._compute_old_log_prob(batch, metrics)

    @property
    def _signals_need_logp(self) -> bool:
        """True if the method's output for a batch depends on the trainer's log-probabilities or entropies."""
        method = self.spec.method
        return bool(method.needs & {"logp", "entropy"}) or method.prepares

    def _as_in_the_update(self, batch: Any) -> Any:
        """verl's `compute_log_prob`, with the sequences packed together as the update will pack them.

        Rounding in bfloat16 depends on the packing, so the log-probabilities before and in the first update are equal
        bit by bit: drift there is never a rounding error.
        """
        for keys in self.passes:
            selection = batch.select_keys(keys)
            selection.extra_info = batch.extra_info | engine.log_prob_pass(entropy=True)
            self.log_probs(selection)
        return batch

    def _apply_method(self, keys: Sequence[str], logp: str) -> None:
        """Get the method's output for the batch; `logp`: the field of log-probabilities under the current policy."""
        graded = self._graded(self.kept)
        step = queue.step(self.spec, self.kept, graded, keys, self.prompts)
        logp_PGT = partial(queue.padded, logp, keys, self.prompts, step.length_PG)
        seed = stream(self.spec.seed, "method", self.global_steps, 0)
        with checks.at(f"step {self.global_steps}"):
            self.output, self.method_state = batches.apply_method(
                self.spec, step, self.method_state, graded.judged_PG, logp_PGT, seed
            )

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Put the loss's inputs for each sequence into the queue."""
        if self._signals_need_logp:
            self._apply_method(batch.keys, "old_log_probs")
        if corrections.asked(self.spec.train):
            queue.put_corrections(batch.keys, self.spec.train)
        fields = queue.fields(self.spec.method, self.output, self._indices(batch.keys))
        return tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields)

    def _indices(self, keys: Sequence[str]) -> list[tuple[int, int]]:
        """Each trajectory's index: its prompt's index in the batch, and its rollout number."""
        index = {group.prompt.order: i for i, group in enumerate(self.kept)}
        return [(index[order], rollout) for order, rollout in (batches.index_of(key, self.prompts) for key in keys)]

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Take the gradient steps of a global step with verl, and record the loss's own report.

        Sequences without a gradient are left out. Weights are global over a mini-batch, so the sum is the same.
        """
        train, rate, output = self.spec.train, self.spec.train.lr_at(self.global_steps), dict[str, Any]()
        self.trained_tokens, rounding_metrics = 0, dict[str, float]()
        if self.spec.method.moves_reference(self.global_steps):
            self.on_each_rank(partial(engine.remember, "reference_policy"))
        for trained_keys, _ in self._trained(batch):
            selection = batch.select_keys(trained_keys)
            self.trained_tokens += sum(tag["seq_len"] for tag in selection.tags)
            selection.extra_info = batch.extra_info | engine.update_pass(self.spec.method, len(trained_keys))
            for policy in self.kept_policies:
                self._add_log_probs_under(policy, selection)
            if "previous_policy" in self.kept_policies:
                self.on_each_rank(partial(engine.remember, "previous_policy"))
            self.on_each_rank(partial(engine.set_learning_rate, rate))
            rounding = Rounding(self, selection) if self.global_steps == 1 and not rounding_metrics else None
            append_to_dict(output, self.actor_rollout_wg.update_actor(selection)["metrics"])
            rounding_metrics = rounding.over_step() if rounding else rounding_metrics
        reports = output.pop(METRIC)
        self.mini_batches, step_metrics = gradient_steps(
            self.global_steps, reports, output["grad_norm"], train.mini_batch, self.output.report
        )
        self.method_state = self.spec.method.learn(self.method_state, step_metrics)
        floor = {"sanity/noise_floor": noise_floor(reports, train.mini_batch)}
        self.updates = step_metrics | rounding_metrics | {"train/lr": rate} | floor
        output.pop("lr")  # the rate of verl's scheduler
        output = rename_dict(output, "actor/")
        output["perf/mfu/actor"] = output.pop("actor/mfu")
        metrics.update(reduce_metrics(output))
        return batch

    def _add_log_probs_under(self, policy: str, batch: Any) -> None:
        """Add the log-probabilities of the sequences under a policy that ranks keep to the fields of `batch`."""
        selection = batch.select_keys(batch.keys)
        selection.extra_info = engine.log_prob_pass(entropy=False)
        self.on_each_rank(partial(engine.swap, policy))
        self.log_probs(selection)
        self.on_each_rank(partial(engine.swap, policy))
        batch.fields = queue.put_under(policy, batch.keys)

    def _graded(self, groups: Sequence[Group]) -> Graded:
        ends = batches.end_tokens(self.spec.task, self.tokenizer)
        return batches.graded(groups, ends, self.spec.train.temperature)
