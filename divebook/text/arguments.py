"""Checks of arguments at the public API: an error says what was expected, what came, and what to write.

A wrong object is refused where it is passed. Further inside it would fail with an error about an attribute of the
library, or after a run has begun.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from divebook.errors import SetupError

_SHORT = (str, int, float, bool, bytes, type(None))


def describe(value: object) -> str:
    """Return a value in a few words, for an error: a short value as it is, of others the class.

    >>> describe(5), describe(int), describe([1])
    ('5', 'the class int', 'a list')
    """
    if isinstance(value, type):
        return f"the class {value.__qualname__}"
    if isinstance(value, _SHORT):
        text = repr(value)
        return text if len(text) <= 60 else f"{text[:57]}..."
    return f"a {type(value).__qualname__}"


def require(value: object, name: str, expected: str, *, fits: bool) -> None:
    """Raise `SetupError` unless an argument fits; None is an argument that was left out.

    Parameters
    ----------
    name
        The argument, as callers write it.
    expected
        A noun phrase with what fits, and how it is written.
    """
    if value is not None and not fits:
        raise SetupError(f"{name} must be {expected}, not {describe(value)}")


def has_methods(value: object, *names: str) -> bool:
    """Return whether an object, and not a class, has these methods: it is what a protocol asks for."""
    return not isinstance(value, type) and all(callable(getattr(value, name, None)) for name in names)


def is_list_of_strings(value: object) -> bool:
    """Return whether an argument is a list, or another sequence, of nothing but strings."""
    return isinstance(value, Sequence) and not isinstance(value, bytes) and all(isinstance(part, str) for part in value)


def list_of(value: Any, name: str, example: str) -> list[Any]:
    """Return the items of an argument that is a list; `SetupError` if it is something else."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise SetupError(f"{name} must be a list, not {describe(value)}; write {example}")
    return list(value)


def id_of(value: Any, name: str = "the execution") -> str:
    """Return the id of an execution, which is given as such, or as an object that has it as its ``id``.

    Raises
    ------
    SetupError
        It is something else.
    """
    found = value if isinstance(value, str | type) else getattr(value, "id", None)
    if not isinstance(found, str):
        raise SetupError(f"{name} must be an id, an Execution or a Run, not {describe(value)}")
    return found


# Comparison of names: two spellings of one name, such as a letter with its accent in one code point or two, are equal.
#
# Python compares identifiers in the normalization form NFKC. Names of definitions are stored in it, so that ``café`` in
# an expression finds the variable ``café`` however either was typed.


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
