"""What a store shows of read-only snapshots that a version recorded in which their status was ``picture``.

`recorded/snapshots_12.sql` and `../postgres/recorded/snapshots_6.sql` were made by that version: two imported snapshots
(one is annotated, one is that of a fork), a completed run, and a checkpoint of each.
"""

import io

from divebook import Environment
from divebook.analysis.store import Selection
from divebook.engine.checkpoint import load_state
from divebook.errors import ExecutionEndedError, NotFoundError
from divebook.events import catalog
from divebook.events.event import Event
from divebook.projections.summary import records_with
from divebook.replay.replayer import Positions
from divebook.stores import MemoryStore
from divebook.stores.maintenance import check
from divebook.stores.transfer import copy, export, import_

PLAIN, FORK = "exec_01m808mxacfr9sv5ks9w0wes42", "exec_01jxt21q00f7rvqybcc2fssx75"
SNAPSHOTS = {PLAIN, FORK}


def refused(call):
    """Return the text of the error for a status that is not known."""
    try:
        call()
    except NotFoundError as error:
        return str(error)
    raise AssertionError("the former status is a filter")


def check_snapshots(store):
    """Check that the snapshots are sound, listed, filtered, shown, copied and exported under their present names."""
    assert check(store).ok
    environment = Environment(store=store)
    record = store.record(PLAIN)
    assert (record.status, record.tags, record.note) == ("snapshot", ("kept",), "look here")
    assert {each.status for each in store.records()} == {"snapshot", "completed"}
    for records in (
        store.records("snapshot"),
        records_with(store, "snapshot"),
        Selection.of({"status": "snapshot"}).records(store),
    ):
        assert {each.execution_id for each in records} == SNAPSHOTS
    for call in (
        lambda: store.records("picture"),
        lambda: records_with(store, "picture"),
        lambda: Selection.of({"status": "picture"}),
    ):
        assert refused(call) == "status not found: picture (did you mean 'snapshot'?)"
    for execution_id in SNAPSHOTS:
        check_snapshot(environment, execution_id)
    check_copies(store)
    check_still_grows(environment)


def check_snapshot(environment, execution_id):
    run = environment.run_of(execution_id)
    events = [*run.history()]
    ends = [event for event in events if isinstance(event.data, catalog.ExecutionSnapshotted)]
    assert [event.event_type for event in ends] == ["execution_snapshotted"]
    assert (run.status, Positions.of(events).state_at(len(events))) == ("snapshot", run.state)
    # Frames are made of columns, which are read without events.
    assert [*run.events["type"]].count("execution_snapshotted") == 1
    assert "execution_pictured" not in {*run.events["type"]}
    page = environment.store.page(execution_id, 0, 1000)
    assert page.has_type({"execution_snapshotted"}).sum() == 1
    assert [event.data for event in page.events(execution_id)] == [event.data for event in events]
    assert "snapshot" in "".join(run.verify(any_code=True).unchecked)
    replay = run.replay()
    replay.seek(len(events))
    assert replay.state.status == "snapshot"
    assert isinstance(environment.store.facts(execution_id, [ends[0].sequence])[ends[0].sequence], type(ends[0].data))


def check_copies(store):
    """Check that what is exported and copied is of the present form."""
    copied = MemoryStore()
    assert copy(store, copied).executions == 3
    assert copied.read(PLAIN) == store.read(PLAIN)
    for execution_id in SNAPSHOTS:
        lines = io.BytesIO()
        export(store, execution_id, lines)
        assert b"picture" not in lines.getvalue()
        lines.seek(0)
        assert import_(lines, target := MemoryStore()) == execution_id
        assert target.record(execution_id).status == "snapshot"


def check_still_grows(environment):
    """Check that only annotations may follow, and that the checksums of the log continue from those of its events."""
    run = environment.run_of(FORK)
    last = run.history()[-1]
    resumed = Event("event_0", FORK, last.sequence + 1, last.recorded_at, catalog.ExecutionResumed())
    try:
        environment.store.append(FORK, [resumed], last.sequence)
    except ExecutionEndedError as error:
        assert "has the status 'snapshot'" in str(error)  # noqa: PT017 - this module has no fixtures
    else:
        raise AssertionError("a snapshot was continued")
    run.annotate(note="after the upgrade", by="ann")
    assert (environment.store.record(FORK).note, check(environment.store).ok) == ("after the upgrade", True)


def check_checkpoints(store):
    """Check that there are checkpoints with the former status, and that they are ignored."""
    assert {*store.checkpoints()} >= SNAPSHOTS
    for execution_id in SNAPSHOTS:
        _, data = store.checkpoint(execution_id)
        assert b"picture" in data
        assert load_state(data, lambda sequences, name=execution_id: store.facts(name, sequences)) is None
