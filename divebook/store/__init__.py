"""Event stores: append, read, follow, export."""

from divebook.engine.inbox import Message
from divebook.store.base import EventStore
from divebook.store.batches import Batch
from divebook.store.follow import follow
from divebook.store.leases import Lease
from divebook.store.memory import MemoryStore
from divebook.store.owner import Owner
from divebook.store.records import ExecutionRecord
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
