"""Paths that are meant to lead out, made at random of the parts that such paths are made of. Pure but for links.

python -m tests.workspace.attacks [COUNT]
"""

import os
import random
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from divebook.errors import WorkspaceError
from divebook.workspaces.files import Disk
from divebook.workspaces.paths import PathPolicy, Root

SECRET, WITNESS = b"outside", "witness"
PARTS = (
    *(
        "..",
        ".",
        "",
        "a",
        "b",
        "up",
        "out",
        "abs",
        "self",
        "deep",
        "missing",
        "file",
        "~",
        "%2e%2e",
        "..\\..",
        " ",
        "...",
    ),
    *("\uff0e\uff0e", "../..", "a/../..", "/proc/self/root", "/proc/self/cwd", "/dev/fd/0", "\0", "\udcff", "x" * 256),
)


def arena(folder, *, openat2):
    """Return the files of a root with links of all kinds, and a secret beside it."""
    inside = Path(folder, "root")
    (inside / "a" / "b").mkdir(parents=True)
    (inside / "file").write_bytes(b"inside")
    Path(folder, "secret").write_bytes(SECRET)
    Path(folder, "root-evil").mkdir()
    Path(folder, "root-evil", "secret").write_bytes(SECRET)
    for place in ("", "root-evil"):
        Path(folder, place, WITNESS).touch()
    links = {
        "up": "..",
        "out": "../secret",
        "abs": str(Path(folder, "secret")),
        "self": "self",
        "a/deep": "../../secret",
    }
    links |= {"a/b/up": "../../../secret", "a/self": "/proc/self/root", "a/evil": "../../root-evil"}
    for name, target in links.items():
        os.symlink(target, inside / name)
    return Disk(PathPolicy(Root(inside, openat2=openat2)))


def attack(chance, disk, folder):
    """Make one path, and do all with it that can be done; return the path if it led out."""
    words = [chance.choice(PARTS) for _ in range(chance.randrange(1, 7))]
    prefix = chance.choice(["", "", "", "/", disk.policy.default.name + "/", f"{folder}/", f"{folder}/root-evil/"])
    path = prefix + "/".join(words) + chance.choice(["", "", "/secret", "/", "/."])
    before = _outside(folder)
    for act in (
        lambda: disk.read(path),
        lambda: disk.names(path),
        lambda: disk.write(path, b"mine"),
        lambda: disk.append(path, b"mine"),
        lambda: disk.move(path, "a/got"),
        lambda: disk.copy(path, "a/got"),
        lambda: disk.move("file", path),
        lambda: disk.make_folder(path, parents=True),
        lambda: disk.glob(path),
        lambda: disk.delete_tree(path),
    ):
        with suppress(OSError, WorkspaceError, ValueError):
            got = act()
            if got == SECRET or (isinstance(got, list) and WITNESS in map(os.path.basename, got)):
                return path
    return path if _outside(folder) != before else None


def _outside(folder):
    """Return what is beside the root."""
    return {str(path): path.read_bytes() for path in Path(folder).glob("*/../*secret*") if path.is_file()} | {
        path.name: path.is_dir() for path in Path(folder).iterdir()
    }


def main(count):
    """Attack both openers; return the paths that led out."""
    found = []
    for openat2 in (True, False):
        chance = random.Random(4)
        for _ in range(count):
            with tempfile.TemporaryDirectory() as folder:
                disk = arena(folder, openat2=openat2)
                path = attack(chance, disk, folder)
                disk.policy.close()
                found += [] if path is None else [path]
    return found


if __name__ == "__main__":
    COUNT = int(sys.argv[1]) if sys.argv[1:] else 2_000
    LED_OUT = main(COUNT)
    sys.stdout.write(f"{2 * COUNT} paths, that led out: {LED_OUT or 0}\n")
    sys.exit(1 if LED_OUT else 0)
