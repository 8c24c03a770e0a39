"""Closes SQLite stores while threads use them: ``python -m tests.store.closing [COUNT]``.

SQLite ends the whole process if a connection is closed while another thread uses it.
"""

import sys
import tempfile
import threading
from pathlib import Path

from divebook import Environment, Step, Workflow
from divebook.errors import DivebookError
from divebook.stores.sqlite import SqliteStore

WORKFLOW = Workflow("w", [Step("s", script="1 + 1", store="n")])
USES = (
    lambda store, run: store.records(),
    lambda store, run: store.read(run),
    lambda store, run: store.page(run, 0, 2),
    lambda store, run: store.wait_for_news(0, 0.001),
)


def used_until_closed(store, run, use, begun, faults):
    try:
        while True:
            use(store, run)
            begun.set()
    except DivebookError:  # it is closed
        begun.set()
    except BaseException as error:  # noqa: BLE001 - any other error is the finding
        faults.append(repr(error))
        begun.set()


def close_while_used(path):
    """Return the errors that threads saw which used a store while it was closed, but for those that say so."""
    store, faults = SqliteStore(path), []
    run = store.ids()[0]
    begun = [threading.Event() for _ in USES]
    threads = [
        threading.Thread(target=used_until_closed, args=(store, run, use, event, faults), daemon=True)
        for use, event in zip(USES, begun, strict=True)
    ]
    for thread in threads:
        thread.start()
    for event in begun:
        event.wait(20)
    store.close()
    for thread in threads:
        thread.join(20)
    return [*faults, *("a thread goes on" for thread in threads if thread.is_alive())]


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "s.db")
        with Environment(store=SqliteStore(path)) as world:
            for _ in range(20):
                world.start(WORKFLOW).wait(20)
            world.store.close()
        faults = [fault for _ in range(count) for fault in close_while_used(path)]
    sys.stdout.write(f"{count} stores closed: {len(faults)} faults {faults[:3]}\n")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
