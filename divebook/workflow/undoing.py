"""Functions given to ``@step(rollback=...)``: known by the place of their `def`, and found again by it.

A log names what is to undo a call, and whichever process undoes it looks that up: by module and qualified name, since
two modules may each have a `cancel`. Where a function's file is loaded under another name, or the log is older and has
the plain name, the one function that this can mean is taken, and no other
(`tests/execution/test_rollback_functions.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from divebook.errors import DefinitionError, NotFoundError, Problem, StepError
from divebook.workflow.user_functions import UserFunction

ROLLBACK_FUNCTIONS: dict[str, UserFunction] = {}
"""Functions of this process that undo what others have done, by their place; a later one replaces an earlier."""
_LAMBDA = "<lambda>"


def place_of(made: UserFunction) -> str:
    """Return module and qualified name of a function, the same in every process that has it from there."""
    return f"{_module(made)}:{made.function.__qualname__}"


def _module(made: UserFunction) -> str:
    return getattr(made.function, "__module__", None) or ""


def require_nameable(function: Any) -> None:
    """Raise `DefinitionError` unless a log can name a function so that it is found again."""
    if not callable(function):
        told, hint = f"rollback is a function, not {function!r}", "write @step(rollback=cancel_room), without quotes"
    elif getattr(function, "__name__", _LAMBDA) == _LAMBDA or not hasattr(function, "__qualname__"):
        told = f"{function!r} cannot undo calls: it has no name by which a later process would find it"
        hint = "write def cancel_room(result): ..., and give that to @step(rollback=cancel_room)"
    else:
        return
    raise DefinitionError([Problem(told, key="rollback", hint=hint)])


def require_itself(made: UserFunction) -> None:
    """Raise unless a function would be found again, and no other one that the same `def` has made since.

    One that was defined anew, as by a cell that is run again, takes the place of the earlier one.

    Raises
    ------
    StepError
        It would be another one, which undoes other things.
    """
    known = ROLLBACK_FUNCTIONS.get(place_of(made))
    if known is None or not _are_variants(known.function, made.function):
        return
    raise StepError(
        f"two functions are {place_of(made)}, made by one def with other values around it, and what undoes this call "
        "could be either; define it outside the function that makes it, and let it take what differs as an argument"
    )


def _are_variants(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Return whether two functions are of one `def`, and may do different things."""
    codes = getattr(one, "__code__", None), getattr(other, "__code__", None)
    return codes[0] is not None and codes[0] is codes[1] and _around(one) != _around(other)


def _around(function: Callable[..., Any]) -> list[object]:
    cells = getattr(function, "__closure__", None) or ()
    inside = [id(cell.cell_contents) for cell in cells if _is_filled(cell)]
    return [*inside, id(getattr(function, "__self__", None))]


def _is_filled(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def find_rollback(place: str) -> UserFunction:
    """Return the function of this process that was given to ``@step(rollback=...)`` last at a place.

    Parameters
    ----------
    place
        As `place_of` has it; the plain name in older logs.

    Raises
    ------
    NotFoundError
        There is none, or several could be meant.
    """
    found = ROLLBACK_FUNCTIONS.get(place)
    if found is not None:
        return found
    _, _, name = place.rpartition(":")
    is_placed = ":" in place
    alike = [made for made in ROLLBACK_FUNCTIONS.values() if name == (_qualified(made) if is_placed else made.name)]
    if len(alike) == 1:
        return alike[0]
    shown = name.rpartition(".")[2]
    told = f"function {shown} is not defined here; run the cell that gives it to @step(rollback={shown})"
    if alike:
        told = f"{place} may be {' or '.join(sorted(map(place_of, alike)))}; give them names of their own"
    raise NotFoundError("function", shown, [made.name for made in ROLLBACK_FUNCTIONS.values()], told)


def _qualified(made: UserFunction) -> str:
    return made.function.__qualname__
