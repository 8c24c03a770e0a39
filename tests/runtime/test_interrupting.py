"""Ctrl-C at any moment leaves no execution that is stuck and no lease that drives nothing."""

import pytest

from divebook import Environment, Step, Workflow
from divebook.stores import SqliteStore
from tests.runtime.interrupting import one_round


@pytest.mark.parametrize("seed", [*range(24), 71, 78])
def test_interrupts_at_any_moment_leave_nothing_stuck(seed, tmp_path):
    one_round(seed, tmp_path)


@pytest.mark.parametrize("act", ["answer", "resume"])
def test_a_lease_that_this_process_left_undriven_is_taken_at_once(act, tmp_path):
    class Interrupted(SqliteStore):
        is_armed = False

        def acquire(self, *args, **kwargs):
            return self._interrupted(super().acquire(*args, **kwargs))

        def post_and_acquire(self, *args, **kwargs):
            return self._interrupted(super().post_and_acquire(*args, **kwargs))

        def _interrupted(self, result):
            if self.is_armed:
                self.is_armed = False
                raise KeyboardInterrupt  # as the signal raises it between two lines
            return result

    with Interrupted(tmp_path / "s.db") as store:
        world = Environment(store=store, workflows=[Workflow("w", [Step("a", ask="Go?"), Step("b", script="1")])])
        execution = world.start("w").wait(20)
        (question,) = execution.open_questions
        store.is_armed = True
        with pytest.raises(KeyboardInterrupt):
            world.answer(question.id, "yes")
        assert [record.execution_id for record in world.queues.recoverable()] == [execution.id]
        assert world.inbox() == []
        acts = {
            "answer": lambda: world.answer(question.id, "yes"),
            "resume": lambda: world.run_of(execution.id).resume(),
        }
        assert acts[act]().wait(20).status == "completed"
        assert store.leases() == []
