"""What every store promises about the life of an execution: what may follow what, and that a start is unique."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from divebook.engine.lifecycle import STATUS_AFTER, TERMINAL, may_follow
from divebook.errors import ExecutionEndedError, NotFoundError, StartKeyTakenError
from divebook.events import catalog
from divebook.stores.maintenance import check
from tests.store.logs import ONE, THREE, TWO, batch, event, log, resumed, step

ENDS = {
    "completed": catalog.ExecutionCompleted(),
    "failed": catalog.ExecutionFailed("no such file"),
    "cancelled": catalog.ExecutionCancelled(),
    "moved": catalog.ExecutionMoved("log.jsonl"),
    "continued_as_new": catalog.ExecutionContinuedAsNew("exec_2", "too long"),
    "snapshot": catalog.ExecutionSnapshotted("waiting"),
}
FOLLOWERS = (
    *ENDS.values(),
    catalog.ExecutionResumed(),
    catalog.ExecutionPaused(),
    catalog.StepCompleted(),
    catalog.SignalReceived("go"),
)
PAIRS = [(status, data) for status in ENDS for data in FOLLOWERS]


def beginning(name, *, workflow="greet", at=None, **facts):
    return event(1, catalog.ExecutionStarted(workflow, **facts), name, at=at, path="")


def begin(store, name, **facts):
    store.append(name, [beginning(name, **facts)], 0)


def asked(sequence, question, name=ONE):
    return event(sequence, catalog.InterruptRaised(question, "confirm", "Go?"), name)


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
            with pytest.raises(
                ExecutionEndedError, match=f"status '{status}', so no {data.event_type} event"
            ) as refused:
                store.append(name, [event(4, data, name, path="")], 3)
            assert refused.value.status == status
            assert ("resume it first" in str(refused.value)) == (status in ("failed", "cancelled"))
            assert (store.record(name).status, len(store.read(name))) == (status, 3)

    def test_nothing_follows_an_end_in_its_own_batch(self, store):
        with pytest.raises(ExecutionEndedError, match="status 'completed', so no step_started event"):
            store.append(ONE, [*log(2), event(3, ENDS["completed"]), step(4)], 0)
        assert store.records() == []

    def test_a_resumed_execution_may_end_again(self, store):
        store.append(ONE, [*log(2), event(3, ENDS["cancelled"]), resumed(4)], 0)
        store.append(ONE, [event(5, ENDS["completed"])], 4)
        assert store.record(ONE).status == "completed"

    # --- open questions

    def test_open_questions_are_known_without_reading_logs(self, store):
        for number in (1, 2, 3):
            name = f"exec_{number}"
            store.append(name, [beginning(name, at=number), asked(2, "q1", name), asked(3, "q2", name)], 0)
        store.append("exec_1", [event(4, catalog.InterruptResolved("q1", response=True), "exec_1")], 3)
        store.append("exec_2", [event(4, catalog.InterruptExpired("q2"), "exec_2")], 3)
        store.append("exec_3", [event(4, ENDS["failed"], "exec_3")], 3)
        assert store.asking() == [("exec_2", "q1"), ("exec_1", "q2")]
        assert store.asking("q2") == [("exec_1", "q2")]
        assert store.asking("q3") == []
        assert check(store).ok

    def test_a_question_that_was_asked_and_settled_at_once_is_not_open(self, store):
        store.append(ONE, [beginning(ONE), asked(2, "q"), event(3, catalog.InterruptResolved("q", response=1))], 0)
        assert store.asking() == []

    def test_the_questions_of_a_resumed_execution_are_open_again(self, store):
        store.append(ONE, [beginning(ONE), asked(2, "q"), event(3, ENDS["cancelled"])], 0)
        assert store.asking() == []
        store.append(ONE, [resumed(4)], 3)
        assert store.asking() == [(ONE, "q")]

    def test_a_deleted_execution_asks_nothing(self, store):
        store.append(ONE, [beginning(ONE), asked(2, "q")], 0)
        store.delete(ONE)
        begin(store, ONE)
        assert store.asking() == []

    def test_what_has_not_ended_comes_newest_first(self, store):
        for number, end in enumerate((None, "failed", None, "moved", None)):
            name = f"exec_{number}"
            ends = [event(2, ENDS[end], name)] if end else []
            store.append(name, [beginning(name, at=number + 1), *ends], 0)
        assert [record.execution_id for record in store.unended()] == ["exec_4", "exec_2", "exec_0"]

    # --- what an execution began with

    def test_a_record_says_what_the_execution_began_with(self, store):
        told = {"origin": "fork", "parent": TWO, "tags": ["a", "ü"], "note": "n", "notebook": "x.ipynb", "cell": "c"}
        begin(store, ONE, key="monday", **told)
        record = store.record(ONE)
        assert record == store.records()[0]
        assert record.key == "monday"
        assert {name: getattr(record, name) for name in told} == {**told, "tags": ("a", "ü")}

    def test_where_nothing_is_said_it_is_a_plain_run_or_a_child(self, store):
        begin(store, ONE)
        begin(store, TWO, parent=ONE)
        assert [store.record(name).origin for name in (ONE, TWO)] == ["run", "child"]

    def test_what_it_began_with_outlasts_its_end(self, store):
        begin(store, ONE, key="monday", tags=["a"])
        store.append(ONE, [event(2, ENDS["failed"], path="")], 1)
        assert (store.record(ONE).key, store.record(ONE).tags, store.record(ONE).error) == (
            "monday",
            ("a",),
            "no such file",
        )

    def test_records_can_be_filtered_by_what_they_began_with(self, store):
        begin(store, ONE, tags=["a", "b"], notebook="x.ipynb", cell="1")
        begin(store, TWO, tags=["b"], origin="fork", parent=ONE, notebook="x.ipynb")
        begin(store, THREE, workflow="other", origin="trial", parent=ONE)
        found = {
            (): {ONE, TWO, THREE},
            (("tag", "b"),): {ONE, TWO},
            (("tag", "a"),): {ONE},
            (("tag", "B"),): set(),
            (("origin", "fork"),): {TWO},
            (("parent", ONE),): {TWO, THREE},
            (("parent", ONE), ("workflow", "other")): {THREE},
            (("notebook", "x.ipynb"),): {ONE, TWO},
            (("notebook", "x.ipynb"), ("cell", "1")): {ONE},
            (("status", "completed"), ("tag", "a")): set(),
        }
        for filters, names in found.items():
            assert {record.execution_id for record in store.records(**dict(filters))} == names, filters

    def test_pages_are_those_of_what_fits(self, store):
        for number in range(5):
            begin(store, f"exec_{number}", tags=["even"] if number % 2 == 0 else [], at=number + 1)
        page = store.records(tag="even", limit=1, offset=1)
        assert [record.execution_id for record in page] == ["exec_2"]

    def test_an_origin_that_does_not_exist_is_an_error(self, store):
        with pytest.raises(NotFoundError, match="did you mean 'fork'"):
            store.records(origin="forks")

    # --- a start is unique by its key

    def test_a_second_start_with_a_key_is_refused_and_names_the_first(self, store):
        begin(store, ONE, key="monday")
        with pytest.raises(StartKeyTakenError, match=f"'monday' already belongs to execution {ONE}") as refused:
            begin(store, TWO, key="monday")
        assert (refused.value.key, refused.value.run_id) == ("monday", ONE)
        assert [record.execution_id for record in store.records()] == [ONE]
        assert store.records(key="monday") == store.records()
        assert store.records(key="tuesday") == []

    def test_of_two_starts_in_one_transaction_one_is_refused(self, store):
        batches = [batch(name, 0, [beginning(name, key="monday")]) for name in (ONE, TWO)]
        answers = store.append_all(batches)
        assert [type(answer) for answer in answers] == [type(None), StartKeyTakenError]

    def test_of_many_starts_at_once_one_is_made(self, store):
        def start(number):
            try:
                begin(store, f"exec_{number}", key="monday")
            except StartKeyTakenError as error:
                return error.run_id
            return f"exec_{number}"

        with ThreadPoolExecutor(8) as pool:
            assert len(set(pool.map(start, range(24)))) == 1
        assert len(store.records()) == 1

    def test_the_key_of_a_deleted_execution_is_free_again(self, store):
        begin(store, ONE, key="monday")
        store.delete(ONE)
        begin(store, TWO, key="monday")
        assert store.record(TWO).key == "monday"

    def test_executions_without_a_key_do_not_meet(self, store):
        begin(store, ONE)
        begin(store, TWO)
        assert len(store.records()) == 2

    def test_a_batch_after_an_end_does_not_hold_up_the_others(self, store):
        store.append("exec_1", [*log(2, "exec_1"), event(3, ENDS["completed"], "exec_1")], 0)
        late = batch("exec_1", 3, [event(4, ENDS["cancelled"], "exec_1")])
        answers = store.append_all([late, batch("exec_2", 0, log(2, "exec_2"))])
        assert (type(answers[0]), answers[1]) == (ExecutionEndedError, None)
        assert len(store.read("exec_2")) == 2
