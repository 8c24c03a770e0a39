"""What every store promises about the life of an execution: what may follow what, and that a start is unique."""

import pytest

from divebook.engine.lifecycle import STATUS_AFTER, TERMINAL, may_follow
from divebook.errors import ExecutionEndedError
from divebook.events import catalog
from divebook.store import Batch
from tests.store.logs import ONE, event, log, resumed, step

ENDS = {
    "completed": catalog.ExecutionCompleted(),
    "failed": catalog.ExecutionFailed("no such file"),
    "cancelled": catalog.ExecutionCancelled(),
    "moved": catalog.ExecutionMoved("log.jsonl"),
    "continued_as_new": catalog.ExecutionContinuedAsNew("exec_2", "too long"),
}
FOLLOWERS = (
    *ENDS.values(),
    catalog.ExecutionResumed(),
    catalog.ExecutionPaused(),
    catalog.StepCompleted(),
    catalog.SignalReceived("go"),
)
PAIRS = [(status, data) for status in ENDS for data in FOLLOWERS]


class LifePromises:
    """Part of the suite."""

    def test_an_end_brings_its_status(self, store):
        assert set(ENDS) == TERMINAL
        for number, (status, end) in enumerate(ENDS.items(), 1):
            name = f"exec_{number}"
            store.append(name, [*log(2, name), event(3, end, name, path="")], 0)
            assert (store.record(name).status, store.record(name).ended_at is not None) == (status, True)

    def test_nothing_follows_an_end_but_what_the_table_allows(self, store):
        for number, (status, data) in enumerate(PAIRS):
            name = f"exec_{number}"
            store.append(name, [*log(2, name), event(3, ENDS[status], name, path="")], 0)
            if may_follow(status, type(data)):
                store.append(name, [event(4, data, name, path="")], 3)
                assert store.record(name).status == STATUS_AFTER[type(data)]
                continue
            with pytest.raises(ExecutionEndedError, match=f"is {status}: {data.event_type} cannot follow") as refused:
                store.append(name, [event(4, data, name, path="")], 3)
            assert (refused.value.status, refused.value.resumable) == (status, status in ("failed", "cancelled"))
            assert (store.record(name).status, len(store.read(name))) == (status, 3)

    def test_nothing_follows_an_end_in_its_own_batch(self, store):
        with pytest.raises(ExecutionEndedError, match="is completed: step_started cannot follow"):
            store.append(ONE, [*log(2), event(3, ENDS["completed"]), step(4)], 0)
        assert store.records() == []

    def test_a_resumed_execution_may_end_again(self, store):
        store.append(ONE, [*log(2), event(3, ENDS["cancelled"]), resumed(4)], 0)
        store.append(ONE, [event(5, ENDS["completed"])], 4)
        assert store.record(ONE).status == "completed"

    def test_a_batch_after_an_end_does_not_hold_up_the_others(self, store):
        store.append("exec_1", [*log(2, "exec_1"), event(3, ENDS["completed"], "exec_1")], 0)
        late = Batch("exec_1", 3, [event(4, ENDS["cancelled"], "exec_1")])
        answers = store.append_all([late, Batch("exec_2", 0, log(2, "exec_2"))])
        assert (type(answers[0]), answers[1]) == (ExecutionEndedError, None)
        assert len(store.read("exec_2")) == 2
