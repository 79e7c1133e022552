"""verl's synchronous trainer with our loop, batches, advantages, loss and records.

Our loop records, evaluates and saves in an order from which a run can resume. Sampling, log-probabilities, the engine
and the checkpoints are verl's.
"""

import time
from collections.abc import Hashable, Iterable, Sequence
from contextlib import closing
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transfer_queue as tq
from omegaconf import open_dict
from verl.trainer.ppo.v1 import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils import tensordict_utils as tu
from verl.utils.debug import marked_timer
from verl.utils.metric import reduce_metrics
from verl.utils.py_functional import append_to_dict, rename_dict
from verl.utils.skip import SkipManager

from mcpo_cli.backends import measure
from mcpo_cli.backends.base import starved
from mcpo_cli.backends.measure import Graded
from mcpo_cli.backends.rerolls import Rerolls
from mcpo_cli.backends.spent import Spent
from mcpo_cli.backends.verl import at_rest, batches, checkpoint, data, groups, learning_rate, lora, passes, queue, watch
from mcpo_cli.backends.verl.groups import Group, Prompt
from mcpo_cli.backends.verl.loss import METRIC, gradient_steps, loss, noise_floor
from mcpo_cli.backends.verl.overrides import TRAINER
from mcpo_cli.backends.verl.previous import Previous
from mcpo_cli.backends.verl.records import Records, seconds
from mcpo_cli.backends.verl.sampler import Sampler
from mcpo_cli.config.load import from_dict
from mcpo_cli.errors import Interrupted, RunFailed
from mcpo_cli.methods import AdvancedMethod, State
from mcpo_cli.records import MiniBatchRow
from mcpo_cli.runs.journal import Journal, read_json
from mcpo_cli.seeds import Stream, stream


@register_trainer(TRAINER)
class Trainer(PPOTrainerSync):
    """The trainer of one run.

    Its state belongs to the current step. prompts: all submitted for sampling. kept, discarded: groups in the batch,
    and groups dropped by dynamic sampling. measured: our metrics, without verl's. mini_batches: rows of gradient steps.
    said: what the method says of the batch. packs: the
    sequences whose log-probabilities are computed, those of one pass together. kinds: of each sequence, what
    `queue.with_entropy` takes. trained_tokens: of the sequences that
    passed through an update, prompts included. engine: a metric of the rollout engine, the same in every step.
    """

    def __init__(self, config: Any) -> None:
        attempt = Path(config.mcpo.attempt)
        self.spec = from_dict(read_json(attempt / "spec.json"))
        with open_dict(config):
            # Our name has selected this class; verl itself expects "sync".
            config.trainer.v1.trainer_mode = "sync"
        self.prompts: dict[str, Prompt] = {}
        self.kept: list[Group] = []
        self.discarded: list[Group] = []
        self.measured: dict[str, float] = {}
        self.mini_batches: list[MiniBatchRow] = []
        self.packs, self.kinds = list[list[str]](), dict[str, tuple[Hashable, bool]]()
        self.trained_tokens = 0
        self.engine: dict[str, float] = {}
        self.method_state: State = {}
        super().__init__(config)
        self.records = Records(self.spec, attempt)
        self.curr_step_profile = False

    def _build_replay_buffer(self) -> Sampler:
        dynamic = self.spec.method.dynamic_sampling
        return Sampler(
            keeps=self.spec.method.keeps,
            discard=self._discard,
            order=lambda uid: self.prompts[uid].order,
            watch=lambda: watch.alive(self),
            trainer_mode="sync",
            trainer_config={},
            max_off_policy_threshold=None,
            max_off_policy_strategy="drop",
            sampler_kwargs={},
            refill_fn=self._add_prompts_to_generate,
            filter_groups_metric="acc" if dynamic else None,
            train_batch_size=self.spec.train.prompts,
            gen_batch_size=1 if dynamic else self.spec.train.prompts,
        )

    def _setup(self) -> None:
        self.records.phase("loading the model")
        super()._setup()
        self.actor_rollout_wg.set_loss_fn(partial(loss, self.spec.method))
        self.log_probs = self.actor_rollout_wg.compute_log_prob
        self.actor_rollout_wg.compute_log_prob = self._as_in_the_update
        watch.on_each_rank(self.actor_rollout_wg, learning_rate.take_over)
        if self.global_steps == 0:
            # verl's warm-up would give the first step rate 0; ours starts one increment above.
            watch.on_each_rank(self.actor_rollout_wg, learning_rate.advance)
            watch.on_each_rank(self.actor_rollout_wg, partial(lora.draw, stream(self.spec.seed, "init")))
        root = Path(self.config.trainer.default_local_dir)
        self.method_state = checkpoint.method_state(root, self.global_steps) or self.method_state
        self.previous = None
        if "previous_policy" in self.spec.method.needs:
            self.previous = Previous(self.actor_rollout_wg, self.log_probs)
            if self.global_steps:
                self.previous.load(checkpoint.folder(root, self.global_steps))
            else:
                self.previous.remember()
        rows = islice(iter(self.train_dataset), self.spec.probe.panel)
        panel = [groups.problem(row["extra_info"], row["reward_model"]) for row in rows]
        journal = Journal(self.records.run_dir)
        self.rerolls = Rerolls(self.spec, journal, self.global_steps, panel)
        self.spent = Spent(self.spec, journal, self.global_steps)

    def fit(self, agent_loop_manager: Any) -> None:
        """Train from the checkpoint's step to the last one, as `mcpo_cli.backends.local.train` does.

        Raises:
            Interrupted: the run was asked to stop; a checkpoint was written. RunFailed: the run cannot continue.
        """
        self.agent_loop_manager, steps = agent_loop_manager, self.spec.train.steps
        SkipManager.init(self.config)
        if self.spec.cluster.rollout == "vllm":
            self.engine = {"vllm_v2_model_runner": float(watch.uses_v2_runner(self))}
        with closing(self.records):
            if self.global_steps == 0:
                self.evaluate()
            while self.global_steps < steps:
                if self.records.asked_to_stop():
                    if self.global_steps:
                        self.save()
                    raise Interrupted(f"stopped after step {self.global_steps} of {steps}")
                self.global_steps += 1
                self.records.phase(f"step {self.global_steps} of {steps}")
                self.global_step()
                if self.spent.evaluation_due:
                    self.evaluate()
                if self.global_steps % self.spec.compute.checkpoint_every == 0 or self.global_steps == steps:
                    self.save()

    def global_step(self) -> None:
        """Sample one batch, take its gradient steps and record them."""
        self.prompts, self.discarded, self.measured = {}, [], {}
        self.timing_raw: dict[str, float] = {}
        metrics: dict[str, Any] = dict(self.engine)
        start = time.monotonic()
        batch = self.step(metrics, self.timing_raw)
        self.on_step_end()
        self.timing_raw["step"] = time.monotonic() - start
        self._compute_metrics(batch, metrics, self.timing_raw, global_steps=self.global_steps, epoch=0)
        self.measured["sanity/logp_difference"] = queue.logp_difference([*chain(*self.packs)])
        self.kept = queue.with_entropy(self.kept, self.kinds, self.prompts)
        tq.kv_clear(keys=batch.keys, partition_id=batch.partition_id)
        self.records.rows("mini_batches", self.global_steps, self.mini_batches)
        length = [len(tokens) for group in (*self.kept, *self.discarded) for tokens in group.tokens]
        phases = seconds(self.timing_raw)
        self.spent.add(
            rollouts=len(length),
            sampled_tokens=sum(length),
            trained_tokens=self.trained_tokens,
            gradient_steps=len(self.mini_batches),
            seconds=phases["sample"] + phases["update"],
        )
        record = (self.kept, self.discarded, self.measured, self.spent, metrics, self.timing_raw)
        self.records.step(self.global_steps, *record, self.tokenizer)

    def evaluate(self) -> None:
        """Evaluate the current policy on all held-out problems.

        Raises:
            RunFailed: a rollout or its grading raised an error, or too many answers could not be graded.
        """
        self.records.phase(f"evaluation after step {self.global_steps} of {self.spec.train.steps}")
        (rows,) = self.val_dataloader  # in one batch
        self.records.evaluation(self.global_steps, self.roll(rows, "eval"))

    def probe(self) -> dict[str, float]:
        """Roll again the prompts due at this step, under the policy that sampled its batch; returns metrics.

        Raises:
            RunFailed: a rollout or its grading raised an error.
        """
        graded = self._graded(groups.in_order([*self.kept, *self.discarded]))
        rolls, rerolled = self.rerolls.due(self.global_steps, graded), list[Group]()
        if rolls:
            rows = [data.row(self.spec, roll.source, "reroll", i, roll.problem) for i, roll in enumerate(rolls)]
            # `__rollout_n__`: verl's column for a prompt's own number of rollouts.
            as_in_training = {"__rollout_n__": self.spec.train.rollouts, "temperature": self.spec.train.temperature}
            rerolled = self.roll(groups.columns(rows), "reroll", **as_in_training)
        n_P, c_P = [group.answers for group in rerolled], [sum(group.correct) for group in rerolled]
        again, metrics = self.rerolls.record(self.global_steps, rolls, n_P, c_P)
        self.records.rows("rerolls", self.global_steps, again)
        return metrics

    def roll(self, rows: dict[str, Any], name: Stream, **settings: Any) -> list[Group]:
        """Sample one group per row outside of training, with random numbers from the stream `name`.

        settings: sampling settings for all rows that replace verl's evaluation settings.

        Raises:
            RunFailed: a rollout or its grading raised an error, or too many answers could not be graded.
        """
        rows["uid"] = np.array([f"{name}{i}" for i in range(len(rows["raw_prompt"]))], dtype=object)
        known = groups.prompts(rows, 0)
        batch = tu.get_tensordict(rows)
        tu.assign_non_tensor(batch, global_steps=self.global_steps, validate=True, **settings)
        self._seed(batch, name, 0)
        tag = {"is_prompt": True, "status": "pending", "global_steps": self.global_steps}
        tq.kv_batch_put(keys=list(known), partition_id="val", tags=[dict(tag) for _ in known])
        self.agent_loop_manager.generate_sequences(batch)
        done, _ = self.replay_buffer.sample(self.global_steps, "val", len(known))
        sampled = queue.read(done.keys, "val", known)
        tq.kv_clear(keys=done.keys, partition_id="val")
        groups.check(sampled)
        return sampled

    def _seed(self, batch: Any, name: Stream, start: int) -> None:
        """Give each prompt of `batch` the seed that `agent.py` reads; `start`: position of the first in the step."""
        places = range(start, start + len(batch))
        seeds = [stream(self.spec.seed, name, self.global_steps, place) for place in places]
        tu.assign_non_tensor(batch, seed=seeds)

    def save(self) -> None:
        """Write a checkpoint of the current step, which makes its records final.

        Raises:
            RunFailed: it could not be written.
        """
        root, step = Path(self.config.trainer.default_local_dir), self.global_steps
        self.records.phase(f"checkpoint of step {step}")
        self.records.sync()
        try:
            self._save_checkpoint()
            checkpoint.save_method_state(root, step, self.method_state)
            if self.previous:
                self.previous.save(checkpoint.folder(root, step))
            checkpoint.seal(root, step)
        # On a full disk torch raises RuntimeError, also from other processes; our own files raise the others.
        except (OSError, RuntimeError, RunFailed) as error:
            raise checkpoint.failed(root, step, error) from error
        self.records.durable(step)

    def _submit_batch_to_rollout(self, batch: Any) -> int:
        train = self.spec.train
        if len(self.prompts) + len(batch) > train.prompts * (1 + train.max_refills):
            raise starved(self.global_steps, len(self.prompts), train)
        self._seed(batch, "rollout", len(self.prompts))
        self.prompts |= groups.prompts(batch, len(self.prompts))
        return super()._submit_batch_to_rollout(batch)

    def on_sample_end(self) -> None:
        """Runs when the batch is complete, while the rollout engine still has the weights that sampled it."""
        self.kept = self._read(self.replay_buffer.partitions["train"])
        groups.check([*self.kept, *self.discarded])
        with marked_timer("probe", self.timing_raw):
            self.measured |= self.probe()
        super().on_sample_end()

    def _discard(self, uids: set[str]) -> None:
        keys = [key for key in self.replay_buffer.partitions["train"] if groups.uid_of(key) in uids]
        self.discarded += self._read(keys)

    def _read(self, keys: Iterable[str]) -> list[Group]:
        """The groups of these trajectories of the training batch, rewarded as `train.reward` says."""
        found = queue.read(keys, "train", self.prompts)
        if self.spec.train.reward == "random":
            return [group.rewarded_at_random(self.spec.seed, self.global_steps) for group in found]
        return found

    def _balance_batch(self, batch: Any, metrics: dict[str, Any], **_options: Any) -> Any:
        """Order the batch as the stream, whatever the random ids of its prompts.

        Each pass shares its own sequences between the ranks (`batches.shared`). verl would split groups over
        mini-batches, whose totals would then depend on the number of ranks.
        """
        batch.reorder(sorted(range(len(batch)), key=lambda i: groups.place_of(batch.keys[i], self.prompts)))
        return batch

    @property
    def _ranks(self) -> int:
        """Number of ranks with sequences of their own; GPUs that share each sequence are one."""
        return int(max(self.actor_rollout_wg._query_dispatch_info("actor"))) + 1

    @property
    def _parts(self) -> list[list[int]]:
        """The positions in the batch of each mini-batch's sequences."""
        sequences = range(self.spec.train.prompts * self.spec.train.rollouts)
        size = self.spec.train.mini_batch * self.spec.train.rollouts
        return [list(sequences[start : start + size]) for start in sequences[::size]]

    def _compute_old_log_prob(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Compute them of the sequences that bear a gradient, and of a sample of the others for its entropy.

        verl does so for all. A method whose signals depend on them gets all here, too.
        """
        keys, places = batch.keys, self._places(batch.keys)
        if not self._signals_need_logp:
            self._ask_method(keys, "rollout_log_probs")
        bears = [self._signals_need_logp or bool(self.said.has_gradient_PG[place]) for place in places]
        right = [self.kept[prompt].correct[rollout] for prompt, rollout in places]
        kinds = [(prompt, *kind) for (prompt, _), *kind in zip(places, right, bears, strict=True)]
        tokens, ranks, parts = [tag["seq_len"] for tag in batch.tags], self._ranks, self._parts
        measured = batches.measured(bears, kinds)
        packs = chain(*(batches.packs(part, bears, measured, tokens, ranks) for part in parts))
        self.packs = [[keys[i] for i in batches.shared([pack], tokens, ranks)] for pack in packs]
        self.kinds = dict(zip(keys, zip(kinds, measured, strict=True), strict=True))
        passing = [*chain(*self.packs)]
        super()._compute_old_log_prob(batch.select_keys(passing), metrics)
        queue.stand_in([key for key in keys if key not in {*passing}])
        return batch

    @property
    def _signals_need_logp(self) -> bool:
        """Whether what the method says of a batch depends on the trainer's log-probabilities or entropies."""
        method = self.spec.method
        prepares = isinstance(method, AdvancedMethod) and method.prepares
        return bool(method.needs & {"logp", "entropy"}) or prepares

    def _as_in_the_update(self, batch: Any) -> Any:
        """verl's `compute_log_prob`, with the sequences packed together as the update will pack them.

        Rounding in bfloat16 depends on that, so old log-probabilities and those of the first update are equal bit by
        bit: no drift there is rounding.
        """
        for pack in self.packs:
            chosen = batch.select_keys(pack)
            chosen.extra_info = batch.extra_info | passes.log_probs(entropy=True)
            self.log_probs(chosen)
        return batch

    def _ask_method(self, keys: Sequence[str], logp: str) -> None:
        """Ask the method about the batch; `logp`: field with the log-probabilities under the policy of now."""
        step = queue.step(self.spec, self.kept, self._graded(self.kept), keys, self.prompts)
        logp_PGT = partial(queue.padded, logp, keys, self.prompts, step.length_PG)
        seed = stream(self.spec.seed, "method", self.global_steps, 0)
        self.said, self.method_state = at_rest.ask(self.spec, step, self.method_state, logp_PGT, seed)
        correct_PG = torch.tensor([group.correct for group in self.kept])
        self.measured |= measure.weights(correct_PG, self.said.signals.advantage_PG)
        self.measured |= measure.signs(correct_PG, self.said.signals.advantage_PG)

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Put what the loss reads of each sequence into the queue."""
        if self._signals_need_logp:
            self._ask_method(batch.keys, "old_log_probs")
        if cap := self.spec.cluster.rollout_correction:
            metrics.update(queue.put_weights([*chain(*self.packs)], cap))
        said, places = self.said, self._places(batch.keys)
        fields = queue.fields(self.spec.method, said.signals, said.length_PG, said.totals, places)
        return tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields)

    def _places(self, keys: Sequence[str]) -> list[tuple[int, int]]:
        """Each trajectory's index: that of its prompt in the batch, and its rollout number."""
        place = {group.prompt.order: i for i, group in enumerate(self.kept)}
        return [(place[order], rollout) for order, rollout in (groups.place_of(key, self.prompts) for key in keys)]

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Take the gradient steps of a global step with verl, and record the loss's own report.

        Sequences without a gradient stay out. Weights are global over a mini-batch, so the sum is the same.
        """
        train, tokens, ranks = self.spec.train, [tag["seq_len"] for tag in batch.tags], self._ranks
        bears = [bool(self.said.has_gradient_PG[place]) for place in self._places(batch.keys)]
        self.trained_tokens, output = 0, dict[str, Any]()
        for part in self._parts:
            passing = batches.passing(part, bears, tokens, ranks)
            self.trained_tokens += sum(tokens[i] for i in passing)
            chosen = batch.select_keys([batch.keys[i] for i in batches.shared([passing], tokens, ranks)])
            chosen.extra_info = batch.extra_info | passes.update(self.spec.method, len(passing))
            if self.previous:
                self.previous.log_probs(chosen)
                self.previous.remember()
            append_to_dict(output, self.actor_rollout_wg.update_actor(chosen)["metrics"])
        watch.on_each_rank(self.actor_rollout_wg, learning_rate.advance)
        reports = output.pop(METRIC)
        self.mini_batches, measured = gradient_steps(
            self.global_steps, reports, output["grad_norm"], train.mini_batch, self.said.at_rest
        )
        if isinstance(self.spec.method, AdvancedMethod):
            self.method_state = self.spec.method.learn(self.method_state, measured)
        self.measured |= measured | {"train/lr": train.lr_at(self.global_steps)}
        self.measured["sanity/noise_floor"] = noise_floor(reports, train.mini_batch)
        output = rename_dict(output, "actor/")
        output["perf/mfu/actor"] = output.pop("actor/mfu")
        metrics.update(reduce_metrics(output))
        return batch

    def _graded(self, sampled: Sequence[Group]) -> Graded:
        ends = groups.end_tokens(self.spec.task, self.tokenizer)
        return groups.graded(sampled, ends, self.spec.train.temperature)
