"""Encryption at rest: codecs, which encrypt and decrypt, and the conversion of values to their stored form and back
(`Sealing`).

A store encrypts ("seals") values before it writes them, and decrypts ("opens") them on reading.

A store without a codec writes plain JSON. With a codec, it encrypts the payloads of events, large values, messages,
checkpoints, errors and notes. One store may contain both. Checksums cover the written form, so that `divebook check`
needs no key.
"""

from __future__ import annotations

import os
import zlib
from base64 import b64decode, b64encode, urlsafe_b64decode, urlsafe_b64encode
from types import ModuleType
from typing import Protocol, Self

from divebook.errors import DecryptionError, SetupError
from divebook.events.recorded import TAG
from divebook.libraries import install_command
from divebook.stores.encoding import Fetch, embed, pack, unpack, verified

KEY_VARIABLE = "DIVEBOOK_KEY"
# A payload such as {"n": 1} is stored as it is, compressed (it then begins with `PACKED`), or encrypted:
# {"$type":"sealed","value":"<base64>"}.
_SEALED_MARK = f'{{"{TAG}":"sealed","value":"'.encode()
_END = b'"}'
UNREADABLE = "(encrypted)"
"""Placeholder that lists show for strings that this store cannot decrypt."""


class Codec(Protocol):
    """Interface of an encryption algorithm with its keys. Both methods may be called from several threads."""

    def encrypt(self, data: bytes, /) -> bytes:
        """Return data in encrypted form, from which `decrypt` restores them."""

    def decrypt(self, data: bytes, /) -> bytes:
        """Return the data that `encrypt` encrypted. Raise DecryptionError if they were encrypted with another key, or
        changed.
        """


class FernetCodec:
    """Codec that encrypts with AES-128 and signs the result (`cryptography.fernet`).

    Parameters
    ----------
    keys
        Keys from `FernetCodec.new_key`. The first key encrypts values. The other keys are used only to decrypt older
        values.

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
                f"the key for encryption is invalid ({error}); create one with divebook.stores.FernetCodec.new_key()"
            ) from None

    @classmethod
    def from_environment(cls, variable: str = KEY_VARIABLE) -> Self:
        """Return a codec with the encryption keys in an environment variable, separated by commas; raise SetupError if
        it has none.
        """
        keys = [key.strip() for key in os.environ.get(variable, "").split(",") if key.strip()]
        if not keys:
            raise SetupError(f"no key for encryption: the environment variable {variable} is not set")
        return cls(*keys)

    @staticmethod
    def new_key() -> str:
        """Return a new random key as a string."""
        return str(_fernet().Fernet.generate_key().decode())

    def encrypt(self, data: bytes) -> bytes:
        """Return data encrypted with the first key of the codec."""
        # Fernet returns base64, which `seal` adds itself.
        return urlsafe_b64decode(self._fernet.encrypt(data))

    def decrypt(self, data: bytes) -> bytes:
        """Return data decrypted with any key of the codec. Raise DecryptionError if the data were encrypted with
        another key.
        """
        # Fernet expects the base64 that `encrypt` has removed.
        try:
            return bytes(self._fernet.decrypt(urlsafe_b64encode(data)))
        except _fernet().InvalidToken:
            raise DecryptionError(
                "the value was encrypted with another key. Use the key with which it was encrypted"
            ) from None


def _fernet() -> ModuleType:
    try:
        from cryptography import fernet
    except ImportError as error:
        raise SetupError(f"encryption needs the package cryptography: {install_command('cryptography')}") from error
    return fernet


class Sealing:
    """Conversion of values to the form in which a store keeps them, and back. The stored form is compressed and
    encrypted.

    Parameters
    ----------
    compresses
        True to compress records and checkpoints.
    """

    def __init__(self, codec: Codec | None = None, *, compresses: bool = False) -> None:
        self.codec = codec
        self.compresses = compresses

    def seal(self, data: bytes) -> bytes:
        """Return data in encrypted form if there is a codec, otherwise unchanged."""
        # A JSON object, since messages, errors and notes are in columns of text.
        return data if self.codec is None else _SEALED_MARK + b64encode(self.codec.encrypt(data)) + _END

    def seal_packed(self, data: bytes) -> bytes:
        """Return the data of a record or a checkpoint in the form in which the store keeps them: compressed, then
        encrypted.
        """
        # Encrypted data cannot be compressed, so the order matters.
        packed = pack(data) if self.compresses else data
        return packed if self.codec is None else self.seal(packed)

    def open_packed(self, data: bytes) -> bytes:
        """Return the data of a record or a checkpoint as they were before `seal_packed`: decrypted and decompressed.

        Raises
        ------
        DecryptionError, CorruptStoreError
            The data cannot be decrypted, or decompressed.
        """
        return unpack(self.decrypt(data))

    def open_whole(self, data: bytes, fetch: Fetch) -> bytes:
        """Return the decrypted data of a record, in which references to large values are replaced by the values (loaded
        with `fetch`).

        Raises the errors of `open_packed` and `embed`.
        """
        return embed(self.open_packed(data), fetch)

    def decrypt(self, data: bytes) -> bytes:
        """Return data in decrypted form if they are encrypted, otherwise unchanged.

        Raises
        ------
        DecryptionError
            The codec is missing, or it has another key.
        """
        # One store may contain plain and encrypted values, as after a key was first set.
        if not data.startswith(_SEALED_MARK):
            return data
        if self.codec is None:
            raise DecryptionError(
                f"the value is encrypted, but no key is set. Set {KEY_VARIABLE}, or use Environment(codec=...)"
            )
        return self.codec.decrypt(b64decode(data[len(_SEALED_MARK) : -len(_END)]))

    def seal_content(self, content: bytes) -> bytes:
        """Return a large value compressed and encrypted. Without a codec, return it unchanged, because the store then
        compresses it itself.
        """
        # The content is compressed even if that saves nothing, because `open_content` decompresses every encrypted
        # content.
        return content if self.codec is None else self.seal(zlib.compress(content, 1))

    def open_content(self, digest: bytes, data: bytes | None) -> bytes | None:
        """Return the content of a large value, decrypted; None for None. Raise CorruptStoreError if the content does
        not match its hash.
        """
        if data is None:
            return None
        decrypted = self.decrypt(data)
        # The hash covers the plain content. Only encrypted contents were compressed here.
        return verified(digest, decrypted if decrypted is data else zlib.decompress(decrypted))

    def fetcher(self, load: Fetch) -> Fetch:
        """Return a function that returns a large value by its hash: it loads, decrypts and verifies the value, and
        caches it. `load` returns the content of the value as it is stored, or None if it is missing.
        """
        contents: dict[bytes, bytes | None] = {}

        def fetch(digest: bytes) -> bytes | None:
            if digest not in contents:
                contents[digest] = self.open_content(digest, load(digest))
            return contents[digest]

        return fetch

    def seal_text(self, text: str | None) -> str | None:
        """Return the error or the note of an execution's row in encrypted form; None for None."""
        return None if text is None else self.seal(text.encode()).decode()

    def open_text(self, text: str | None) -> str | None:
        """Return the error or the note of an execution's row decrypted; None for None, and `UNREADABLE` if it cannot be
        decrypted.
        """
        # Lists must work without the key.
        try:
            return None if text is None else self.decrypt(text.encode()).decode()
        except DecryptionError:
            return UNREADABLE
