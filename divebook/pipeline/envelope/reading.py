"""Reading plain data that may be wrong anywhere: what cannot be used is left out, and noted."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from divebook.bounds import Bounds
from divebook.errors import BoundsError, UncopyableValueError
from divebook.pipeline.envelope.audit import ProcessingRecord
from divebook.pipeline.envelope.copying import deep_copy
from divebook.pipeline.envelope.enums import InterruptKind, ProcessingStatus, TerminalReason
from divebook.pipeline.envelope.interrupt import FlowInterrupt, InterruptResponse
from divebook.pipeline.envelope.times import to_moment

DEPTH = 2
"""How deep the entries of the deepest keys are nested, so that what was read can be written again."""

UNREADABLE: Final[Any] = object()
"""Stands for a value that cannot be used."""

SHOWN = 60
"""Characters of a wrong text that a problem shows."""


@dataclass(slots=True)
class Reading:
    """One pass over a state; each method takes a value and its path, and returns what it stands for."""

    now: datetime
    """Stands in for moments that cannot be read."""
    problems: list[str] = field(default_factory=list)

    def refuse(self, path: str, value: Any, wanted: str) -> Any:
        """Note a value that is something else than wanted."""
        shown = repr(value[:SHOWN]) if isinstance(value, str) else type(value).__name__
        self.problems.append(f"{path}: {wanted} wanted, not {shown}")
        return UNREADABLE

    def text(self, value: Any, path: str) -> Any:
        """Return a text."""
        return str(value) if isinstance(value, str) else self.refuse(path, value, "a text")

    def flag(self, value: Any, path: str) -> Any:
        """Return True or False."""
        return value if isinstance(value, bool) else self.refuse(path, value, "true or false")

    def count(self, value: Any, path: str) -> Any:
        """Return a whole number; fractions are cut off."""
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if not isinstance(value, float) or not math.isfinite(value):
            return self.refuse(path, value, "a whole number")
        if not value.is_integer():
            self.refuse(path, value, "a whole number")
        return int(value)

    def bound(self, value: Any, path: str) -> Any:
        """Return a bound; null leaves it to ``bounds``, which says whether there is one."""
        return UNREADABLE if value is None else self.count(value, path)

    def amount(self, value: Any, path: str) -> Any:
        """Return an exact number."""
        try:
            amount = Decimal(str(value)) if isinstance(value, str | int | float | Decimal) else Decimal("nan")
        except (InvalidOperation, ValueError):  # the latter for integers that are too long to be written
            amount = Decimal("nan")
        usable = amount.is_finite() and not isinstance(value, bool)
        return amount if usable else self.refuse(path, value, "an amount")

    def moment(self, value: Any, path: str) -> Any:
        """Return a moment, aware and in UTC."""
        moment = to_moment(value)
        return self.refuse(path, value, "a time such as 2026-01-25T10:00:00Z") if moment is None else moment

    def data(self, value: Any, path: str) -> Any:
        """Return a copy of anything."""
        try:
            return deep_copy(value, path, DEPTH)
        except UncopyableValueError as error:
            self.problems.append(str(error))
            return UNREADABLE

    def data_map(self, value: Any, path: str) -> Any:
        """Return a copy of a mapping from texts to anything."""
        return self.entries(value, path, self.data)

    def entries(self, value: Any, path: str, read: Callable[[Any, str], Any]) -> Any:
        """Return a mapping with the entries that can be read."""
        if not isinstance(value, Mapping):
            return self.refuse(path, value, "a mapping")
        found = {}
        for key, item in value.items():
            if not isinstance(key, str):
                self.refuse(f"key of {path}", key, "a text")
            elif (entry := read(item, f"{path}.{key}")) is not UNREADABLE:
                found[str(key)] = entry
        return found

    def flags(self, value: Any, path: str) -> Any:
        """Return a mapping to True or False."""
        return self.entries(value, path, self.flag)

    def counts(self, value: Any, path: str) -> Any:
        """Return a mapping to whole numbers."""
        return self.entries(value, path, self.count)

    def text_map(self, value: Any, path: str) -> Any:
        """Return a mapping to texts."""
        return self.entries(value, path, self.text)

    def slots(self, value: Any, path: str) -> Any:
        """Return a mapping to mappings."""
        return self.entries(value, path, self.data_map)

    def items(self, value: Any, path: str, read: Callable[[Any, str], Any]) -> Any:
        """Return a list in which what cannot be read keeps its place as `UNREADABLE`."""
        if not isinstance(value, list | tuple):
            return self.refuse(path, value, "a list")
        return [read(item, f"{path}[{index}]") for index, item in enumerate(value)]

    def texts(self, value: Any, path: str) -> Any:
        """Return a list of texts; others become empty."""
        return _filled(self.items(value, path, self.text), "")

    def maps(self, value: Any, path: str) -> Any:
        """Return a list of mappings; others become None."""
        return _filled(self.items(value, path, self._map_or_none), None)

    def _map_or_none(self, value: Any, path: str) -> Any:
        return None if value is None else self.data_map(value, path)

    def reason(self, value: Any, path: str) -> Any:
        """Return a terminal reason; one that is not known stays a text."""
        return None if value is None else _word(TerminalReason.read, self.text(value, path))

    def optional_text(self, value: Any, path: str) -> Any:
        """Return a text or None."""
        return None if value is None else self.text(value, path)

    def optional_moment(self, value: Any, path: str) -> Any:
        """Return a moment or None."""
        return None if value is None else self.moment(value, path)

    def optional_map(self, value: Any, path: str) -> Any:
        """Return a mapping or None."""
        return None if value is None else self.data_map(value, path)

    def optional_flag(self, value: Any, path: str) -> Any:
        """Return True, False or None."""
        return None if value is None else self.flag(value, path)

    def bounds(self, value: Any, path: str) -> Any:
        """Return bounds with those of their keys that can be read; what is absent is not bounded."""
        given = self.data_map(value, path)
        if given is UNREADABLE:
            return UNREADABLE
        return Bounds.read({key: item for key, item in given.items() if self._is_bound(key, item)})

    def _is_bound(self, key: str, value: Any) -> bool:
        try:
            Bounds.from_dict({key: value})
        except BoundsError as error:
            self.problems.append(str(error))
            return False
        return True

    def _field(
        self, given: Mapping[str, Any], path: str, key: str, read: Callable[[Any, str], Any], default: Any
    ) -> Any:
        """Return one field of a record; a missing one is a problem as well."""
        if key not in given:
            self.problems.append(f"{path}.{key}: missing")
            return default
        value = read(given[key], f"{path}.{key}")
        return default if value is UNREADABLE else value

    def history(self, value: Any, path: str) -> Any:
        """Return a list of processing records; what is none is dropped."""
        records = self.items(value, path, self._record)
        return records if records is UNREADABLE else [record for record in records if record is not UNREADABLE]

    def _record(self, given: Any, path: str) -> Any:
        if not isinstance(given, Mapping):
            return self.refuse(path, given, "a mapping")
        return ProcessingRecord(
            agent=self._field(given, path, "agent", self.text, ""),
            stage_order=self._field(given, path, "stage_order", self.count, 0),
            started_at=self._field(given, path, "started_at", self.moment, self.now),
            completed_at=self._field(given, path, "completed_at", self.optional_moment, None),
            duration_ms=self._field(given, path, "duration_ms", self.count, 0),
            status=ProcessingStatus.read(self._field(given, path, "status", self.text, ProcessingStatus.RUNNING)),
            error=self._field(given, path, "error", self.optional_text, None),
            llm_calls=self._field(given, path, "llm_calls", self.count, 0),
        )

    def interrupt(self, value: Any, path: str) -> Any:
        """Return a question or None; an empty mapping is an empty question."""
        return None if value is None else self._interrupt(value, path)

    def interrupts(self, value: Any, path: str) -> Any:
        """Return a list of questions; what is none is dropped."""
        found = self.items(value, path, self._interrupt)
        return found if found is UNREADABLE else [each for each in found if each is not UNREADABLE]

    def _interrupt(self, given: Any, path: str) -> Any:
        if not isinstance(given, Mapping):
            return self.refuse(path, given, "a mapping")
        optional = {"expires_at": None, "response": None, **given}
        return FlowInterrupt(
            kind=InterruptKind.read(self._field(given, path, "kind", self.text, "")),
            id=self._field(given, path, "id", self.text, ""),
            created_at=self._field(given, path, "created_at", self.moment, self.now),
            question=self._field(given, path, "question", self.text, ""),
            message=self._field(given, path, "message", self.text, ""),
            data=self._field(given, path, "data", self.optional_map, None),
            response=self._field(optional, path, "response", self._response, None),
            expires_at=self._field(optional, path, "expires_at", self.optional_moment, None),
        )

    def _response(self, given: Any, path: str) -> Any:
        if given is None:
            return None
        if not isinstance(given, Mapping):
            return self.refuse(path, given, "a mapping")
        parts = {"text": None, "approved": None, "decision": None, "data": None, **given}
        return InterruptResponse(
            text=self._field(parts, path, "text", self.optional_text, None),
            approved=self._field(parts, path, "approved", self.optional_flag, None),
            decision=self._field(parts, path, "decision", self.optional_text, None),
            data=self._field(parts, path, "data", self.optional_map, None),
            received_at=self._field(given, path, "received_at", self.optional_moment, None),
        )


def _filled(items: Any, filler: Any) -> Any:
    return items if items is UNREADABLE else [filler if item is UNREADABLE else item for item in items]


def _word(read: Callable[[str], Any], text: Any) -> Any:
    return text if text is UNREADABLE else read(text)
