"""A store on a server, as far as its callers can tell: not local, slow at will, with a connection that breaks."""

import threading
from collections import deque
from contextlib import contextmanager

from divebook.errors import ConnectionLostError
from divebook.runtime.loop import ENGINE
from divebook.stores import MemoryStore
from divebook.stores.backend import BlobBackend, CacheBackend, ListBackend, QueueBackend
from divebook.stores.base import EventStore

BEFORE, AFTER = "before", "after"
"""Where in a call the connection is lost: the server has not heard of it, or has done it and could not say so."""


class Gate:
    """Holds up the calls that reach it, while it is closed."""

    def __init__(self):
        self.reached, self._open = threading.Event(), threading.Event()
        self._open.set()

    def pass_through(self):
        if not self._open.is_set():
            self.reached.set()
        assert self._open.wait(20), "nobody opened the gate"

    @contextmanager
    def closed(self):
        self.reached.clear()
        self._open.clear()
        try:
            yield self
        finally:
            self._open.set()


class RemoteStore(EventStore):
    """Forwards every call to a memory store, which stands for the server.

    Attributes
    ----------
    on_the_loop
        The calls that were made on the engine's own thread: each of them would have held up every execution.
    losses
        By name of a call what is still to go wrong with it: `BEFORE` or `AFTER`, None where it goes well.
    gates, answers
        By name of a call: where it can be held up, before the server has heard of it and after.
    """

    location = "remote:"
    local = False
    shared = False

    def __init__(self):
        super().__init__()
        self.server = MemoryStore()
        self.server.sealing = self.sealing
        self._lists, self._queues, self._caches, self._large_values = (RemotePart(self, name) for name in PARTS)
        self.on_the_loop = []
        self.losses = {name: deque() for name in FORWARDED}
        self.gates = {name: Gate() for name in FORWARDED}
        self.answers = {name: Gate() for name in FORWARDED}

    def forwarded(self, name, call, given, options):
        if ENGINE.is_current():
            self.on_the_loop.append(name)
            raise AssertionError(f"{name} was called on the engine's thread")
        loss = self.losses[name].popleft() if self.losses[name] else None
        self.gates[name].pass_through()
        if loss == BEFORE:
            raise ConnectionLostError("the server is out of reach")
        answer = call(*given, **options)
        self.answers[name].pass_through()
        if loss == AFTER:
            raise ConnectionLostError("the server is out of reach")
        return answer


class RemotePart:
    """Forwards every call to a part of the server's store."""

    def __init__(self, store, part):
        for name in PARTS[part]:
            setattr(self, name, self._forward(store, f"{part}.{name}", getattr(getattr(store.server, part), name)))

    def _forward(self, store, name, call):
        return lambda *given, **options: store.forwarded(name, call, given, options)


def _forward(name):
    def call(self, *given, **options):
        return self.forwarded(name, getattr(self.server, name), given, options)

    return call


PARTS = {
    part: [name for name in vars(protocol) if not name.startswith("_")]
    for part, protocol in {
        "_lists": ListBackend,
        "_queues": QueueBackend,
        "_caches": CacheBackend,
        "_large_values": BlobBackend,
    }.items()
}
METHODS = sorted(EventStore.__abstractmethods__)
FORWARDED = [*METHODS, *(f"{part}.{name}" for part, names in PARTS.items() for name in names)]
for _name in METHODS:
    setattr(RemoteStore, _name, _forward(_name))
RemoteStore.__abstractmethods__ = frozenset()
