"""A store on a server, with the death of its process around what is written: the kills of `tests.kill`, elsewhere."""

import threading
import zlib

from divebook.stores.postgres import PostgresStore
from tests.kill.victim import (
    AFTER,
    AMID,
    BEFORE,
    CHECKPOINT,
    CHECKPOINT_WRITTEN,
    CHECKPOINTED,
    WRITTEN,
)
from tests.postgres.proxy import COMMIT

AMID_SECONDS = 0.0004
"""After a statement was sent: about when the server carries it out."""


class KillingPostgresStore(PostgresStore):
    """A store whose process dies before, amid and after what it writes."""

    def __init__(self, url, killer):
        self._killer, self._last = killer, 0
        super().__init__(url)
        execute, send = self._connections._execute, self._connections.send

        def executed(link, statement, values):
            if not (self._last and COMMIT.decode() in statement):
                return execute(link, statement, values)
            dying = self._dying()
            answer = execute(link, statement, values)
            self._written(dying)
            return answer

        def sent(statement, values):
            dying = self._dying()
            made = send(statement, values)
            numbers = made.numbers

            def answered():
                found = numbers()
                self._written(dying)
                return found

            made.numbers = answered
            return made

        self._connections._execute, self._connections.send = executed, sent

    def _dying(self):
        """Have the process die soon, if it is to die amid a commit."""
        dying = threading.Timer(AMID_SECONDS, self._killer.reached, (AMID, self._last))
        dying.start()
        return dying

    def _written(self, dying):
        dying.join()
        self._killer.reached(WRITTEN, self._last)  # the server has committed, and nobody here knows

    def append_all(self, batches):
        self._begin(batches)
        return self._ended(super().append_all(batches))

    def append_in_a_moment(self, batches, seconds):
        self._begin(batches)
        appending = super().append_in_a_moment(batches, seconds)
        if appending.answers is None:
            return appending._replace(finish=lambda: self._ended(appending.finish()))
        self._ended(appending.answers)
        return appending

    def _begin(self, batches):
        self._last = self._killer.written(batches)
        self._killer.reached(BEFORE, self._last)

    def _ended(self, answers):
        self._killer.reached(AFTER, self._last)
        self._last = 0
        return answers

    def put_checkpoint(self, execution_id, sequence, data):
        self._killer.reached(CHECKPOINT, sequence)
        dying = threading.Timer(AMID_SECONDS, self._killer.reached, (CHECKPOINT_WRITTEN, sequence))
        dying.start()
        super().put_checkpoint(execution_id, sequence, data)
        dying.join()
        self._killer.reached(CHECKPOINTED, sequence)


def opened_in(url, folder, killer):
    """Return the store of a folder, in a schema of its own; one that kills if there is a killer."""
    own = url.replace("schema=divebook", f"schema=k{zlib.crc32(str(folder).encode())}")
    assert own != url
    return PostgresStore(own) if killer is None else KillingPostgresStore(own, killer)
