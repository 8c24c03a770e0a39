"""Random sequences of changes: each tree is what is there, and each can be put back.

python -m tests.workspace.sequences [SEQUENCES] [FIRST]
"""

import random
import sys
import tempfile
from pathlib import Path

from divebook.workspaces.paths import Root
from divebook.workspaces.snapshots.take import Snapshots, manifest_of, tree_of
from tests.workspace.changes import change

LOOKS, RESTORED = 30, 6


class KeptTrees:
    """Snapshots of a folder, with everything that was ever in it."""

    def __init__(self, folder, **options):
        self.root = Root(folder)
        self.snapshots = Snapshots(self.root, **options)
        self.contents, self.manifests = {}, []

    def take(self, **options):
        return self.note(self.snapshots.take(**options))

    def note(self, taken):
        self.contents |= taken.contents
        self.manifests.append(manifest_of(taken.delta, taken.contents))
        return taken

    def restore(self, tree):
        return self.note(self.snapshots.restore(tree, self.contents.__getitem__))

    def close(self):
        self.snapshots.close()
        self.root.close()


def from_scratch(folder):
    """Return the tree that somebody sees who knows nothing yet."""
    fresh = KeptTrees(folder, watch=False)
    try:
        return fresh.take().tree
    finally:
        fresh.close()


def sequence(seed, folder, *, watch, looks=LOOKS, restored=RESTORED):
    """Change a folder at random, look after each change, and go back to some of the trees."""
    chance, live, trees = random.Random(seed), KeptTrees(folder, watch=watch), []
    try:
        for _ in range(looks):
            for _ in range(chance.randrange(1, 5)):
                change(folder, chance)
            tree, scratch = live.take().tree, from_scratch(folder)
            assert (tree.digest, tree.entries) == (scratch.digest, scratch.entries), seed
            assert tree_of(live.manifests).digest == tree.digest, seed
            trees.append(tree)
        for tree in chance.sample(trees, restored):
            found = live.restore(tree).tree
            assert found.digest == tree.digest == from_scratch(folder).digest, seed
            assert found.entries == tree.entries, seed
    finally:
        live.close()


def main(count, first):
    """Try that many of them, with a watch and without one."""
    for seed in range(first, first + count):
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder, "w")
            place.mkdir()
            sequence(seed, place, watch=seed % 2 == 0)
    looks = count * LOOKS
    sys.stdout.write(f"{count} sequences, {looks} looks, each as from scratch; {count * RESTORED} trees put back\n")


if __name__ == "__main__":
    main(*(int(word) for word in (sys.argv[1:] + ["200", "0"][len(sys.argv) - 1 :])))
