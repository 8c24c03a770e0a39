"""What the tests of stores share."""

import pytest

from divebook.stores import SqliteStore


@pytest.fixture
def path(tmp_path):
    return tmp_path / "executions.db"


@pytest.fixture
def store(path):
    with SqliteStore(path, durability="relaxed") as opened:
        yield opened
