"""What a template may say: the schema, and the problems of one that does not keep to it."""

from __future__ import annotations

import difflib
import json
import re
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from divebook.errors import DevEnvError

Configuration = dict[str, Any]
"""A template as its file says it, or what came of it and those it extends."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def checked_name(name: str, what: str) -> str:
    """Return a name that may be one of a file; raises `DevEnvError` for another."""
    if _NAME.fullmatch(name) is None or ".." in name:
        raise DevEnvError(
            f"the {what} name {name!r} is not allowed: use 1 to 63 letters, digits, dots, underscores and hyphens, "
            "with a letter or digit first and no two dots in a row"
        )
    return name


@cache
def _validator() -> Any:
    # It takes a second to import, and most commands need none.
    from jsonschema import Draft202012Validator

    return Draft202012Validator(json.loads((files(__package__) / "config.schema.json").read_text("utf-8")))


def check(configuration: Configuration, name: str) -> None:
    """Check a configuration after inheritance; raises `DevEnvError` with every problem and its place."""
    found = sorted(_validator().iter_errors(configuration), key=lambda error: [str(part) for part in error.path])
    if found:
        told = "\n".join(f"  {_place(error)}: {error.message}{_hint(error)}" for error in found)
        raise DevEnvError(f"the template {name!r} is not valid:\n{told}")


def _place(error: Any) -> str:
    return ".".join(str(part) for part in error.absolute_path) or "(the template)"


def _hint(error: Any) -> str:
    """Return the known key that an unknown one is close to."""
    if error.validator != "additionalProperties" or not isinstance(error.schema.get("properties"), dict):
        return ""
    known = error.schema["properties"]
    near = {key: difflib.get_close_matches(key, known, 1) for key in error.instance if key not in known}
    return "".join(f" (did you mean {match[0]!r} for {key!r}?)" for key, match in near.items() if match)


def read_configuration(path: Path, name: str) -> Configuration:
    """Return the configuration of a file; raises `DevEnvError` where it cannot be read, and as `parsed`."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DevEnvError(f"the template {name!r} cannot be read from {path}: {error}") from error
    return parsed(text, name)


def parsed(text: str, name: str) -> Configuration:
    """Return the configuration of a text; raises `DevEnvError` with line and column where it is no JSON object."""
    try:
        found = json.loads(text.removeprefix("\ufeff"))
    except RecursionError as error:
        raise DevEnvError(f"the template {name!r} has lists or objects nested too deeply: write it flatter") from error
    except json.JSONDecodeError as error:
        raise DevEnvError(
            f"the template {name!r} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from error
    if not isinstance(found, dict):
        raise DevEnvError(f"the template {name!r} is a {type(found).__name__}: it must be a JSON object")
    return found
