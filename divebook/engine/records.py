"""What a state keeps of a step that is open: its calls, what they have used, the items that are done."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import repeat
from operator import add
from typing import Any, NamedTuple, TypeAlias

from immutables import Map

from divebook.engine.operations import Reserved, consumption_of
from divebook.events.catalog import RUNNING

EMPTY: Map[str, Any] = Map()
NO_ITEMS: Map[int, Any] = Map()
NO_PLACES: Map[Any, int] = Map()
NO_FAILURES: Map[int | str | None, tuple[int, float]] = Map()
NO_FAILURE = (0, 0.0)
NO_HOLDERS: Map[int, str] = Map()


class Usage(NamedTuple):
    """What model calls have consumed: requests, tokens, and `cost` in nanodollars, of which 1,000,000,000 are a dollar.

    `divebook.Execution.costs` and the other frames have dollars.

    Examples
    --------
    >>> Usage(1, 6, 4, cost=25_000)
    Usage(requests=1, input_tokens=6, output_tokens=4, cost=25000 nanodollars)
    """

    requests: int = 0
    input_tokens: int = 0
    """Of all requests, those that a provider's cache spared included."""
    output_tokens: int = 0
    cache_write_tokens: int = 0
    """Of the input tokens, those written to the provider's cache."""
    cache_read_tokens: int = 0
    """Of the input tokens, those read from it."""
    cost: int = 0
    """Nanodollars, as far as the prices are known; whole numbers, so that sums are exact."""

    def __repr__(self) -> str:
        told = ", ".join(f"{name}={value}" for name, value in self.to_dict().items())
        return f"Usage({told}{' nanodollars' if self.cost else ''})"

    def plus(self, more: Mapping[str, int]) -> Usage:
        """Return the sum with another usage in plain form."""
        return Usage(*map(add, self, map(more.get, self._fields, repeat(0)))) if more else self

    def to_dict(self) -> dict[str, int]:
        """Return the parts that are not zero."""
        return {name: value for name, value in zip(self._fields, self, strict=True) if value}


NO_USAGE = Usage()


Outcome: TypeAlias = tuple[Any, str | None, tuple[str, ...], Mapping[str, Any] | None]
"""`result`, `error`, `error_names` and `raised` of an operation."""


class OperationRecord(NamedTuple):
    """What the log says of one operation of a step that is still open."""

    operation_id: str
    operation_type: str
    parameters_hash: str | None
    started_at: int
    """Microseconds since 1970."""
    started_sequence: int = 0
    """The event of its latest beginning, which a question about its outcome belongs to."""
    ended_sequence: int = 0
    """The event of its end; 0 while it has none."""
    status: str = RUNNING
    result: Any = None
    error: str | None = None
    error_names: tuple[str, ...] = ()
    """The class of the error, and those it derives from."""
    raised: Mapping[str, Any] | None = None
    """What makes the same error again."""
    until: int | None = None
    """When a timer goes off, or the wait for a signal ends, microseconds since 1970."""
    signal: str | None = None
    """Name of the signal that is waited for."""
    reserved: Reserved | None = None
    """What it holds of the bounds: while it runs, and what an execution that has ended has handed on to others."""
    setting_hash: str | None = None
    within: str | None = None
    """Id of the operation that holds it."""
    holds: tuple[str, ...] = ()
    """Ids of the operations that it holds, while it has not completed."""
    undone: str | None = None
    """Where what undoes it comes from, as `divebook.events.catalog.OperationStarted` has it."""
    item: int | None = None
    """The item whose end has what undoes it."""
    is_final: bool = False
    """Whether it is an execution that has failed and cannot go on."""
    lost: Mapping[str, str] | None = None
    """The description of its result, where it returned and the log cannot hold that."""

    @property
    def consumed(self) -> Mapping[str, int]:
        """What it consumed although it failed, in the form of `OperationFailed.usage`."""
        return consumption_of((self.raised or {}).get("fields") or {}) or {}

    @classmethod
    def begun(cls, *known: Any) -> OperationRecord:
        """Return one by its first five fields; a third of the cost of calling the class, as for what follows."""
        return tuple.__new__(cls, known + _BEGUN)

    def ended(self, sequence: int, status: str, outcome: Outcome) -> OperationRecord:
        """Return it as it stands after the event of its end."""
        return tuple.__new__(
            OperationRecord, (*self[:5], sequence, status, *outcome, self.until, self.signal, None, *self[14:])
        )


_BEGUN = tuple(OperationRecord._field_defaults[name] for name in OperationRecord._fields[5:])


class OpenStep(NamedTuple):
    """A step that has begun and not ended."""

    entry_variables: Map[str, Any]
    """The variables as they stood when it began."""
    operations: Map[str, OperationRecord] = EMPTY
    """By operation id."""
    iterations: Map[int, Any] = NO_ITEMS
    """Results of the finished items of `Each`, by index."""
    usage: Usage = NO_USAGE
    failures: Map[int | str | None, tuple[int, float]] = NO_FAILURES
    """By item, or by call of a function: attempts that failed and are followed by another, and the seconds between."""
    step_type: str = ""
    ended_by: tuple[str, ...] | None = None
    """Ids of the operations whose failure ended it, where the log says so."""
    entry_at: Map[str, int] = NO_PLACES
    iterations_at: Map[int, int] = NO_PLACES
    """The events that hold the large ones of `entry_variables` and `iterations`."""
    holders: Map[int, str] = NO_HOLDERS
    """Ids of the operations that can hold others, by the events with which they began, until they have completed."""

    @classmethod
    def begun(cls, step_type: str, variables: Map[str, Any], places: Map[str, int]) -> OpenStep:
        """Return one in which nothing has happened; a third of the cost of calling the class."""
        return tuple.__new__(
            cls, (variables, EMPTY, NO_ITEMS, NO_USAGE, NO_FAILURES, step_type, None, places, NO_PLACES, NO_HOLDERS)
        )

    def with_operation(self, record: OperationRecord) -> OpenStep:
        """Return it with a new or changed operation, twice for each call."""
        return tuple.__new__(OpenStep, (self[0], self.operations.set(record.operation_id, record), *self[2:]))

    def with_items(self, iterations: Map[int, Any], places: Map[int, int]) -> OpenStep:
        """Return it with other results of items, and the events that hold the large ones: once for each item."""
        return tuple.__new__(OpenStep, (*self[:2], iterations, *self[3:8], places, *self[9:]))
