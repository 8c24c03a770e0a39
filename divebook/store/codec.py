"""Encryption at rest: values are sealed before a store writes them, and opened when it reads them.

A store without a codec writes plain JSON. With a codec, it seals the payloads of events, large values, messages,
checkpoints, errors and notes. One store may hold both. Checksums cover the written form, so that `divebook check` needs
no key.
"""

from __future__ import annotations

import os
import zlib
from base64 import b64decode, b64encode, urlsafe_b64decode, urlsafe_b64encode
from types import ModuleType
from typing import Protocol, Self

from divebook.errors import DecryptionError, SetupError, StoreError
from divebook.events.recorded import TAG
from divebook.store.encoding import Fetch, embed, pack, unpack, verified

KEY_VARIABLE = "DIVEBOOK_KEY"
_SEALED_MARK = f'{{"{TAG}":"sealed","value":"'.encode()
_END = b'"}'
UNREADABLE = "(encrypted)"
"""Stands for texts of lists that cannot be opened here."""


class Codec(Protocol):
    """Seals values, and opens them. Both methods may be called from several threads."""

    def encrypt(self, data: bytes) -> bytes:
        """Return what is written in place of the data."""

    def decrypt(self, data: bytes) -> bytes:
        """Undo `encrypt`; DecryptionError if the data were sealed with another key, or changed."""


class FernetCodec:
    """AES-128 with a signature (`cryptography.fernet`).

    Parameters
    ----------
    keys
        As `FernetCodec.new_key` makes them, the present one first; older ones still open what they sealed.

    Examples
    --------
    >>> codec = FernetCodec(FernetCodec.new_key())
    >>> codec.decrypt(codec.encrypt(b"value"))
    b'value'
    """

    def __init__(self, *keys: str) -> None:
        fernet = _fernet()
        try:
            self._fernet = fernet.MultiFernet([fernet.Fernet(key) for key in keys])
        except ValueError as error:
            raise SetupError(
                f"the key for encryption is invalid ({error}); make one with divebook.store.codec.FernetCodec.new_key()"
            ) from None

    @classmethod
    def from_environment(cls, variable: str = KEY_VARIABLE) -> Self:
        """Return the codec of the keys in an environment variable, separated by commas."""
        keys = [key.strip() for key in os.environ.get(variable, "").split(",") if key.strip()]
        if not keys:
            raise SetupError(f"no key for encryption: the environment variable {variable} is not set")
        return cls(*keys)

    @staticmethod
    def new_key() -> str:
        """Return a new key."""
        return str(_fernet().Fernet.generate_key().decode())

    def encrypt(self, data: bytes) -> bytes:
        """Return the data sealed with the first key."""
        return urlsafe_b64decode(self._fernet.encrypt(data))

    def decrypt(self, data: bytes) -> bytes:
        """Return the data; DecryptionError if none of the keys fits."""
        try:
            return bytes(self._fernet.decrypt(urlsafe_b64encode(data)))
        except _fernet().InvalidToken:
            raise DecryptionError(
                "the value was encrypted with another key. Give the key that it was written with"
            ) from None


def _fernet() -> ModuleType:
    try:
        from cryptography import fernet
    except ImportError as error:
        raise SetupError("encryption needs the package cryptography: pip install 'divebook[encryption]'") from error
    return fernet


class Sealing:
    """What a store does to its values on their way to the disk and back.

    Parameters
    ----------
    packs
        Whether it is worth while to make the data of records and checkpoints smaller.
    """

    def __init__(self, codec: Codec | None = None, *, packs: bool = False) -> None:
        self.codec = codec
        self.packs = packs

    def seal(self, data: bytes) -> bytes:
        """Return the data as they are written."""
        return data if self.codec is None else _SEALED_MARK + b64encode(self.codec.encrypt(data)) + _END

    def seal_packed(self, data: bytes) -> bytes:
        """Return data that may be long, of a record or a checkpoint, as they are written."""
        packed = pack(data) if self.packs else data
        return packed if self.codec is None else self.seal(packed)

    def open_packed(self, written: bytes) -> bytes:
        """Return data as they were before `seal_packed`.

        Raises
        ------
        DecryptionError, CorruptStoreError
            That is not possible.
        """
        return unpack(self.open(written))

    def open_whole(self, written: bytes, fetch: Fetch) -> bytes:
        """Return the data of a record with their large values in them; raises as `open_packed` and `embed` do."""
        return embed(self.open_packed(written), fetch)

    def open(self, data: bytes) -> bytes:
        """Return data as they were before they were sealed, if they were.

        Raises
        ------
        DecryptionError
            There is no codec, or the key is another.
        """
        if not data.startswith(_SEALED_MARK):
            return data
        if self.codec is None:
            raise DecryptionError(
                f"the value is encrypted, and there is no key. Set {KEY_VARIABLE}, or Environment(codec=...)"
            )
        return self.codec.decrypt(b64decode(data[len(_SEALED_MARK) : -len(_END)]))

    def seal_content(self, content: bytes) -> bytes:
        """Return a large value as it is written; a sealed one cannot be compressed any more, so that comes first."""
        return content if self.codec is None else self.seal(zlib.compress(content, 1))

    def open_content(self, digest: bytes, written: bytes | None) -> bytes | None:
        """Return a large value, None for None; CorruptStoreError if it is not what its name promises."""
        if written is None:
            return None
        opened = self.open(written)
        return verified(digest, opened if opened is written else zlib.decompress(opened))

    def seal_text(self, text: str | None) -> str | None:
        """Return a text of a list as it is written."""
        return None if text is None else self.seal(text.encode()).decode()

    def open_text(self, text: str | None) -> str | None:
        """Return a text of a list, or a word for it where it cannot be opened."""
        try:
            return None if text is None else self.open(text.encode()).decode()
        except DecryptionError:
            return UNREADABLE


def no_text(error: UnicodeEncodeError) -> StoreError:
    """Return the error for who asks for it: nothing is wrong with the store."""
    return StoreError(
        f"{error.object!a} cannot be looked up: it has half a character ({error.object[error.start]!a}), which no text "
        "in a store has. Check where it comes from"
    )
