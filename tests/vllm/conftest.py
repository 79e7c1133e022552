"""A tiny Qwen3 trained by the project itself, on which engines must agree."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

BRIEF = (
    "scale=smoke",
    "task.max_ops=2",
    "warmup.probe_prompts=64",
    "warmup.batch=64",
    "warmup.target_accuracy=0.5",
    "warmup.max_steps=4000",
)
"""Half the answers to short problems are correct, so both kinds of samples occur. Same base policy as in tests/verl."""


@pytest.fixture(scope="session")
def policy(tmp_path_factory: pytest.TempPathFactory, base_policies: Path) -> Path:
    """The policy of a run of `mcpo train`, a Hugging Face folder."""
    home = tmp_path_factory.mktemp("home")
    (home / "cache").symlink_to(base_policies)
    environment = {**os.environ, "MCPO_HOME": str(home), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-m", "mcpo_cli.main", "train", *BRIEF], env=environment, check=True)
    (folder,) = home.glob("runs/*/attempt_1/policy")
    return folder
