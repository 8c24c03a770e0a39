"""The key that seals what a server hands to its clients: made once, beside the store, for its owner only."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from divebook.errors import StoreError
from divebook.store.memory import MemoryStore
from divebook.store.private import FILE

_LENGTH = 32


def key_beside(location: str) -> bytes:
    """Return the key of the server over a store, made if there is none.

    Parameters
    ----------
    location
        Path of the store; one in memory, or behind a URL, has a key that ends with the process.

    Raises
    ------
    StoreError
        The file of the key cannot be read or written, or is no key.
    """
    if location == MemoryStore.location or "://" in location:
        return secrets.token_bytes(_LENGTH)
    path = Path(f"{location}.mcp-key")
    try:
        return _made(path) if not path.exists() else _read(path)
    except OSError as error:
        raise StoreError(f"the key of the MCP server at {path} cannot be used: {error}; make it accessible") from error


def _made(path: Path) -> bytes:
    """Make a key; of two servers that begin at once, both take the first."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(secrets.token_bytes(_LENGTH))
    try:
        path.hardlink_to(draft)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    return _read(path)


def _read(path: Path) -> bytes:
    key = path.read_bytes()
    if len(key) != _LENGTH:
        raise StoreError(f"{path} is no key of an MCP server: {len(key)} bytes instead of {_LENGTH}; delete it")
    return key
