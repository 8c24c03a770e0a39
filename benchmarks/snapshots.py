"""``python -m benchmarks --only snapshots``: what looking at 10,000 files of 200 MB costs, beside what git takes.

Git's is ``git add -A`` and ``git write-tree`` with an index of its own, as tools do that keep snapshots by git. Both
alternate, each after the same changes of 5 files; the time is that of the whole call.
"""

from __future__ import annotations

import os
import random
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from benchmarks.figure import Figure
from divebook.events.codec import encode
from divebook.stores.encoding import pack_blob as pack
from divebook.workspaces.paths import Root
from divebook.workspaces.snapshots.take import Snapshots, TreeSnapshot, manifest_of

FILES, MEGABYTES, FOLDERS, ROUNDS, CHANGED = 10_000, 200, 667, 9, 5
WATCHED_MS, MORE, MORE_BYTES = 50, 1.05, 1000


def made(folder: Path, files: int, chance: random.Random) -> list[Path]:
    """Make a tree of files, half of them texts."""
    places = [folder / f"d{number % 29}" / f"e{number}" for number in range(FOLDERS)]
    for place in places:
        place.mkdir(parents=True)
    size = MEGABYTES * 1_000_000 // FILES
    found = [places[number % FOLDERS] / f"f{number}" for number in range(files)]
    for number, path in enumerate(found):
        content = chance.randbytes(size // 2).hex().encode() if number % 2 else chance.randbytes(size)
        path.write_bytes(content)
    return found


def timed(call: Callable[[], object]) -> tuple[float, object]:
    """Return how many milliseconds a call took, and what it returned."""
    began = time.perf_counter()
    found = call()
    return (time.perf_counter() - began) * 1000, found


def snapshots() -> Iterator[Figure]:
    """Look at the tree for the first time, unchanged, and after changes of a few files."""
    chance = random.Random(1)  # noqa: S311 - the same tree each time
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "tree")
        paths = made(folder, FILES, chance)
        root = Root(folder)
        watched, scanned = Snapshots(root), Snapshots(root, watch=False)
        first, _ = timed(watched.take)
        scanned.take()
        yield Figure(f"first look at {FILES:,} files", "watch", round(first), "ms")
        git = _git(folder, Path(scratch, "index"))
        git()
        times: dict[str, list[float]] = {"watch": [], "scan": [], "git": []}
        grown = changed = 0
        for _ in range(ROUNDS):
            time.sleep(0.05)  # files that were written a moment ago are read again by all three
            for path in chance.sample(paths, CHANGED):
                with path.open("r+b") as file:
                    file.write(chance.randbytes(100))
                changed += path.stat().st_size
            took, taken = timed(watched.take)
            assert isinstance(taken, TreeSnapshot)
            assert len(taken.delta) == CHANGED
            grown += _stored(taken)
            times["watch"].append(took)
            times["git"].append(timed(git)[0])
            times["scan"].append(timed(scanned.take)[0])
        root.close()
        looks = {name: median(found) for name, found in times.items()}
        yield Figure(f"{CHANGED} files changed", "watch", round(looks["watch"], 1), "ms", WATCHED_MS)
        yield Figure(
            f"{CHANGED} files changed, over git's add and write-tree", "scan", looks["scan"] / looks["git"], "x", 1
        )
        most = changed * MORE + ROUNDS * MORE_BYTES
        yield Figure("stored for them, over their bytes and 5 % and 1 kB each time", "store", grown / most, "x", 1)


def _git(folder: Path, index: Path) -> Callable[[], object]:
    """Return what git does for a snapshot, in a repository of its own beside the folder."""
    environ = {**os.environ, "GIT_DIR": f"{index}.git", "GIT_WORK_TREE": str(folder), "GIT_INDEX_FILE": str(index)}
    subprocess.run(["git", "init", "-q", "--bare", f"{index}.git"], check=True)  # noqa: S607 - the git that is there
    environ |= {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.bare", "GIT_CONFIG_VALUE_0": "false"}

    def taken() -> object:
        subprocess.run(["git", "add", "-A"], check=True, env=environ, cwd=folder)  # noqa: S607
        return subprocess.run(["git", "write-tree"], check=True, env=environ, cwd=folder, capture_output=True)  # noqa: S607

    return taken


def _stored(taken: TreeSnapshot) -> int:
    """Return how many bytes a store keeps of what is new in a tree."""
    new = {entry.content for entry in taken.delta.values() if entry is not None}
    contents = sum(len(pack(content).data) for digest, content in taken.contents.items() if digest in new)
    return contents + len(pack(encode(manifest_of(taken.delta, {}))).data)
