"""verl's replay buffer drops the groups that the method's own filter drops"""

from collections import Counter
from uuid import uuid4

import pytest

from mcpo_cli.methods import get

pytestmark = pytest.mark.verl


@pytest.mark.parametrize(("name", "dropped"), [("dapo", {"wrong", "right"}), ("ngrpo", {"right"})])
def test_groups_of_equal_verdicts(name: str, dropped: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

    from mcpo_cli.backends.verl.queue import Sampler

    accuracy = {"wrong": 0.0, "right": 1.0, "mixed": None}
    monkeypatch.setattr(ReplayBuffer, "_dapo_filtered_keys", lambda *_: ({"wrong", "right"}, Counter([0.0, 1.0])))
    sampler = object.__new__(Sampler)
    vars(sampler).update(_keeps=get(name).keeps, _dapo_classification_cache={"train": accuracy})
    found, counts = sampler._dapo_filtered_keys("train")
    assert found == dropped
    assert counts == Counter(accuracy[uid] for uid in dropped)


def test_of_more_prompts_than_needed_the_first_of_the_stream_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever their random ids, and however many were submitted."""
    from verl.trainer.ppo.v1 import replay_buffer

    from mcpo_cli.backends.verl.queue import Sampler

    monkeypatch.setattr(replay_buffer.tq, "kv_clear", lambda **_: None)
    monkeypatch.setattr(Sampler, "_sync_metadata_from_transfer_queue", lambda _: None)
    monkeypatch.setattr(Sampler, "_dapo_filtered_keys", lambda *_: (set(), Counter()))
    for submitted in range(3, 9):
        order = {str(uuid4()): place for place in range(submitted)}
        discarded = set[str]()
        sampler = Sampler(
            keeps=get("dapo").keeps,
            discard=discarded.update,
            order=order.__getitem__,
            watch=lambda: None,
            trainer_mode="sync",
            trainer_config={},
            max_off_policy_threshold=None,
            max_off_policy_strategy="drop",
            sampler_kwargs={},
            refill_fn=lambda _: None,
            filter_groups_metric="acc",
            train_batch_size=3,
            gen_batch_size=1,
        )
        sampler.partitions["train"] = {f"{uid}_{rollout}_0": {} for uid in order for rollout in range(2)}
        sampler.finished_keys["train"] = set(order)
        batch, _ = sampler.sample(1, "train", 3)
        chosen = {order[key.split("_", 1)[0]] for key in batch.keys}
        assert chosen == {0, 1, 2}
        assert {order[uid] for uid in discarded} == set(range(3, submitted))
