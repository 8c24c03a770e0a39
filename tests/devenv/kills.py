"""Kills `dev_env` at each change that it makes to the disk, and looks whether the next call finds nothing half-made.

``python -m tests.devenv.kills`` tries all moments of create, save, restore and destroy; the suite tries a few.
``python -m tests.devenv.kills docker 5`` does so with containers, where what the engine is asked is a change as well,
at every fifth moment (at all without a number: about half an hour).
"""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.devenv.conftest import run
from tests.workspace.images import busybox_image

KILLED = -signal.SIGKILL
COMMANDS = {
    "create": ["create", "b", "own"],
    "save": ["save", "a", "c", "--overwrite"],
    "restore": ["restore", "a", "c"],
    "destroy": ["destroy", "a"],
}
_CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.symlink", "os.truncate", "os.chmod")
_ASKED = ("http.client.send", "socket.connect")
"""Of the engine."""
_DYING = f"""
import os, signal, sys
from divebook.cli.dev_env import app
root, moment = sys.argv[1], int(sys.argv[2])
count = 0
def look(event, arguments):
    global count
    is_open = event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_CREAT
    if is_open or event in {_CHANGES + _ASKED!r}:
        count += 1
        if count == moment:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(look)
app(["--root", root, *sys.argv[3:]])
"""
BEFORE, AFTER = {"f": "before", "old": "old"}, {"f": "after", "new": "new"}


NATIVE = {"extends": "native"}


def prepared(root: Path, said: dict[str, Any] = NATIVE) -> Path:
    """Make a root with a template, an environment of it, its checkpoint, and files that have changed since."""
    root.mkdir(parents=True)
    assert run(root, "template", "create", "own", "-", stdin=json.dumps(said))[0] == 0
    assert run(root, "create", "a", "own")[0] == 0
    _write(root, BEFORE)
    assert run(root, "save", "a", "c")[0] == 0
    _write(root, AFTER)
    return root


def _work(root: Path) -> Path:
    return root / ".dev_env_state" / "a" / "work"


def _write(root: Path, files: dict[str, str]) -> None:
    for path in _work(root).iterdir():
        path.unlink()
    for name, text in files.items():
        (_work(root) / name).write_text(text)


def _files(root: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in _work(root).iterdir()}


def tried(root: Path, what: str, moment: int) -> int:
    """Run a command that is killed at a change; return how it ended."""
    command = [sys.executable, "-c", _DYING, str(root), str(moment), *COMMANDS[what]]
    return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode


def looks_whole(root: Path, what: str) -> None:
    """Look at what is there after a kill, through the next calls."""
    if what == "create":
        assert run(root, "create", "b", "own", "--exist-ok")[0] == 0
        assert run(root, "execute", "b", "true")[0] == 0
    elif what == "destroy":
        gone = run(root, "execute", "a", "true")[0]
        assert gone in (0, 2), gone
        assert run(root, "create", "a", "own")[0] == (1 if gone == 0 else 0)
    else:
        assert run(root, "execute", "a", "true")[0] == 0
        assert _files(root) in ((AFTER,) if what == "save" else (AFTER, BEFORE)), _files(root)
        assert run(root, "save", "a", "d")[0] == 0
        assert run(root, "restore", "a", "c")[0] == 0
        assert _files(root) in ((AFTER, BEFORE) if what == "save" else (BEFORE,)), _files(root)
    assert run(root, "list")[0] == 0


def cleaned_up(root: Path) -> None:
    """Destroy all, and look whether the engine holds anything of it once that was looked for."""
    assert run(root, "destroy", "--all")[0] == 0
    assert run(root, "gc")[0] == 0
    label = f"--filter=label=dev_env.root={root.resolve()}"
    for words in (["ps", "-aq"], ["images", "-q"], ["network", "ls", "-q"]):
        assert subprocess.run(["docker", *words, label], capture_output=True, check=True).stdout == b"", words


def main(kind: str = "native", step: str = "1", *commands: str) -> None:
    """Try all moments, or every so many, of all commands or some, and print how many there were."""
    is_docker = kind == "docker"
    box = {"image": busybox_image(), "network": "none"} if is_docker else {}
    said = {"isolation_type": "docker", "docker": box} if is_docker else NATIVE
    with tempfile.TemporaryDirectory() as folder:
        for what in commands or COMMANDS:
            count = 0
            for moment in itertools.count(1, int(step)):
                root = prepared(Path(folder) / what / str(moment), said)
                ended = tried(root, what, moment)
                looks_whole(root, what)
                if is_docker:
                    cleaned_up(root)
                if ended != KILLED:
                    assert ended == 0, (what, moment, ended)
                    break
                count += 1
            print(f"{what}: {count} kills, nothing half-made", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
