"""What stands between a store and its server: it counts, and loses connections at the worst moment."""

import select
import socket
import threading
from collections import deque
from contextlib import closing, contextmanager, suppress
from pathlib import Path

SOCKET = ".s.PGSQL.5432"
BEFORE, AFTER, LATE = "before", "after", "late"
"""Where the connection of a commit is lost: the server never hears of it; it has made it, and its word is lost; it
makes it later, when the writer has asked already."""
COMMIT = b"commit_batches"


class Proxy:
    """Forwards connections to a server.

    Attributes
    ----------
    trips
        How often the server was asked and answered since this was set to 0.
    losses
        What happens to the next commits.
    watched
        What a statement has in it that such a commit is known by.
    """

    def __init__(self, folder, server):
        self.folder, self._server = Path(folder), str(server.folder / SOCKET)
        self.trips, self.losses, self.watched = 0, deque(), COMMIT
        self._held = []
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(str(self.folder / SOCKET))
        self._door.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, schema="divebook"):
        return f"postgresql://postgres@/postgres?host={self.folder}&schema={schema}"

    def release(self):
        """Let the server have what it is to hear late, and wait until it has answered."""
        while self._held:
            upstream, sent = self._held.pop()
            with closing(upstream):
                upstream.sendall(sent)
                upstream.recv(65536)

    def _accept(self):
        with suppress(OSError):
            while True:
                client, _ = self._door.accept()
                upstream = socket.socket(socket.AF_UNIX)
                upstream.connect(self._server)
                threading.Thread(target=self._forward, args=(client, upstream), daemon=True).start()

    def _forward(self, client, upstream):
        is_held = is_asked = False
        with closing(client), suppress(OSError):
            while not is_held:
                ready, _, _ = select.select([client, upstream], [], [])
                if upstream in ready:
                    answered, is_asked = upstream.recv(1 << 20), False
                    client.sendall(answered)
                    if not answered:
                        break
                if client in ready:
                    sent = client.recv(1 << 20)
                    # What is long comes in pieces; a connection's end, and the word of it, ask nothing.
                    self.trips += not is_asked and sent[:1] not in (b"", b"X")
                    is_asked = True
                    loss = self.losses.popleft() if self.watched in sent and self.losses else None
                    is_held = loss == LATE
                    if is_held:
                        self._held.append((upstream, sent))
                    elif not sent or loss == BEFORE:
                        break
                    else:
                        upstream.sendall(sent)
                    if loss == AFTER:
                        upstream.recv(1 << 20)
                        break
        if not is_held:
            upstream.close()

    def close(self):
        self._door.close()
        self.release()


@contextmanager
def proxy(folder, server):
    made = Proxy(folder, server)
    try:
        yield made
    finally:
        made.close()
