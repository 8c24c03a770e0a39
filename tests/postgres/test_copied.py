"""From a file into a database and back, on the command line, and what other commands take a database for."""

import json

import psycopg
import pytest
from typer.testing import CliRunner

from divebook.cli.main import app
from divebook.errors import CorruptStoreError
from divebook.stores import MemoryStore, SqliteStore
from divebook.stores.postgres import PostgresStore
from divebook.stores.transfer import copy
from tests.store.copied_forks import check_copy, fill
from tests.store.logs import ONE
from tests.store.test_copying import copies, filled, told


@pytest.fixture
def divebook(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DIVEBOOK_STORE", raising=False)
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words])


def test_a_file_is_copied_into_a_database_and_back(address, divebook, tmp_path):
    with SqliteStore("here.db") as file:
        filled(file)
        expected = told(file)
    there = divebook("copy", "here.db", address)
    assert there.exit_code == 0, there.output
    assert "3 executions, 1,209 events, 4 messages; all compared" in there.stdout
    assert "1 execution not ended; resume these runs in only one of the two stores" in there.stderr
    assert divebook("copy", address, "back.db").exit_code == 0
    with SqliteStore("back.db") as back:
        assert told(back) == expected
    again = divebook("copy", "here.db", address)
    assert "0 executions, 0 events, 0 messages, 3 executions already in the target; all compared" in again.stdout


def test_a_database_and_a_store_in_memory_hold_the_same(address):
    with filled(MemoryStore()) as source, PostgresStore(address) as target, MemoryStore() as back:
        copies(source, target)
        copy(target, back)
        assert told(back) == told(source)


def test_commands_take_a_database_as_their_store(address, divebook, tmp_path):
    (tmp_path / "hello.yaml").write_text("Workflows: [{Name: hello, Steps: [{Name: a, Script: '1 + 1', Store: n}]}]")
    started = divebook("run", "hello.yaml", "--store", address, "--json", "-q")
    assert started.exit_code == 0, started.output
    ran = json.loads(started.stdout)
    assert json.loads(divebook("runs", "--json", "--store", address).stdout)["runs"][0]["id"] == ran["id"]
    assert divebook("check", "--store", address).exit_code == 0
    assert divebook("show", ran["id"], "--store", address).exit_code == 0
    assert divebook("gc", "--keep-last", "0", "--store", address).exit_code == 0
    refused = divebook("backup", "x.db", "--store", address.replace("postgres@", "postgres:s3cret@"))
    assert "is not a file; copy the store into a file: divebook copy 'postgresql://postgres@" in refused.stderr
    assert "s3cret" not in refused.output


def test_forks_are_copied_into_a_database_and_back(address, tmp_path):
    with SqliteStore(tmp_path / "here.db") as file, PostgresStore(address) as there:
        count = fill(file, 1, every=9)
        check_copy(file, there, count)
        with SqliteStore(tmp_path / "back.db") as back:
            check_copy(there, back, count)


def test_a_damaged_message_is_not_left_out_of_a_copy(address):
    with filled(PostgresStore(address)) as source, MemoryStore() as target:
        with psycopg.connect(source._connections.address.conninfo) as person:
            person.execute("UPDATE divebook.messages SET payload = 'no' WHERE number = 2")
        with pytest.raises(CorruptStoreError, match=rf"messages to execution {ONE} .*message 2 .*Run `divebook check`"):
            copy(source, target)
        assert target.new_messages(0) == []
