"""Comparison of names: two spellings of one name, such as a letter with its accent in one code point or two, are equal.

Python compares identifiers in the normalization form NFKC. Names of definitions are stored in it, so that ``café`` in
an expression finds the variable ``café`` however either was typed.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection
from typing import Any, TypeVar

T = TypeVar("T")


def normal_name(name: T) -> T:
    r"""Return a name in the normalization form NFKC; values other than strings stay as they are.

    >>> len("cafe\N{COMBINING ACUTE ACCENT}"), len(normal_name("cafe\N{COMBINING ACUTE ACCENT}"))
    (5, 4)
    """
    if not isinstance(name, str) or name.isascii():
        return name
    return type(name)(unicodedata.normalize("NFKC", name))


def same_name(name: Any, names: Collection[object]) -> Any:
    """Return the one of `names` that is equal to a name: the same string, or else one with its normal form.

    None if there is none.
    """
    if name in names:
        return name
    if not isinstance(name, str) or name.isascii():
        return None
    normal = normal_name(name)
    return next((other for other in names if isinstance(other, str) and normal_name(other) == normal), None)
