"""Event stores: base class, implementations, opening by location, export and import."""

from divebook.engine.inbox import Message
from divebook.store.append import Batch, ExecutionRecord
from divebook.store.base import EventStore
from divebook.store.follow import follow
from divebook.store.leases import Lease, Owner
from divebook.store.memory import MemoryStore
from divebook.store.registry import open_store
from divebook.store.sqlite import SqliteStore

__all__ = [
    "Batch",
    "EventStore",
    "ExecutionRecord",
    "Lease",
    "MemoryStore",
    "Message",
    "Owner",
    "SqliteStore",
    "follow",
    "open_store",
]
