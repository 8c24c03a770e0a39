"""Values that a definition names instead of holding them: ``env://NAME`` and ``file://PATH``.

They are looked up where they are used, at the moment of the call, so that no log, no definition and no notebook holds
them; the redactor of this process knows each of them from then on. The policy must allow the variable or the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from divebook.documents.policy import Policy
from divebook.errors import SetupError
from divebook.text.known_secrets import LEAST_SECRET
from divebook.text.logs import logger
from divebook.text.redaction import shared
from divebook.text.secret_names import looks_secret

_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
MAX_BYTES = 64 * 1024
"""The most that a file of a reference may hold."""
_REFERENCE = re.compile(r"([A-Za-z]+ )?(env|file)://(.+)", re.DOTALL)
_log = logger(__name__)


def is_reference(value: Any) -> bool:
    """Whether a value names another: a whole text such as ``env://TOKEN``, or ``Bearer env://TOKEN``."""
    return isinstance(value, str) and _REFERENCE.fullmatch(value) is not None


def resolved(value: Any, policy: Policy, folder: Path | None = None) -> Any:
    """Return plain data with the values that its references name, at any depth; what is none stays as it is.

    Parameters
    ----------
    policy
        Which files and environment variables may be read.
    folder
        What paths of files are relative to; by default the current folder.

    Raises
    ------
    SetupError
        There is no such variable or file, or it may not be read.

    Examples
    --------
    >>> os.environ["SEARCH_KEY"] = "k-2f9d8c71"
    >>> resolved({"Authorization": "Bearer env://SEARCH_KEY", "retries": 3}, Policy("environment:SEARCH_KEY"))
    {'Authorization': 'Bearer k-2f9d8c71', 'retries': 3}
    >>> del os.environ["SEARCH_KEY"]
    """
    match value:
        case str():
            found = _REFERENCE.fullmatch(value)
            return value if found is None else (found[1] or "") + _looked_up(found[2], found[3], policy, folder)
        case Mapping():
            found_by_name = {name: resolved(part, policy, folder) for name, part in value.items()}
            shared().know_all(found_by_name)  # one that is written out under the name of a secret is one all the same
            return found_by_name
        case list() | tuple():
            return [resolved(part, policy, folder) for part in value]
    return value


def require_allowed(value: Any, policy: Policy, folder: Path | None = None) -> None:
    """Raise `SetupError` unless a policy allows every reference in plain data; nothing is looked up.

    A definition is refused this way before anything starts.
    """
    for kind, name in _references_in(value):
        if kind == "env":
            policy.variable(name)
        else:
            policy.file(_path(name), folder or Path())


def _references_in(value: Any) -> Iterator[tuple[str, str]]:
    match value:
        case str():
            reference = _REFERENCE.fullmatch(value)
            if reference is not None:
                yield reference[2], reference[3]
        case Mapping():
            for part in value.values():
                yield from _references_in(part)
        case list() | tuple():
            for part in value:
                yield from _references_in(part)


def require_expandable(text: str, policy: Policy) -> None:
    """Raise `SetupError` unless a policy allows every variable that `expanded` would put into a text."""
    for found in _VARIABLE.finditer(text):
        policy.variable(found[1] or found[2])


def expanded(text: str, policy: Policy) -> str:
    """Return a text with the process's variables in the places of ``$NAME`` and ``${NAME}``; empty where not set.

    Raises
    ------
    SetupError
        The policy does not allow one of the variables.

    Examples
    --------
    >>> os.environ["WHERE"] = "here"
    >>> expanded("$WHERE/${WHERE}/$NO_SUCH_VARIABLE", Policy("environment"))
    'here/here/'
    >>> del os.environ["WHERE"]
    """

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        policy.variable(name)
        looked_up = os.environ.get(name, "")
        if looks_secret(name):
            shared().know(looked_up)
        return looked_up

    return _VARIABLE.sub(value, text)


def _looked_up(kind: str, name: str, policy: Policy, folder: Path | None) -> str:
    found = _variable(name, policy) if kind == "env" else _content(name, policy, folder or Path())
    if len(found) < LEAST_SECRET:
        _log.warning(
            "%s://%s names a value of fewer than %s characters, which is hidden only where it stands under the name of "
            "a secret: use a longer one",
            kind,
            name,
            LEAST_SECRET,
        )
    shared().know(found)
    return found


def _variable(name: str, policy: Policy) -> str:
    policy.variable(name)
    value = os.environ.get(name, "").strip()
    if not value:
        raise SetupError(f"env://{name} names a variable that is not set, or is empty: set {name} and run it again")
    return value


def _path(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError as error:  # no such user
        raise SetupError(f"file://{text} cannot be the path of a file: {error}") from error


def _content(path: str, policy: Policy, folder: Path) -> str:
    where = policy.file(_path(path), folder)
    try:
        if where.exists() and not where.is_file():  # a pipe would be waited for
            raise SetupError(f"file://{path} is not a file: name one that holds nothing but the value")
        data = where.read_bytes()
        if len(data) > MAX_BYTES:
            raise SetupError(f"file://{path} holds more than {MAX_BYTES} bytes: name one that holds only the value")
        found = data.decode("utf-8").strip()
    except OSError as error:
        raise SetupError(f"file://{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SetupError(f"file://{path} is not UTF-8 text at byte {error.start}") from error
    if not found:
        raise SetupError(f"file://{path} is empty: write the value into it")
    return found
