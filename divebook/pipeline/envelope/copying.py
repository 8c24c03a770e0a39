"""Deep copies that say where they fail."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from datetime import date, time, timedelta, tzinfo
from decimal import Decimal
from typing import Any

from divebook.errors import UncopyableValueError
from divebook.events.values import MAX_DEPTH

_IMMUTABLE = (str, int, float, complex, bool, bytes, type(None), Decimal, date, time, timedelta, tzinfo)


def deep_copy(value: Any, path: str, depth: int = 0) -> Any:
    """Return an independent copy.

    Parameters
    ----------
    value
        Anything; plain data is the rule.
    path
        Name of the value, for the error.
    depth
        How deep it is nested already.

    Raises
    ------
    UncopyableValueError
        With the path to the part that cannot be copied, or is nested deeper than 200 levels.
    """
    return _copied(value, path, depth)


def copied_map(value: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return an independent copy of a mapping, as a dict."""
    return {key: _copied(item, f"{path}.{key}", 1) for key, item in value.items()}


def copied_maps(values: Sequence[Mapping[str, Any] | None], path: str) -> list[dict[str, Any] | None]:
    """Return independent copies of a list's mappings; None stays None."""
    return [None if item is None else copied_map(item, f"{path}[{index}]") for index, item in enumerate(values)]


def _copied(value: Any, path: str, depth: int) -> Any:
    kind = type(value)
    if isinstance(value, _IMMUTABLE):
        return value
    if depth >= MAX_DEPTH:
        raise UncopyableValueError(path, f"nested deeper than {MAX_DEPTH} levels, perhaps a part of itself")
    if kind is dict:
        return {key: _copied(item, f"{path}.{key}", depth + 1) for key, item in value.items()}
    if kind in (list, tuple, set, frozenset):
        return kind(_copied(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value))
    try:
        return copy.deepcopy(value)
    except UncopyableValueError:
        raise
    except Exception as error:
        raise UncopyableValueError(path, f"{kind.__qualname__} objects refuse it ({error})") from error
