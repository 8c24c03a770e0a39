"""Names in a configuration's texts, ``${HOME}``, which are filled in when an environment is made."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from divebook.documents.policy import KINDS, Policy
from divebook.documents.references import resolved
from divebook.errors import DevEnvError, SetupError

_NAMED = re.compile(r"\$(?:\$|\{([^}]*)\})")
_DEFERRED = re.compile(r"\$\{(secret|env):([A-Za-z_][A-Za-z0-9_]*)\}")


def filled(value: Any, names: Mapping[str, str], *, place: tuple[str, ...] = ()) -> Any:
    """Return a configuration with ``${PWD}`` and the like filled in; raises `DevEnvError` for an unknown name.

    ``${secret:NAME}`` and ``${env:NAME}`` stay: they are resolved when a command runs, and are stored nowhere. The
    commands of ``init`` stay too, since they are text for a shell.
    """
    if isinstance(value, dict):
        return {key: filled(item, names, place=(*place, key)) for key, item in value.items()}
    if place[-1:] == ("init",) or not isinstance(value, list | str):
        return value
    if isinstance(value, list):
        return [filled(item, names, place=(*place, str(index))) for index, item in enumerate(value)]

    def one(match: re.Match[str]) -> str:
        if match.group() == "$$" or _DEFERRED.fullmatch(match.group()):
            return match.group()  # `at_start` takes one dollar of two away, once nothing is left to fill in
        if match[1] not in names:
            known = ", ".join(f"${{{name}}}" for name in (*sorted(names), "env:NAME", "secret:NAME"))
            raise DevEnvError(
                f"{'.'.join(place)}: ${{{match[1]}}} is not known; known are {known}, and $$ for a dollar"
            )
        return names[match[1]].replace("$", "$$")

    return _NAMED.sub(one, value)


def is_secret(text: str) -> bool:
    """Return whether a text names a secret."""
    return any(match[1] == "secret" for match in _DEFERRED.finditer(text))


def at_start(text: str, secrets: Path) -> str:
    """Return a text as a command gets it; raises `DevEnvError` for a variable or secret that is not there.

    Parameters
    ----------
    secrets
        The folder with a file for each secret; one that has none is looked for among the variables of this process.
        Both are hidden from then on in what is printed.
    """

    def one(match: re.Match[str]) -> str:
        if match.group() == "$$":
            return "$"
        found = _DEFERRED.fullmatch(match.group())
        if found is None:  # it was filled in when the environment was made
            return match.group()
        file = secrets / found[2]
        is_file = found[1] == "secret" and file.is_file()
        try:
            value: str = resolved(f"file://{file}" if is_file else f"env://{found[2]}", Policy(*KINDS))
        except SetupError as error:
            way = f", or write it into {file}" if found[1] == "secret" else ""
            raise DevEnvError(f"{match.group()}: {error}{way}") from error
        return value

    return _NAMED.sub(one, text)
