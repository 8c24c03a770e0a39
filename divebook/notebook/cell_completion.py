"""What can be written at a place in a ``%%dive`` cell: the keys that the table of all keys has there, and values."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from divebook import bounds
from divebook.agents.models import DEFAULT_MODELS
from divebook.agents.scripted import SCRIPTED
from divebook.dialects import MANNERS
from divebook.errors import Place
from divebook.notebook.candidates import NOTHING, Candidate, CellWithCursor, Found, matching
from divebook.notebook.name_completion import names_at
from divebook.notebook.outline import Outline, Spot, keys_below
from divebook.questions.kinds import DEFINABLE
from divebook.workflow import schema
from divebook.workflow.kinds import INPUT_TYPES, Flag, Text, Texts
from divebook.workflow.step import STEP_TYPES
from divebook.workflow.table import Key, Many, One, Table

TABLES = {"file": schema.DEFINITIONS, "workflow": schema.WORKFLOW, "agent": schema.AGENT, "step": schema.STEP}
_REST = re.compile(r"\w*")
"""What is behind the cursor of the word that it stands in."""
SERVER_TYPES = ("stdio", "http")


@dataclass(frozen=True, slots=True)
class Known:
    """Names that exist outside the cell."""

    agents: Collection[str] = ()
    actions: Collection[str] = ()
    workflows: Collection[str] = ()


def complete(document: CellWithCursor, known: Known) -> Found:
    """Return how the cell may go on at its cursor."""
    named = names_at(document)
    if named is not None:
        return named
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


def key_at(document: CellWithCursor) -> tuple[Table, Key] | None:
    """Return the key that the cursor is at, or that has the value it is at, with the table it belongs to."""
    rest = _REST.match(document.tail)
    spot = Outline(document.above).spot(document.head + (rest[0] if rest else ""))
    if spot is None:
        return None
    place, name = (spot.place[:-1], spot.place[-1]) if spot.after_key else (spot.place, spot.fragment)
    resolved = _resolved(TABLES[document.body], place)
    if resolved is None:
        return None
    table, key = resolved
    key = key or table.key(str(name))
    return None if key is None else (table, key)


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


def _workflow_names(outline: Outline, place: Place, known: Known) -> Iterable[str]:
    here = [text for where, text in outline.values.items() if where[:1] == ("Workflows",) and where[2:] == ("Name",)]
    own = outline.values.get((*place[:2], "Name")) if place[:1] == ("Workflows",) else None
    return [name for name in dict.fromkeys([*here, *known.workflows]) if name != own]


def _models(_outline: Outline, _place: Place, _known: Known) -> Iterable[str]:
    from divebook.agents.examination import usable_models  # loads pydantic-ai: only where a model is due

    return (SCRIPTED, *usable_models())


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
    ("step", "Workflow"): ("workflow", _workflow_names),
    ("schedule", "Workflow"): ("workflow", _workflow_names),
    ("agent", "Model"): ("model", _models),
    ("Config", "DefaultModel"): ("model", _models),
    ("agent", "Provider"): ("provider", _words(*DEFAULT_MODELS)),
    ("Config", "DefaultProvider"): ("provider", _words(*DEFAULT_MODELS)),
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
