"""Writes into a user's folder whose file operations fail: a full disk, a folder that becomes read-only, broken media.

python -m tests.workspace.write_faults [EVERY]

Each nth file operation of `applied` and of `restored` fails, alone or with all that follow, with each of some errors.
The call must raise `SnapshotError` and leave the folder as it was, or, where undoing fails too, leave every file old
or new and say so. The next call, without failures, must complete. EVERY 5 tries every fifth operation.
"""

import errno
import os
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

from divebook.errors import SnapshotError
from divebook.workspaces.snapshots.restore import JOURNAL_FOLDER
from tests.workspace.write_kills import Case, read

WRITES = ("open", "mkdir", "rename", "unlink", "link", "symlink", "fchmod", "fsync", "utime", "rmdir", "chmod")
CREATES = ("open", "mkdir", "link", "symlink", "fsync")
"""Operations that need room on the disk."""
ERRORS = {errno.ENOSPC: CREATES, errno.EROFS: WRITES, errno.EACCES: WRITES, errno.EIO: WRITES}
FAILED, DONE = "failed", "done"


@contextmanager
def failing(operation, code, *, is_lasting):
    """Let the nth file operation fail, counted from 1, and all that follow if it lasts; give how many there were."""
    count = [0]

    def wrapped(name, function):
        def call(*args, **more):
            is_write = name != "open" or bool(args[1] & (os.O_CREAT | os.O_WRONLY | os.O_RDWR))
            if is_write:
                count[0] += 1
                if count[0] == operation or (is_lasting and count[0] > operation):
                    raise OSError(code, os.strerror(code))
            return function(*args, **more)

        return call

    with ExitStack() as stack:
        for name in ERRORS[code]:
            stack.enter_context(mock.patch.object(os, name, wrapped(name, getattr(os, name))))
        yield count


def state_of(case):
    """Return what the folder holds beside the journal, and whether the journal is there."""
    held = read(case.place)
    files = {path: state[:3] for path, state in held.items() if not path.startswith(JOURNAL_FOLDER)}
    return files, f"{JOURNAL_FOLDER}/journal" in held


def faults_of(case, operation, code, *, is_lasting):
    """Return whether that operation was reached, how the call ended, and what was wrong in words."""
    case.begin()
    faults, said = [], ""
    with failing(operation, code, is_lasting=is_lasting) as count:
        try:
            case.carry_out()
        except SnapshotError as error:
            said = str(error)
        except OSError as error:
            said = "raw"
            faults.append(f"raised {error!r}")
    if count[0] < operation:
        return False, DONE, faults
    files, has_journal = state_of(case)
    old, new = ({path: state[:3] for path, state in one.items()} for one in (case.old, case.new))
    faults += [f"neither old nor new: {fault}" for fault in case.wrong()]
    if not said and files != new:
        faults.append("it returned and is not done")
    if not said and has_journal:
        faults.append("it returned, and the next call would undo it")
    if said and not is_lasting and (files != old or has_journal):
        faults.append("one failure was not undone")
    if "nothing was changed" in said and files != old:
        faults.append("it says that nothing was changed")
    if said and str(case.place) not in said:
        faults.append(f"the error names no folder: {said}")
    case.carry_out()
    faults += [f"after the next call: {fault}" for fault in case.leftovers().items()]
    return True, FAILED if said else DONE, faults


def main(every=1):
    """Return how many operations failed in each way, and the faults."""
    counts, faults = Counter(), []
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=memory) as scratch:
        for way in ("apply", "restore"):
            case = Case(Path(scratch), way)
            for code in ERRORS:
                for is_lasting in (False, True):
                    operation, is_reached = 1, True
                    while is_reached:
                        is_reached, ended, wrong = faults_of(case, operation, code, is_lasting=is_lasting)
                        counts[way, errno.errorcode[code], ended] += is_reached
                        faults += [(way, errno.errorcode[code], is_lasting, operation, fault) for fault in wrong]
                        operation += every
    return counts, faults


if __name__ == "__main__":
    COUNTS, FAULTS = main(int(sys.argv[1]) if sys.argv[1:] else 1)
    sys.stdout.write(f"failures: {dict(COUNTS)}; faults: {FAULTS[:20] or 0}\n")
    sys.exit(1 if FAULTS or not COUNTS else 0)
