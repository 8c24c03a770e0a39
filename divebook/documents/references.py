"""Values that a definition names instead of holding them: ``env://NAME`` and ``file://PATH``.

They are looked up where they are used, at the moment of the call, so that no log, no definition and no notebook holds
them; the redactor of this process knows each of them from then on. A file must be where the policy allows it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from divebook.documents.policy import Policy
from divebook.errors import SetupError
from divebook.text.known_secrets import LEAST_SECRET
from divebook.text.logs import logger
from divebook.text.redaction import shared

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
        Which files may be read.
    folder
        What paths of files are relative to; by default the current folder.

    Raises
    ------
    SetupError
        There is no such variable or file, or it may not be read.

    Examples
    --------
    >>> os.environ["SEARCH_KEY"] = "k-2f9d8c71"
    >>> resolved({"Authorization": "Bearer env://SEARCH_KEY", "retries": 3}, Policy())
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


def _looked_up(kind: str, name: str, policy: Policy, folder: Path | None) -> str:
    found = _variable(name) if kind == "env" else _content(name, policy, folder or Path())
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


def _variable(name: str) -> str:
    value = os.environ.get(name, "").strip()
    if not value:
        raise SetupError(f"env://{name} names a variable that is not set, or is empty: set {name} and run it again")
    return value


def _content(path: str, policy: Policy, folder: Path) -> str:
    where = policy.file(Path(path).expanduser(), folder)
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
