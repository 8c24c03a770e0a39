"""Questions to a person, and their answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Self

from divebook.errors import InterruptError, nearest
from divebook.pipeline.envelope.copying import copied_map, deep_copy
from divebook.pipeline.envelope.enums import InterruptKind
from divebook.pipeline.envelope.times import to_text


@dataclass(slots=True)
class InterruptResponse:
    """An answer; None means not given, which neither an empty text nor a refusal is."""

    text: str | None = None
    """To a clarification."""
    approved: bool | None = None
    """To a confirmation; only True releases anything."""
    decision: str | None = None
    """To a review: ``approve``, ``reject``, ``modify``, or whatever the asking stage understands."""
    data: dict[str, Any] | None = None
    received_at: datetime | None = None
    """Set by whoever receives the answer."""

    @classmethod
    def read(cls, interrupt_id: str, given: InterruptResponse | Mapping[str, Any], now: datetime) -> InterruptResponse:
        """Return a copy of an answer, received now.

        Raises
        ------
        InterruptError
            A part that nobody knows, or of the wrong type.
        """
        if isinstance(given, InterruptResponse):
            given = {part: getattr(given, part) for part in _PART_TYPES}
        if not isinstance(given, Mapping):
            raise InterruptError(interrupt_id, f"answer with a mapping such as {{'text': ...}}, not {given!r}")
        parts = {key: value for key, value in given.items() if key != "received_at"}
        for key, value in parts.items():
            _check_part(interrupt_id, key, value)
        return cls(**deep_copy(parts, "response"), received_at=now)

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing; a refusal says something."""
        return self.approved is None and not ((self.text or "").strip() or (self.decision or "").strip() or self.data)

    def clone(self) -> InterruptResponse:
        """Return an independent copy."""
        return replace(self, data=_cloned(self.data, "response.data"))

    def to_dict(self) -> dict[str, Any]:
        """Return the given parts as plain data, and when it was received."""
        given = {part: deep_copy(getattr(self, part), f"response.{part}") for part in _PART_TYPES}
        received = None if self.received_at is None else to_text(self.received_at)
        return {part: value for part, value in given.items() if value is not None} | {"received_at": received}


@dataclass(slots=True)
class FlowInterrupt:
    """A question that stops the flow until it is answered or taken back."""

    kind: InterruptKind | str
    id: str
    created_at: datetime
    question: str = ""
    """Of a clarification."""
    message: str = ""
    """Of a confirmation, and of all other kinds."""
    data: dict[str, Any] | None = None
    response: InterruptResponse | None = None
    expires_at: datetime | None = None

    def is_expired(self, now: datetime) -> bool:
        """Whether its time has passed."""
        return self.expires_at is not None and self.expires_at <= now

    def clone(self) -> Self:
        """Return an independent copy."""
        response = self.response and self.response.clone()
        return replace(self, data=_cloned(self.data, "interrupt.data"), response=response)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.clone()

    def to_dict(self) -> dict[str, Any]:
        """Return the question as plain data; without ``expires_at`` and ``response`` where there are none."""
        plain: dict[str, Any] = {
            "kind": str(self.kind),
            "id": self.id,
            "question": self.question,
            "message": self.message,
            "data": _cloned(self.data, "interrupt.data"),
            "created_at": to_text(self.created_at),
        }
        if self.expires_at is not None:
            plain["expires_at"] = to_text(self.expires_at)
        if self.response is not None:
            plain["response"] = self.response.to_dict()
        return plain


@dataclass(slots=True)
class Interruption:
    """The question of an envelope, and those that wait for their turn."""

    interrupt_pending: bool = False
    interrupt: FlowInterrupt | None = None
    interrupt_queue: list[FlowInterrupt] = field(default_factory=list)
    """Raised by parallel branches beside the first one."""

    def ask(self, interrupt: FlowInterrupt) -> None:
        """Make this the question, in place of any earlier one."""
        self.interrupt_pending, self.interrupt = True, interrupt

    def resolve(self, response: InterruptResponse | Mapping[str, Any], now: datetime) -> None:
        """Keep the answer beside its question; nothing is pending any more."""
        if self.interrupt is not None:
            self.interrupt.response = InterruptResponse.read(self.interrupt.id, response, now)
        self.interrupt_pending = False

    def clear(self) -> None:
        """Take the question back."""
        self.interrupt_pending, self.interrupt = False, None

    def ask_next(self) -> bool:
        """Make the next question of the queue the present one, unless one is pending; return whether one is then."""
        if not self.pending and self.interrupt_queue:
            self.ask(self.interrupt_queue.pop(0))
        return self.pending is not None

    @property
    def pending(self) -> FlowInterrupt | None:
        """The question that waits for its answer; the flag alone is none."""
        return self.interrupt if self.interrupt_pending else None


def seconds_from(now: datetime, seconds: float | timedelta | None) -> datetime | None:
    """Return the moment that is so far from now; of None, no moment."""
    if seconds is None:
        return None
    return now + (seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds))


def _cloned(data: Mapping[str, Any] | None, path: str) -> dict[str, Any] | None:
    return None if data is None else copied_map(data, path)


_PART_TYPES = {"text": str, "approved": bool, "decision": str, "data": dict}


def _check_part(interrupt_id: str, key: str, value: Any) -> None:
    if key not in _PART_TYPES:
        near = nearest(str(key), _PART_TYPES)
        advice = f"did you mean {near!r}?" if near else f"known are {', '.join(_PART_TYPES)}"
        raise InterruptError(interrupt_id, f"an answer has no part {key!r}; {advice}")
    if value is not None and not isinstance(value, _PART_TYPES[key]):
        raise InterruptError(interrupt_id, f"{key} must be a {_PART_TYPES[key].__name__}, not {value!r}")
