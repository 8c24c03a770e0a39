"""What a tool has returned, as data that a log can hold and a model can read, whatever it was."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic_ai.messages import BinaryContent, FileUrl, ToolReturn, UploadedFile

from divebook.events.codec import storable
from divebook.events.readable import json_form
from divebook.text.shown import as_unicode

_ANY = TypeAdapter[Any](Any, config={"ser_json_inf_nan": "constants"})
_DEEPEST = 50


def plain_result(result: Any) -> Any:
    r"""Return a result as plain data; files for the model, and what comes with a result, stay what they are.

    Values that JSON lacks are converted by the rule of `divebook.events.readable.json_form`: NaN, NaT and infinities
    become null, dates ISO 8601, numbers of numpy and pandas numbers, a frame a list of records. Bytes become text if
    they are UTF-8, else base64. A call whose result has no such form has been made all the same, and must not be made
    again for that: each part that cannot be converted becomes a string that begins with its type.

    Examples
    --------
    >>> plain_result({"when": range(3), "rate": float("nan"), "raw": b"\xff", "kind": object})
    {'when': [0, 1, 2], 'rate': None, 'raw': '/w==', 'kind': "type: <class 'object'>"}
    """
    # `isinstance` asks a value that is no instance for its `__class__`, and a dead `weakref.proxy` raises then.
    if issubclass(type(result), ToolReturn):
        result.return_value, result.metadata = plain_result(result.return_value), plain_data(result.metadata)
        return result
    return result if _is_content(result) else plain_data(result)


def is_readable(result: Any) -> bool:
    """Return whether a result can be asked for its class; a dead `weakref.proxy` raises, and a class may as well."""
    try:
        isinstance(result, dict)
    except BaseException:  # noqa: BLE001 - see above
        return False
    return True


def _is_content(result: Any) -> bool:
    """Return whether pydantic-ai knows what to do with a result: files, alone or among texts."""
    try:
        parts = result if isinstance(result, list) else [result]
        return any(isinstance(part, BinaryContent | FileUrl | UploadedFile | ToolReturn) for part in parts)
    except BaseException:  # noqa: BLE001 - a person's class raises what it likes when it is looked at
        return False


def plain_data(value: Any, above: tuple[int, ...] = ()) -> Any:
    """Return a value as plain data, or as many of its parts as can be."""
    try:
        made = _ANY.dump_python(value, mode="json", fallback=_converted)
        json.dumps(made, allow_nan=False)  # raises for a number that is not finite
        storable([{"parts": [{"content": made}]}], "result")  # so deep it lies in the messages of a thread
    except BaseException:  # noqa: BLE001 - a person's class raises what it likes while it is written down
        return _in_parts(value, above)
    return made


def _in_parts(value: Any, above: tuple[int, ...]) -> Any:
    if id(value) in above or len(above) == _DEEPEST:
        return _described(value)
    try:
        return _each_part(value, above)
    except BaseException:  # noqa: BLE001 - see above
        return _described(value)


def _each_part(value: Any, above: tuple[int, ...]) -> Any:
    inside = (*above, id(value))
    if isinstance(value, BaseModel):
        value = dict(value)
    elif is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return {_plain_key(key): plain_data(part, inside) for key, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain_data(part, inside) for part in value]
    return _converted(value)


def _converted(value: Any) -> Any:
    """Return a value that is not plain in its form in JSON; described where it has none."""
    try:
        made = json_form(value)
        storable(made, "result")
    except BaseException:  # noqa: BLE001 - see above
        return _described(value)
    return made


def _plain_key(key: Any) -> str:
    return as_unicode(key) if isinstance(key, str) else _described(key)


def _described(value: object) -> str:
    if issubclass(type(value), str):
        return as_unicode(str.__str__(value))  # its own `__str__` may raise
    kind = type(value).__name__
    try:
        return as_unicode(f"{kind}: {value}")
    except BaseException as error:  # noqa: BLE001 - see above
        return f"{kind}, whose text cannot be had: {type(error).__name__}"
