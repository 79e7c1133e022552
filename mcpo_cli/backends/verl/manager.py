"""verl's reward manager with the text that was sampled: verl's own decodes a response without its special tokens."""

from typing import Any

from transformers import GenerationConfig
from verl.experimental.reward_loop.reward_manager.dapo import DAPORewardManager

from mcpo_cli.tokenization import decoded, opened


class Rewards(DAPORewardManager):
    """verl's DAPO manager, which adds the overlong shaping; `reward.compute_score` gets the text in `extra_info`."""

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any, *args: Any, **options: Any) -> None:
        super().__init__(config, tokenizer, compute_score, *args, **options)
        self._ends = {tokenizer.eos_token_id, *_listed_ends(config.actor_rollout_ref.model.path)}

    async def run_single(self, data: Any) -> dict[str, Any]:
        """See `RewardManagerBase`: the reward of the last sequence of `data`, a `DataProto`."""
        item = data[-1:][0]
        response_T = item.batch["responses"]
        mask_S = item.batch["attention_mask"]
        prompt = item.batch["prompts"][mask_S[: -len(response_T)].bool()].tolist()
        tokens = response_T[: int(mask_S[-len(response_T) :].sum())].tolist()
        text = opened(self.tokenizer, prompt) + decoded(self.tokenizer, tokens, self._ends)
        rows = data.non_tensor_batch["extra_info"]
        rows[-1] = {**rows[-1], "response": text}
        return await super().run_single(data)


def _listed_ends(folder: str) -> list[int]:
    """The tokens that end a response by the model's generation_config.json, as vLLM takes them."""
    try:
        ends = GenerationConfig.from_pretrained(folder, local_files_only=True).eos_token_id
    except OSError:
        return []
    return ends if isinstance(ends, list) else [ends]
