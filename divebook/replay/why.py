"""``why``: asks an index of a log, which is made once and goes on with the log, where a value came from."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from divebook.errors import NotFoundError
from divebook.events import Event
from divebook.replay.cells import cell_of
from divebook.replay.origin import INPUT
from divebook.replay.origins import Origins
from divebook.replay.provenance import Provenance
from divebook.store.past import History

KEPT = 4
"""Logs of a store whose index is kept."""
_KNOWN: weakref.WeakKeyDictionary[Any, OrderedDict[str, Origins]] = weakref.WeakKeyDictionary()
STATE = "state"


def why(
    log: Sequence[Event], name: str, at: int | None = None, *, row: int | None = None, column: str | None = None
) -> Provenance:
    """Return where the value of a variable came from.

    Parameters
    ----------
    log
        The events, from the first on.
    name
        A variable (``x``, ``state.x``), an input (``inputs.x``), an output, or ``state`` for all variables.
    at
        The number of the event at which it is asked; by default the last.
    row, column
        Of a list or DataFrame that items of `Each` have made: which row, from 0, and which column of it.

    Raises
    ------
    NotFoundError
        It had no value then, and no choice is known that was the cause of that; or the log does not say which item made
        the row.
    """
    origins = _origins_of(log)
    position = origins.sequence if at is None else min(at, origins.sequence)
    key = name.removeprefix(f"{STATE}.")
    found = origins.of(key, position)
    if found is None and key == STATE:
        found = origins.whole(position)
    if found is None:
        raise _unknown(origins, key, position)
    whole = Provenance(found, origins.all, log, position)
    if row is None:
        return whole
    *added, root = cell_of(whole, origins.all, row, column)
    return Provenance(root, [*origins.all, *added], log, position)


def _origins_of(log: Sequence[Event]) -> Origins:
    """Return the index of a log: what was read of a store's log before is not read again."""
    if not isinstance(log, History):
        return Origins(log)
    known = _KNOWN.setdefault(log.store, OrderedDict())
    origins = known.setdefault(log.execution_id, Origins())
    known.move_to_end(log.execution_id)
    if len(known) > KEPT:
        known.popitem(last=False)
    if origins.sequence < len(log):
        origins.take(log[origins.sequence :] if origins.sequence else log)
    return origins


def _unknown(origins: Origins, name: str, at: int) -> NotFoundError:
    setters = origins.choices.setters(name)
    known = origins.names(at)
    if f"{INPUT}{name}" in known:
        told = f"{name} is an input and no variable: ask for {INPUT}{name}"
    elif setters:
        told = f"variable {name} was not set up to event {at:,}: step {' or '.join(setters)} sets it, and had not ended"
    else:
        told = f"no event up to {at:,} sets a variable {name}"
    return NotFoundError("variable", name, known, told)
