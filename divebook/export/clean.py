"""The events of a log without the secrets in them, as plain data of which events can be made again."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from divebook.errors import InvalidEventError
from divebook.events.codec import encode, event_to_dict, parse
from divebook.events.event import Event
from divebook.events.recorded import CONTAINERS, TAG
from divebook.store.lines import decoded
from divebook.text.redaction import Redactor
from divebook.text.secret_values import HIDDEN
from divebook.widgets.recording import MADE_BY_THE_ENGINE

LEAST_PACKED = 16
"""Characters of base64 that are looked into."""


def clean_log(events: Sequence[Event], redactor: Redactor) -> list[dict[str, Any]]:
    """Return what is recorded in each event; the redactor learns the secrets of all of them before the first.

    Raises
    ------
    InvalidEventError
        An event is none any more without its secrets.
    """
    plain: list[dict[str, Any]] = [parse(encode(event.data.to_data())) for event in events]
    for data in plain:
        redactor.learn({name: data[name] for name in data if name not in MADE_BY_THE_ENGINE})
    return [_clean(event, data, redactor) for event, data in zip(events, plain, strict=True)]


def _clean(event: Event, data: dict[str, Any], redactor: Redactor) -> dict[str, Any]:
    looked_into = {name: part if name in MADE_BY_THE_ENGINE else _opaque(part, redactor) for name, part in data.items()}
    clean = {
        name: part if name in MADE_BY_THE_ENGINE else redactor.under(name, part) for name, part in looked_into.items()
    }
    if clean != data:
        _check(event, clean)
    return clean


def _check(event: Event, data: dict[str, Any]) -> None:
    """Raise InvalidEventError unless the event can be made again; what is written must open."""
    try:
        decoded({**event_to_dict(event), "data": data}, f"event {event.sequence} without the secrets in it")
    except InvalidEventError as error:
        raise InvalidEventError(f"{error}; export the log as JSON lines (run.jsonl), which keeps them") from error


def _opaque(value: Any, redactor: Redactor) -> Any:
    """Hide values that JSON lacks (bytes, frames) where there is a secret among what they are made of."""
    if isinstance(value, list):
        return [_opaque(part, redactor) for part in value]
    if not isinstance(value, dict):
        return value
    if value.get(TAG) in CONTAINERS:  # a tuple or mapping is cleaned part by part
        return {**value, "value": _opaque(value.get("value"), redactor)}
    if TAG in value and (_hides_secret(value.get("value"), redactor) or redactor.value(value) != value):
        return HIDDEN
    return {name: _opaque(part, redactor) for name, part in value.items()}


def _hides_secret(value: Any, redactor: Redactor) -> bool:
    if isinstance(value, dict):
        return any(_hides_secret(part, redactor) for part in value.values())
    if isinstance(value, list):
        return any(_hides_secret(part, redactor) for part in value)
    if not isinstance(value, str) or len(value) < LEAST_PACKED:
        return False
    try:
        text = base64.b64decode(value, validate=True).decode("utf-8", "replace")
    except ValueError:
        return False  # a text of its own, perhaps beyond ASCII, which is cleaned as such
    return redactor.text(text) != text
