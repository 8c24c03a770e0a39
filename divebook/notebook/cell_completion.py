"""What can be written at a place in a ``%%dive`` cell: the keys that the table of all keys has there, and values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from divebook import bounds
from divebook.dialects import MANNERS, OWN, Dialect
from divebook.errors import Place
from divebook.notebook.outline import Outline, Spot, keys_below
from divebook.questions.kinds import DEFINABLE
from divebook.workflow import schema
from divebook.workflow.kinds import INPUT_TYPES, Flag, Text, Texts
from divebook.workflow.step import STEP_TYPES
from divebook.workflow.table import Key, Many, One, Table

TABLES = {"file": schema.DEFINITIONS, "workflow": schema.WORKFLOW, "agent": schema.AGENT}
SERVER_TYPES = ("stdio", "http")


@dataclass(frozen=True, slots=True)
class Known:
    """Names that exist outside the cell."""

    agents: Collection[str] = ()
    actions: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to go on: what would stand in place of the word before the cursor, and what kind of thing it is."""

    text: str
    type: str


@dataclass(frozen=True, slots=True)
class Found:
    """How the word before the cursor may go on, best first."""

    fragment: str
    candidates: tuple[Candidate, ...] = ()


NOTHING = Found("")


def matching(fragment: str, candidates: Iterable[Candidate]) -> Found:
    """Keep the candidates that begin like the fragment, in any case of letters."""
    start = fragment.casefold()
    return Found(fragment, tuple(entry for entry in candidates if entry.text.lstrip().casefold().startswith(start)))


@dataclass(frozen=True, slots=True)
class CellWithCursor:
    """The body of a cell: the lines above the cursor's, that one's beginning and end, and the lines below it."""

    above: str
    head: str
    tail: str
    below: str
    body: str = "file"
    dialect: Dialect = OWN


def complete(document: CellWithCursor, known: Known) -> Found:
    """Return how the cell may go on at its cursor."""
    spot = Outline(document.above).spot(document.head)
    if spot is None:
        return NOTHING
    resolved = _resolved(TABLES[document.body], spot.place)
    if resolved is None:
        return NOTHING
    holder, key = resolved
    if key is None:
        return NOTHING if spot.after_key else matching(spot.fragment, _keys(holder.keys, spot, document))
    if isinstance(key.kind, Many):
        return NOTHING if spot.after_key else matching(spot.fragment, _first_keys(key.kind, document))
    if key.name == "Bounds" and not spot.after_key:
        return matching(spot.fragment, _colons(bounds.KEYS, spot, document))
    return _values(holder, key, spot, document, known)


def _resolved(table: Table, place: Place) -> tuple[Table, Key | None] | None:
    """Return the table whose keys stand at a place; or, at a value, the table of its mapping, and its key."""
    holder, key = table, None
    for part in place:
        if key is None and isinstance(part, str):
            key = holder.key(part)
            if key is None:
                return None
            if isinstance(key.kind, One):
                holder, key = key.kind.table, None
        elif key is not None and isinstance(part, int) and isinstance(key.kind, Many):
            holder, key = key.kind.table, None
        elif key is None or not isinstance(part, int) or not isinstance(key.kind, Texts):
            return None
    return holder, key


# --- keys ----------------------------------------------------------------------------------------------------------


def _keys(keys: Iterable[Key], spot: Spot, document: CellWithCursor) -> Iterator[Candidate]:
    is_strict = MANNERS[document.dialect].is_strict
    names = [key.name for key in keys if is_strict or not key.extension]
    ignored = {key.name for key in keys if key.ignored}
    return _colons([name for name in names if name not in ignored], spot, document)


def _colons(names: Iterable[str], spot: Spot, document: CellWithCursor) -> Iterator[Candidate]:
    given = {*spot.given, *keys_below(document.below, len(document.head) - len(spot.fragment))}
    colon = "" if document.tail.lstrip().startswith(":") else ": "
    return (Candidate(f"{name}{colon}", "key") for name in names if name not in given)


def _first_keys(kind: Many, document: CellWithCursor) -> Iterator[Candidate]:
    """Offer a new item of a list."""
    dash = "{" if document.head.rstrip().endswith("[") else "- "
    return (Candidate(f"{dash}{key.name}: ", "item") for key in kind.table.keys[:1])


# --- values --------------------------------------------------------------------------------------------------------

Names = Callable[[Outline, Place, Known], Iterable[str]]


def _step_names(outline: Outline, place: Place, _known: Known) -> Iterable[str]:
    """Return the names of the steps of the workflow that the place belongs to."""
    steps = place[: place.index("Steps") + 1]
    return [text for where, text in outline.values.items() if where[:-2] == steps and where[-1] == "Name"]


def _agent_names(outline: Outline, _place: Place, known: Known) -> Iterable[str]:
    here = [text for where, text in outline.values.items() if where[:1] == ("Agents",) and where[2:] == ("Name",)]
    return dict.fromkeys([*here, *known.agents])


def _other_agents(outline: Outline, place: Place, known: Known) -> Iterable[str]:
    own = outline.values.get((*place[:2], "Name")) if place[:1] == ("Agents",) else outline.values.get(("Name",))
    return [name for name in _agent_names(outline, place, known) if name != own]


def _action_names(_outline: Outline, _place: Place, known: Known) -> Iterable[str]:
    return known.actions


def _words(*words: str) -> Names:
    return lambda _outline, _place, _known: words


VALUES: Mapping[tuple[str, str], tuple[str, Names]] = {
    ("step", "Type"): ("type", _words(*(name for name in STEP_TYPES if name != "function"))),
    ("step", "Agent"): ("agent", _agent_names),
    ("step", "Action"): ("action", _action_names),
    ("Next entry", "Step"): ("step", _step_names),
    ("Catch", "Step"): ("step", _step_names),
    ("Ask", "Kind"): ("kind", _words(*DEFINABLE)),
    ("input", "Type"): ("type", _words(*INPUT_TYPES)),
    ("output", "Type"): ("type", _words(*INPUT_TYPES)),
    ("agent", "Subordinates"): ("agent", _other_agents),
    ("MCP server", "Type"): ("type", _words(*SERVER_TYPES)),
}
"""What may follow a key of a table: what it is called, and the names."""


def _values(holder: Table, key: Key, spot: Spot, document: CellWithCursor, known: Known) -> Found:
    kind, names = VALUES.get((holder.label, key.name), ("value", _fixed(key)))
    outline = Outline("\n".join((document.above, document.head + document.tail, document.below)))
    space = " " if document.head.endswith(":") else ""
    offered = (Candidate(f"{space}{name}", kind) for name in names(outline, spot.place, known))
    return matching(spot.fragment, offered)


def _fixed(key: Key) -> Names:
    if isinstance(key.kind, Flag):
        return _words("true", "false")
    return _words(*key.kind.choices) if isinstance(key.kind, Text) else _words()
