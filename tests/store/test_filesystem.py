from pathlib import Path

import pytest

from divebook.stores import SqliteStore
from divebook.stores.maintenance import check
from divebook.stores.sqlite import connections
from divebook.stores.sqlite.connections import network_type, type_of_mount
from tests.store.connections import writer_of
from tests.store.logs import ONE, completed, log, step, steps

MOUNTS = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
40 27 0:50 / /home rw,relatime shared:7 - nfs4 server:/home rw,vers=4.2
41 40 0:51 / /home/ada/local rw,relatime shared:8 master:2 - xfs /dev/vdb rw
42 27 0:52 / /mnt/my\\040share rw - cifs //server/share rw
43 27 0:53 / /data rw - ext4 /dev/vdc rw
44 27 0:54 / /data rw - fuse.sshfs ada@server: rw
a line that says nothing
"""


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("/tmp", "ext4"),
        ("/home", "nfs4"),
        ("/home/ada/project", "nfs4"),
        ("/home/ada/local/project", "xfs"),
        ("/homes", "ext4"),
        ("/mnt/my share/x", "cifs"),
        ("/data/x", "fuse.sshfs"),
        ("/proc/self", "proc"),
    ],
)
def test_the_type_of_a_folder_is_that_of_its_innermost_mount(folder, expected):
    assert type_of_mount(Path(folder), MOUNTS) == expected


def test_without_mounts_there_is_no_type():
    assert type_of_mount(Path("/tmp"), "") is None


def test_only_network_file_systems_are_named(monkeypatch, tmp_path):
    (tmp_path / "mounts").write_text(MOUNTS)
    monkeypatch.setattr(connections, "_MOUNTS", tmp_path / "mounts")
    assert network_type(Path("/home/ada/x.db")) == "nfs4"
    assert network_type(Path("/nowhere/x.db")) is None


def test_where_mounts_cannot_be_read_a_file_counts_as_local(monkeypatch, tmp_path):
    monkeypatch.setattr(connections, "_MOUNTS", tmp_path / "missing")
    assert network_type(Path("/home/ada/x.db")) is None


def open_on_nfs(path, **options):
    with pytest.warns(RuntimeWarning, match=r"executions\.db is on a network file system \(nfs4\)") as warned:
        store = SqliteStore(path, network=lambda _: "nfs4", **options)
    assert warned[0].filename == __file__
    return store


def pragma(store, name):
    return writer_of(store).execute(f"PRAGMA {name}").fetchone()[0]


def test_on_a_network_there_is_no_write_ahead_log(path):
    with open_on_nfs(path, durability="relaxed") as store:
        assert (pragma(store, "journal_mode"), pragma(store, "synchronous")) == ("truncate", 2)
        store.append(ONE, log(3), 0)
        assert not path.with_name("executions.db-wal").exists()


def test_on_a_network_a_store_works_as_elsewhere(path):
    with open_on_nfs(path) as here, open_on_nfs(path) as there:
        here.append(ONE, log(2), 0)
        there.append(ONE, steps(3, 4), 2)
        here.append(ONE, [step(5), completed(6)], 4)
        assert there.read(ONE) == [*log(5), completed(6)]
        assert check(here).ok


def test_a_file_may_move_to_a_network_and_back(path):
    with SqliteStore(path) as store:
        store.append(ONE, log(2), 0)
    with open_on_nfs(path) as store:
        store.append(ONE, steps(3, 4), 2)
    with SqliteStore(path) as store:
        assert pragma(store, "journal_mode") == "wal"
        store.append(ONE, steps(5, 6), 4)
        assert store.read(ONE) == log(6)


def test_this_machine_is_asked_by_default(path, monkeypatch):
    monkeypatch.setattr(connections, "_MOUNTS", path.parent / "mounts")
    (path.parent / "mounts").write_text("27 1 254:0 / / rw,relatime - lustre server rw\n")
    with pytest.warns(RuntimeWarning, match="lustre"):
        SqliteStore(path).close()
