"""Event stores: base class, implementations, opening by location, export and import."""

from divebook.engine.inbox import Message
from divebook.stores.append import Batch, ExecutionRecord
from divebook.stores.base import EventStore
from divebook.stores.codec import FernetCodec
from divebook.stores.follow import follow
from divebook.stores.leases import Lease, Owner
from divebook.stores.memory import MemoryStore
from divebook.stores.registry import open_store
from divebook.stores.sqlite import SqliteStore

__all__ = [
    "Batch",
    "EventStore",
    "ExecutionRecord",
    "FernetCodec",
    "Lease",
    "MemoryStore",
    "Message",
    "Owner",
    "SqliteStore",
    "follow",
    "open_store",
]
