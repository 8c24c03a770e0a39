"""A small store of a user, with the adapter around it, keeps what every store promises, also after it is opened again.

The store is the example of the reference, in its page about stores.
"""

import gc
import json
import re
from pathlib import Path

import pytest

from divebook import Environment, Step, Workflow
from divebook.engine.inbox import SIGNAL, Message
from divebook.errors import ConcurrentAppendError, SetupError, StoreBusyError, StoreError
from divebook.stores import EventStore, MemoryStore, open_store
from divebook.stores.backend import SimpleStore
from divebook.stores.codec import FernetCodec
from divebook.stores.leases import Owner
from divebook.stores.maintenance import check
from divebook.stores.memory import StoreAdapter, as_store
from divebook.stores.registry import _factories, register_store
from tests.store.conformance import StorePromises
from tests.store.logs import ONE, START, TWO, batch, completed, failed, log, step, steps

PAGE = Path(__file__).parents[2] / "notebooks" / "reference" / "stores.md"
ALL_BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
BLOCKS = ALL_BLOCKS[next(number for number, block in enumerate(ALL_BLOCKS) if "class JsonLines" in block) :]
"""Example of a store of the user's own, and how it is used."""
NAMES = {}
exec(compile(BLOCKS[0], str(PAGE), "exec"), NAMES)
JsonLines = NAMES["JsonLines"]
HERE = Owner.current("test")


def content(store):
    """Return all of a store that outlasts the process."""
    names = store.ids()
    return {
        "rows": [store.record(name) for name in names],
        "events": {name: store.read(name) for name in names},
        "checksums": {name: [record.checksum for record in store.stored_log(name).records] for name in names},
        "messages": [(message, message.is_sound) for message in store._stored_messages(0)],
        "questions": store.asking(),
        "queues": (store.queued(), store.queued(withheld=True)),
        "leases": [(lease.execution_id, lease.token) for lease in store.leases()],
        "blobs": {blob.digest for blob in store.blobs() if blob.used},
        "last message": store.last_message(),
    }


class TestAdapter(StorePromises):
    def make_store(self, folder):
        return StoreAdapter(JsonLines(folder / "lines"))

    @pytest.fixture
    def store(self, tmp_path):
        with self.make_store(tmp_path) as store:
            yield store
            codec = store.sealing.codec
            before = None if store.closed else content(store)
            was_sound = store.closed or check(store).ok
        if before is not None:
            with self.make_store(tmp_path) as opened:
                opened.sealing.codec = codec
                assert content(opened) == before
                assert check(opened).ok == was_sound


# --- the example ---


def test_the_example_is_short_and_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for block in [ALL_BLOCKS[0], *BLOCKS[1:]]:  # the first defines the workflow
        exec(compile(block, str(PAGE), "exec"), NAMES)
    code = BLOCKS[0][BLOCKS[0].index("class ") :]
    assert len(code.splitlines()) <= 40
    assert len(list((tmp_path / "runs").glob("*.jsonl"))) == 1


# --- what a store of users may do wrong ---


class Lists:
    """Store in memory that a test changes."""

    def __init__(self):
        self.entries = {}

    def append(self, execution_id, entries, expected):
        present = self.entries.setdefault(execution_id, [])
        if len(present) != expected:
            raise ConcurrentAppendError(execution_id, expected, len(present))
        present += [json.loads(json.dumps(entry)) for entry in entries]

    def read(self, execution_id, after):
        return self.entries.get(execution_id, [])[after:]

    def ids(self):
        return [*self.entries]


class Failing(Lists):
    error = None
    is_written = False

    def append(self, execution_id, entries, expected):
        if self.error is None or self.is_written:
            super().append(execution_id, entries, expected)
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(28, "No space left on device"), StoreBusyError),
        (TimeoutError("slow"), StoreBusyError),
        (ValueError("no"), StoreError),
        (StoreError("mine"), StoreError),
    ],
)
def test_an_error_of_an_append_leaves_the_log_as_it_was_and_names_the_store(error, expected):
    lists = Failing()
    store = StoreAdapter(lists)
    store.append(ONE, log(2), 0)
    lists.error = error
    with pytest.raises(expected) as refused:
        store.append(ONE, steps(3, 4), 2)
    assert str(error) in str(refused.value)
    assert store.read(ONE) == log(2)
    lists.error = None
    store.append(ONE, steps(3, 4), 2)
    assert StoreAdapter(lists).read(ONE) == store.read(ONE)


def test_an_entry_that_was_written_before_the_error_counts_once():
    lists = Failing()
    lists.error, lists.is_written = OSError("connection lost"), True
    store = StoreAdapter(lists)
    store.append(ONE, log(2), 0)
    assert len(lists.entries[ONE]) == 1
    assert StoreAdapter(lists).read(ONE) == log(2)


def test_a_lease_that_could_not_be_written_is_not_held():
    lists = Failing()
    store = StoreAdapter(lists)
    store.append(ONE, log(2), 0)
    lists.error = OSError("full")
    with pytest.raises(StoreBusyError):
        store.acquire(ONE, HERE)
    lists.error = None
    assert store.acquire(ONE, HERE).token == 1


def test_a_second_process_is_refused_and_overwrites_nothing():
    lists = Lists()
    one = StoreAdapter(lists)
    one.append(ONE, log(2), 0)
    other = StoreAdapter(lists)
    other.append(ONE, steps(3, 4), 2)
    with pytest.raises(StoreError, match="Only one process at a time"):
        one.append(ONE, [step(3)], 2)
    assert StoreAdapter(lists).read(ONE) == other.read(ONE)


def test_a_damaged_list_hides_no_other_and_is_reported(caplog):
    lists = Lists()
    store = StoreAdapter(lists)
    store.append(ONE, log(2, ONE), 0)
    store.append(TWO, log(2, TWO), 0)
    del lists.entries[ONE][0]["row"]
    opened = StoreAdapter(lists)
    assert opened.ids() == [TWO]
    assert opened.faults() == [f"the entries of execution {ONE} are damaged: ValueError: records without a row"]
    assert "are damaged" in caplog.text


def test_a_changed_payload_is_found_by_its_checksum():
    lists = Lists()
    StoreAdapter(lists).append(ONE, log(2), 0)
    record = lists.entries[ONE][0]["records"][0]
    record[6] = record[6].replace("Ada", "Eve")
    assert not check(StoreAdapter(lists)).ok


@pytest.mark.parametrize("ids", [lambda: [5], lambda: 5, lambda: None])
def test_wrong_results_are_refused_with_the_name_of_the_store(ids):
    lists = Lists()
    lists.ids = ids
    with pytest.raises(StoreError, match="Lists"):
        StoreAdapter(lists)


def test_a_deleted_execution_is_marked_or_deleted_by_the_store():
    lists = Lists()
    store = StoreAdapter(lists)
    store.append(ONE, [*log(2), failed(3)], 0)
    store.delete(ONE)
    assert StoreAdapter(lists).ids() == []
    assert lists.entries[ONE][-1] == {"deleted": True}
    store.append(ONE, log(2), 0)
    assert StoreAdapter(lists).read(ONE) == log(2)
    lists.delete = lists.entries.pop
    other = StoreAdapter(lists)
    other.delete(ONE)
    assert lists.entries == {}


def test_the_message_of_a_deleted_child_reaches_its_parent():
    lists = Lists()
    store = StoreAdapter(lists)
    store.append(ONE, log(2, ONE), 0)
    store.append(TWO, log(2, TWO), 0)
    end = batch(TWO, 2, [completed(3, TWO)], parent=ONE)
    assert store.append_all([end]) == [None]
    inbox = store.inbox(ONE)
    assert len(inbox) == 1
    assert StoreAdapter(lists).inbox(ONE) == inbox
    lists.delete = lists.entries.pop
    store.delete(TWO)
    assert StoreAdapter(lists).inbox(ONE) == inbox


def test_a_message_to_a_deleted_execution_does_not_come_back():
    lists = Lists()
    store = StoreAdapter(lists)
    store.append(ONE, log(2), 0)
    store.post(Message(ONE, SIGNAL, "go", 1, "test", START))
    store.delete(ONE)
    store.append(ONE, log(2), 0)
    assert StoreAdapter(lists).inbox(ONE) == store.inbox(ONE) == []


def test_payloads_are_encrypted_for_the_store():
    lists = Lists()
    store = StoreAdapter(lists)
    codec = FernetCodec(FernetCodec.new_key())
    store.sealing.codec = codec
    store.append(ONE, log(2), 0)
    store.post(Message(ONE, SIGNAL, "go", {"secret": "Ada"}, "test", START))
    assert "Ada" not in json.dumps(lists.entries)
    opened = StoreAdapter(lists)
    opened.sealing.codec = codec
    assert opened.read(ONE) == log(2)


# --- where a small store is accepted ---


def test_environments_share_the_adapter_of_a_store_and_leave_it_open():
    lists = Lists()
    workflow = Workflow("w", [Step("a", script="1 + 1", store="n")])
    with Environment(store=lists, workflows=[workflow]) as one, Environment(store=lists) as other:
        assert one.store is other.store is as_store(lists)
        execution = one.start("w").wait(10)
        assert other.run_of(execution.id).variables == {"n": 2}
    assert not one.store.closed
    store = MemoryStore()
    assert as_store(store) is store


def test_a_run_is_resumed_and_answered_after_the_store_was_opened_again(tmp_path):
    steps_of = [
        Step("ask", type="interrupt", ask={"kind": "clarification", "question": "Name?"}, store="name"),
        Step("greet", script="'Hello ' + state.name", store="text"),
    ]
    workflow = Workflow("w", steps_of)
    with Environment(store=JsonLines(tmp_path), workflows=[workflow]) as environment:
        execution_id = environment.start("w").wait(10).id
        environment.store.close()
    gc.collect()
    with Environment(store=JsonLines(tmp_path), workflows=[workflow]) as environment:
        ((name, question),) = environment.store.asking()
        assert name == execution_id
        environment.answer(f"{question}@{name}", "Ada")
        assert environment.run_of(execution_id).resume().wait(10).variables["text"] == "Hello Ada"


def test_a_factory_of_a_scheme_may_return_a_small_store(tmp_path):
    register_store("lines", lambda url: JsonLines(tmp_path / url.partition("://")[2]))
    try:
        with open_store("lines://runs") as store:
            assert isinstance(store, EventStore)
            store.append(ONE, log(2), 0)
        with open_store("lines://runs") as store:
            assert store.read(ONE) == log(2)
    finally:
        del _factories["lines"]


def test_an_object_that_is_no_store_is_refused_with_the_protocol():
    class Half(Lists):
        read = None

        def append(self, execution_id, events): ...

    class Late(Lists):
        async def append(self, execution_id, entries, expected): ...

    for wrong, problem in (
        (Half(), "append takes (execution_id, events), but is called with (execution_id, entries, expected); read is"),
        (Late(), "append is a coroutine function, but it is called without `await`"),
        (Lists, "write Lists() to pass an instance"),
        (object(), "it has no method append, read, ids"),
    ):
        with pytest.raises(SetupError) as refused:
            Environment(store=wrong)
        assert problem in str(refused.value)
        assert f"{SimpleStore.__module__}.SimpleStore (append(execution_id, entries, expected)" in str(refused.value)
        assert "The page 'stores' of the reference" in str(refused.value)


def test_schedules_outlast_the_process():
    lists = Lists()
    store = StoreAdapter(lists)
    assert store.seen_to("daily", START) == START
    store.see_to("daily", START + 5)
    store.see_to("daily", START + 3)
    assert StoreAdapter(lists).seen_to("daily", START + 9) == START + 5
    assert StoreAdapter(lists).ids() == []
    assert len(lists.entries["schedules"]) == 2
