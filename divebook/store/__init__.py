"""Where events rest: append, read, follow, export."""

from divebook.store.base import Batch, EventStore, ExecutionRecord
from divebook.store.follow import follow
from divebook.store.memory import MemoryStore
from divebook.store.registry import open_store
from divebook.store.sqlite import SqliteStore

__all__ = ["Batch", "EventStore", "ExecutionRecord", "MemoryStore", "SqliteStore", "follow", "open_store"]
