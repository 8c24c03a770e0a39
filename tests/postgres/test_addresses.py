"""Databases as URLs name them: what is shown of them, what is refused, and what a server says to a wrong one."""

import logging
import sys
import traceback
from urllib.parse import quote

import psycopg
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict

from divebook.errors import ConnectionLostError, ReadOnlyStoreError, SetupError, StoreError
from divebook.stores import open_store
from divebook.stores.postgres import PostgresStore
from divebook.stores.postgres.connections import DatabaseAddress
from divebook.text.passwords import for_command, without_password
from tests.store.logs import ONE, log

# --- what is shown

TOKENS = "kQ1zx", "tW7vu"
"""What a generated password is made of, beside what may not stand in a URL as it is."""
between = st.text("/#?@:%&=+[]\\ ',;!~$*()|\"<>^`{}äß\U0001f600", max_size=4)
passwords = st.builds(lambda *parts: f"{parts[0]}{TOKENS[0]}{parts[1]}{TOKENS[1]}{parts[2]}", between, between, between)
MISTYPED = (
    "postgresql://ann:{}@host/db",
    "postgres://ann:{}@host:5432/db?schema=runs",
    "postgresql://ann@corp:{}@host/db",
    "postgresql://ann:{}",
    "postgresql://ann:{}/db",
    "postgresql://:{}@host",
    "postgresql://ann@host/db?sslmode=disable&password={}",
    "postgresql://ann@host/db?sslmode=disable&PASSWORD={}&schema=runs",
    "postgresql://ann@host/db?password={}@&schema=runs",
    "postgresql+psycopg://ann:{}@host/db",
    "POSTGRESQL://ann:{}@host/db",
    "mysql://ann:{}@host/db",
    "postgresql:ann:{}@host/db",
    "postgresql:/ann:{}@host/db",
    "host=host user=ann password={} dbname=db",
    "host=host user=ann password = '{}' dbname=db",
    "dbname=db password={}",
)


@pytest.mark.parametrize("form", MISTYPED)
def test_no_password_is_shown_however_a_url_is_mistyped(form, monkeypatch, tmp_path, caplog):
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.DEBUG)

    def refuse(conninfo, **_):
        raise psycopg.OperationalError("connection refused")

    monkeypatch.setattr(psycopg, "connect", refuse)

    @given(passwords)
    @example(f"{TOKENS[0]}&{TOKENS[1]}=")
    @example(f"{TOKENS[0]}&a={TOKENS[1]}")
    def is_hidden(password):
        # One @ and no host: what follows is the host, and nobody can tell.
        url = form.format(password if "host" in form else password.replace("@", ""))
        with pytest.raises((SetupError, StoreError)) as caught:
            open_store(url)
        told = [str(caught.value), repr(caught.value), *said(caught.value), without_password(url), caplog.text]
        try:
            address = DatabaseAddress.of(url)
        except SetupError:
            pass
        else:
            told += [address.location, repr(address)]
        assert not [text for text in told if any(token in text for token in TOKENS)]
        assert list(tmp_path.iterdir()) == []

    is_hidden()


def said(error):
    """Return what is told of an error and of what it comes from, without the lines of the code."""
    while error is not None:
        yield "".join(traceback.format_exception_only(error))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


@given(passwords)
def test_a_password_that_is_written_as_it_should_be_is_the_one_that_is_sent(password):
    written = quote(password, safe="")
    for url in (f"postgresql://ann:{written}@host/db?schema=runs", f"postgresql://host/db?password={written}&user=ann"):
        given = conninfo_to_dict(DatabaseAddress.of(url).conninfo)
        assert (given["user"], given["password"], given["host"]) == ("ann", password, "host")


def test_settings_are_sent_as_they_are_written():
    address = DatabaseAddress.of("postgresql://host/db?options=-c%20statement_timeout%3D5s&application_name=a+b")
    given = conninfo_to_dict(address.conninfo)
    assert (given["options"], given["application_name"]) == ("-c statement_timeout=5s", "a+b")


@pytest.mark.parametrize(
    ("location", "given"),
    [
        ("postgresql://ann:***@host/db?schema=a", "postgresql://ann@host/db?schema=a"),
        ("postgresql://host/db?password=***&user=ann", "postgresql://host/db?user=ann"),
        ("postgresql://host/db?user=ann&password=***", "postgresql://host/db?user=ann"),
        ("postgresql://ann@host/db", "postgresql://ann@host/db"),
        ("my runs.db", "my runs.db"),
    ],
)
def test_what_a_command_is_given_has_no_password_and_is_a_url(location, given):
    assert for_command(location) == given
    if "://" in location:
        for url in (location, given, location.replace("***", "[redacted]")):
            assert "password" not in conninfo_to_dict(DatabaseAddress.of(url).conninfo)


# --- what a server says


@pytest.fixture(scope="module")
def ann(server):
    """Return the URL of a user who needs the password ``right``."""
    with psycopg.connect(DatabaseAddress.of(server.url()).conninfo, autocommit=True) as link:
        link.execute("CREATE ROLE ann LOGIN PASSWORD 'right'")
        link.execute("GRANT CREATE ON DATABASE postgres TO ann")
        rules = server.data / "pg_hba.conf"
        rules.write_text(f"local all ann scram-sha-256\n{rules.read_text()}")
        link.execute("SELECT pg_reload_conf()")
        while not link.execute("SELECT FROM pg_hba_file_rules WHERE 'ann' = ANY(user_name)").fetchall():
            pass
    return server.url("anns").replace("postgres@", "ann:right@")


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        (":right@", ":wr0ng@", r"refuses the user: .*authentication failed.* Check the user and the password"),
        ("ann:right@", "nobody_known@", r"refuses the user: .*does not exist"),
        ("/postgres?", "/no_db?", r"\"no_db\" does not exist\. Create the database, or use another one"),
        ("?host=", "?sslmode=bogus&host=", r"invalid sslmode value: \"bogus\"\. Correct that part of the URL"),
        ("?host=", "?port=99999&host=", r"invalid port number: \"99999\"\. Correct that part of the URL"),
        (
            "?host=",
            "?connect_timeout=abc&host=",
            r"bad value for connect_timeout: 'abc'\. Correct that part of the URL",
        ),
        ("?host=", "?options=-c%20nonsense%3D1&host=", r"unrecognized .*\. Correct that part of the URL"),
    ],
)
def test_what_will_never_be_let_in_is_told_so(ann, right, wrong, said):
    with pytest.raises(StoreError, match=said) as caught:
        PostgresStore(ann.replace(right, wrong))
    assert not isinstance(caught.value, ConnectionLostError)
    assert "wr0ng" not in str(caught.value)


def test_a_password_that_is_changed_while_a_process_works_is_an_outage(ann, server):
    with (
        PostgresStore(ann) as store,
        psycopg.connect(DatabaseAddress.of(server.url()).conninfo, autocommit=True) as link,
    ):
        link.execute("ALTER ROLE ann PASSWORD 'other'")
        link.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'ann'")
        with pytest.raises(ConnectionLostError):
            store.append(ONE, log(1), 0)
        link.execute("ALTER ROLE ann PASSWORD 'right'")
        store.append(ONE, log(1), 0)
        store.delete(ONE)


def test_a_password_that_was_mistyped_does_not_take_the_place_of_the_right_one(ann):
    with open_store(ann) as store:
        location = store.location
    with pytest.raises(StoreError, match="authentication failed"):
        open_store(ann.replace("right", "wrong"))
    for written in (location, for_command(location), location.replace("***", "[redacted]")):
        with open_store(written) as again:
            assert again.records() == []


# --- schemas


@pytest.fixture
def administrator(server):
    """Return a connection that makes users and schemas, beside the URL of a user that may make none."""
    with psycopg.connect(DatabaseAddress.of(server.url()).conninfo, autocommit=True) as link:
        link.execute("DROP SCHEMA IF EXISTS made CASCADE")
        link.execute("DROP ROLE IF EXISTS bob")
        link.execute("CREATE ROLE bob LOGIN")
        yield link, server.url("made").replace("postgres@", "bob@")
        link.execute("DROP SCHEMA IF EXISTS made CASCADE")
        link.execute("DROP ROLE bob")


def test_a_schema_that_an_administrator_has_made_is_used(administrator):
    link, url = administrator
    with pytest.raises(ReadOnlyStoreError, match="permission denied for database"):
        PostgresStore(url)
    link.execute("CREATE SCHEMA made AUTHORIZATION bob")
    with PostgresStore(url) as store:
        store.append(ONE, log(1), 0)
        assert store.read(ONE) == log(1)


@pytest.mark.parametrize("word", ["order", "user", "select", "_"])
def test_a_schema_may_have_the_name_of_a_word_of_sql(server, word):
    with PostgresStore(server.url(word)) as store:
        store.append(ONE, log(1), 0)
        store.delete(ONE)


@pytest.mark.parametrize("name", ["pg_mine", "Runs", "a-b", "", "läufe", 'a"b'])
def test_other_schemas_are_refused_with_what_may_be_written(server, name):
    with pytest.raises(SetupError, match="cannot be used; use a name of lowercase letters"):
        PostgresStore(server.url(quote(name)))


# --- opening


def test_no_password_is_shown_and_the_location_opens_the_store_again(server, address):
    url = address.replace("postgres@", "postgres:s3cret@")
    with open_store(url) as store:
        assert ":***@" in store.location
        assert "s3cret" not in f"{store.location} {store!r}"
        with open_store(store.location) as again:
            assert again._connections.address.conninfo == store._connections.address.conninfo


@pytest.mark.parametrize(
    ("url", "error", "said"),
    [
        (
            "postgresql://ann:s3cret@nowhere.invalid/db",
            ConnectionLostError,
            "ann:.*@nowhere.invalid/db cannot be reached",
        ),
        ("postgresql://ann:s3c@ret:x@host/db", SetupError, "is not a database"),
        ("postgresql://ann:s3cret@host/db?nonsense=1", SetupError, "is not a database"),
        ("postgresql://ann:s3cret@host/db?schema=a-b", SetupError, "schema 'a-b' of .* cannot be used"),
    ],
)
def test_what_cannot_be_opened_is_told_without_the_password(url, error, said):
    with pytest.raises(error, match=said) as caught:
        open_store(url)
    shown = "".join(map(str, (caught.value, caught.value.__cause__, caught.value.__context__)))
    assert "s3c" not in shown
    assert "ret:x" not in shown


def test_without_psycopg_it_is_said_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.startswith(("psycopg", "divebook.stores.postgres"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(SetupError, match=r"pip install 'divebook\[postgres\]'"):
        open_store("postgresql://host/db")
