"""What a person is told of one key of a definition, made from the table that reads it.

``%dive help KEY``, and Shift+Tab on a key in a cell, show the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from divebook.errors import NotFoundError
from divebook.workflow.keys import TABLES, KeyLine, line_of, table_called
from divebook.workflow.table import Key, Many, One, Table, snake_case


def help_about(name: str) -> str:
    """Return what a key means wherever it may stand, or what the keys of a part are; in any case of letters.

    Raises
    ------
    NotFoundError
        There is neither.

    Examples
    --------
    >>> print(help_about("parallel"))
    Parallel: How many items run at the same time; 1 by default.
        part of  Each
        holds    a whole number
        default  1
        example  Parallel: 4
        note     not in the dialect dive
    """
    found = [(table, key) for table in TABLES.values() for key in table.keys if _is_called(key, name)]
    parts = {table.label: table for _, key in found for table in _below(key)}
    try:
        called = table_called(name)
    except NotFoundError:
        if not found:
            raise NotFoundError("key", name, [*key_names(), *TABLES]) from None
    else:
        parts[called.label] = called
    return "\n\n".join([*(_key(table, key) for table, key in found), *map(_part, parts.values())])


def key_names() -> list[str]:
    """Return the names of all keys."""
    return list(dict.fromkeys(key.name for table in TABLES.values() for key in table.keys))


def help_for(table: Table, key: Key) -> str:
    """Return what one key of a mapping means, and what can stand in it."""
    return "\n\n".join([_key(table, key), *map(_part, _below(key))])


def _below(key: Key) -> list[Table]:
    return [key.kind.table] if isinstance(key.kind, One | Many) else []


def _key(table: Table, key: Key) -> str:
    line = line_of(key, table)
    told = {"part of": table.label, "holds": line.holds, "default": line.default, "example": line.example}
    rows = [f"    {name:8} {text}" for name, text in (told | {"note": line.notes}).items() if text]
    return "\n".join([f"{line.key}: {line.means}", *rows])


def _is_called(key: Key, name: str) -> bool:
    return name.casefold() in (key.name.casefold(), snake_case(key.name))


def _part(table: Table) -> str:
    return "\n".join([f"Keys of {table.label}:", *_rows([line_of(key, table) for key in table.keys])])


def _rows(lines: list[KeyLine]) -> Iterator[str]:
    width = max(len(line.key) for line in lines)
    for line in lines:
        default = f" Default: {line.default}." if line.default else ""
        yield f"    {line.key:{width}}  {line.means} Holds {line.holds}.{default}"
