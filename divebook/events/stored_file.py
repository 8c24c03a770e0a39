"""The content of a file, by its hash: a store keeps it beside the log, and whoever reads the log gets its name only.

In a store it is a blob whose content is the file as it is (`divebook.store.blobs`); to read it is for
`divebook.store.contents`. A log of a thousand snapshots is read as fast as one without.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any, ClassVar, NoReturn, Self

from divebook.errors import UnopenableValueError
from divebook.events.recorded import Recorded

_DIGEST = re.compile(r"[0-9a-f]{64}")


class StoredFile(Recorded):
    """A content that a store has, or is to have.

    Parameters
    ----------
    digest
        SHA-256 of the content, hexadecimal.
    size
        Bytes.
    content
        The content, where it is to be kept; None where it is known already.
    """

    __slots__ = ("content", "digest", "size")
    tag: ClassVar[str] = "file"

    def __init__(self, digest: str, size: int, content: bytes | None = None) -> None:
        if not _DIGEST.fullmatch(digest) or type(size) is not int or size < 0:
            raise ValueError(f"{digest!r} with {size!r} bytes names no content of a file")
        self.digest, self.size, self.content = digest, size, content

    @classmethod
    def of(cls, content: bytes) -> Self:
        """Return what stands for a content that is to be kept."""
        return cls(sha256(content).hexdigest(), len(content), content)

    @staticmethod
    def all_in(payload: object) -> Iterator[StoredFile]:
        """Give those that an event names."""
        rows: Sequence[Any] = getattr(payload, "files", None) or ()
        return (part for row in rows if isinstance(row, list) for part in row if type(part) is StoredFile)

    def data(self) -> Any:
        """Return the digest and the size."""
        return [self.digest, self.size]

    def open(self) -> NoReturn:
        """Raise: only a store has it."""
        raise UnopenableValueError("file", "the content of a file lies in the store, not in its log")

    def plain(self) -> NoReturn:
        """Raise: only a store has it."""
        raise ValueError("the content of a file lies in the store, not in its log: read it with files(...)")

    def summary(self) -> str:
        """Return how long it is."""
        return f"file of {self.size:,} bytes"
