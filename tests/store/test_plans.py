"""What lists, the inbox and recovery ask of a file is answered by indexes: the work does not grow with the store."""

import re
from contextlib import contextmanager
from itertools import combinations

import pytest

from divebook.errors import ExecutionNotFoundError
from divebook.events import catalog
from divebook.stores import Message, SqliteStore
from divebook.stores.leases import Owner
from tests.store.connections import reader_of, writer_of
from tests.store.logs import ONE, SECOND, START, batch, event

ENDED, FEW = 300, 4
"""Executions that have ended in the larger store, and in both stores those of each kind that matter still."""
NOW = START + 3600 * SECOND
GONE = Owner("elsewhere", 11, 1, "kernel")
RARE = {
    "status": "failed",
    "workflow": "rare",
    "tag": "rare",
    "origin": "fork",
    "parent": ONE,
    "notebook": "rare.ipynb",
    "cell": "c1",
}
"""A value of each filter that few executions have; a common one is in all the others."""
COMMON = {
    "status": "completed",
    "workflow": "common",
    "tag": "common",
    "origin": "run",
    "parent": "exec_common",
    "notebook": "common.ipynb",
    "cell": "c2",
}
# What is read in the order of an index as far as somebody wants it, or holds nothing but what is asked for.
IN_ORDER = re.compile(
    r"SCAN (executions USING INDEX executions_by_age|messages USING (COVERING )?INDEX messages_untaken"
    r"|questions USING (COVERING )?INDEX questions_open|leases|pressed)\b"
)


def begun(name, at, values):
    facts = {key: value for key, value in values.items() if key not in ("status", "workflow", "tag")}
    first = catalog.ExecutionStarted(workflow_name=values["workflow"], tags=[values["tag"]], **facts)
    return event(1, first, name, at=at, path="")


def fill(store, ended):
    """Write many executions that have ended, with what they never settled, and a few that go on."""
    for number in range(ended):
        name = f"exec_ended_{number}"
        asked = event(2, catalog.InterruptRaised("q_asking", "confirmation", "Sure?"), name, at=START + number)
        store.append(name, [begun(name, START + number, COMMON), asked], 0)
        store.post(Message(name, "answer", "q_7", True, "me", START))
        store.append(name, [event(3, catalog.ExecutionCompleted(), name, at=START + number)], 2)
    for number in range(FEW):
        at, name = START + SECOND + number, f"exec_{number}_failed"
        failed = event(2, catalog.ExecutionFailed(error="no"), name, at=at)
        store.append(name, [begun(name, at, RARE), failed], 0)
        for kind, how in {"asking": {}, "due": {"wake_at": NOW}, "told": {}}.items():
            name = f"exec_{number}_{kind}"
            asked = event(2, catalog.InterruptRaised(f"q_{kind}", "confirmation", "Sure?"), name, at=at)
            store.append_all([batch(name, 0, [begun(name, at, COMMON), asked], status="waiting", **how)])
        store.post(Message(f"exec_{number}_told", "answer", "q_told", True, "me", START))
        store.append(f"exec_{number}_running", [begun(f"exec_{number}_running", at, COMMON)], 0)
        store.acquire(f"exec_{number}_running", GONE, 1, now=START)


def unknown(store):
    with pytest.raises(ExecutionNotFoundError):
        store.record("exec_nobody")


QUESTIONS = {
    "all": lambda store: store.records(limit=20),
    "a page": lambda store: store.records(limit=20, offset=20),
    **{f"{name} {value}": lambda store, name=name, value=value: store.records(limit=3, **{name: value})
       for found in (RARE, COMMON) for name, value in found.items()},
    **{" ".join(names): lambda store, names=names: store.records(limit=3, **{name: RARE[name] for name in names})
       for names in combinations(RARE, 2)},
    "everything": lambda store: store.records(limit=3, **RARE),
    "a page of a status": lambda store: store.records("completed", limit=3, offset=9),
    "unended": lambda store: store.unended(),
    "inbox": lambda store: store.asking(),
    "who asks": lambda store: store.asking("q_asking"),
    "who asked": lambda store: store.last_addressee("answer", "q_7"),
    "recoverable": lambda store: store.orphans(NOW),
    "untaken": lambda store: store.untaken(),
    "one untaken": lambda store: store.has_untaken("exec_1_told"),
    "messages": lambda store: store.inbox("exec_1_told"),
    "new messages": lambda store: store.new_messages(store.last_message()),
    "leases": lambda store: store.leases(),
    "a lease": lambda store: store.lease_of("exec_1_running"),
    "what a key began": lambda store: store.records(key="once"),
    "a record": lambda store: store.record("exec_1_told"),
    "a log": lambda store: store.read("exec_1_told"),
    "part of an id": lambda store: store.resolve("exec_1_to"),
    "an unknown id": unknown,
    "driving": lambda store: store.release(store.acquire("exec_1_told", GONE)),
}  # fmt: skip


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plans")
    with (
        SqliteStore(folder / "small.db", durability="relaxed") as small,
        SqliteStore(folder / "large.db", durability="relaxed") as large,
    ):
        fill(small, ENDED // 10)
        fill(large, ENDED)
        yield small, large


@contextmanager
def each_connection(store, listen, ignore):
    connections = (reader_of(store), writer_of(store))
    for connection in connections:
        listen(connection)
    try:
        yield
    finally:
        for connection in connections:
            ignore(connection)


def work(store, question):
    """Return how many instructions SQLite carries out for a question."""
    done = []
    with each_connection(
        store,
        lambda connection: connection.set_progress_handler(lambda: done.append(1), 1),
        lambda connection: connection.set_progress_handler(None, 1),
    ):
        QUESTIONS[question](store)
    return len(done)


def plans(store, question):
    """Return how SQLite goes about every statement of a question."""
    statements = []
    with each_connection(
        store,
        lambda connection: connection.set_trace_callback(statements.append),
        lambda connection: connection.set_trace_callback(None),
    ):
        QUESTIONS[question](store)
    planned = [text for text in statements if text.split()[0] in ("SELECT", "WITH", "UPDATE", "DELETE", "INSERT")]
    assert planned
    reader = reader_of(store)
    return [row[-1] for text in planned for row in reader.execute(f"EXPLAIN QUERY PLAN {text}")]


@pytest.mark.parametrize("question", QUESTIONS)
def test_no_table_is_scanned(stores, question):
    scans = [line for line in plans(stores[1], question) if line.startswith("SCAN")]
    tables = "executions|events|messages|questions|leases|tags"
    assert [line for line in scans if re.match(rf"SCAN ({tables})\b", line) and not IN_ORDER.match(line)] == []


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_work_does_not_grow_with_the_store(stores, question):
    small, large = (work(store, question) for store in stores)
    assert 0 < large < small * 1.2 + 20


def test_the_newest_are_not_sorted_to_be_found(stores):
    for question in ("all", *(f"{name} {COMMON[name]}" for name in COMMON), "workflow rare", "status workflow"):
        assert not [line for line in plans(stores[1], question) if "TEMP B-TREE" in line], question
