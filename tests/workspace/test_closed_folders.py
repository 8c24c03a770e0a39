"""Files are restored to folders that their owner may not read, change or enter, or the folder is named and nothing is
changed.
"""

import itertools
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from divebook.errors import SnapshotError
from divebook.workspaces.paths import Root
from divebook.workspaces.snapshots import restore
from divebook.workspaces.snapshots.applying import apply_changes, restore_tree
from divebook.workspaces.snapshots.tree import changes_between
from tests.workspace.sequences import KeptTrees, from_scratch

_OTHER_USER = 65534
_MODES = (0o000, 0o100, 0o200, 0o300, 0o400, 0o500, 0o600)
"""All modes that forbid something to the owner of a folder."""


@pytest.fixture
def place():
    """A folder of a user whom modes bind, as which this process runs meanwhile."""
    # The folders of pytest are closed to other users.
    folder = tempfile.mkdtemp(prefix="divebook-")
    is_superuser = os.geteuid() == 0
    try:
        if is_superuser:
            os.chown(folder, _OTHER_USER, _OTHER_USER)
            os.setegid(_OTHER_USER)
            os.seteuid(_OTHER_USER)
        yield Path(folder)
    finally:
        if is_superuser:
            os.seteuid(0)
            os.setegid(0)
        for path in (folder, *(os.path.join(at, name) for at, names, _ in os.walk(folder) for name in names)):
            os.chmod(path, 0o700)
        shutil.rmtree(folder)


def filled(root):
    (root / "outer" / "inner").mkdir(parents=True)
    (root / "outer" / "inner" / "file").write_text("1")
    (root / "outer" / "file").write_text("1")
    (root / "file").write_text("1")


def changed(root):
    (root / "outer" / "inner" / "file").write_text("changed")
    (root / "outer" / "inner" / "new").write_text("new")
    (root / "outer" / "file").unlink()
    (root / "file").write_text("changed")


def modes(root):
    """Return the modes of all folders, which are closed again meanwhile as they were."""
    found = {"": root.stat().st_mode & 0o7777}
    for path in ("outer", "outer/inner"):
        root.chmod(0o700)
        found[path] = (root / path).stat().st_mode & 0o7777
        (root / path).chmod(0o700)
    for path, mode in reversed(found.items()):
        (root / path).chmod(mode)
    return found


def state(root):
    """Return what is below a folder, whatever the modes of its folders are."""
    found = modes(root)
    for path in found:
        (root / path).chmod(0o700)
    files = {str(path.relative_to(root)): path.read_text() for path in sorted(root.rglob("*")) if path.is_file()}
    for path, mode in reversed(found.items()):
        (root / path).chmod(mode)
    return found, files


def close(root, folders, mode):
    for path in sorted(folders, reverse=True):
        (root / path).chmod(mode)


_CHOSEN = [chosen for count in (1, 2, 3) for chosen in itertools.combinations(("", "outer", "outer/inner"), count)]


@pytest.mark.parametrize("mode", _MODES, ids=oct)
@pytest.mark.parametrize("chosen", _CHOSEN)
def test_a_workspace_with_closed_folders_is_restored(place, mode, chosen):
    filled(place)
    live = KeptTrees(place, watch=False)
    try:
        tree = live.take().tree
        expected = state(place)
        changed(place)
        close(place, chosen, mode)
        restored = live.restore(tree).tree
        folders, files = state(place)
        assert restored.entries == tree.entries
        assert files == expected[1]
        # The top folder is no part of a tree, so that it gets back the mode that it had.
        assert folders == {**expected[0], **({"": mode} if "" in chosen else {})}
    finally:
        live.close()


@pytest.mark.parametrize("mode", _MODES, ids=oct)
@pytest.mark.parametrize("chosen", _CHOSEN)
def test_closed_folders_are_closed_again_if_a_restore_fails(place, mode, chosen):
    filled(place)
    live = KeptTrees(place, watch=False)

    def fail(digest):
        raise OSError("the content is lost")

    try:
        tree = live.take().tree
        changed(place)
        close(place, chosen, mode)
        before = modes(place)
        with pytest.raises(OSError, match="the content is lost"):
            live.snapshots.restore(tree, fail)
        assert modes(place) == before
    finally:
        live.close()


@pytest.mark.parametrize("mode", [0o000, 0o100, 0o400, 0o600], ids=oct)
def test_content_that_could_not_be_recorded_is_not_removed(place, mode):
    filled(place)
    close(place, ["outer"], mode)
    live = KeptTrees(place, watch=False)
    try:
        tree = live.take().tree
        (place / "outer").chmod(0o700)
        (place / "file").write_text("changed")
        before = state(place)
        assert live.restore(tree).tree.digest == tree.digest
        folders, files = state(place)
        assert folders == {**before[0], "outer": mode}
        assert files == {**before[1], "file": "1"}
        # The same for a folder of a user.
        (place / "outer").chmod(0o700)
        (place / "file").write_text("changed")
        restore_tree(live.root, tree, live.contents.__getitem__)
        assert state(place) == (folders, files)
    finally:
        live.close()


@pytest.mark.parametrize("mode", _MODES, ids=oct)
@pytest.mark.parametrize("chosen", _CHOSEN)
@pytest.mark.parametrize("operation", ["restore", "apply"])
def test_a_folder_of_a_user_with_closed_folders_is_restored_or_the_folder_is_named(place, mode, chosen, operation):
    filled(place)
    live = KeptTrees(place, watch=False)
    try:
        tree = live.take().tree
        expected = state(place)
        changed(place)
        changes = changes_between(live.take().tree.entries, tree.entries)
        close(place, chosen, mode)
        before = state(place)
        root = Root(place)
        error = ""
        try:
            if operation == "restore":
                restore_tree(root, tree, live.contents.__getitem__)
            else:
                apply_changes(root, changes, live.contents.__getitem__)
        except SnapshotError as raised:
            error = str(raised)
        finally:
            root.close()
        if error:
            names = [f"{place / path}".rstrip("/") for path in chosen]
            assert any(name in error for name in names), error
            assert "nothing was changed" in error
            assert state(place) == before
        else:
            assert state(place)[1] == expected[1]
    finally:
        live.close()


def test_a_folder_of_another_user_is_named_before_anything_is_changed(place, monkeypatch):
    if os.getuid() != 0:
        pytest.skip("only the superuser can make a folder of another user")
    filled(place)
    live = KeptTrees(place, watch=False)
    try:
        tree = live.take().tree
        changed(place)
        expected = state(place)
        os.seteuid(0)
        os.chown(place / "outer" / "inner", 0, 0)
        os.seteuid(_OTHER_USER)
        with pytest.raises(PermissionError, match="nothing was changed") as raised:
            live.restore(tree)
        assert raised.value.filename == str(place / "outer" / "inner")
        assert expected[1]["file"] == (place / "file").read_text() == "changed"
    finally:
        live.close()


def test_the_superuser_restores_closed_folders_exactly(tmp_path):
    if not restore._overrides_modes():
        pytest.skip("modes bind this user")
    filled(tmp_path)
    (tmp_path / "empty").mkdir(mode=0o000)
    live = KeptTrees(tmp_path, watch=False)
    try:
        tree = live.take().tree
        (tmp_path / "empty" / "new").write_text("new")
        (tmp_path / "outer").chmod(0o000)
        assert live.restore(tree).tree.entries == tree.entries == from_scratch(tmp_path).entries
    finally:
        live.close()
