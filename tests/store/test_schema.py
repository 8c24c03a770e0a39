"""Files of every released version open, and come up to date all or none of the way."""

import re
import sqlite3
from contextlib import closing
from datetime import date
from pathlib import Path

import pytest

from divebook.errors import NewerStoreError
from divebook.events.codec import encode_line
from divebook.stores import Message, SqliteStore
from divebook.stores.sqlite.schema import MIGRATIONS, check_version, migrate
from tests.store.logs import ONE, log, moment

RECORDED = Path(__file__).parent / "recorded"
VERSIONS = sorted(int(re.sub(r"\D", "", path.stem)) for path in RECORDED.glob("version_*.sql"))
NEXT = (*MIGRATIONS, ("ALTER TABLE executions ADD COLUMN owner TEXT", "UPDATE executions SET owner = 'me'"))
BROKEN = (*NEXT, ("ALTER TABLE events ADD COLUMN note TEXT", "UPDATE missing SET x = 1"))


def restore(path, version):
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((RECORDED / f"version_{version}.sql").read_text())


def version_of(path):
    with closing(sqlite3.connect(path)) as connection:
        return check_version(connection, str(path), BROKEN)


def columns(path, table):
    with closing(sqlite3.connect(path)) as connection:
        return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]


def test_every_version_has_a_recorded_file():
    assert list(range(1, len(MIGRATIONS) + 1)) == VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
def test_a_recorded_file_gives_the_events_it_was_given(path, version):
    restore(path, version)
    with SqliteStore(path) as store:
        found = [encode_line(event) for record in store.records() for event in store.read(record.execution_id)]
    assert found == (RECORDED / f"version_{version}.jsonl").read_bytes().splitlines()
    assert version_of(path) == len(MIGRATIONS)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_recorded_file_can_be_written_to(path, version):
    restore(path, version)
    with SqliteStore(path) as store:
        store.append(ONE, log(3), 0)
        assert store.read(ONE) == log(3)


def test_an_empty_file_becomes_a_store(path):
    path.touch()
    with SqliteStore(path) as store:
        store.append(ONE, log(3), 0)
    assert version_of(path) == len(MIGRATIONS)


def test_a_database_without_tables_becomes_a_store(path):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("VACUUM")
    SqliteStore(path).close()
    assert version_of(path) == len(MIGRATIONS)


def test_a_migration_keeps_what_was_there(path):
    restore(path, len(MIGRATIONS))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        before = connection.execute("SELECT * FROM events").fetchall()
        migrate(connection, str(path), NEXT)
        assert connection.execute("SELECT * FROM events").fetchall() == before
        assert set(connection.execute("SELECT owner FROM executions")) == {("me",)}
    assert version_of(path) == len(NEXT)


def test_older_files_come_to_know_children_and_open_questions(path):
    restore(path, 3)
    with closing(sqlite3.connect(path)) as connection, connection:
        for key, kinds in {70: ("interrupt_raised",), 71: ("interrupt_raised", "interrupt_resolved")}.items():
            connection.execute(
                "INSERT INTO executions (key, id, workflow_name, status, last_sequence, size, created_at)"
                " VALUES (?, ?, 'greet', 'waiting', 9, 0, 1)",
                (key, f"exec_{key}"),
            )
            payloads = {"execution_started": '{"parent":"exec_1"}', **dict.fromkeys(kinds, '{"interrupt_id":"q"}')}
            for sequence, (kind, data) in enumerate(payloads.items(), 1):
                connection.execute(
                    "INSERT INTO events (place, recorded_at, type, id, path, step, data)"
                    " SELECT ?, 1, number, x'00', '', '', ? FROM event_types WHERE name = ?",
                    (key << 32 | sequence, data, kind),
                )
    with SqliteStore(path) as store:
        assert (store.record("exec_70").origin, store.record("exec_70").parent) == ("child", "exec_1")
        assert {record.origin for record in store.records() if record.parent is None} == {"run"}
    with closing(sqlite3.connect(path)) as connection:
        asked = connection.execute("SELECT key, id FROM questions WHERE key >= 70").fetchall()
    assert asked == [(70, "q")]


QUESTION = ("step_started", "operation_started", "interrupt_raised")
LEFT = {
    "waiting": [
        [("main", *QUESTION)],
        [("main", "path_started", "path_branched"), ("main-1", *QUESTION), ("main-2", "path_completed")],
        [("main", "path_branched"), ("main-1", *QUESTION), ("main-2", *QUESTION), ("main-3", "path_waiting")],
    ],
    "running": [
        [("main", "step_started", "operation_started")],
        [("main", *QUESTION, "interrupt_resolved")],
        [("main", "path_branched"), ("main-1", *QUESTION), ("main-2", "path_started", "step_started")],
        [("main", "path_branched"), ("main-1", "path_completed"), ("main-2", "path_waiting")],
        [("main", *QUESTION, "interrupt_raised", "interrupt_resolved")],
    ],
    "failed": [[("main", *QUESTION)]],
}


@pytest.mark.parametrize(("status", "paths"), [(status, paths) for status, found in LEFT.items() for paths in found])
def test_what_only_waited_for_answers_is_known_to_wait(path, status, paths):
    restore(path, 2)
    left = "failed" if status == "failed" else "running"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "INSERT INTO executions (key, id, workflow_name, status, last_sequence, size, created_at, ended_at)"
            " VALUES (77, 'exec_left', 'greet', ?, 9, 0, 1, NULL)",
            (left,),
        )
        happened = [("", "execution_started"), *((name, kind) for name, *kinds in paths for kind in kinds)]
        connection.executemany(
            "INSERT INTO events (place, recorded_at, type, id, path, step, data)"
            " SELECT 77 << 32 | ?, 1, number, 'event_' || ?, ?, '', '{}' FROM event_types WHERE name = ?",
            [(sequence, sequence, *event) for sequence, event in enumerate(happened, 1)],
        )
    with SqliteStore(path) as store:
        assert store.record("exec_left").status == status
        others = {record.status for record in store.records() if record.execution_id != "exec_left"}
        assert others == {"completed", "running"}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_recorded_file_can_be_sent_messages(path, version):
    restore(path, version)
    with SqliteStore(path) as store:
        record = store.records()[0]
        last = store.last_message()
        posted = store.post(Message(record.execution_id, "signal", "hello", {"n": 1}, "ada@home:1", 1))
        assert posted.number > last
        assert store.inbox(record.execution_id, after=last) == [posted]


def test_a_recorded_file_keeps_what_its_executions_wait_for(path):
    restore(path, 3)
    with SqliteStore(path) as store:
        (waiting,) = store.records(status="waiting")
        messages = store.inbox(waiting.execution_id, after=waiting.taken)
        assert [(message.kind, message.key, message.payload) for message in messages] == [
            ("signal", "sig_2", {"n": 2, "day": date(2025, 6, 1)})
        ]
        assert waiting.wake_at == moment(3600)


def test_a_migration_happens_once(path):
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate(connection, str(path), NEXT)
        migrate(connection, str(path), NEXT)
    assert version_of(path) == len(NEXT)


class Overtaken(sqlite3.Connection):
    """A connection before whose next statement another process makes the store."""

    overtaken_before: str

    def execute(self, sql, *rest):
        if sql.startswith(self.overtaken_before):
            SqliteStore(self.path).close()
        return super().execute(sql, *rest)


@pytest.mark.parametrize("statement", ["BEGIN", "PRAGMA user_version", "PRAGMA application_id", "SELECT name FROM"])
def test_a_store_that_is_being_made_is_no_foreign_database(path, statement):
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA journal_mode = WAL")
    with closing(sqlite3.connect(path, isolation_level=None, factory=Overtaken)) as connection:
        connection.path, connection.overtaken_before = path, statement
        assert check_version(connection, str(path)) in {0, len(MIGRATIONS)}
        migrate(connection, str(path))
        assert check_version(connection, str(path)) == len(MIGRATIONS)


def test_a_migration_that_fails_leaves_the_file_as_it_was(path):
    restore(path, len(MIGRATIONS))
    before = columns(path, "executions")
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as connection,
        pytest.raises(sqlite3.OperationalError, match="no such table: missing"),
    ):
        migrate(connection, str(path), BROKEN)
    assert (version_of(path), columns(path, "executions")) == (len(MIGRATIONS), before)
    with SqliteStore(path) as store:
        assert store.records()


def test_an_older_divebook_refuses_a_migrated_file(path):
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate(connection, str(path), NEXT)
    with pytest.raises(NewerStoreError):
        SqliteStore(path)
