"""What is known of a path, of its step and of the choice after it while the origins of values are found."""

from __future__ import annotations

from dataclasses import dataclass, field

from immutables import Map

from divebook.replay.origin import StepCall, ValueOrigin
from divebook.scripting.reads import ReadKeys


@dataclass(slots=True)
class StepVisit:
    """A visit of a path to a step."""

    step: str
    number: int
    reads: ReadKeys
    because: tuple[int, ...]
    view: Map[str, int]
    """The values of variables as the step reads them."""
    read: dict[int, None]
    """All values that it has read, or may have."""
    items: dict[int, None]
    """Those that its items were computed from."""
    calls: dict[int | None, list[StepCall]] = field(default_factory=dict)
    """By item."""
    item: int | None = None
    """The item that began last."""
    is_item_new: bool = False
    """Whether nothing has happened in it yet."""
    done: dict[int, int] = field(default_factory=dict)
    """The items that have a place in the result, and the events with which they ended."""
    under_way: int = 0
    """Calls that have begun and not ended."""
    unclaimed: list[ValueOrigin] = field(default_factory=list)
    """Values that the script under way has set."""
    before_items: dict[str, int | None] = field(default_factory=dict)
    """What the name of the item held before."""


@dataclass(slots=True)
class Choosing:
    """What is known of a choice until the path goes on."""

    visit: StepVisit
    view: Map[str, int]
    conditions: dict[tuple[str, str], tuple[bool, int]] = field(default_factory=dict)
    """By condition and target: whether it held, and the event that says so."""
    sequence: int = 0


@dataclass(slots=True)
class OnPath:
    """A path."""

    control: tuple[int, ...] = ()
    """The choices that it depends on; earlier ones are the causes of these."""
    visit: StepVisit | None = None
    after: Choosing | None = None
