"""Any method of mcpo in TRL's trainer (1.16): it samples, rewards and steps; advantages and loss are the method's.

    arguments = {"reward_funcs": [right], "train_dataset": problems, "args": GRPOConfig(num_generations=8)}
    MethodTrainer("HuggingFaceTB/SmolLM2-135M-Instruct", **arguments, method=get("mcpo")).train()

Each optimizer step takes one mini-batch. docs/use-a-method-elsewhere.md has the details.
"""

import copy
import zlib
from typing import Any

import torch
from torch import Tensor
from trl import GRPOTrainer

from mcpo_cli.backends.measure import MetricSums, reported
from mcpo_cli.methods import Method, MiniBatch, Step, TokenBatch, reduce
from mcpo_cli.seeds import stream

LEFT_OUT = {"beta": 0.0, "top_entropy_quantile": 1.0, "mask_truncated_completions": False, "use_vllm": False}
"""Parts of TRL's own loss, which the method replaces, with the values that turn them off."""


class MethodTrainer(GRPOTrainer):  # type: ignore[misc]  # TRL has no types
    correct = staticmethod(lambda reward: reward >= 1)  # which rollouts are, by their rewards
    answer = staticmethod(str.strip)  # the answer in a response, for methods that compare answers

    def __init__(self, *args: Any, method: Method, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.method, self.memory, self.sums = method, dict[str, Tensor](), MetricSums()
        self.parts = self.args.gradient_accumulation_steps
        self.rows, generated = self.args.per_device_train_batch_size * self.parts, self.args.generation_batch_size
        self.index = torch.arange(self.rows, device=self.accelerator.device)
        self.previous = copy.deepcopy(self.model) if "previous_policy" in method.needs else None
        if self.accelerator.num_processes > 1 or self.rows % self.num_generations or generated % self.rows:
            raise ValueError("one process; whole groups in an optimizer step, whole optimizer steps in a generation")
        if wrong := [name for name, value in LEFT_OUT.items() if getattr(self.args, name) != value]:
            raise ValueError(f"{', '.join(wrong)}: part of TRL's loss, which the method replaces")
        if costly := method.needs & {"collision", "greedy_reward", "reference_policy"}:
            raise ValueError(f"{method.name} needs {', '.join(costly)}, which only mcpo train computes")
        if method.dynamic_sampling:
            raise ValueError("TRL samples no groups in place of others: get(NAME, dynamic_sampling=False)")

    def _calculate_rewards(self, *given: Any) -> Any:
        rewards = super()._calculate_rewards(*given)
        self.reward_B = (rewards * self.reward_weights.to(rewards.device)).nansum(1).double()
        return rewards

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        if not self.model.training:
            return super()._prepare_inputs(generation_batch)
        place = self._step % self.args.steps_per_generation
        if self._step % (self.args.steps_per_generation * self.num_iterations) == 0:
            self.begin_global_step(self._generate_and_score_completions(generation_batch))
        if place % self.parts == 0:
            self.begin_mini_batch(self.index + place // self.parts * self.rows)
        return {"index": self.index.chunk(self.parts)[place % self.parts]}

    @torch.no_grad()
    def begin_global_step(self, batch: dict[str, Tensor]) -> None:
        """Compute the signals of the generated responses, whose rows are groups, one after another."""
        self.batch, self.mask_BT, shape = batch, batch["completion_mask"].bool(), (-1, self.num_generations)
        self.old_BT, entropy_BT = self.under(self.model, torch.arange(len(self.mask_BT)))
        texts = self._tokenizer.batch_decode(batch["completion_ids"], skip_special_tokens=True)
        prompts = self._tokenizer.batch_decode(batch["prompt_ids"], skip_special_tokens=True)
        hashes = [zlib.crc32(text.encode()) for text in [*prompts, *map(self.answer, texts)]]
        prompt_PG, answer_PG = torch.tensor(hashes, device=self.old_BT.device).view(2, *shape)
        reward_PG, self.length_PG = self.reward_B.view(shape), self.mask_BT.sum(-1).view(shape)
        facts = reward_PG, self.correct(reward_PG), self.length_PG, prompt_PG[:, 0], self.max_completion_length
        logp_PGT, entropy_PGT = self.old_BT.unflatten(0, shape), entropy_BT.unflatten(0, shape)
        step = Step(*facts, logp_PGT=logp_PGT, entropy_PGT=entropy_PGT, answer_PG=answer_PG)
        if self.memory:
            self.memory = self.method.learn(self.memory, self.sums.means())
        self.signals, self.memory = self.method.signals(step, self.memory)
        self.sums = MetricSums()

    @torch.no_grad()
    def begin_mini_batch(self, rows: Tensor) -> None:
        """Compute the method's inputs for a whole mini-batch, `rows` of the global step, before its gradient."""
        group_B = rows // self.num_generations
        signals = self.signals.map(lambda tensor: tensor[group_B.unique()])
        flat = signals.map(lambda tensor: tensor.flatten(0, 1))
        total = MiniBatch.of(self.length_PG[group_B.unique()], signals, self.max_completion_length)
        tensors = self.under(self.model, rows)[0], self.old_BT[rows], self.mask_BT[rows]
        advantage_BT = flat.advantage.view(len(rows), -1)
        self.tokens = TokenBatch(*tensors, advantage_BT, group_B, total, flat.columns)
        self.first = int(rows[0])
        if self.method.prepares:
            columns = self.method.prepare(self.tokens, stream(self.args.seed, "method", self._step))
            self.tokens = self.tokens.replace(columns={**self.tokens.columns, **columns})
        if self.previous is not None:
            self.tokens = self.tokens.replace(logp_previous_BT=self.under(self.previous, rows)[0])
            self.previous.load_state_dict(self.model.state_dict())

    def under(self, model: Any, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities and entropies of `rows` of the global step under `model`, BT, 0 on padding."""
        ids = torch.cat([self.batch["prompt_ids"], self.batch["completion_ids"]], 1)[rows]
        seen = torch.cat([self.batch["prompt_mask"], self.batch["completion_mask"]], 1)[rows]
        given = {"batch_size": self.args.per_device_train_batch_size, "compute_entropy": True}
        found = self._get_per_token_logps_and_entropies(model, ids, seen, self.mask_BT.shape[1], **given)
        logp_BT, entropy_BT = (tensor.where(self.mask_BT[rows], 0.0) for tensor in found[:2])
        return logp_BT, entropy_BT.detach()

    def _compute_loss(self, model: Any, inputs: dict[str, Tensor]) -> Any:
        if "index" not in inputs:  # an evaluation
            return super()._compute_loss(model, inputs)
        logp_BT, entropy_BT = self.under(model, inputs["index"] + self.first)
        tokens = self.tokens.select(inputs["index"]).replace(logp_BT=logp_BT, entropy_BT=entropy_BT)
        with torch.no_grad():
            self.sums.merge(reported(self.method.report(tokens), tokens.group_B))
        return reduce(self.method.token_loss(tokens), tokens.mask_BT)

    def log(self, logs: dict[str, float], *args: Any) -> None:
        super().log({**logs, **self.sums.means()}, *args)
