"""What tests on a real Postgres share; without one they are skipped. Without psycopg one of them says so."""

from importlib.util import find_spec

import pytest

from tests.postgres.server import is_available, postgres_server

collect_ignore_glob = [] if find_spec("psycopg") else ["test_[!a]*.py", "[!cst_]*.py"]


@pytest.fixture(scope="session")
def server(require):
    """Return a server, which leaves writing to the disk to the machine."""
    require("postgres", is_available())
    with postgres_server("fsync=off", "full_page_writes=off") as started:
        yield started


@pytest.fixture
def address(server):
    """Return the URL of an empty store."""
    from tests.postgres.emptying import emptied

    return emptied(server.url())


@pytest.fixture
def store(address):
    from divebook.stores.postgres import PostgresStore

    with PostgresStore(address) as opened:
        yield opened
