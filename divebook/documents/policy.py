"""What a definition may reach: it names files, addresses and programs, and may have been written by a stranger.

Without further word these are files of its own folder, addresses of the public internet, no programs, and for its
agents no credentials. More is allowed by the person who runs it, never by the definition:
``Environment(policy=Policy("programs"))``, ``divebook run --allow programs``, or the variable
``DIVEBOOK_ALLOW=files,programs``.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Self

from divebook.documents.addresses import is_public
from divebook.errors import SetupError

VARIABLE = "DIVEBOOK_ALLOW"
FILES, ADDRESSES, PROGRAMS, CREDENTIALS = KINDS = ("files", "addresses", "programs", "credentials")
"""Files outside the definition's folder; addresses of this machine and of private networks; programs; credentials that
agents read or write, such as those in the tests of a program."""
_LOCAL_NAMES = ("localhost", "localhost.localdomain", "ip6-localhost", "metadata.google.internal")


class Policy:
    """What a definition may reach beyond its folder and the public internet.

    Parameters
    ----------
    allowed
        Any of ``files``, ``addresses``, ``programs`` and ``credentials``.

    Examples
    --------
    >>> Policy("programs")
    Policy('programs')
    >>> Policy().file("../notes.txt", Path("project"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    divebook.errors.SetupError: '../notes.txt' is outside the definition's folder project; to allow it: ...
    """

    def __init__(self, *allowed: str) -> None:
        for kind in allowed:
            if kind not in KINDS:
                raise SetupError(f"{kind!r} cannot be allowed; one of {', '.join(KINDS)} can")
        self.allowed = frozenset(allowed)

    @classmethod
    def given(cls, *more: str) -> Self:
        """Return what the variable ``DIVEBOOK_ALLOW`` allows, and `more`."""
        named = (kind.strip() for kind in os.environ.get(VARIABLE, "").split(","))
        return cls(*filter(None, named), *more)

    def __repr__(self) -> str:
        return f"Policy({', '.join(map(repr, sorted(self.allowed)))})"

    def file(self, path: str | Path, folder: Path) -> Path:
        """Return where a file of a folder really is, links followed; raises `SetupError` outside the folder."""
        try:
            found, root = (folder / path).resolve(), folder.resolve()
        except (OSError, ValueError, RuntimeError) as error:  # a NUL; links in a circle
            raise SetupError(f"{str(path)!r} cannot be the path of a file: {error}") from error
        if FILES not in self.allowed and not found.is_relative_to(root):
            raise SetupError(f"{str(path)!r} is outside the definition's folder {folder}; {_way(FILES)}")
        return found

    def program(self, path: str, key: str = "DynamicFrom") -> None:
        """Raise `SetupError` unless programs, such as one that a key names, may be started."""
        self._require_programs(f"{key} names the program {path!r}")

    def commands(self, key: str) -> None:
        """Raise `SetupError` unless commands may be run, as what `key` says may."""
        self._require_programs(f"{key} may run commands")

    def _require_programs(self, told: str) -> None:
        if PROGRAMS not in self.allowed:
            raise SetupError(f"{told}, and programs are not allowed; {_way(PROGRAMS)}")

    def host(self, name: str) -> None:
        """Raise `SetupError` if a host is named that may not be reached, without looking it up."""
        bare = name.strip("[]").rstrip(".").lower()
        if ADDRESSES in self.allowed:
            return
        if not bare or bare in _LOCAL_NAMES or bare.endswith((".localhost", ".local", ".internal")):
            raise _private(name)
        try:
            self.address(_as_address(bare), name)
        except ValueError:
            return  # a name, which is looked up when it is connected to

    def address(self, address: str, name: str) -> None:
        """Raise `SetupError` if an address may not be reached; `name` is the host it was found for."""
        if ADDRESSES not in self.allowed and not is_public(address):
            raise _private(name)


def _as_address(host: str) -> str:
    """Return the address that a host written as old programs do means (``0x7f.1``), which a proxy would go to."""
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except (OSError, UnicodeEncodeError):
        return host


def _private(name: str) -> SetupError:
    return SetupError(f"{name!r} is an address of this machine or of a private network; {_way(ADDRESSES)}")


def _way(kind: str) -> str:
    return f"to allow it: {VARIABLE}={kind} or --allow {kind}"
