"""A snapshot is what is there, however it came there; and every one of them can be put back."""

import errno
import os
import shutil
import stat
from unittest import mock

import pytest

from divebook.workspaces.paths import Root
from divebook.workspaces.snapshots import take
from divebook.workspaces.snapshots.take import (
    DEEPEST,
    SPECIAL,
    TOO_DEEP,
    TOO_LARGE,
    UNREADABLE,
    UNSTABLE,
    TreeScanner,
    tree_of,
)
from divebook.workspaces.snapshots.tree import changes_between
from tests.workspace.scan_races import during_scans, tree_is_stored
from tests.workspace.scan_races import sequence as sequence_with_races
from tests.workspace.sequences import KeptTrees, from_scratch, sequence


@pytest.fixture
def kept(tmp_path):
    made = []

    def make(folder=tmp_path, **options):
        made.append(KeptTrees(folder, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("watch", [True, False])
def test_random_changes_are_seen_and_undone(tmp_path, watch):
    """More of them: `python -m tests.workspace.sequences`."""
    sequence(7, tmp_path, watch=watch, looks=15, restored=5)


@pytest.mark.parametrize("watch", [True, False])
def test_random_changes_during_scans_are_seen(tmp_path, watch):
    """More of them: `python -m tests.workspace.scan_races`."""
    sequence_with_races(3, tmp_path, watch=watch)


def test_a_change_of_the_same_size_within_a_tick_is_seen(kept, tmp_path):
    live = kept(watch=False)
    for number in range(100):
        (tmp_path / "f").write_text(f"{number:05}")
        assert list(live.take().delta) == ["f"]


def test_nothing_changed_is_nothing_new(kept, tmp_path):
    (tmp_path / "f").write_text("x")
    live = kept()
    first = live.take()
    again = live.take()
    assert again.tree.digest == first.tree.digest
    assert not again.delta


def test_what_is_no_file_is_named(kept, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"x" * 101)
    live = kept(largest=100)
    assert live.take().tree.problems == (("large", TOO_LARGE), ("pipe", SPECIAL))
    (tmp_path / "pipe").unlink()
    (tmp_path / "large").write_bytes(b"x" * 100)
    tree = live.take().tree
    assert not tree.problems
    assert list(tree.entries) == ["large"]


def test_a_file_that_is_written_meanwhile_is_said_and_read_again(kept, tmp_path, monkeypatch):
    busy, count = tmp_path / "busy", iter(range(100))
    busy.write_bytes(b"at first")

    def opened(*args, **options):
        busy.write_bytes(b"%d" % next(count))
        return open(*args, **options)

    live = kept()
    monkeypatch.setattr(take, "open", opened, raising=False)
    assert live.take().tree.problems == (("busy", UNSTABLE),)
    monkeypatch.undo()
    tree = live.take().tree
    assert not tree.problems
    assert live.contents[tree.entries["busy"].content] == busy.read_bytes()


def test_modes_times_and_strange_names_come_back(kept, tmp_path):
    folder = tmp_path / "w"
    (folder / "empty").mkdir(parents=True, mode=0o700)
    run = folder / "run"
    run.write_text("#!")
    run.chmod(0o751)
    os.utime(run, ns=(1, 123456789))
    strange = folder / os.fsdecode(b"\xff")
    strange.write_text("name that is no text")
    live = kept(folder)
    first = live.take().tree
    (folder / "empty").rmdir()
    run.write_text("other")
    strange.unlink()
    second = live.take().tree
    told = [(found.kind, os.fsencode(found.path)) for found in changes_between(first.entries, second.entries)]
    assert told == [("deleted", b"empty"), ("changed", b"run"), ("deleted", b"\xff")]
    live.restore(tree_of(live.manifests[:1]))
    assert (run.stat().st_mode & 0o7777, run.stat().st_mtime_ns) == (0o751, 123456789)
    assert (folder / "empty").stat().st_mode & 0o7777 == 0o700
    assert strange.read_text() == "name that is no text"


def test_what_is_left_out_is_neither_seen_nor_touched(kept, tmp_path):
    (tmp_path / "build" / "deep").mkdir(parents=True)
    (tmp_path / "build" / "deep" / "out").write_text("kept")
    (tmp_path / "a.pyc").write_text("cache")
    (tmp_path / "file").write_text("1")
    live = kept(exclude=["*.pyc", "build/deep/**"])
    first = live.take().tree
    assert sorted(first.entries) == ["build", "build/deep", "file"]
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "b.pyc").write_text("cache")
    live.take()
    live.restore(first)
    assert (tmp_path / "build" / "deep" / "out").read_text() == "kept"
    assert (tmp_path / "new" / "b.pyc").read_text() == "cache"


def test_a_file_with_two_names_is_not_written_through(kept, tmp_path):
    (tmp_path / "a").write_text("1")
    live = kept()
    first = live.take().tree
    os.link(tmp_path / "a", tmp_path / "b")
    second = live.take().tree
    (tmp_path / "b").write_text("both")
    live.take()
    live.restore(second)
    assert (tmp_path / "a").read_text() == (tmp_path / "b").read_text() == "1"
    live.restore(first)
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("folder", ["", "new/"])
@pytest.mark.parametrize("last", ["unlink", "replace"])
def test_a_change_by_a_name_that_is_gone_is_seen(kept, tmp_path, folder, last):
    file, other = tmp_path / "file", tmp_path / f"{folder}other"
    file.write_text("1")
    live = kept()
    live.take()
    other.parent.mkdir(exist_ok=True)
    os.link(file, other)
    other.write_text("2")
    if last == "replace":
        (tmp_path / "third").write_text("3")
        (tmp_path / "third").rename(other)
    else:
        other.unlink()
    tree = live.take().tree
    assert live.contents[tree.entries["file"].content] == b"2"


def _remove(name):
    name.unlink()


def _replace(name):
    name.with_name("third").write_text("3")
    name.with_name("third").rename(name)


def _remove_under_a_third_name(name):
    name.rename(name.with_name("third"))
    name.with_name("third").unlink()


@pytest.mark.parametrize("lose", [_remove, _replace, _remove_under_a_third_name])
def test_a_plain_write_after_a_name_is_gone_hides_no_change(kept, tmp_path, monkeypatch, lose):
    monkeypatch.setattr(take, "SLACK", -1)  # a recent file is examined anyway
    (tmp_path / "file").write_text("1")
    live = kept()
    live.take()
    other = tmp_path / "other"
    os.link(tmp_path / "file", other)
    other.write_text("changed")
    lose(other)
    (tmp_path / "later").write_text("a plain write")
    tree = live.take().tree
    assert live.contents[tree.entries["file"].content] == b"changed"


def test_a_change_by_a_name_in_a_folder_that_is_moved_away_is_seen(kept, tmp_path, monkeypatch):
    monkeypatch.setattr(take, "SLACK", -1)
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    (root / "file").write_text("1")
    live = kept(root)
    live.take()
    other = root / "folder" / "other"
    os.link(root / "file", other)
    other.write_text("changed")
    (root / "folder").rename(tmp_path / "away")
    tree = live.take().tree
    assert list(tree.entries) == ["file"]
    assert live.contents[tree.entries["file"].content] == b"changed"


def _write_longer(path):
    path.write_text(path.read_text() + " and more")


def _replaced_by(make):
    def replace(root):
        (root / "folder" / "two").unlink()
        make(root / "folder" / "two")

    return replace


def _remove_both(root):
    (root / "folder" / "two").unlink()
    (root / "one").unlink()


def _link_and_write(root):
    os.link(root / "plain", root / "folder" / "new")
    _write_longer(root / "folder" / "new")


def _exchange_folders(root):
    (root / "folder").rename(root / "away")
    (root / "other").rename(root / "folder")


_DURING_A_SCAN = {
    "first name is removed": lambda root: (root / "one").unlink(),
    "second name is removed": lambda root: (root / "folder" / "two").unlink(),
    "both names are removed": _remove_both,
    "a name becomes another file": _replaced_by(lambda path: path.write_text("another")),
    "a name becomes a link": _replaced_by(lambda path: path.symlink_to("plain")),
    "a name becomes a pipe": _replaced_by(os.mkfifo),
    "a name becomes a folder": _replaced_by(os.mkdir),
    "a name is added": lambda root: os.link(root / "plain", root / "folder" / "new"),
    "a name is added and written": _link_and_write,
    "the file is written by its second name": lambda root: _write_longer(root / "folder" / "two"),
    "the folder of a name is removed": lambda root: shutil.rmtree(root / "folder"),
    "the folder of a name is exchanged": _exchange_folders,
}


@pytest.mark.parametrize("watch", [True, False])
@pytest.mark.parametrize("change", _DURING_A_SCAN.values(), ids=_DURING_A_SCAN)
def test_a_name_of_a_file_that_changes_at_any_moment_of_a_scan_is_recorded_as_it_was_or_is(
    kept, tmp_path, monkeypatch, watch, change
):
    """Random changes and trees: `python -m tests.workspace.scan_races`."""
    monkeypatch.setattr(take, "SLACK", -1)  # a recent file is examined anyway
    moment = 0
    is_reached = True
    while is_reached:
        root = tmp_path / str(moment)
        for folder in ("folder", "other"):
            (root / folder).mkdir(parents=True)
        for name in ("one", "plain", "other/file"):
            (root / name).write_text(name)
        (root / "link").symlink_to("one")
        os.link(root / "one", root / "folder" / "two")
        live = kept(root, watch=watch)
        live.take()
        # Written before the scan: an entry that vanishes during it must not keep the content of the last snapshot.
        for name in ("one", "plain", "other/file"):
            _write_longer(root / name)
        before = from_scratch(root).entries
        calls = []

        def change_once(call, root=root, calls=calls, moment=moment):
            if len(calls) == moment:
                with mock.patch.object(take, "os", os):
                    change(root)
            calls.append(call)

        with during_scans(change_once):
            tree = live.take().tree
        is_reached = len(calls) > moment
        after = from_scratch(root).entries
        for path in {*before, *after, *tree.entries}:
            entry = tree.entries.get(path)
            versions = (before.get(path), after.get(path))
            assert any(entry[:3] == version[:3] if entry and version else entry is version for version in versions), (
                calls[moment:],
                path,
                entry,
            )
        for _ in range(2):
            tree = live.take().tree
            assert tree.entries == from_scratch(root).entries, (moment, calls)
        assert tree_is_stored(live, tree)
        moment += 1
    assert moment > 10


@pytest.mark.parametrize("outside", [True, False])
def test_a_write_by_a_name_that_is_removed_while_it_is_open_is_seen(kept, tmp_path, monkeypatch, outside):
    monkeypatch.setattr(take, "SLACK", -1)
    root = tmp_path / "root"
    root.mkdir()
    (root / "file").write_text("1")
    other = (tmp_path if outside else root) / "other"
    os.link(root / "file", other)
    live = kept(root)
    live.take()
    with other.open("a", encoding="utf-8") as file:
        other.unlink()
        live.take()
        file.write("2")
        file.flush()
        tree = live.take().tree
    assert live.contents[tree.entries["file"].content] == b"12"


def test_a_hard_link_that_is_made_during_a_scan_hides_no_change(kept, tmp_path, monkeypatch):
    monkeypatch.setattr(take, "SLACK", -1)
    for name in ("1", "2"):  # the order of a listing is not known
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("1")
    live = kept()
    live.take()
    for name in ("1", "2"):
        (tmp_path / name / "new").write_text("so that the folder is listed")
    live.snapshots._watch.is_lost = True  # as after too many changes: everything is examined
    is_listed = []

    def link(call):
        # The file in the first folder was examined already, and its name in the second folder was not.
        if call == "before listdir":
            is_listed.append(call)
            if len(is_listed) == 2:
                first, second = ("1", "2") if "1/new" in live.snapshots._scanner.entries else ("2", "1")
                os.link(tmp_path / first / "file", tmp_path / second / "name")
                (tmp_path / second / "name").write_text("changed")

    with during_scans(link):
        live.take()
    assert len(is_listed) == 2
    assert live.take().tree.entries == from_scratch(tmp_path).entries


def test_a_removed_name_of_a_changed_file_is_not_recorded_with_its_old_content(kept, tmp_path, monkeypatch):
    monkeypatch.setattr(take, "SLACK", -1)
    (tmp_path / "x").write_text("1")
    live = kept()
    live.take()
    os.link(tmp_path / "x", tmp_path / "y")
    (tmp_path / "y").write_text("changed")
    # Of these changes only the name y is reported, which has the only link when it is examined.
    with during_scans(lambda call: (tmp_path / "x").unlink(missing_ok=True)):
        assert list(live.take().tree.entries) == ["y"]


def test_a_folder_that_is_removed_between_its_opening_and_its_listing_is_empty(kept, tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("1")
    live = kept()
    live.take()
    listdir = os.listdir

    def removed(descriptor):
        if os.path.samestat(os.fstat(descriptor), folder):
            shutil.rmtree(tmp_path / "folder")
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))  # as musl does
        return listdir(descriptor)

    (tmp_path / "folder" / "new").write_text("so that the folder is listed")
    live.snapshots._watch.is_lost = True
    folder = (tmp_path / "folder").stat()
    with monkeypatch.context() as patched:
        patched.setattr(take.os, "listdir", removed)
        assert list(live.take().tree.entries) == ["folder"]
    assert not live.take().tree.entries


@pytest.mark.parametrize("watch", [True, False])
@pytest.mark.parametrize("interrupted", ["_is_file_read", "_set", "_remove_entry"])
def test_an_interrupted_scan_loses_no_changes(kept, tmp_path, monkeypatch, watch, interrupted):
    monkeypatch.setattr(take, "SLACK", -1)  # a recent file is read again anyway
    names = ["one", "two", "three"]
    for name in [*names, "gone"]:
        (tmp_path / name).write_text("1")
    live = kept(watch=watch)
    live.take()
    real = getattr(TreeScanner, interrupted)

    def interrupt(*args):
        real(*args)
        raise KeyboardInterrupt

    for name in names:
        (tmp_path / name).write_text("changed")
    (tmp_path / "gone").unlink()
    monkeypatch.setattr(TreeScanner, interrupted, interrupt)
    with pytest.raises(KeyboardInterrupt):
        live.take()
    monkeypatch.setattr(TreeScanner, interrupted, real)
    snapshot = live.take()
    assert set(snapshot.delta) == {*names, "gone"}
    assert snapshot.tree.entries == from_scratch(tmp_path).entries
    assert tree_of(live.manifests).digest == snapshot.tree.digest
    assert live.contents[snapshot.tree.entries["one"].content] == b"changed"
    (tmp_path / "later").write_text("2")
    assert list(live.take().delta) == ["later"]


def test_a_restore_that_fails_loses_no_changes(kept, tmp_path, monkeypatch):
    monkeypatch.setattr(take, "SLACK", -1)
    file = tmp_path / "file"
    file.write_text("1")
    live = kept()
    first = live.take().tree
    file.write_text("changed")

    def fail(digest):
        raise OSError(errno.ENOSPC, "the disk is full")

    with pytest.raises(OSError, match="full"):
        live.snapshots.restore(first, fail)
    snapshot = live.take()
    assert tree_of(live.manifests).digest == snapshot.tree.digest
    assert live.contents[snapshot.tree.entries["file"].content] == b"changed"
    file.write_text("changed again")
    assert live.restore(first).tree.digest == first.digest
    assert tree_of(live.manifests).digest == first.digest


def test_files_that_are_replaced_in_one_step_need_no_look_at_everything(kept, tmp_path):
    (tmp_path / "file").write_text("1")
    live = kept()
    live.take()
    (tmp_path / "new").write_text("2")
    (tmp_path / "new").rename(tmp_path / "file")
    told = live.snapshots._watch.drain()
    assert told == {"": {"file", "new"}}
    assert not live.snapshots._watch.is_lost


def test_a_renamed_file_is_told_as_one(kept, tmp_path):
    (tmp_path / "a").write_text("text")
    live = kept()
    first = live.take().tree
    (tmp_path / "a").rename(tmp_path / "b")
    (found,) = changes_between(first.entries, live.take().tree.entries)
    assert (found.kind, found.was, found.path) == ("renamed", "a", "b")


def test_an_overflow_of_the_kernel_is_noticed(kept, tmp_path):
    live = kept()
    live.take()
    live.snapshots._watch.is_lost = True
    live.snapshots._watch.drain()
    (tmp_path / "a").write_text("unseen")
    live.snapshots._watch.drain()
    assert list(live.take().delta) == ["a"]


@pytest.fixture
def _refusing(monkeypatch):
    """Refuse what the modes of folders forbid to users other than root, who runs these tests."""
    real_open, real_stat, real_below = os.open, os.stat, Root.open_file

    def require(descriptor, bit):
        if not os.fstat(descriptor).st_mode & bit:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    def readable(descriptor, flags):
        try:
            if flags & os.O_DIRECTORY and not flags & os.O_PATH:
                require(descriptor, stat.S_IRUSR)
        except PermissionError:
            os.close(descriptor)
            raise
        return descriptor

    def opened(path, flags, *more, dir_fd=None):
        if dir_fd is None:
            return real_open(path, flags, *more)
        require(dir_fd, stat.S_IXUSR)
        return readable(real_open(path, flags, *more, dir_fd=dir_fd), flags)

    def status(path, *, dir_fd=None, follow_symlinks=True):
        if dir_fd is not None:
            require(dir_fd, stat.S_IXUSR)
        return real_stat(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(take.os, "open", opened)
    monkeypatch.setattr(take.os, "stat", status)
    monkeypatch.setattr(Root, "open_file", lambda root, path, flags: readable(real_below(root, path, flags), flags))


@pytest.mark.parametrize("watch", [True, False])
@pytest.mark.parametrize("mode", [0o000, 0o111, 0o444])
@pytest.mark.usefixtures("_refusing")
def test_a_folder_that_may_not_be_entered_is_named_and_hinders_nothing_else(kept, tmp_path, watch, mode):
    closed = tmp_path / "closed"
    (closed / "below").mkdir(parents=True)
    for file in (closed / "file", closed / "below" / "file", tmp_path / "file"):
        file.write_text("1")
    closed.chmod(mode)
    live = kept(watch=watch, largest=10)
    for _ in range(2):
        tree = live.take().tree
        assert (sorted(tree.entries), tree.problems) == (["closed", "file"], (("closed", UNREADABLE),))
    closed.chmod(0o755)
    tree = live.take().tree
    assert sorted(tree.entries) == ["closed", "closed/below", "closed/below/file", "closed/file", "file"]
    assert not tree.problems
    (closed / "large").write_text("more than ten bytes")
    assert live.take().tree.problems == (("closed/large", TOO_LARGE),)
    closed.chmod(mode)
    (tmp_path / "file").write_text("22")
    for _ in range(2):  # also when the folder is reported for another reason
        tree = live.take().tree
        assert (sorted(tree.entries), tree.problems) == (["closed", "file"], (("closed", UNREADABLE),))
        os.utime(closed)
    assert tree.digest == from_scratch(tmp_path).digest == tree_of(live.manifests).digest
    assert live.contents[tree.entries["file"].content] == b"22"
    closed.chmod(0o755)


@pytest.mark.usefixtures("_refusing")
def test_no_snapshot_is_empty_where_the_top_folder_may_not_be_entered(kept, tmp_path):
    (tmp_path / "file").write_text("1")
    live = kept()
    first = live.take().tree
    tmp_path.chmod(0o444)
    with pytest.raises(PermissionError):
        live.take()
    tmp_path.chmod(0o755)
    assert live.take().tree.digest == first.digest


def test_problems_below_a_removed_folder_are_removed_with_it(kept, tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "folder" / "pipe")
    live = kept()
    assert live.take().tree.problems == (("folder/pipe", SPECIAL),)
    shutil.rmtree(tmp_path / "folder")
    assert not live.take().tree.problems


def test_what_is_nested_too_deep_is_named(kept, tmp_path):
    (tmp_path / "/".join("x" * (DEEPEST + 3))).mkdir(parents=True)
    assert kept().take().tree.problems == (("/".join("x" * (DEEPEST + 1)), TOO_DEEP),)
