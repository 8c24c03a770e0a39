"""The contents of files that a log names: read from the store that holds it."""

from __future__ import annotations

from divebook.errors import CorruptStoreError
from divebook.store.base import EventStore


def file_content(store: EventStore, digest: str) -> bytes:
    """Return the content of a file by its SHA-256, hexadecimal.

    Raises
    ------
    CorruptStoreError
        It is missing, or is not what its name promises.
    SealedError
        It is encrypted, and the key is missing or another.
    """
    name = bytes.fromhex(digest)
    found = store.sealing.open_content(name, store.blob(name))
    if found is None:
        raise CorruptStoreError(f"the content of a file, {digest[:12]}..., is missing in the store")
    return found
