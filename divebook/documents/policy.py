"""Permissions of definitions: what they may use, since a stranger may have written them.

Without permission a definition may read and write files of its own folder, and read the public internet. The person who
runs it permits more, never the definition: ``Environment(policy=Policy("programs"))``, ``divebook run --allow
programs``, or the variable ``DIVEBOOK_ALLOW=files,programs``. SECURITY.md has the list.
"""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import Self

from divebook.documents.addresses import is_public
from divebook.documents.protected import why_protected
from divebook.errors import SetupError

VARIABLE = "DIVEBOOK_ALLOW"
FILES, ADDRESSES, PROGRAMS, CREDENTIALS, APPROVALS, HIDDEN, ENVIRONMENT = KINDS = (
    "files",
    "addresses",
    "programs",
    "credentials",
    "approvals",
    "hidden",
    "environment",
)
"""Files outside the definition's folder; addresses of this machine and of private networks; programs; credentials that
agents read or write, such as those in the tests of a program; fewer questions before calls of tools; hidden files,
version control and the store; environment variables of this process."""
OF_CODE = frozenset({APPROVALS, HIDDEN, ENVIRONMENT})
"""Permissions of agents and settings that Python code defines: who writes it can do the same in Python."""
_ONE_VARIABLE = re.compile(rf"{ENVIRONMENT}:[A-Za-z_][A-Za-z0-9_]*")
_LOCAL_NAMES = ("localhost", "localhost.localdomain", "ip6-localhost", "metadata.google.internal")


class Policy:
    """Permissions of a definition, beyond its folder and the public internet.

    Parameters
    ----------
    allowed
        Any of ``files``, ``addresses``, ``programs``, ``credentials``, ``approvals``, ``hidden`` and ``environment``;
        ``environment:NAME`` permits one environment variable.

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
            if kind not in KINDS and not _ONE_VARIABLE.fullmatch(kind):
                raise SetupError(f"{kind!r} cannot be allowed; one of {', '.join(KINDS)}, {ENVIRONMENT}:NAME can")
        self.allowed = frozenset(allowed)

    @classmethod
    def given(cls, *more: str) -> Self:
        """Return what the variable ``DIVEBOOK_ALLOW`` allows, and `more`."""
        named = (kind.strip() for kind in os.environ.get(VARIABLE, "").split(","))
        return cls(*filter(None, named), *more)

    def __repr__(self) -> str:
        return f"Policy({', '.join(map(repr, sorted(self.allowed)))})"

    def of_code(self) -> Policy:
        """Return the policy of what Python code defines in an environment with this policy."""
        return Policy(*self.allowed, *OF_CODE)

    def both(self, other: Policy) -> Policy:
        """Return the policy that allows what this one and another one allow."""
        return Policy(*(kind for kind in self.allowed | other.allowed if self._has(kind) and other._has(kind)))

    def _has(self, kind: str) -> bool:
        return kind in self.allowed or kind.partition(":")[0] in self.allowed

    def file(self, path: str | Path, folder: Path) -> Path:
        """Return the real path of a file of a folder, links followed.

        Raises
        ------
        SetupError
            It is outside the folder, or it is protected: see `divebook.documents.protected`.
        """
        try:
            real, root = (folder / path).resolve(), folder.resolve()
        except (OSError, ValueError, RuntimeError) as error:  # a NUL; links in a circle
            raise SetupError(f"{str(path)!r} cannot be the path of a file: {error}") from error
        if FILES not in self.allowed and not real.is_relative_to(root):
            raise SetupError(f"{str(path)!r} is outside the definition's folder {folder}; {_way(FILES)}")
        if reason := self.why_protected(real, root):
            raise SetupError(f"{str(path)!r} cannot be used: {reason}")
        return real

    def why_protected(self, path: Path, base: Path) -> str:
        """Return why a real path below a folder may not be used, and how to allow it; empty if it may be used."""
        reason = "" if HIDDEN in self.allowed else why_protected(path, base)
        return f"{reason}; {_way(HIDDEN)}" if reason else ""

    def variable(self, name: str) -> None:
        """Raise `SetupError` unless an environment variable may be used."""
        kind = f"{ENVIRONMENT}:{name}"
        if not self._has(kind):
            raise SetupError(
                f"the definition uses the environment variable {name}, and environment variables are not allowed; "
                f"{_way(kind if _ONE_VARIABLE.fullmatch(kind) else ENVIRONMENT)}"
            )

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
