"""What happens to files and processes: deleted, replaced, made read-only, killed."""

import os

import pytest

from divebook.errors import StoreError
from divebook.stores import Owner, SqliteStore, open_store
from divebook.stores.maintenance import check
from tests.store.logs import ONE, TWO, batch, execution_id, log, step, steps
from tests.store.test_read_only import NOBODY, folder, unprivileged  # noqa: F401 - a fixture
from tests.store.writing import writing


def remove(path):
    path.unlink()


def replace(path):
    path.rename(path.with_name("moved.db"))
    path.touch()


@pytest.mark.parametrize("accident", [remove, replace])
def test_nothing_is_written_to_a_file_that_was_deleted_or_replaced(path, accident):
    with SqliteStore(path) as store:
        store.append_all([batch(ONE, 0, log(2), acquire=Owner.current())])
        (lease,) = store.leases()
        accident(path)
        for change in (
            lambda: store.append(ONE, [step(3)], 2, 1),
            lambda: store.append(TWO, log(1, TWO), 0),
            lambda: store.renew([lease]),
            lambda: store.put_checkpoint(ONE, 1, b""),
        ):
            with pytest.raises(StoreError, match=r"executions\.db was deleted or replaced while it was open"):
                change()
        assert not store.in_place


def test_a_file_that_was_deleted_is_opened_anew(path):
    old = open_store(path)
    old.append(ONE, log(3), 0)
    for name in path.parent.iterdir():
        name.unlink()
    with open_store(path) as new:
        assert new is not old
        new.append(ONE, log(2), 0)
        assert new.read(ONE) == log(2)
    old.close()


def own(path):
    """Let an unprivileged user change the permissions, as everybody may of one's own."""
    if os.getuid() == 0:
        os.chown(path, NOBODY, NOBODY)
    return path


def test_a_folder_that_becomes_read_only_loses_nothing(folder):  # noqa: F811 - the fixture
    path = own(folder) / "x.db"
    with unprivileged(), SqliteStore(path) as store:
        store.append(ONE, log(2), 0)
        folder.chmod(0o555)
        store.append(ONE, steps(3, 4), 2)
        assert store.read(ONE) == log(4)
        folder.chmod(0o777)
    with SqliteStore(path) as store:
        assert store.read(ONE) == log(4)
        assert check(store).ok


def test_a_file_that_becomes_read_only_loses_nothing(folder):  # noqa: F811 - the fixture
    path = own(folder) / "x.db"
    with unprivileged(), SqliteStore(path) as store:
        store.append(ONE, log(2), 0)
        path.chmod(0o444)
        store.append(ONE, steps(3, 4), 2)
    with SqliteStore(path) as store:
        assert store.read(ONE) == log(4)


def test_a_process_that_was_killed_leaves_its_executions_to_others(path):
    with writing(path.parent) as writer:
        writer.process.kill()
        writer.process.wait()
        acknowledged = writer.acknowledged
    with SqliteStore(path) as store:
        orphans = store.orphans()
        assert sorted(record.execution_id for record in orphans) == [execution_id(number) for number in range(2)]
        assert min(record.last_sequence for record in orphans) >= acknowledged
        assert {store.acquire(record.execution_id, Owner.current()).token for record in orphans} == {2}
        assert check(store).ok
