"""Lists of records as tables: values of the same few fields, an item a row, as agents may give them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from divebook.events.readable import readable
from divebook.events.recorded import Recorded
from divebook.text.cuts import one_line

MOST_COLUMNS, MOST_ROWS, WIDTH = 8, 50, 40


def records_of(value: Any) -> list[Mapping[str, Any]] | None:
    """Return the items of a list as mappings of a few fields; None where it is no list of records.

    >>> records_of([{"bird": "owl"}, {"bird": "wren"}])
    [{'bird': 'owl'}, {'bird': 'wren'}]
    """
    if not isinstance(value, list | tuple) or not value:
        return None
    items = [item.plain() if isinstance(item, Recorded) else item for item in value]
    found = [item for item in items if isinstance(item, Mapping) and item]
    few = len({name for item in found for name in item}) <= MOST_COLUMNS
    return found if few and len(found) == len(items) else None


def as_table(records: Sequence[Mapping[str, Any]], total: int | None = None) -> str:
    """Return records as lines of aligned columns, with what is left out said in the last one.

    `total` says how many there are in all, where `records` are only the first of them.

    >>> print(as_table([{"bird": "owl", "seen": 2}, {"bird": "wren"}]))
    bird  seen
    owl   2
    wren
    """
    shown = records[:MOST_ROWS]
    names = list(dict.fromkeys(name for record in shown for name in record))
    rows = [[one_line(readable(record[name]), WIDTH) if name in record else "" for name in names] for record in shown]
    table = [[one_line(str(name), WIDTH) for name in names], *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(names))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    left = (len(records) if total is None else total) - MOST_ROWS
    return "\n".join([*lines, f"... {left:,} more"] if left > 0 else lines)
