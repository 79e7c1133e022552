"""A saved policy is an ordinary Hugging Face model: its folder has the files for transformers, vLLM and verl."""

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from mcpo_cli import tasks
from mcpo_cli.backends.local import policy as policies
from mcpo_cli.backends.local import tokenizer as tokenizers
from mcpo_cli.backends.local.encoding import encode
from mcpo_cli.backends.local.policy import Policy
from mcpo_cli.backends.local.sampler import sample
from mcpo_cli.config.load import load


def test_stock_classes_load_it_and_generate_the_same_tokens(tmp_path: Path) -> None:
    for name in ("toy-s", "toy-m"):
        (spec,) = load([f"model={name}"])
        task = tasks.closed(spec.task)
        tokenizer = tokenizers.build(task.vocabulary)
        policy = Policy(policies.build(spec.model, tokenizer, 0), torch.device("cpu"))
        policy.save(tmp_path / name, tokenizer)

        model = AutoModelForCausalLM.from_pretrained(tmp_path / name, dtype="float32")
        loaded = AutoTokenizer.from_pretrained(tmp_path / name)
        # verl masks tokens beyond the tokenizer only in some places; vLLM's CPU attention takes 32.
        assert model.config.vocab_size == len(loaded) == len(tokenizer)
        assert model.config.head_dim == 32

        problems = task.training(0, 0, 4)
        batch = encode(tokenizer, problems, 16)
        prompt_PS = batch.prompt_PS
        again = loaded([problem.text for problem in problems], return_tensors="pt")["input_ids"]
        assert torch.equal(again, prompt_PS)
        for gold_T, length, problem in zip(batch.gold_PT, batch.length_P, problems, strict=True):
            assert gold_T[:length].tolist() == [*loaded(problem.gold)["input_ids"], loaded.eos_token_id]
        # Close to temperature 0 sampling is greedy.
        ours = sample(policy, prompt_PS, 1, 8, 1e-4, tokenizer.eos_token_id, seed=0).token_PGT[:, 0]
        stock = model.generate(prompt_PS, attention_mask=torch.ones_like(prompt_PS), max_new_tokens=8, do_sample=False)
        theirs = stock[:, prompt_PS.shape[1] :]
        assert torch.equal(ours[:, : theirs.shape[1]], theirs)
