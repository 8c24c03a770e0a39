"""Random changes of a folder during a scan: at each call of the operating system that the scan makes, files and their
hard links may appear, change and vanish.

python -m tests.workspace.scan_races [SEQUENCES] [FIRST]
"""

import os
import random
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from divebook.workspaces.snapshots import take
from divebook.workspaces.snapshots.tree import FILE
from tests.workspace.changes import change
from tests.workspace.sequences import KeptTrees, from_scratch

LOOKS = 12
_CALLS = ("open", "stat", "fstat", "listdir", "readlink")


class HookedOs:
    """The module `os` as `divebook.workspaces.snapshots.take` sees it. A hook is called before and after each call that
    examines a file.
    """

    def __init__(self, hook):
        for name in _CALLS:
            setattr(self, name, self._hooked(name, getattr(os, name), hook))

    def __getattr__(self, name):
        return getattr(os, name)

    @staticmethod
    def _hooked(name, call, hook):
        def hooked(*args, **options):
            hook(f"before {name}")
            result = call(*args, **options)
            hook(f"after {name}")
            return result

        return hooked


@contextmanager
def during_scans(hook):
    """Call a hook at each call of the operating system that a scan makes within the ``with`` block."""
    with mock.patch.object(take, "os", HookedOs(hook)):
        yield


class RandomChanges:
    """Hook that changes a folder at some of its calls, and remembers the versions that each path had meanwhile."""

    def __init__(self, folder, chance):
        self.folder = folder
        self.chance = chance
        self.left = chance.randrange(1, 4)
        self.trees = [from_scratch(folder).entries]

    def __call__(self, _):
        if self.left and self.chance.random() < 0.08:
            self.left -= 1
            with mock.patch.object(take, "os", os):
                change(self.folder, self.chance)
                self.trees.append(from_scratch(self.folder).entries)

    def wrong_entries(self, tree):
        """Return the paths for which a tree has something that was never there during the scan."""
        unstable = {problem.path for problem in tree.problems}
        paths = {path for entries in [tree.entries, *self.trees] for path in entries}
        return {path: tree.entries.get(path) for path in paths - unstable if self._is_wrong(path, tree)}

    def _is_wrong(self, path, tree):
        versions = {entries.get(path) for entries in self.trees}
        entry = tree.entries.get(path)
        # A file that is replaced may be missing for a moment: one change consists of several operations.
        if entry is None:
            return len(versions) == 1 and None not in versions
        # A folder that is moved while it is open is still read under its old path.
        elsewhere = (other for entries in self.trees for other in entries.values())
        return all(version is None or version[:3] != entry[:3] for version in (*versions, *elsewhere))


def sequence(seed, folder, *, watch, looks=LOOKS, pause=0.0):
    """Change a folder between and during scans. Each scan must report what was there at some moment of it, and a scan
    without changes the present state.
    """
    chance = random.Random(seed)
    live = KeptTrees(folder, watch=watch)
    try:
        for look in range(looks):
            for _ in range(chance.randrange(1, 5)):
                change(folder, chance)
            if chance.random() < 0.5:
                time.sleep(pause)
            changes = RandomChanges(folder, chance)
            with during_scans(changes):
                tree = live.take().tree
            wrong = changes.wrong_entries(tree)
            assert not wrong, (seed, look, wrong)
            if chance.random() < 0.5:
                time.sleep(pause)
            tree, scratch = live.take().tree, from_scratch(folder)
            assert (tree.digest, tree.entries) == (scratch.digest, scratch.entries), (seed, look)
            assert tree_is_stored(live, tree), (seed, look)
    finally:
        live.close()


def tree_is_stored(live, tree):
    """Return True if the recorded changes give the tree, with the contents of all its files."""
    return take.tree_of(live.manifests).digest == tree.digest and all(
        entry.kind != FILE or entry.content in live.contents for entry in tree.entries.values()
    )


def main(count, first):
    """Try that many sequences, with a watch and without one."""
    for seed in range(first, first + count):
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder, "w")
            place.mkdir()
            # Without the pause every file of a short sequence would count as racy.
            sequence(seed, place, watch=seed % 2 == 0, pause=2 * take.SLACK / 1e9)
    sys.stdout.write(f"{count} sequences, {count * LOOKS} scans with changes during each\n")


if __name__ == "__main__":
    main(*(int(word) for word in (sys.argv[1:] + ["200", "0"][len(sys.argv) - 1 :])))
