"""A rollout engine of verl on transformers: one server per replica, which samples simultaneous requests together."""

import asyncio
import os
from typing import Any

import ray
import torch
from transformers import AutoModelForCausalLM, LogitsProcessorList
from verl.plugin.platform import get_platform
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, TokenOutput

from mcpo_cli.evaluation.engines import SampleRequest, Sampling
from mcpo_cli.evaluation.engines.hf import Seeded

GATHER_SECONDS = 0.02
"""Seconds that a request waits for others, to be sampled with them."""
Waiting = tuple[list[int], dict[str, Any], "asyncio.Future[TokenOutput]"]


class Server:
    """The actor that holds the weights. Sampling parameters are those of verl's agent loop."""

    def __init__(self, path: str, response_length: int) -> None:
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        torch.set_num_threads(1)
        self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).to(self.device).eval()
        self.loaded = {name: weight.clone() for name, weight in self.model.state_dict().items()}
        self.length, self.global_steps = response_length, 0
        self.waiting: list[Waiting] = []
        self.loop: asyncio.Task[None] | None = None

    async def generate(
        self, prompt_ids: list[int], sampling_params: dict[str, Any], request_id: str, **_media: Any
    ) -> TokenOutput:
        """One response with the log-probabilities of its tokens at temperature 1."""
        future = asyncio.get_running_loop().create_future()
        self.waiting.append((list(prompt_ids), sampling_params, future))
        if self.loop is None or self.loop.done():
            self.loop = asyncio.create_task(self._serve())
        output: TokenOutput = await future
        return output

    async def _serve(self) -> None:
        while self.waiting:
            await asyncio.sleep(GATHER_SECONDS)
            temperature = self.waiting[0][1]["temperature"]
            batch = [request for request in self.waiting if request[1]["temperature"] == temperature]
            self.waiting = [request for request in self.waiting if request[1]["temperature"] != temperature]
            try:
                seeds = tuple(request[1]["seed"] for request in batch)
                stop_ids = [request[1].get("stop_token_ids") or () for request in batch]
                prompts = [prompt for prompt, _, _ in batch]
                outputs = await asyncio.to_thread(self._sample, prompts, seeds, stop_ids, temperature)
            except Exception as error:
                for _, _, future in batch:
                    future.set_exception(error)
                continue
            for (_, _, future), output in zip(batch, outputs, strict=True):
                future.set_result(output)

    @torch.no_grad()
    def _sample(
        self, prompts: list[list[int]], seeds: tuple[int, ...], stop_ids: list[Any], temperature: float
    ) -> list[TokenOutput]:
        """Sample responses, cut after the end token or the first of their own stop tokens."""
        eos, longest = self.model.config.eos_token_id, max(map(len, prompts))
        ids = torch.tensor([[eos] * (longest - len(prompt)) + prompt for prompt in prompts], device=self.device)
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts], device=self.device)
        sampling = Sampling(temperature=temperature, top_p=1.0, max_tokens=self.length, stop_ids=(eos,))
        seeded = Seeded(SampleRequest("", tuple(ids[0].tolist()), seeds), sampling, self.length, self.device)
        drawn = self.model.generate(
            input_ids=ids,
            attention_mask=mask,
            do_sample=False,
            logits_processor=LogitsProcessorList([seeded]),
            max_new_tokens=self.length,
            pad_token_id=eos,
            return_dict_in_generate=True,
            output_logits=True,
        )
        logp_BTV = torch.stack(drawn.logits, dim=1).log_softmax(-1)
        token_BT = drawn.sequences[:, longest:]
        logp_BT = logp_BTV.gather(-1, token_BT[..., None]).squeeze(-1)
        outputs = []
        for tokens, logps, stops in zip(token_BT.tolist(), logp_BT.tolist(), stop_ids, strict=True):
            ends = {eos, *stops}
            length = next((place for place, token in enumerate(tokens, 1) if token in ends), len(tokens))
            steps = {"global_steps": self.global_steps}
            outputs.append(TokenOutput(token_ids=tokens[:length], log_probs=logps[:length], extra_fields=steps))
        return outputs

    async def update_weights(
        self, weights: dict[str, torch.Tensor], peft_config: dict[str, Any] | None, global_steps: int | None
    ) -> None:
        """Take the policy's weights, or with `peft_config` the matrices of its LoRA."""
        if peft_config:
            weights = adapted(self.loaded, weights, peft_config["lora_alpha"] / peft_config["r"])
        missing, unknown = self.model.load_state_dict(weights, strict=False)
        # Tied weights come once.
        if unknown or set(missing) - {"lm_head.weight"}:
            raise ValueError(f"weights do not fit: missing {missing}, unknown {unknown}")
        self.global_steps = global_steps or 0

    async def sleep(self) -> None:
        """Do nothing: no memory is freed."""

    wake_up = sleep


def adapted(
    loaded: dict[str, torch.Tensor], matrices: dict[str, torch.Tensor], scale: float
) -> dict[str, torch.Tensor]:
    """The loaded weights plus the product of their LoRA matrices, if they have any."""
    weights, lora = dict(loaded), "lora_A.weight"
    for name, a_RI in matrices.items():
        if name.endswith(lora):
            layer = f"{name.removeprefix('base_model.model.').removesuffix(lora)}weight"
            weights[layer] = loaded[layer] + scale * matrices[name.replace("lora_A", "lora_B")] @ a_RI
    return weights


class Replica(RolloutReplica):
    """Starts the server."""

    async def launch_servers(self) -> None:
        """Start one actor, named so that the trainer's ranks find it."""
        environment = dict.fromkeys(get_platform().ray_noset_envvars(), "1")
        server = ray.remote(Server).options(
            name=f"transformers_server_{self.replica_rank}",
            max_concurrency=self.max_concurrency,
            runtime_env={"env_vars": environment},
        )
        handle = server.remote(self.model_config.path, self.config.response_length)
        self.servers, self._server_handle, self._server_address = [handle], handle, f"replica-{self.replica_rank}"


class Adapter(BaseRollout):
    """The trainer's side of it, in each rank."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, **options: Any) -> None:
        super().__init__(config, model_config, device_mesh, **options)
        size = self.config.tensor_model_parallel_size
        self.replica, self.leads = int(os.environ["RANK"]) // size, int(os.environ["RANK"]) % size == 0

    async def resume(self, tags: list[str]) -> None:
        """Do nothing: no memory was freed."""

    async def release(self) -> None:
        """Do nothing: no memory is freed."""

    async def update_weights(
        self, weights: Any, peft_config: dict[str, Any] | None = None, global_steps: int | None = None, **_options: Any
    ) -> None:
        """Every rank takes part in gathering a tensor; one rank of each replica passes it on."""
        tensors = {name: tensor.detach().cpu().clone() for name, tensor in weights}
        if self.leads:
            server = ray.get_actor(f"transformers_server_{self.replica}")
            await server.update_weights.remote(tensors, peft_config, global_steps)
