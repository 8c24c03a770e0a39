"""Every public writer, with the key of an execution, another key and none: an encrypted log stays readable for its key.

Each writer writes `MARKER`, which must not appear in the file in plain text.
"""

import pytest

from divebook import Environment, Step, Workflow
from divebook.errors import DecryptionError
from divebook.events.catalog import ExecutionForked
from divebook.queues import Worker
from divebook.stores import Message, Owner, SqliteStore
from divebook.stores.codec import FernetCodec
from divebook.stores.maintenance import check
from divebook.stores.transfer import copy
from tests.store.logs import batch, event, execution_id, steps

MARKER = "ADA-LOVELACE-IN-PLAIN-TEXT"
RIGHT, OTHER = FernetCodec.new_key(), FernetCodec.new_key()
WORKFLOW = Workflow("w", [Step("q", ask="Pay?"), Step("wait", type="wait", signal="go"), Step("b", script="1")])


def world(path, key):
    codec = FernetCodec(key) if key else None
    return Environment(store=path, codec=codec, workflows=[WORKFLOW])


def appended(environment, run):
    store, last = environment.store, environment.store.record(run).last_sequence
    lease = store.acquire(run, Owner.current())
    try:
        store.append(run, steps(last + 1, last + 1, run), last, lease.token)
    finally:
        store.release(lease)


def shared(environment, run):
    fork = execution_id(7)
    own = [event(2, ExecutionForked(run, 1, "w", fingerprint="f" * 64), fork, path="")]
    (refusal,) = environment.store.append_all([batch(fork, 1, own, source=run)])
    if refusal is not None:
        raise refusal


def brought(environment, run):
    number = environment.store.last_message() + 1
    environment.store.bring([Message(run, "signal", "k", {"payload": MARKER}, "ann", 1, number=number)])


def entry(environment, _):
    environment.internals.registry.threads.write("talk", "k2", {"after": None, "chunks": [MARKER]}, "ann")


WRITERS = {
    "note": lambda e, run: e.run_of(run).note(MARKER),
    "tag": lambda e, run: e.run_of(run).tag("seen"),
    "untag": lambda e, run: e.run_of(run).untag("first"),
    "label": lambda e, run: e.run_of(run).label(quality=MARKER),
    "answer": lambda e, run: e.answer(e.store.asking()[0][1], MARKER, run),
    "answer of any execution": lambda e, run: e.answer(e.store.asking()[0][1], MARKER),
    "answer alike": lambda e, run: e.answer(e.store.asking()[0][1], MARKER, alike=True),
    "signal": lambda e, run: e.run_of(run).signal("go", MARKER),
    "cancel": lambda e, run: e.run_of(run).cancel(),
    "cancel with a reason": lambda e, run: e.run_of(run).cancel(MARKER),
    "pause": lambda e, run: e.run_of(run).pause(MARKER),
    "resume": lambda e, run: e.run_of(run).resume(),
    "recover": lambda e, run: e.queues.recover(run),
    "retry": lambda e, run: e.run_of(run).retry(),
    "run again": lambda e, run: e.run_of(run).run_again(),
    "fork": lambda e, run: e.run_of(run).fork(at=4),
    "fork at the end": lambda e, run: e.run_of(run).fork(),
    "what-if": lambda e, run: e.run_of(run).what_if({"variables": {"x": MARKER}}),
    "trial": lambda e, run: e.run_of(run).try_step("b"),
    "export": lambda e, run: e.run_of(run).export(e.store.path.with_name(f"{MARKER}.jsonl")),
    "move": lambda e, run: e.run_of(run).export(e.store.path.with_name(f"{MARKER}.jsonl"), move=True),
    "thread": lambda e, run: e.threads["talk"].trim(1),
    "branch of a thread": lambda e, run: e.threads["talk"].branch(0),
    "entry of a thread": entry,
    "append": appended,
    "append of a fork": shared,
    "message of another store": brought,
    "checkpoint": lambda e, run: e.store.put_checkpoint(run, 2, MARKER.encode()),
}
"""Writers to an existing execution. With another key or none they raise `DecryptionError`."""


@pytest.fixture
def run(tmp_path):
    """Start an encrypted execution that waits for an answer, and a conversation."""
    with world(tmp_path / "s.db", RIGHT) as environment:
        run = environment.start(WORKFLOW, tags=["first"]).wait(20)
        environment.internals.registry.threads.write("talk", "k1", {"after": None, "chunks": ["hello"]}, "ann")
        return run.id


def files(path):
    return b"".join(file.read_bytes() for file in path.glob("s.db*"))


def is_readable(path, run, *threads):
    """Return whether the execution can be read, answered and completed with its key."""
    with world(path / "s.db", RIGHT) as environment:
        assert environment.internals.registry.threads.ids == list(threads)
        environment.answer(environment.inbox()[0][1].id, "yes", run).wait(20)
        assert environment.run_of(run).signal("go").wait(20).status == "completed"
        return check(environment.store).ok


@pytest.mark.parametrize("key", [OTHER, None], ids=["other", "none"])
@pytest.mark.parametrize("writer", WRITERS)
def test_without_the_key_of_an_execution_nothing_is_written_to_it(writer, key, run, tmp_path):
    with SqliteStore(tmp_path / "s.db") as store:
        before = store.record(run), len(store.records()), store.last_message()
    with world(tmp_path / "s.db", key) as environment:
        with pytest.raises(DecryptionError, match=r"another key|no key is set"):
            WRITERS[writer](environment, run)
        assert environment.store.live_leases() == []
    with SqliteStore(tmp_path / "s.db") as store:
        assert (store.record(run), len(store.records()), store.last_message()) == before
    assert MARKER.encode() not in files(tmp_path)
    assert is_readable(tmp_path, run, "talk")


@pytest.mark.parametrize(
    "writer", sorted(WRITERS.keys() - {"pause", "what-if", "trial"})
)  # of an execution that waits: refused
def test_with_the_key_of_an_execution_everything_stays_readable(writer, run, tmp_path):
    with world(tmp_path / "s.db", RIGHT) as environment:
        WRITERS[writer](environment, run)
    with world(tmp_path / "s.db", RIGHT) as environment:
        for record in environment.store.records():
            assert len(environment.store.read(record.execution_id)) == record.last_sequence
    assert MARKER.encode() not in files(tmp_path)


@pytest.mark.parametrize("writer", ["note", "label", "answer", "signal", "cancel"])
def test_a_new_key_beside_the_old_one_writes_what_only_both_read(writer, run, tmp_path):
    codec = FernetCodec(OTHER, RIGHT)
    with Environment(store=tmp_path / "s.db", codec=codec, workflows=[WORKFLOW]) as environment:
        WRITERS[writer](environment, run)
    with world(tmp_path / "s.db", RIGHT) as environment, pytest.raises(DecryptionError):
        environment.run_of(run).note("by someone with the old key alone")
    with Environment(store=tmp_path / "s.db", codec=codec, workflows=[WORKFLOW]) as environment:
        assert len(environment.store.read(run)) == environment.store.record(run).last_sequence


@pytest.mark.parametrize("key", [OTHER, None], ids=["other", "none"])
def test_a_worker_without_the_key_leaves_a_queued_execution_as_it_is(key, tmp_path):
    with world(tmp_path / "s.db", RIGHT) as environment:
        run = environment.enqueue(WORKFLOW).id
    with world(tmp_path / "s.db", key) as environment, Worker(environment) as worker:
        worker.wait_until_idle(20)
    with world(tmp_path / "s.db", RIGHT) as environment, Worker(environment):
        while not environment.inbox():
            environment.store.wait_for_news(-1, 0.05)
        environment.answer(environment.inbox()[0][1].id, "yes", run)
        assert environment.run_of(run).signal("go").wait(20).status == "completed"


@pytest.mark.parametrize("key", [OTHER, None], ids=["other", "none"])
def test_a_copy_with_another_key_is_refused(key, run, tmp_path):
    with SqliteStore(tmp_path / "s.db") as source, SqliteStore(tmp_path / "t.db") as target:
        source.sealing.codec = key and FernetCodec(key)
        with pytest.raises(DecryptionError):
            copy(source, target)
        assert target.records() == []
    assert is_readable(tmp_path, run, "talk")


def test_a_note_in_plain_text_can_be_encrypted_from_then_on(tmp_path):
    """An execution that was begun without a key may be continued with one; after that it needs the key."""
    with world(tmp_path / "s.db", None) as environment:
        run = environment.start(WORKFLOW).wait(20).id
    with world(tmp_path / "s.db", RIGHT) as environment:
        environment.run_of(run).note(MARKER)
    with world(tmp_path / "s.db", None) as environment, pytest.raises(DecryptionError, match="no key is set"):
        environment.run_of(run).note("in plain text")
    assert MARKER.encode() not in files(tmp_path)
