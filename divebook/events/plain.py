"""What a payload says, if each of its fields holds just what its class declares: the check of `shapes`, compiled.

Nearly all payloads do, so a class gets a function of its own that looks at each field once. It knows only plain types;
for all else, and to say what is wrong, there is `divebook.events.codec.sound_data`, which gives the same where both
answer (test_what_the_compiled_check_lets_pass_is_what_the_other_gives).
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, Union, get_args, get_origin

from divebook.events.catalog import Payload
from divebook.events.shapes import WHOLE, declared
from divebook.events.upcast import FORM

Compiled: TypeAlias = Callable[[Payload], dict[str, Any] | None]

_COMPILED: dict[type, Compiled] = {}
_CONDITIONS: Mapping[Any, str] = {
    str: "t is str",
    bool: "t is bool",
    int: "t is int and -WHOLE <= v < WHOLE",
    float: "t is float and v - v == 0",  # which infinities and NaN are not
    Mapping[str, Any]: "t is dict",
    Sequence[Any]: "t is list or t is tuple",
}


def plain_data(payload: Payload) -> dict[str, Any] | None:
    """Return what a payload says, ready to be encoded; None if it is not all plain, or wrong."""
    kind = type(payload)
    return (_COMPILED.get(kind) or _compile(kind))(payload)


def _compile(kind: type[Payload]) -> Compiled:
    if kind.to_data is not Payload.to_data:
        _COMPILED[kind] = lambda _: None
        return _COMPILED[kind]
    lines = [f"def plain(payload):\n data = { ({FORM: kind.form} if kind.form else {})!r}"]
    lines += [_looked_at(name, hint) for name, hint in declared(kind).items()]
    names: dict[str, Any] = {"WHOLE": WHOLE}
    exec("\n".join([*lines, " return data"]), names)  # noqa: S102 - as dataclasses do, of our own classes
    _COMPILED[kind] = names["plain"]
    return _COMPILED[kind]


def _looked_at(name: str, hint: Any) -> str:
    """Return the lines that take over one field, or give up."""
    choices = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    fits = " or ".join(_CONDITIONS[choice] for choice in choices if choice in _CONDITIONS) or "False"
    if hint is Any:
        return f" v = payload.{name}\n if v is not None: data[{name!r}] = v"
    given_up = "elif v is not None" if types.NoneType in choices else "else"
    return f" v = payload.{name}\n t = type(v)\n if {fits}: data[{name!r}] = v\n {given_up}: return None"
