"""Messages in a file that several processes share."""

import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from divebook.errors import CorruptStoreError, ReadOnlyStoreError, StoreError
from divebook.stores import Message, SqliteStore
from divebook.stores.maintenance import check
from divebook.stores.sqlite.log_reader import find
from divebook.stores.sqlite.tables import insert_message
from tests.store.connections import writer_of
from tests.store.logs import ONE, START, TWO, log, step
from tests.store.test_damaged_files import tamper

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def store(path):
    with SqliteStore(path, durability="relaxed") as opened:
        opened.append(ONE, log(2), 0)
        yield opened


def answer(key="ask_1", payload="yes"):
    return Message(ONE, "answer", key, payload, "ada@home:1", START)


def statements_of(store, action):
    """Return the SQL that an action runs on the writing connection."""
    run = []
    writer_of(store).set_trace_callback(run.append)
    try:
        action()
    finally:
        writer_of(store).set_trace_callback(None)
    return run


def test_a_message_survives_the_process(path, store):
    posted = store.post(answer())
    store.close()
    with SqliteStore(path) as again:
        assert again.inbox(ONE) == [posted]
        assert again.last_message() == posted.number


def test_messages_of_another_connection_are_seen(path, store):
    assert store.new_messages(0) == []
    with SqliteStore(path) as other:
        posted = other.post(answer())
        assert store.new_messages(0) == [posted]
        own = store.post(answer("ask_2"))
        assert other.new_messages(posted.number) == store.new_messages(posted.number) == [own]


def test_asking_again_costs_one_question_while_nobody_else_writes(store):
    store.new_messages(0)
    store.append(ONE, [step(3)], 2)
    assert statements_of(store, lambda: store.new_messages(0)) == ["PRAGMA data_version"]


def test_own_messages_are_new_as_well(store):
    store.new_messages(0)
    posted = store.post(answer())
    assert store.new_messages(0) == [posted]
    assert statements_of(store, lambda: store.new_messages(posted.number)) == ["PRAGMA data_version"]


def test_a_message_deleted_by_another_process_is_no_longer_new(path, store):
    store.post(answer())
    with SqliteStore(path) as other:
        other.delete(ONE)
    assert store.new_messages(0) == []


def test_a_read_only_store_shows_messages_and_takes_none(path, store, monkeypatch):
    posted = store.post(answer())
    store.close()
    monkeypatch.setattr("divebook.stores.sqlite.store.why_read_only", lambda _: "it is a museum piece")
    with SqliteStore(path) as museum:
        assert museum.new_messages(0) == museum.inbox(ONE) == [posted]
        with pytest.raises(ReadOnlyStoreError, match="museum piece"):
            museum.post(answer("ask_2"))


def test_messages_of_no_execution_are_found(path, store):
    store.post(answer())
    store.append(TWO, log(2, TWO), 0)
    store.close()
    tamper(path, "UPDATE messages SET key = 99")
    with SqliteStore(path) as again:
        assert [damage.text for damage in check(again).damages] == [
            "1 rows of table messages belong to no execution",
        ]


@pytest.mark.parametrize("payload", [b"{", b'{"$type": "date", "value": "never"}'])
def test_a_payload_that_cannot_be_decoded_is_damage_though_its_checksum_fits(store, payload):
    with store._transaction() as cursor:
        insert_message(cursor, find(cursor, ONE).key, answer(), payload)
    posted = store.post(answer("ask_2"))
    with pytest.raises(CorruptStoreError, match=f"message 1 to execution {ONE} cannot be decoded"):
        store.inbox(ONE)
    assert store.new_messages(0) == [posted]


def test_no_message_is_brought_below_one_that_another_process_has_just_posted(path, store):
    waits, brought = threading.Event(), []

    def bring():
        with pytest.raises(
            StoreError,
            match="message 5 cannot be copied to this store, which already has messages with numbers up to 9",
        ):
            store.bring([replace(answer(), number=5)])
        brought.append("refused")

    with SqliteStore(path) as other:
        bringing = threading.Thread(target=bring)
        with other._transaction() as cursor:
            writer_of(store).set_trace_callback(lambda statement: statement.startswith("BEGIN") and waits.set())
            bringing.start()
            assert waits.wait(20)
            insert_message(cursor, find(cursor, ONE).key, replace(answer("later"), number=9), b"1")
        bringing.join(20)
        assert brought == ["refused"]
        assert [message.number for message in other.new_messages(0)] == [9]


RACER = """
import sys
from divebook.stores import Message, SqliteStore
from tests.store.logs import ONE
path, name = sys.argv[1:]
with SqliteStore(path, durability="relaxed") as store:
    for number in range(60):
        kept = store.post(Message(ONE, "answer", f"ask_{number}", name, name, 1))
        print(number, kept.number, kept.payload)
"""


def test_of_processes_that_answer_the_same_questions_one_wins_each(path, store):
    command = [sys.executable, "-c", RACER, str(path)]
    racers = [subprocess.Popen([*command, name], cwd=ROOT, stdout=subprocess.PIPE, text=True) for name in "abc"]
    told = [racer.communicate(timeout=60)[0].splitlines() for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0, 0]
    assert told[0] == told[1] == told[2]
    kept = [f"{message.key.removeprefix('ask_')} {message.number} {message.payload}" for message in store.inbox(ONE)]
    assert sorted(kept) == sorted(told[0])
    assert store.last_message() == len(kept) == 60
