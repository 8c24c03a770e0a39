"""A difference of two trees is one that git can apply, whatever files are named and hold."""

import io
import os
import subprocess
from contextlib import closing

from divebook.replay.files import ChangedFiles
from divebook.workspaces.paths import Root
from divebook.workspaces.snapshots.take import Snapshots
from divebook.workspaces.snapshots.tree import changes_between, diffs_of

MARKS = ["\x0c", "\x0b", "\r", "\x1c", "\u0085", "\u2028"]
"""Where `str.splitlines` ends a line, and git does not."""
NAMES = ["a b", "tab\there", "line\n+++ b/forged", 'quo"te', "back\\slash", "z\u00fcrich", "\udcff", "\x1b[31m", "end "]


def fill(folder, files):
    for path, content in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            place.symlink_to(content)
        else:
            place.write_bytes(content)


def held(folder):
    found = (path for path in folder.rglob("*") if ".git" not in path.parts and (path.is_symlink() or path.is_file()))
    return {
        os.fsencode(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else path.read_bytes()
        for path in found
    }


def patch(old, new):
    contents, trees = {}, []
    for folder in (old, new):
        with closing(Root(folder)) as root, Snapshots(root, watch=False) as snapshots:
            taken = snapshots.take()
        contents |= taken.contents
        trees.append(taken.tree.entries)
    return ChangedFiles("w", diffs_of(changes_between(*trees), contents.__getitem__), 1, 2)


def apply(text, folder):
    git = ["git", "-c", "core.autocrlf=false", "apply", "--whitespace=nowarn", "-"]
    subprocess.run(["git", "init", "-q", folder], check=True)
    return subprocess.run(git, input=text.encode(), cwd=folder, capture_output=True, check=False)


def test_git_takes_what_files_hold_and_are_named(tmp_path):
    texts = [f"one{mark}two\nthree\n".encode() for mark in MARKS]
    before = {f"mark{at}": text for at, text in enumerate(texts)} | {"gone\nby": b"x\n", "old": b"name\n" * 9}
    before |= {"crlf": b"1\r\n2\r\n", "link": "to", "file": b"text\n", "folder/in": b"x\n", "becomes": b"f\n"}
    after = {f"mark{at}": text.replace(b"two", b"2") for at, text in enumerate(texts)} | {"new\tname": b"name\n" * 9}
    after |= {
        "crlf": b"1\r\n3\r\n",
        "link": b"text\n",
        "file": "to",
        "folder/in": b"y",
        "becomes/a": b"x",
        "empty": b"",
    }
    after |= dict.fromkeys(NAMES, b"added\n")
    for name, files in (("old", before), ("new", after), ("work", before)):
        (tmp_path / name).mkdir()
        fill(tmp_path / name, files)
    told = patch(tmp_path / "old", tmp_path / "new")
    applied = apply(told.patch, tmp_path / "work")
    assert applied.stderr == b""
    assert held(tmp_path / "work") == held(tmp_path / "new")
    changed = {found.path: (found.kind, found.added, found.removed) for found in told}
    assert changed["mark0"] == ("changed", 1, 1)
    assert changed["link"] == ("changed", 1, 1)
    assert changed["becomes"] == ("changed", 0, 1)


def test_what_is_printed_of_files_with_other_line_ends_and_spaces_can_be_applied(tmp_path):
    before = {"a.bat": b"1\r\n2\r\n", "spaces": b" 1  \n  \n2  \n"}
    after = {"a.bat": b"1\r\n3\r\n", "spaces": b" 1  \n  \n3   \n"}
    for name, files in (("old", before), ("new", after), ("work", before)):
        (tmp_path / name).mkdir()
        fill(tmp_path / name, files)
    printed = io.StringIO()
    print(patch(tmp_path / "old", tmp_path / "new"), file=printed)
    assert apply(printed.getvalue(), tmp_path / "work").stderr == b""
    assert held(tmp_path / "work") == held(tmp_path / "new")
