"""What the process table says of a process and those that it has started; Linux only."""

import time
from pathlib import Path


def family(pid):
    """Return a process with all that it has started."""
    found = [pid]
    for parent in found:
        tasks = Path(f"/proc/{parent}/task").glob("*/children")
        found += [int(child) for task in tasks for child in task.read_text().split()]
    return found


def alive(pids):
    return [pid for pid in pids if Path(f"/proc/{pid}").exists() and "\nState:\tZ" not in status_of(pid)]


def status_of(pid):
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "\nState:\tZ"


def none_left(pids):
    while alive(pids):  # the suite's time limit ends a test that waits for ever
        time.sleep(0.01)
    return True


def commands_with(text):
    """Return the commands of all processes of the machine that have a text in them."""
    commands = (command_of(path) for path in Path("/proc").glob("[0-9]*/cmdline"))
    return [command for command in commands if text in command]


def command_of(path):
    try:
        return path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):  # it ends meanwhile
        return ""
