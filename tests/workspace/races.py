"""Races for paths: a folder and a link to outside change places while files are reached through them.

    python -m tests.workspace.races [TRIES]

Read, written, deleted, renamed and restored is through the kernel's opener and through ours; nothing outside may be
read or changed.
"""

import ctypes
import os
import sys
import tempfile
import threading
from collections import Counter
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from divebook.workspaces.files import Disk
from divebook.workspaces.paths import PathPolicy, Root
from divebook.workspaces.snapshots.restore import put_back
from divebook.workspaces.snapshots.tree import FILE, FOLDER, TreeEntry

_AT_FDCWD, _EXCHANGE = -100, 2
MINE, OUTSIDE = b"inside", b"outside"


@contextmanager
def exchanging(one, other, done, steady=None):
    """Have two names change places, over and over, as long as the block runs; not while the lock `steady` is held."""
    steady = steady or nullcontext()
    libc = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(one), os.fsencode(other)

    def exchange():
        while not done.is_set():
            with steady:
                libc.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _EXCHANGE)

    thread = threading.Thread(target=exchange)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


class Arena:
    """A root with a folder ``a``, a link ``swapped`` to a folder outside, and files of the same names in both."""

    def __init__(self, folder, *, openat2):
        self.inside, self.outside = Path(folder, "root"), Path(folder, "outside")
        for place, content in ((self.inside / "a", MINE), (self.outside, OUTSIDE)):
            place.mkdir(parents=True)
            for name in ("file", "victim"):
                (place / name).write_bytes(content)
        os.symlink("../outside", self.inside / "swapped")
        self.root = Root(self.inside, openat2=openat2)
        self.disk = Disk(PathPolicy(self.root))
        self.count = Counter()

    def close(self):
        self.root.close()

    def escaped(self):
        """Return what is otherwise outside."""
        found = {path.name: path.read_bytes() for path in self.outside.iterdir()}
        return found if found != {"file": OUTSIDE, "victim": OUTSIDE} else None

    def read(self):
        assert self.disk.read("a/file") == MINE

    def write(self):
        self.disk.write("a/file", MINE)

    def append(self):
        self.disk.append("a/victim", b"")

    def delete(self):
        self.disk.delete("a/victim")
        self.disk.write("a/victim", MINE)

    def rename(self):
        self.disk.move("a/victim", "a/moved")
        self.disk.move("a/moved", "a/victim")

    def restore(self):
        wanted = {"a": TreeEntry(FOLDER, 0o755), "a/file": TreeEntry(FILE, 0o644, "digest", len(MINE), 5)}
        put_back(self.root, {"a": wanted["a"], "a/file": wanted["a/file"]._replace(mtime=4)}, wanted, lambda _: MINE)

    def listing(self):
        assert OUTSIDE.decode() not in self.disk.glob("a/**")

    ACTS = (read, write, append, delete, rename, restore, listing)

    def attack(self, tries):
        """Try each of them in turn; return how many went through."""
        (self.inside / "a" / "victim").touch()
        with exchanging(self.inside / "a", self.inside / "swapped", threading.Event()):
            for number in range(tries):
                act = self.ACTS[number % len(self.ACTS)]
                with suppress(OSError):  # PathNotAllowedError is one
                    act(self)
                    self.count[act.__name__] += 1
        return self.count


def main(tries):
    """Attack both openers; return whether nothing escaped."""
    is_safe = True
    for openat2 in (True, False):
        with tempfile.TemporaryDirectory() as folder:
            arena = Arena(folder, openat2=openat2)
            done = arena.attack(tries)
            escaped = arena.escaped()
            arena.close()
        is_safe &= escaped is None
        way = "openat2" if openat2 else "walk"
        sys.stdout.write(
            f"{way}: {tries} tries, {sum(done.values())} went through, escapes: {escaped or 0}; {dict(done)}\n"
        )
    return is_safe


if __name__ == "__main__":
    sys.exit(0 if main(int(sys.argv[1]) if sys.argv[1:] else 20_000) else 1)
