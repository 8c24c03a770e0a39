"""The contents of files of checkpoints, each kept once under its SHA-256, hexadecimal."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from hashlib import file_digest, sha256
from pathlib import Path

from divebook.errors import DevEnvError


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, hexadecimal; raises `DevEnvError` if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DevEnvError(f"a checkpoint cannot be read: {error}") from error


class KeptContents:
    """The contents that the checkpoints of one environment share.

    Parameters
    ----------
    folder
        Where they lie; made when the first one is kept.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, contents: Mapping[str, bytes]) -> None:
        """Keep contents by their digests; each is there whole, or not at all."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for digest, content in contents.items():
            path = self._folder / digest
            if path.exists():
                continue
            passing = self._folder / f".{secrets.token_hex(8)}"
            opened = os.open(passing, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(opened, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            passing.replace(path)

    def get(self, digest: str) -> bytes:
        """Return a content; raises `DevEnvError` if it is missing, or is not what it was."""
        try:
            content = (self._folder / digest).read_bytes()
        except OSError as error:
            raise DevEnvError(f"the content {digest[:12]}... of a checkpoint cannot be read: {error}") from error
        if sha256(content).hexdigest() != digest:
            raise DevEnvError(f"the content {digest[:12]}... of a checkpoint is damaged: take another checkpoint")
        return content

    def forget_but(self, digests: set[str]) -> None:
        """Remove all contents but some, and what a process that was killed has left."""
        if self._folder.is_dir():
            for path in self._folder.iterdir():
                if path.name not in digests:
                    path.unlink(missing_ok=True)
