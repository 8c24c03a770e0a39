"""Comparison of names in Unicode normalization form NFKC.

Two spellings of one name are equal, such as a letter with its accent in one code point or in two. Python compares
identifiers in NFKC. Names of definitions are stored in this form, so that ``café`` in an expression finds the variable
``café``, however either was typed.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection
from typing import Any, TypeVar

T = TypeVar("T")


def normal_name(name: T) -> T:
    r"""Return a name in the normalization form NFKC. Values other than strings are returned unchanged.

    >>> len("cafe\N{COMBINING ACUTE ACCENT}"), len(normal_name("cafe\N{COMBINING ACUTE ACCENT}"))
    (5, 4)
    """
    if not isinstance(name, str) or name.isascii():
        return name
    return type(name)(unicodedata.normalize("NFKC", name))


def same_name(name: Any, names: Collection[object]) -> Any:
    """Return the member of `names` that is equal to a name: the same string, or else one with the same normal form.

    Return None if there is none.
    """
    if name in names:
        return name
    if not isinstance(name, str) or name.isascii():
        return None
    normal = normal_name(name)
    return next((other for other in names if isinstance(other, str) and normal_name(other) == normal), None)
