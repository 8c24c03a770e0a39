"""Taking files over into a user's folder: protected paths only by name, and every file old or new after a kill."""

import fcntl
import json
import os
import random
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from divebook.errors import NotFoundError, PathNotAllowedError, SnapshotError
from divebook.workspaces.paths import Root
from divebook.workspaces.snapshots import restore
from divebook.workspaces.snapshots.applying import apply_changes, restore_tree, select_changes
from divebook.workspaces.snapshots.restore import JOURNAL_FOLDER, is_protected, left_out_text, protected_paths
from divebook.workspaces.snapshots.take import Snapshots
from divebook.workspaces.snapshots.tree import FILE, FOLDER, LINK, FileChange, Tree, TreeEntry
from tests.workspace import write_faults
from tests.workspace.write_kills import Case

ROOT = Path(__file__).parents[2]
HIDDEN = [
    ".git",
    ".git/config",
    ".git/hooks/post-commit",
    "deep/.git/HEAD",
    "module/.git",
    ".gitmodules",
    ".GIT/config",
    ".Git",
    ".git ./config",
    ".git.",
    "\uff0egit/config",
    "\u2024git/config",
    ".g\u200cit/config",
    "\ufeff.git/config",
    "GIT~1/config",
    "git~2",
    ".git::$INDEX_ALLOCATION/config",
    "a\\.git\\config",
    ".hg/hgrc",
    ".svn/entries",
    ".bzr/branch",
    ".jj/repo",
    ".pijul/config",
    "CVS/Root",
    "cvs/Entries",
    "CVS. ",
    "_darcs/prefs",
    "\uff23\uff36\uff33/Root",
    ".envrc",
    ".env",
    ".vscode/tasks.json",
    ".idea/workspace.xml",
    ".github/workflows/ci.yml",
    ".direnv/bin/run",
    "src/.hidden",
]
VISIBLE = [
    "a.txt",
    "src/app.py",
    "git",
    "git/config",
    "cvs.txt",
    "HEAD",
    "a.git",
    "x.env",
    "caf\u00e9",
    "\udcff",
    "a~b",
]


def entry(text, kind=FILE, mode=0o644):
    return (
        TreeEntry(kind, mode, sha256(text.encode()).hexdigest(), len(text)) if kind == FILE else TreeEntry(kind, mode)
    )


def added(*paths):
    return [FileChange(path, "added", None, entry(path)) for path in paths]


def contents(*changes):
    known = {change.after.content: change.path.encode("utf-8", "surrogateescape") for change in changes}
    return known.__getitem__


def take_over(folder, changes, by_name=()):
    root = Root(folder)
    try:
        return apply_changes(root, changes, contents(*changes), by_name=by_name)
    finally:
        root.close()


def names_in(folder):
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*") if not path.is_dir())


# --- protected paths -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", HIDDEN)
def test_a_hidden_path_is_taken_over_only_by_its_name(tmp_path, path):
    assert is_protected(path)
    changes = added(path, "a.txt")
    done = take_over(tmp_path, changes)
    assert (done.written, done.left_out, names_in(tmp_path)) == (["a.txt"], [path], ["a.txt"])
    assert take_over(tmp_path, select_changes(changes, [path]), by_name=[path]).written == [path]


@pytest.mark.parametrize("path", VISIBLE)
def test_a_visible_path_is_taken_over(tmp_path, path):
    assert not is_protected(path)
    assert protected_paths([path], tmp_path) == set()
    done = apply_changes(Root(tmp_path), [FileChange(path, "added", None, entry("x"))], lambda _: b"x")
    assert (len(done.written), done.left_out) == (1, [])


def test_any_spelling_that_a_file_system_takes_for_git_is_protected():
    """A name is respelled at random: other cases, look-alikes, letters that file systems ignore, ends of Windows."""
    chance = random.Random(7)
    letters = {".": ".\uff0e\u2024\ufe52", "g": "gG\uff47\u24d6", "i": "iI\uff49\u2170", "t": "tT\uff54\u24e3"}
    for _ in range(2_000):
        name = "".join(
            chance.choice(letters[letter]) + chance.choice(["", "", "\u200b", "\u200d", "\ufe0f", "\u2060"])
            for letter in ".git"
        ) + chance.choice(["", ".", " ", ". .", "::$DATA"])
        path = "/".join([*chance.choice([[], ["a"], ["a", "b"]]), name, *chance.choice([[], ["config"]])])
        assert is_protected(path), ascii(path)


def test_a_hidden_folder_is_named_for_all_in_it_and_a_visible_one_for_what_is_visible_in_it(tmp_path):
    changes = added(".git/config", ".git/hooks/x", "src/app.py", "src/.env")
    done = take_over(tmp_path, select_changes(changes, ["src", ".git/"]), by_name=["src", ".git/"])
    assert sorted(done.written) == [".git/config", ".git/hooks/x", "src/app.py"]
    assert done.left_out == ["src/.env"]


def test_a_bare_repository_has_no_hidden_name_and_is_protected(tmp_path):
    bare = added("x/HEAD", "x/config", "x/objects/info/a", "x/refs/heads/m", "x/hooks/post-update", "y/HEAD", "y/a")
    assert take_over(tmp_path, bare).written == ["y/HEAD", "y/a"]
    for name in ("HEAD", "objects", "refs"):  # part of it is there already
        (tmp_path / "z" / name).mkdir(parents=True)
    assert take_over(tmp_path, added("z/config", "z/d/e")).left_out == ["z/config", "z/d/e"]
    linked = tmp_path / "linked"
    linked.mkdir()
    assert take_over(linked, added("HEAD", "commondir", "b")).written == []


def test_a_link_of_the_folder_leads_into_no_hidden_folder(tmp_path):
    (tmp_path / ".git" / "hooks").mkdir(parents=True)
    (tmp_path / "x").symlink_to(".git")
    done = take_over(tmp_path, added("x/hooks/post-commit", "x/config"))
    assert (done.written, done.left_out) == ([], ["x/hooks/post-commit", "x/config"])
    assert names_in(tmp_path / ".git") == []


def test_a_hidden_file_stays_when_it_is_renamed_or_removed_in_the_workspace(tmp_path):
    (tmp_path / ".env").write_text("x")
    changes = [
        FileChange("env", "renamed", entry("x"), entry("x"), ".env"),
        FileChange(".env", "deleted", entry("x"), None),
    ]
    for change in changes:
        assert apply_changes(Root(tmp_path), [change], {}.__getitem__).written == []
    assert (tmp_path / ".env").read_text() == "x"


@pytest.mark.parametrize(
    "path", [f"{JOURNAL_FOLDER}/journal", f"{JOURNAL_FOLDER.upper()}/journal", f"a/{JOURNAL_FOLDER}"]
)
def test_the_journal_of_divebook_itself_is_never_taken_over(tmp_path, path):
    assert take_over(tmp_path, added(path, "a.txt")).written == ["a.txt"]
    with pytest.raises(SnapshotError, match="is a name reserved for divebook"):
        take_over(tmp_path, added(path), by_name=[path])


def test_the_report_names_folders_once_and_says_how_to_take_them():
    assert left_out_text([".git/config", ".git/HEAD", ".env"], "apply RUN {}") == (
        "3 protected files left out (hidden names and version-control metadata): .git/, .env. "
        "To include a file, name the file or its folder: apply RUN .git/"
    )
    assert left_out_text([], "{}") == ""


# --- restore ---------------------------------------------------------------------------------------------------------


def tree_of(*paths):
    folders = {str(parent) for path in paths for parent in Path(path).parents} - {"."}
    entries = {path: entry(path) for path in paths} | {folder: entry("", FOLDER, 0o755) for folder in folders}
    return Tree("", entries)


def test_restore_leaves_hidden_files_as_they_are_but_for_those_that_are_named(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("mine")
    (tmp_path / "old").write_text("old")
    tree = tree_of("a", ".git/config", ".git/hooks/x", ".env", "src/.env", "src/b")
    get = {tree.entries[path].content: path.encode() for path in tree.entries}.__getitem__
    done = restore_tree(Root(tmp_path), tree, get)
    assert names_in(tmp_path) == [".git/config", "a", "src/b"]
    assert (tmp_path / ".git" / "config").read_text() == "mine"
    assert [path for path, _ in done.problems] == [".env", ".git/config", ".git/hooks/x", "src/.env"]
    done = restore_tree(Root(tmp_path), tree, get, [".git", ".env"])
    assert names_in(tmp_path) == [".env", ".git/config", ".git/hooks/x", "a", "src/b"]
    assert ([path for path, _ in done.problems], (tmp_path / ".git" / "config").read_text()) == (
        ["src/.env"],
        ".git/config",
    )
    with pytest.raises(NotFoundError):
        restore_tree(Root(tmp_path), tree, get, [".nothing"])


def test_restore_puts_modes_times_and_closed_folders_back(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    file = tmp_path / "a" / "closed" / "x"
    file.parent.mkdir()
    file.write_text("text")
    os.utime(file, ns=(5, 5_000_000_000))
    file.chmod(0o640)
    file.parent.chmod(0o500)
    root, target = Root(tmp_path / "a"), Root(tmp_path / "b")
    with Snapshots(root, watch=False) as snapshots:
        taken = snapshots.take()
    for text in ("other", "again"):
        restore_tree(target, taken.tree, taken.contents.__getitem__)
        copy = tmp_path / "b" / "closed" / "x"
        status = copy.stat()
        assert (copy.read_text(), status.st_mode & 0o777, status.st_mtime_ns) == ("text", 0o640, 5_000_000_000)
        assert copy.parent.stat().st_mode & 0o777 == 0o500
        copy.parent.chmod(0o700)
        copy.write_text(text)
        copy.parent.chmod(0o500)


# --- all or nothing --------------------------------------------------------------------------------------------------


def test_every_file_is_old_or_new_whenever_a_write_is_killed():
    """More of them, at random and in recoveries: `python -m tests.workspace.write_kills 100`."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.workspace.write_kills"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_write_whose_file_operations_fail_changes_nothing_or_is_undone_by_the_next_call():
    """All operations: `python -m tests.workspace.write_faults`."""
    counts, faults = write_faults.main(every=9)
    assert faults == []
    assert sum(counts.values()) > 100


@pytest.mark.parametrize("text", ["", "{", "[]", "5", '{"identity": [1, 2]}', "[" * 100_000, "\udcff"])
def test_a_damaged_journal_is_named(tmp_path, text):
    (tmp_path / JOURNAL_FOLDER).mkdir()
    (tmp_path / JOURNAL_FOLDER / "journal").write_text(text, errors="surrogateescape")
    with pytest.raises(SnapshotError, match=rf"{JOURNAL_FOLDER}(/journal)? (is damaged|was written for another)"):
        take_over(tmp_path, added("a"))
    assert not (tmp_path / "a").exists()


def test_a_pipe_under_the_name_of_the_journal_holds_nothing_up(tmp_path):
    (tmp_path / JOURNAL_FOLDER).mkdir()
    os.mkfifo(tmp_path / JOURNAL_FOLDER / "journal")
    with pytest.raises(PathNotAllowedError, match="not a regular file"):
        take_over(tmp_path, added("a"))


def interrupted(tmp_path, at):
    """Return a case whose write was broken off before its nth step, as if by a kill."""
    case = Case(tmp_path, "apply")
    case.begin()
    made, carry_out = [], restore._Journal.make_step

    class Killed(BaseException):
        pass

    def carry_out_some(self, number, step, state):
        if len(made) == at:
            raise Killed
        made.append(step.path)
        carry_out(self, number, step, state)

    patch = pytest.MonkeyPatch()
    patch.setattr(restore._Journal, "make_step", carry_out_some)
    patch.setattr(restore._Journal, "undo", lambda *_: None)
    with pytest.raises(Killed):
        case.carry_out()
    patch.undo()
    return case, made


def test_what_a_person_has_changed_after_the_kill_stays(tmp_path):
    case, made = interrupted(tmp_path, 4)
    assert made == ["folder-to-file/in/it", "folder-to-file/in", "changed0", "changed1"]
    (case.place / "changed0").write_text("mine")  # written before the kill
    (case.place / "private").write_text("mine too")  # not written yet
    with pytest.raises(SnapshotError, match=r"have changed in the meantime: changed0, private\. Nothing was written"):
        case.carry_out()
    assert ((case.place / "changed0").read_text(), (case.place / "private").read_text()) == ("mine", "mine too")
    assert (case.place / "changed1").read_text() == "old 1\n"
    assert not (case.place / JOURNAL_FOLDER).exists()


def test_the_next_write_of_another_run_recovers_too(tmp_path):
    case, _ = interrupted(tmp_path, 9)
    assert take_over(case.place, added("other")).written == ["other"]
    (case.place / "other").unlink()
    assert names_in(case.place) == names_in(case.base)


def test_a_journal_that_came_with_a_folder_is_not_carried_out(tmp_path):
    case, _ = interrupted(tmp_path, 9)
    copy = tmp_path / "copy"
    shutil.copytree(case.place, copy, symlinks=True)
    before = names_in(copy)
    with pytest.raises(SnapshotError, match=r"was written for another folder.*and remove "):
        take_over(copy, added("other"))
    assert names_in(copy) == before
    shutil.rmtree(copy / JOURNAL_FOLDER)
    assert take_over(copy, added("other")).written == ["other"]


def test_a_file_under_the_name_of_the_journal_is_an_error_that_says_so(tmp_path):
    (tmp_path / JOURNAL_FOLDER).write_text("mine")
    with pytest.raises(SnapshotError, match="was not created by divebook, but has a reserved name; remove it"):
        take_over(tmp_path, added("a"))


def test_a_write_that_fails_changes_nothing(tmp_path):
    (tmp_path / "folder" / "other").mkdir(parents=True)  # another file than the tree knows, so it cannot make way
    (tmp_path / "a").write_text("a")
    changes = [
        FileChange("a", "changed", entry("a"), entry("b")),
        FileChange("folder", "changed", entry("", FOLDER), entry("b")),
        FileChange("new", "added", None, entry("b")),
    ]
    with pytest.raises(SnapshotError, match="folder cannot be written: Directory not empty; nothing was changed"):
        apply_changes(Root(tmp_path), changes, lambda _: b"b")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "folder"]
    assert (tmp_path / "a").read_text() == "a"


def test_content_that_is_missing_changes_nothing(tmp_path):
    with pytest.raises(KeyError):
        apply_changes(Root(tmp_path), added("a", "b"), {entry("a").content: b"a"}.__getitem__)
    assert list(tmp_path.iterdir()) == []


def test_one_write_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(restore, "LOCK_PATIENCE", 0.0)
    held = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        with pytest.raises(SnapshotError, match="another process is writing into"):
            take_over(tmp_path, added("a"))
    finally:
        os.close(held)
    assert take_over(tmp_path, added("a")).written == ["a"]


def test_a_file_keeps_its_mode_and_gets_whether_it_can_be_run(tmp_path):
    file = tmp_path / "a"
    file.write_text("a")
    file.chmod(0o600)
    apply_changes(Root(tmp_path), [FileChange("a", "changed", entry("a"), entry("b", mode=0o755))], lambda _: b"b")
    assert file.stat().st_mode & 0o777 == 0o700
    apply_changes(Root(tmp_path), [FileChange("a", "changed", entry("b"), entry("c", mode=0o666))], lambda _: b"c")
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_file_system_without_hard_links_keeps_copies(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    case, _ = interrupted(tmp_path, 12)
    record = json.loads((case.place / JOURNAL_FOLDER / "journal").read_text())
    assert len(record["steps"]) > 12
    case.carry_out()
    assert case.leftovers() == {}


def test_a_link_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "target").write_text("x")
    (tmp_path / "link").symlink_to("target")
    change = FileChange("link", "changed", TreeEntry(LINK, content="target"), entry("new"))
    apply_changes(Root(tmp_path), [change], lambda _: b"new")
    assert ((tmp_path / "target").read_text(), (tmp_path / "link").is_symlink()) == ("x", False)
