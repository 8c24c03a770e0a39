"""What a payload says, if each of its fields holds just what its class declares: the check of `shapes`, compiled.

Nearly all payloads do, so a class gets a function of its own that looks at each field once. It knows only plain types;
for all else, and to say what is wrong, there is `divebook.events.codec.looked_through`, which gives the same where both
answer (test_what_the_compiled_check_lets_pass_is_what_the_other_gives).
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, Union, get_args, get_origin

from divebook.events.catalog import Mutation, Payload, StateMutated
from divebook.events.shapes import WHOLE, declared
from divebook.events.upcast import FORM

Said: TypeAlias = Callable[[Any], dict[str, Any]]
"""Returns what a payload says, ready to be encoded."""

_CONDITIONS: Mapping[Any, str] = {
    str: "t is not str",
    bool: "t is not bool",
    int: "not (t is int and -WHOLE <= v < WHOLE)",
    float: "not (t is float and v - v == 0)",  # which infinities and NaN are not
    Mapping[str, Any]: "t is not dict",
    Sequence[Any]: "t is not list and t is not tuple",
}


def compiled(kind: type[Payload], otherwise: Said) -> Said:
    """Return a function for the payloads of a class, which asks `otherwise` of one that is not all plain, or wrong."""
    if kind is StateMutated:
        return _changes(otherwise)
    if kind.to_data is not Payload.to_data:
        return otherwise
    lines = [f"def plain(payload):\n data = { ({FORM: kind.form} if kind.form else {})!r}"]
    lines += [_looked_at(name, hint) for name, hint in declared(kind).items()]
    names: dict[str, Any] = {"WHOLE": WHOLE, "otherwise": otherwise}
    exec("\n".join([*lines, " return data"]), names)  # noqa: S102 - as dataclasses do, of our own classes
    plain: Said = names["plain"]
    return plain


def _looked_at(name: str, hint: Any) -> str:
    """Return the lines that take over one field, or give up."""
    read, taken = f" v = payload.{name}", f"data[{name!r}] = v"
    if hint is Any:
        return f"{read}\n if v is not None: {taken}"
    choices = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    unfit = " and ".join(f"({_CONDITIONS[choice]})" for choice in choices if choice in _CONDITIONS) or "True"
    if types.NoneType not in choices:
        return f"{read}\n t = type(v)\n if {unfit}: return otherwise(payload)\n {taken}"
    return f"{read}\n if v is not None:\n  t = type(v)\n  if {unfit}: return otherwise(payload)\n  {taken}"


def _changes(otherwise: Said) -> Said:
    """Return the function for changes of variables, which are of a class of their own."""

    def plain(payload: StateMutated) -> dict[str, Any]:
        mutations = payload.mutations
        if type(mutations) is not tuple:
            return otherwise(payload)
        data: list[dict[str, Any]] = []
        for mutation in mutations:
            if type(mutation) is not Mutation:
                return otherwise(payload)
            data.append(mutation.to_data())
        return {"mutations": data}

    return plain
