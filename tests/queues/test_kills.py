"""Workers that are killed and drained: ``python -m tests.queues.kills`` does it forty times to four of them."""

from random import Random

from tests.queues.kills import worked


def test_workers_that_are_killed_and_drained_forget_nothing_and_do_nothing_twice(tmp_path):
    found, _ = worked(tmp_path, tmp_path / "store.db", 30, 2, 2, Random(3))
    del found["shares"]
    assert found == {"statuses": {"completed": 30}, "twice": 0, "shared": []}
