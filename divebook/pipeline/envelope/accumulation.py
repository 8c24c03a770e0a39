"""How a new value joins one that is there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from divebook.errors import EnvelopeError, did_you_mean
from divebook.questions.kinds import Word


class MergeStrategy(Word):
    """Ways to join two values."""

    REPLACE = "replace"
    APPEND = "append"
    MERGE_DICT = "merge_dict"


def merge_state(existing: Any, value: Any, strategy: str) -> Any:
    """Return what becomes of `existing` when `value` arrives; neither is changed.

    Parameters
    ----------
    existing
        None if there is nothing yet.
    value
        What arrives.
    strategy
        ``replace`` takes the new value; ``append`` makes or extends a list; ``merge_dict`` joins two mappings on their
        first level, the new one winning, and replaces anything else.

    Raises
    ------
    EnvelopeError
        No such strategy.
    """
    if strategy == MergeStrategy.REPLACE:
        return value
    if strategy == MergeStrategy.APPEND:
        if isinstance(existing, list):
            return [*existing, value]
        return [value] if existing is None else [existing, value]
    if strategy == MergeStrategy.MERGE_DICT:
        both = isinstance(existing, Mapping) and isinstance(value, Mapping)
        return {**existing, **value} if both else value
    hint = did_you_mean(str(strategy), map(str, MergeStrategy)) or f"there are {', '.join(MergeStrategy)}"
    raise EnvelopeError(f"merge strategy {strategy!r} does not exist; {hint}")
