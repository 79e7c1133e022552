"""A global step of `model=smollm2-135m` against a loop on stock transformers and against TRL's GRPOTrainer.

All three do the same work: 16 prompts of 23 to 26 tokens x 8 rollouts of 4 tokens (4 prompts with responses of 64),
graded by coin flips, and two gradient steps with AdamW. They take turns in one process. SmolLM2 samples the rollouts
at temperature 1, so short ones of a prompt often share a prefix, as in a run; the local engine computes it once.

`python -m benchmarks.pretrained` measures only this; `--growth` measures how time and memory of the local engine grow,
with the overrides that follow or with those of GROWTH;
`--formats TOKENS PROMPTS STEPS` appends rows of steps in float32 and in bfloat16, which take turns, and of products
alone; `--formats` only the latter.
"""

import json
import resource
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor

from benchmarks import engine, flops, opponent, workload
from benchmarks.rows import Measurement, record
from mcpo_cli.backends.local.encoding import Language
from mcpo_cli.config.load import load
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.machine import LINUX, MIB

STEPS = 3
PROMPTS = {4: 16, 64: 4}
"""Prompts of a global step by tokens of a response: fewer with long ones, which take the opponents minutes."""
MICRO_BATCH = {4: 64, 64: 16}
"""Sequences per pass of the opponents, by tokens of a response."""
CLIP_LOW, CLIP_HIGH = 0.2, 0.28


def spec(*words: str) -> RunSpec:
    """`model=smollm2-135m` on sums with the overrides `words`, without probes."""
    quiet = ["method=dapo", "method.dynamic_sampling=false", "probe.every=0"]
    (found,) = load(["model=smollm2-135m", *quiet, *words])
    compute = replace(found.compute, threads=workload.THREADS)
    return replace(found, compute=compute, probe=replace(found.probe, panel_every=0))


def shape(length: int) -> RunSpec:
    """A step with responses of `length` tokens: `load` would refuse them as too short for a whole answer."""
    train = {"max_response": length, "prompts": PROMPTS[length], "mini_batch": PROMPTS[length] // 2}
    found = spec()
    return replace(found, train=replace(found.train, **train))


class Stock:
    """The plain loop on transformers: `generate`, forward passes of whole sequences, AdamW."""

    def __init__(self, settings: RunSpec) -> None:
        self.spec, self.step = settings, 0
        self.model, tokenizer = workload.fresh_model(settings)
        tokenizer.padding_side = "left"
        self.tokenizer, self.language = tokenizer, Language(settings.task, tokenizer, [0], closed=False)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=settings.train.lr, weight_decay=0.0, fused=True)

    def seconds(self) -> float:
        """Wall time of the next global step."""
        self.step += 1
        problems = workload.prompts(self.spec, self.step)
        start = time.perf_counter()
        texts = [self.spec.task.messages(problem)[0]["content"] for problem in problems]
        batch = self.tokenizer(texts, return_tensors="pt", padding=True).to("cpu")
        G, T = self.spec.train.rollouts, self.spec.train.max_response
        repeated = {name: value.repeat_interleave(G, 0) for name, value in batch.items()}
        whole_BS = self.model.generate(
            **repeated, do_sample=True, top_k=0, max_new_tokens=T, min_new_tokens=T, pad_token_id=0
        )
        mask_BS = torch.nn.functional.pad(repeated["attention_mask"], (0, T), value=1)
        advantage_B = torch.where(torch.rand(len(whole_BS)) < 0.5, 1.0, -1.0)
        parts = torch.arange(len(whole_BS)).split(self.spec.train.mini_batch * G)
        with torch.no_grad():
            # The first mini-batch is trained under the policy that sampled.
            later = torch.cat(parts[1:])
            old_BT = torch.cat([self._logp(whole_BS[i], mask_BS[i]) for i in later.split(MICRO_BATCH[T])])
        for number, index in enumerate(parts):
            for part in index.split(MICRO_BATCH[T]):
                logp_BT = self._logp(whole_BS[part], mask_BS[part])
                ratio_BT = (logp_BT - (old_BT[part - len(parts[0])] if number else logp_BT.detach())).exp()
                gain_BT = torch.minimum(
                    ratio_BT * advantage_B[part, None],
                    ratio_BT.clamp(1 - CLIP_LOW, 1 + CLIP_HIGH) * advantage_B[part, None],
                )
                (-gain_BT.sum() / (len(index) * T)).backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()
        return time.perf_counter() - start

    def _logp(self, whole_BS: Tensor, mask_BS: Tensor) -> Tensor:
        T = self.spec.train.max_response
        position_BS = (mask_BS.cumsum(-1) - 1).clamp(min=0)
        out = self.model(whole_BS, attention_mask=mask_BS, position_ids=position_BS, logits_to_keep=T + 1)
        found: Tensor = out.logits[:, :-1].log_softmax(-1).gather(-1, whole_BS[:, -T:, None]).squeeze(-1)
        return found


def trl_seconds(settings: RunSpec, between: Callable[[], None]) -> list[float]:
    """Wall times of `STEPS` global steps of TRL; `between` runs before each of them and is not timed."""
    model, tokenizer = workload.fresh_model(settings)
    problems = [problem for step in range(STEPS + 1) for problem in workload.prompts(settings, step + 1)]
    rows = {"prompt": [settings.task.messages(problem)[0]["content"] for problem in problems]}

    def flipped(completions: list[str], **_: Any) -> list[float]:
        flips: list[float] = torch.randint(0, 2, (len(completions),)).float().tolist()
        return flips

    length = settings.train.max_response
    clock = opponent.Clock(settings.train.prompts // settings.train.mini_batch, between)
    fixed = {"min_new_tokens": length}
    opponent.train(settings, model, tokenizer, rows, flipped, clock, STEPS, MICRO_BATCH[length], fixed)
    return clock.seconds


def against_others(length: int) -> Measurement:
    """Seconds of a step of all three with responses of `length` tokens, and the local engine's share of peak FLOP/s."""
    settings = shape(length)
    local, stock = engine.LocalEngine(settings, engine.coin_flips), Stock(settings)
    local.seconds()
    local_times, stock_times, peaks = list[float](), list[float](), list[float]()

    def between() -> None:
        peaks.append(flops.peak())
        local_times.append(local.seconds())
        stock_times.append(stock.seconds())

    trl_s = statistics.median(trl_seconds(settings, between))
    local_s, stock_s = (statistics.median(times[:STEPS]) for times in (local_times, stock_times[1:]))
    numbers = {
        "stock_ratio": stock_s / local_s,
        "trl_ratio": trl_s / local_s,
        "local_seconds": local_s,
        "stock_seconds": stock_s,
        "trl_seconds": trl_s,
        "flops_share": local.needed / local_s / statistics.median(peaks),
        "peak_gflops": statistics.median(peaks) / 1e9,
    }
    work: dict[str, str | int] = {"model": settings.model.name, "dtype": "float32", "tokens": length}
    sizes = {"prompts": settings.train.prompts, "rollouts": settings.train.rollouts}
    return "step against stock and TRL", {**work, **sizes, "trl": version("trl")}, numbers


def longer(words: int) -> str:
    """Overrides that add this number of words to the end of every problem, where prompts share no prefix."""
    return shlex.join([f"task.template='{{question}}{' and' * words} ='", "train.max_prompt=1024"])


GROWTH = (
    "",
    "train.rollouts=4",
    "train.rollouts=16",
    "train.max_response=64",
    "train.max_response=256",
    longer(64),
    longer(256),
    "train.prompts=8 train.mini_batch=4 train.max_response=512",
)
"""Overrides of one step each: 16 prompts x 8 rollouts of 16 tokens, with one of these numbers changed."""


def growth(words: str) -> dict[str, float]:
    """Seconds, share of peak FLOP/s and peak memory (MiB, of the process) of a step with the overrides `words`."""
    given = shlex.split(words)
    length = [] if any(word.startswith("train.max_response=") for word in given) else ["train.max_response=16"]
    settings = spec(*length, *given)
    one = engine.LocalEngine(settings, engine.coin_flips)
    times = [one.seconds() for _ in range(1 if settings.train.max_response > 64 else 2)]
    # Kilobytes on Linux, bytes on macOS.
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if LINUX else MIB)
    return {"seconds": times[-1], "flops_share": one.needed / times[-1] / flops.peak(), "peak_mib": memory}


def in_turn(cases: Sequence[str]) -> Iterator[Measurement]:
    """`growth` of each case, in a separate process, so that its peak memory is its own."""
    for words in cases:
        command = [sys.executable, "-m", "benchmarks.pretrained", "--one", words]
        numbers = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        yield "step as it grows", {"model": "smollm2-135m", "words": words, "threads": workload.THREADS}, numbers


SHAPES = {"layers": (3584, 576, 1536), "decoding": (32, 576, 1536), "logits": (512, 576, 49152)}
"""Rows, inputs and outputs of matrix products of SmolLM2: of an update, of a decoded token, of the output layer."""


def formats(length: int, prompts: int, steps: int) -> Iterator[Measurement]:
    """CPU seconds of a step with `prompts` x 8 rollouts of `length` tokens.

    The first step is left out: in bfloat16 it also measures rounding.
    """
    settings = spec()
    work = replace(settings.train, max_response=length, prompts=prompts, mini_batch=max(1, prompts // 2))
    engines = dict[str, engine.LocalEngine]()
    for dtype in ("float32", "bfloat16"):
        compute = replace(settings.compute, dtype=dtype)
        engines[dtype] = engine.LocalEngine(replace(settings, train=work, compute=compute), engine.coin_flips)
        engines[dtype].step = 1
    times: dict[str, list[tuple[float, ...]]] = {dtype: [] for dtype in engines}
    for _ in range(steps):
        for dtype, one in engines.items():
            peak, before = flops.peak(), time.process_time()
            seconds = one.seconds()
            share = one.needed / seconds / peak
            times[dtype].append((seconds, time.process_time() - before, one.sampling_cpu_seconds, share))
    case = {"model": "smollm2-135m", "prompts": prompts, "rollouts": work.rollouts, "tokens": length, "steps": steps}
    for dtype, found in times.items():
        names = "seconds", "cpu_seconds", "sampling_cpu_seconds", "flops_share"
        numbers = dict(zip(names, map(statistics.median, zip(*found, strict=True)), strict=True))
        yield "step", {**case, "dtype": dtype, "threads": workload.THREADS}, numbers


def products() -> Iterator[Measurement]:
    """Operations per CPU second of products of SmolLM2's shapes in both formats: what a step can gain at most.

    On one thread: threads that wait for each other on busy cores would count as work.
    """
    torch.set_num_threads(1)
    for name, shape in SHAPES.items():
        speeds = [flops.products(dtype, shape) for _ in range(5) for dtype in (torch.float32, torch.bfloat16)]
        exact, reduced = (statistics.median(speeds[number::2]) / 1e9 for number in (0, 1))
        yield "product", {"shape": name, "threads": 1}, {"float32_gflops": exact, "bfloat16_gflops": reduced}
    torch.set_num_threads(workload.THREADS)


def measure() -> Iterator[Measurement]:
    """The comparison at both lengths of responses."""
    yield from map(against_others, PROMPTS)


if __name__ == "__main__":
    torch.set_num_threads(workload.THREADS)
    match sys.argv[1:]:
        case ["--one", words]:
            print(json.dumps(growth(words)))
        case ["--growth", *cases]:
            for measurement in in_turn(cases or GROWTH):
                print(record(*measurement), flush=True)
        case ["--formats", *numbers]:
            for measurement in (*products(), *(formats(*map(int, numbers)) if numbers else ())):
                print(record(*measurement), flush=True)
        case _:
            for measurement in measure():
                print(record(*measurement), flush=True)
