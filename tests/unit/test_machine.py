"""The GPUs and cores of this machine, and the objects that the garbage collector searches."""

import gc
from pathlib import Path

import psutil
import pytest

from mcpo_cli.machine import Gpu, driver, freeze_gc, gpus

ROWS = """0, GPU-aa11, NVIDIA H200, 143771, 143000
1, GPU-bb22, NVIDIA H200, 143771, 512
"""


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program `nvidia-smi` that knows two GPUs."""
    program = tmp_path / "nvidia-smi"
    answers = f"*=driver_version*) printf '580.65.06\\n580.65.06\\n' ;;\n*) cat <<'END'\n{ROWS}END\n"
    program.write_text(f'#!/bin/sh\ncase "$1" in\n{answers}esac\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return program


@pytest.mark.usefixtures("smi")
def test_gpus_with_their_memory_in_bytes() -> None:
    assert gpus() == [
        Gpu("NVIDIA H200", 143771 * 2**20, 143000 * 2**20),
        Gpu("NVIDIA H200", 143771 * 2**20, 512 * 2**20),
    ]


def test_a_gpu_without_memory_of_its_own_has_the_machines(smi: Path) -> None:
    smi.write_text("#!/bin/sh\necho '0, GPU-aa11, NVIDIA GB10, [N/A], [N/A]'\n")
    (gpu,) = gpus()
    assert gpu.memory == psutil.virtual_memory().total >= gpu.free > 0


@pytest.mark.usefixtures("smi")
@pytest.mark.parametrize(("visible", "count"), [("0", 1), ("1,0", 2), ("GPU-bb", 1), ("", 0), ("7", 0)])
def test_only_those_that_a_process_may_use(visible: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert len(gpus()) == count


@pytest.mark.usefixtures("smi")
def test_the_version_of_the_driver() -> None:
    assert driver() == "580.65.06"


def test_no_driver_is_no_gpu(smi: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    smi.write_text("#!/bin/sh\nexit 9\n")
    assert (gpus(), driver()) == ([], None)
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    assert (gpus(), driver()) == ([], None)


def test_the_collector_skips_what_the_block_made_and_goes_on() -> None:
    with freeze_gc():
        assert not gc.isenabled()
        kept = [[None]]
    assert gc.isenabled()
    later = [[None]]
    searched = gc.get_objects()
    assert [any(one is wanted for one in searched) for wanted in (kept, later)] == [False, True]
    gc.unfreeze()
