"""Writes into a user's folder that are killed before one of their file operations, and what the next call makes of it.

python -m tests.workspace.write_kills [KILLS]

Without a number each file operation of `applied` and of `restored` is killed once. With one, so many kills come at
random operations, some of them in the recovery of an earlier kill.
"""

import os
import random
import shutil
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path

from divebook.workspaces.paths import Root
from divebook.workspaces.snapshots.applying import apply_changes, restore_tree
from divebook.workspaces.snapshots.take import Snapshots
from divebook.workspaces.snapshots.tree import NO_ENTRIES, Tree, changes_between

OPERATIONS = ("open", "os.", "shutil.rmtree")
"""Beginnings of the names of audit events that are file operations."""
NOT_FILES = ("os.listdir", "os.scandir", "os.fork", "os.kill", "os.add_dll_directory")
FINISHED, KILLED = "finished", "killed"


def write(path, text, mode=0o644):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def old_tree(folder):
    """Make a folder with an entry of each kind that changes."""
    for number in range(4):
        write(folder / f"changed{number}", f"old {number}\n")
    write(folder / "private", "old\n", 0o600)
    write(folder / "script", "echo\n", 0o644)
    write(folder / "deep" / "er" / "changed", "old\n")
    write(folder / "deep" / "deleted", "old\n")
    write(folder / "gone" / "with" / "it", "old\n")
    write(folder / "renamed-from", "the same\n")
    write(folder / "file-to-folder", "old\n")
    write(folder / "folder-to-file" / "in" / "it", "old\n")
    write(folder / "untouched", "mine\n")
    (folder / "link").symlink_to("changed0")


def new_tree(folder):
    """Change that folder."""
    for number in range(4):
        write(folder / f"changed{number}", f"new {number}\n")
    write(folder / "private", "new\n", 0o600)
    write(folder / "script", "echo\n", 0o755)
    write(folder / "deep" / "er" / "changed", "new\n")
    (folder / "deep" / "deleted").unlink()
    shutil.rmtree(folder / "gone")
    (folder / "renamed-from").rename(folder / "renamed-to")
    (folder / "file-to-folder").unlink()
    write(folder / "file-to-folder" / "new", "new\n")
    shutil.rmtree(folder / "folder-to-file")
    write(folder / "folder-to-file", "new\n")
    write(folder / "fresh" / "folder" / "file", "new\n")
    (folder / "link").unlink()
    (folder / "link").symlink_to("changed1")


def read(folder):
    """Return what a folder holds, by path, hidden names too: kind, whether it can be run, content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = ("link", str(path.readlink()))
        elif path.is_dir():
            found[name] = ("folder",)
        else:
            found[name] = ("file", path.stat().st_mode & 0o777, path.read_text(), path.stat().st_nlink)
    return found


class Case:
    """One folder, its old and its new content, and the way in which it is written."""

    def __init__(self, scratch, way):
        self.way, self.base, self.place = way, scratch / f"base-{way}", scratch / f"place-{way}"
        changed = scratch / f"changed-{way}"
        old_tree(self.base)
        shutil.copytree(self.base, changed, symlinks=True)
        new_tree(changed)
        self.old, self.new = read(self.base), read(changed)
        self.contents = {}
        self.trees = [self._tree(folder) for folder in (self.base, changed)]

    def _tree(self, folder):
        root = Root(folder)
        with Snapshots(root, watch=False) as snapshots:
            taken = snapshots.take()
        root.close()
        self.contents |= taken.contents
        return Tree(taken.tree.digest, dict(taken.tree.entries))

    def begin(self):
        """Make the folder that is written hold its old content."""
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self.base, self.place, symlinks=True)

    def carry_out(self):
        """Write the new content."""
        root = Root(self.place)
        if self.way == "apply":
            apply_changes(
                root, changes_between(self.trees[0].entries, self.trees[1].entries), self.contents.__getitem__
            )
        else:
            restore_tree(root, self.trees[1], self.contents.__getitem__)
        root.close()

    def run(self, operation):
        """Write in a process of its own that is killed before an operation, counted from 1; None for never."""
        pid = os.fork()
        if pid == 0:
            if operation is not None:
                sys.addaudithook(kill_before(operation))
            self.carry_out()
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert status in (0, -signal.SIGKILL), f"the write ended with {status}"
        return KILLED if status else FINISHED

    def wrong(self):
        """Return what is neither old nor new after a kill."""
        found = read(self.place)
        faults = []
        for path in {*self.old, *self.new}:
            states = [state.get(path) for state in (self.old, self.new)]
            is_other_kind = None not in states and states[0][0] != states[1][0]
            allowed = {state and state[:3] for state in (*states, *([None] if is_other_kind else []))}
            # A folder may be there already, or still; of a file its parent may be missing with it.
            if (found.get(path) and found[path][:3]) not in allowed and found.get(path) != ("folder",):
                faults.append((path, found.get(path)))
        if "renamed-from" not in found and "renamed-to" not in found:
            faults.append(("renamed", None))
        return faults

    def leftovers(self):
        """Return what the folder holds in the end that it should not hold, or the other way round."""
        found = read(self.place)
        return {path: found.get(path) for path in {*found, *self.new} if found.get(path) != self.new.get(path)}


def kill_before(operation):
    """Return an audit hook that kills this process before its nth file operation."""
    count = 0

    def hook(event, _):
        nonlocal count
        if event.startswith(OPERATIONS) and event not in NOT_FILES:
            count += 1
            if count == operation:
                os.kill(os.getpid(), signal.SIGKILL)

    return hook


def each_operation(case):
    """Kill each operation once; return the number of kills, and the faults."""
    faults, kills = [], 0
    while True:
        case.begin()
        if case.run(kills + 1) == FINISHED:
            return kills, faults
        kills += 1
        faults += [(case.way, kills, *fault) for fault in case.wrong()]
        assert case.run(None) == FINISHED
        faults += [(case.way, kills, "at the end", *fault) for fault in case.leftovers().items()]


def at_random(case, kills, chance, most):
    """Kill so many writes, and some of their recoveries; return the faults."""
    faults, done = [], 0
    while done < kills:
        case.begin()
        while done < kills and case.run(chance.randrange(1, most)) == KILLED:
            done += 1
            faults += [(case.way, done, *fault) for fault in case.wrong()]
            if chance.random() < 0.4:
                break
        assert case.run(None) == FINISHED
        faults += [(case.way, done, "at the end", *fault) for fault in case.leftovers().items()]
    return faults


def main(kills, seed=1):
    """Return how many kills there were in each way, and the faults."""
    count, faults, chance = Counter(), [], random.Random(seed)
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None  # where flushing a file takes no time
    with tempfile.TemporaryDirectory(dir=memory) as scratch:
        for way in ("apply", "restore"):
            case = Case(Path(scratch), way)
            assert case.old != case.new
            assert case.trees[0].entries != NO_ENTRIES
            number, found = each_operation(case)
            count[f"{way}, each operation"], faults = number, [*faults, *found]
            if kills:
                faults += at_random(case, kills, chance, number)
                count[f"{way}, at random"] = kills
    return count, faults


if __name__ == "__main__":
    COUNT, FAULTS = main(int(sys.argv[1]) if sys.argv[1:] else 0)
    sys.stdout.write(f"kills: {dict(COUNT)}; faults: {FAULTS[:20] or 0}\n")
    sys.exit(1 if FAULTS or not COUNT else 0)
