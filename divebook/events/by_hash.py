"""A value that a store keeps once however often it is recorded: what stays the same from call to call, as schemas do.

In a store it is a blob named by its content (`divebook.store.blobs`), also where it is short; in an export it stands
whole. Its digest is that of its content, so that to compare it costs the same however long it is.
"""

from __future__ import annotations

from typing import Any, ClassVar

from divebook.events.recorded import Recorded, opened


class ByHash(Recorded):
    """Plain data that are kept under their hash; `divebook.events.codec.by_hash` makes one."""

    __slots__ = ("content", "value")
    tag: ClassVar[str] = "by_hash"

    def __init__(self, value: Any) -> None:
        self.value = value
        self.content: bytes | None = None
        """The value as JSON, once somebody has asked for it."""

    def data(self) -> Any:
        """Return the value."""
        return self.value

    def open(self) -> Any:
        """Return the value, as code gets it."""
        return opened(self.value)

    def plain(self) -> Any:
        """Return the value."""
        return self.value

    def summary(self) -> str:
        """Return what it is, and how long."""
        length = f" of {len(self.value):,}" if isinstance(self.value, str | list | dict) else ""
        return f"{type(self.value).__name__}{length}, kept by its hash"
