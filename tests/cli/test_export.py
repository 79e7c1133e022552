"""`mcpo export`: a policy as a folder for other tools, with a card, and on a simulated hub."""

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from mcpo_cli.evaluation.metrics import over_problems
from mcpo_cli.runs.journal import Journal
from tests.cli.conftest import Cli, InProcess
from tests.models import existing
from tests.web import Answers, serving

pytestmark = pytest.mark.slow
FILES = {"README.md", "config.json", "generation_config.json", "model.safetensors", "tokenizer.json"}


class Hub(Answers):
    """The calls by which the client makes a model and commits files to it (https://huggingface.co/docs/hub/api)."""

    created: ClassVar[dict[str, Any]] = {}
    committed: ClassVar[dict[str, bytes]] = {}

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Authorization"] != "Bearer right":
            self.answer(401, {"error": "a token without rights"})
        elif self.path == "/api/repos/create":
            self.created |= json.loads(body)
            self.answer(200, {"url": "https://huggingface.co/somebody/model", "name": "somebody/model"})
        elif self.path == "/api/validate-yaml":
            self.answer(200, {"errors": [], "warnings": []})
        elif self.path.startswith("/api/models/somebody/model/preupload/"):
            asked = json.loads(body)["files"]
            files = [{"path": file["path"], "uploadMode": "regular", "shouldIgnore": False} for file in asked]
            self.answer(200, {"files": files})
        elif self.path.startswith("/api/models/somebody/model/commit/"):
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    self.committed[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            done = {"commitUrl": "https://huggingface.co/somebody/model/commit/1", "commitOid": "1", "success": True}
            self.answer(200, done)
        else:
            self.answer(404, {"error": self.path})

    def do_GET(self) -> None:
        self.answer(200, {"id": "somebody/model", "sha": "0" * 40, "siblings": []})


@pytest.fixture
def hub() -> Iterator[str]:
    Hub.created.clear()
    Hub.committed.clear()
    with serving(Hub) as address:
        yield address


def test_a_policy_is_exported_and_pushed(
    cli: Cli, here: InProcess, warm_home: Path, tmp_path: Path, hub: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run,) = here.json("train", "scale=smoke", "method=mcpo", "compute.tracking_uri=offline")["runs"]
    token = {"HF_ENDPOINT": hub, "HF_TOKEN": "right", "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path / "hf")}
    target = tmp_path / "policy"
    # An impossible name or token writes no files.
    for push, known, said in (("model", "right", "--push OWNER/NAME"), ("a/b", "", "hf auth login")):
        monkeypatch.setenv("HF_TOKEN", known)
        refused = here("export", run["run_id"], "--to", str(target), "--push", push)
        assert (refused.returncode, said in refused.stderr, target.exists()) == (2, True, False), refused.stderr

    cli.env |= token
    document = cli.json("export", run["run_id"], "--to", str(target), "--push", "somebody/model")
    step = document["step"]
    assert document["address"] == f"{hub}/somebody/model"
    assert (Hub.created["name"], Hub.created["visibility"]) == ("model", "private"), Hub.created
    assert set(Hub.committed) >= FILES
    assert "manifest.json" not in Hub.committed
    for name in FILES:
        assert Hub.committed[name] == (target / name).read_bytes()

    card = (target / "README.md").read_text()
    journal = Journal(warm_home / "runs" / run["run_id"])
    for tier in ("k2-3", "k5-6", "k7-8"):
        rows = [row for row in journal.eval() if (row["tier"], row["step"]) == (tier, step)]
        mean, low, high = over_problems([row["n"] for row in rows], [row["c"] for row in rows])
        assert re.search(rf"^\| {tier} \| {len(rows)} \| .* {mean:.3f} \[{low:.3f}, {high:.3f}\]", card, re.MULTILINE)
    assert f"| run | `{run['run_id']}` |" in card
    assert "| method | `mcpo` (" in card
    assert str(tmp_path) not in card
    assert len(AutoTokenizer.from_pretrained(target)) == AutoModelForCausalLM.from_pretrained(target).config.vocab_size

    again = here("export", run["run_id"], "--to", str(target))
    assert (again.returncode, "is not overwritten" in again.stderr) == (2, True)
    unknown = here("export", run["run_id"], "--step", "99")
    assert (unknown.returncode, "has kept no policy of step 99" in unknown.stderr) == (2, True)
    assert f"fix: mcpo export {run['run_id']} --step {step}" in unknown.stderr
    denied = cli("export", run["run_id"], "--to", str(tmp_path / "other"), "--push", "a/b", HF_TOKEN="wrong")
    assert (denied.returncode, "was not uploaded" in denied.stderr) == (2, True), denied.stderr
    assert (tmp_path / "other" / "model.safetensors").is_file()


SMALL = (
    "scale=laptop task=sums task.style=plain task.examples=0 method=grpo train.prompts=2 train.rollouts=2 "
    "train.mini_batch=1 train.max_response=8 train.max_prompt=100 eval.problems=2 eval.samples=2 train.lr=1e-3 "
    "train.reward=random compute.threads=1 compute.tracking_uri=offline"
)


def greedy(folder: Path, prompt: str) -> str:
    """What transformers answers with the model in `folder`."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    ids = tokenizer(prompt, return_tensors="pt")
    out = model.generate(**ids, do_sample=False, max_new_tokens=8, pad_token_id=tokenizer.eos_token_id)
    return str(tokenizer.decode(out[0, ids["input_ids"].shape[1] :]))


@pytest.mark.parametrize("more", [[], ["model.lora_rank=2"]], ids=["weights", "lora"])
def test_a_run_that_keeps_no_checkpoint_exports_its_final_policy(
    more: list[str], here: InProcess, warm_home: Path, tmp_path: Path
) -> None:
    """Also by its step, and after an attempt without a policy; transformers answers with it as with the run's own."""
    folder = existing(tmp_path / "model")
    (run,) = here.json("train", f"model.path={folder}", *SMALL.split(), "train.steps=2", *more)["runs"]
    run_dir = warm_home / "runs" / run["run_id"]
    assert not list(run_dir.glob("attempt_*/checkpoints/step_*"))
    for number, arguments in enumerate(([], ["--step", "2"])):
        target = tmp_path / str(number)
        assert here.json("export", run["run_id"], "--to", str(target), *arguments)["step"] == 2
        assert greedy(target, "1+2=") == greedy(run_dir / "attempt_1" / "policy", "1+2=")
    (run_dir / "attempt_2").mkdir()
    for name in ("status.json", "spec.json"):
        (run_dir / "attempt_2" / name).write_text((run_dir / "attempt_1" / name).read_text())
    assert here.json("export", run["run_id"], "--to", str(tmp_path / "again"))["step"] == 2
    assert here("export", run["run_id"], "--step", "1").returncode == 2


def test_a_checkpoint_between_is_exported(here: InProcess, warm_home: Path, tmp_path: Path) -> None:
    """Its weights are those of a run that ended there."""
    folder, weights = existing(tmp_path / "model"), []
    kept = ["compute.checkpoint_every=1", "compute.checkpoints=3", "compute.checkpoints_after=3"]
    for steps in (1, 2):
        (run,) = here.json("train", f"model.path={folder}", *SMALL.split(), f"train.steps={steps}", *kept)["runs"]
        target = tmp_path / str(steps)
        here.json("export", run["run_id"], "--step", "1", "--to", str(target))
        weights.append((target / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]
