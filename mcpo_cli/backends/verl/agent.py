"""verl agent loop that turns a problem into a one-turn prompt, tokenized as `mcpo evaluate` does it.

verl's own loop needs a chat template, and Qwen's special tokens for a Qwen3 model; a model with a closed vocabulary has
neither. Importing this module registers the loop `mcpo` in the sampling process.
"""

import time
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput, register

from mcpo_cli.backends.verl.data import stops, variables
from mcpo_cli.seeds import stream
from mcpo_cli.tokenization import prompt_ids, stop_ids


@register("mcpo")  # `default_agent_loop` in settings.yaml
class OneTurn(AgentLoopBase):
    """See `AgentLoopBase`; verl calls `run` once per rollout."""

    def __init__(self, *args: Any, hf_model_type: str | None = None, **options: Any) -> None:
        # The model type would select a prompt builder that is not used here.
        super().__init__(*args, hf_model_type=None, **options)

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        """Sample one response to the prompt of `row`.

        `row` has the prompt's `seed`, a `temperature` where it differs from verl's setting, and in `extra_info` the
        task's stop strings and the variables of the chat template.
        """
        info = row.get("extra_info") or {}
        prompt, start = prompt_ids(self.tokenizer, row["raw_prompt"], variables(info)), time.monotonic()
        # A seed per rollout: results do not depend on the engine's other requests.
        sampling: dict[str, Any] = {"seed": stream(row["seed"], "rollout", row["session_id"])}
        sampling |= {"temperature": row["temperature"]} if "temperature" in row else {}
        if strings := stops(info):
            # vLLM would have to decode each token to find a string.
            sampling |= {"stop_token_ids": list(stop_ids(self.tokenizer, strings))}
        output = await self.server_manager.generate(
            request_id=f"{row['seed']}-{row['session_id']}",
            prompt_ids=prompt,
            sampling_params=sampling_params | sampling,
        )
        length = self.rollout_config.response_length
        response_ids, logps = output.token_ids[:length], output.log_probs
        return AgentLoopOutput(
            prompt_ids=prompt,
            response_ids=response_ids,
            response_mask=[1] * len(response_ids),
            response_logprobs=logps[:length] if logps else None,
            num_turns=2,
            metrics={"generate_sequences": time.monotonic() - start},
            extra_fields=output.extra_fields,
        )
