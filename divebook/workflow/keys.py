"""The reference of all keys a definition can have, made from the table that reads them.

``divebook keys``, ``%dive keys`` and the page ``notebooks/KEYS.md`` show the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from divebook import bounds
from divebook.errors import NotFoundError
from divebook.workflow import schema
from divebook.workflow.kinds import Flag, Text
from divebook.workflow.stored_form import defaults
from divebook.workflow.table import Key, Many, One, Table, snake_case

_NOTHING: tuple[Any, ...] = (None, "", [], {})
"""Defaults that are none."""
TABLES: dict[str, Table] = {table.label: table for table in vars(schema).values() if isinstance(table, Table)}
"""Every mapping of a definition, by what it is called."""

INTRODUCTION = """\
# Every key of a definition

Made from the table that reads definitions: `divebook keys --markdown > notebooks/KEYS.md` writes this page anew, and a
test compares them. Every key can be written in snake case as well (`max_tokens`). `divebook keys Step` and
`%dive keys Step` show one part.

In templates `${...}` is a Python expression whose value becomes text. In `Parameters`, `Inputs`, `Data` and `Items`
this holds for strings at any depth, and a whole string `$(...)` stands for the value itself. A dollar sign more is an
escape: `$${HOME}` is the text `${HOME}`, `$$(date)` the text `$(date)`.
"""


@dataclass(frozen=True, slots=True)
class KeyLine:
    """One key, as the reference shows it."""

    key: str
    holds: str
    """What kind of value."""
    means: str
    notes: str
    """Where it is required, refused, or read under another name."""
    default: str = ""
    """Its value where it is not given, if that is one."""
    example: str = ""
    """How it may be written."""

    def __str__(self) -> str:
        return f"{self.means} Holds {self.holds}.{f' ({self.notes})' if self.notes else ''}"


def reference(name: str) -> tuple[str, list[KeyLine]]:
    """Return what a mapping is called, and its keys.

    Parameters
    ----------
    name
        What it is called (``step``), in any case, or the key that holds it (``Steps``).

    Examples
    --------
    >>> [line.key for line in reference("Catch")[1]]
    ['Step', 'Errors', 'Store']
    """
    table = table_called(name)
    return table.label, [line_of(key, table) for key in table.keys]


def table_called(name: str) -> Table:
    """Return the keys of a mapping by what that is called, as `reference` takes it; raises `NotFoundError`."""
    wanted = snake_case(name.replace(" ", "")).replace("_", "").casefold()
    for label, table in TABLES.items():
        called = {label.replace(" ", "").casefold(), *_holders(label)}
        if wanted in called or wanted.removesuffix("s") in called:
            return table
    raise NotFoundError("part of a definition", name, TABLES)


def page() -> str:
    """Return the whole reference in Markdown."""
    return "\n".join([INTRODUCTION, *(line for label in _ordered() for line in _section(label))])


def _ordered() -> list[str]:
    """Return the parts from the outside inwards."""
    found = [schema.DEFINITIONS.label]
    for label in found:
        for key in TABLES[label].keys:
            if isinstance(key.kind, One | Many) and key.kind.table.label not in found:
                found.append(key.kind.table.label)
    return found


def _section(label: str) -> Iterator[str]:
    yield f"## {label[0].upper()}{label[1:]}\n"
    yield "| key | holds | default | means | example | |\n|---|---|---|---|---|---|"
    for line in reference(label)[1]:
        default, example = (f"`{text}`" if text else "" for text in (line.default, line.example))
        yield f"| `{line.key}` | {line.holds} | {default} | {line.means} | {example} | {line.notes} |"
    yield ""


def _holders(label: str) -> set[str]:
    held = [
        key
        for table in TABLES.values()
        for key in table.keys
        if isinstance(key.kind, One | Many) and key.kind.table is TABLES[label]
    ]
    return {snake_case(key.name).replace("_", "") for key in held}


def line_of(key: Key, table: Table) -> KeyLine:
    """Return a key of a mapping as the reference shows it."""
    default = defaults(table.definition).get(key.field)
    written = None if default is None else key.kind.write(default)
    shown = "" if written in _NOTHING else json.dumps(written)
    return KeyLine(key.name, _holds(key), key.means, "; ".join(_notes(key)), shown, _example(key, default))


def _example(key: Key, default: Any) -> str:
    """Return how a key may be written; of one that is refused nothing."""
    match key.kind:
        case _ if key.ignored:
            return ""
        case _ if key.example:
            text = key.example
        case One() | Many():
            inner = key.kind.table.example or f"{{{_example(key.kind.table.keys[0], None)}}}"
            text = f"[{inner}]" if isinstance(key.kind, Many) else inner
        case Flag():
            text = json.dumps(not default)
        case Text(choices=(*_, last)):
            text = last
        case _ if default in _NOTHING:  # none of ours (tests/workflow/test_examples.py)
            return ""
        case _:
            text = json.dumps(key.kind.write(default))
    return f"{key.name}: {text}"


def _holds(key: Key) -> str:
    return f"a mapping of {', '.join(bounds.KEYS)}" if key.name == "Bounds" else key.kind.holds


def _notes(key: Key) -> Iterator[str]:
    if key.required:
        yield "required"
    if key.ignored:
        yield f"refused, in the dialect dive a warning: {key.ignored}"
    if key.extension:
        yield "not in the dialect dive"
    if key.formerly:
        yield f"formerly {', '.join(key.formerly)}"
