"""Which item of `Each` made a row of a value, and a column of it.

A list that a step has made of its items has a row for each, in their order; an item that was skipped has none. Of what
another step has made of such a list, a DataFrame for instance, a log says no more than the values: where a column has,
row by row, what the items gave, the items made it. Where nothing has, the log cannot tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from divebook.errors import NotFoundError
from divebook.events.recorded import opened
from divebook.replay.origin import ValueOrigin
from divebook.replay.traced import Traced


def cell_of(whole: Traced, known: Sequence[ValueOrigin], row: int, column: str | None) -> list[ValueOrigin]:
    """Return where a row came from, last its own origin; before that those which are new with it.

    Raises
    ------
    NotFoundError
        There is no such row or column, or the log does not say which item made it.
    """
    found = whole.root
    if found.items:
        return [_of_item(whole, known, found, row, column)]
    values = opened(whole.value(found), lenient=True)
    names = _columns(values) if column is None else [column]
    for name in names:
        told = _told(values, name)
        for made in _made_of_items(whole, len(told)):
            for inner in (None, name):
                if told and told == _told(opened(whole.value(made), lenient=True), inner):
                    item = _of_item(whole, known, made, row, inner)
                    title = _title(found.name, row, name)
                    return [item, replace(found, number=len(known) + 1, name=title, reads=(item.number,), column=name)]
    raise NotFoundError(
        "row",
        str(row),
        (),
        f"the log does not say which item made row {row} of {found.name}: no step with items gave what stands in its "
        f"{'columns' if column is None else f'column {column}'}; ask for {found.name} as a whole",
    )


def _made_of_items(whole: Traced, length: int) -> Iterator[ValueOrigin]:
    return (origin for origin in whole.origins if len(origin.items) == length)


def _of_item(
    whole: Traced, known: Sequence[ValueOrigin], made: ValueOrigin, row: int, column: str | None
) -> ValueOrigin:
    """Return where a row of what items have made came from."""
    if not 0 <= row < len(made.items):
        raise NotFoundError("row", str(row), (), f"{made.name} has {len(made.items):,} rows, and no row {row}")
    index, sequence = made.items[row]
    value = whole.value(replace(made, sequence=sequence))
    if column is not None and not (isinstance(value, Mapping) and column in value):
        names = list(value) if isinstance(value, Mapping) else []
        raise NotFoundError("column", column, names, f"row {row} of {made.name} has no column {column}")
    return replace(
        made,
        number=len(known),
        name=_title(made.name, row, column),
        sequence=sequence,
        item=index,
        column=column,
        items=(),
        calls=tuple(call for call in made.calls if call.item == index),
        reads=tuple(cause for cause in made.reads if _is_read_by(known[cause], made, index)),
    )


def _is_read_by(cause: ValueOrigin, made: ValueOrigin, index: int) -> bool:
    """Whether an item may have read a value: not the name that another item had."""
    is_of_the_step = (cause.path, cause.step, cause.visit) == (made.path, made.step, made.visit)
    return not is_of_the_step or cause.item in (None, index)


def _title(name: str, row: int, column: str | None) -> str:
    return f"{name}[{row}]" if column is None else f"{name}[{row}][{column!r}]"


def _columns(values: Any) -> list[str]:
    """Return the names of the columns of a table, or of the first of a list of records."""
    names = getattr(values, "columns", None)
    if names is None and isinstance(values, list) and values and isinstance(values[0], Mapping):
        names = values[0]
    return [] if names is None else [str(name) for name in names]


def _told(values: Any, column: str | None) -> list[Any]:
    """Return the values of a column, or of a list as it is; none where it has no such column."""
    if isinstance(values, list):
        if column is None:
            return values
        return [row.get(column) for row in values] if all(isinstance(row, Mapping) for row in values) else []
    is_table = column is not None and column in _columns(values)
    return list(values[column].tolist()) if is_table else []
