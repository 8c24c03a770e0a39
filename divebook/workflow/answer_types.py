"""The types of answers that agents give: the classes they are made of are allowed in logs, and found there by name."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import Any

from divebook.errors import DefinitionError, NotFoundError, Problem, SetupError
from divebook.events.classes import allow, allowed_classes, kind_of, name_of
from divebook.workflow.json_schemas import check_defined_schema
from divebook.workflow.stored_form import json_value


def allow_answers(declared: Any) -> None:
    """Allow instances of the classes that answers of a type are made of: who declares the type wants them kept.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from divebook.events.classes import allowed_classes
    >>> @dataclass
    ... class Bird:
    ...     name: str
    >>> allow_answers(list[Bird])
    >>> Bird in allowed_classes()
    True
    """
    _allow(declared, set())


def _allow(declared: Any, seen: set[int]) -> None:
    if declared is None or isinstance(declared, str | Mapping) or id(declared) in seen:
        return
    seen.add(id(declared))
    inner = list(declared) if isinstance(declared, list | tuple) else list(typing.get_args(declared))
    if isinstance(declared, type) and not typing.get_args(declared) and kind_of(declared) is not None:
        allow(declared)
        inner = _fields_of(declared)
    elif hasattr(declared, "output"):  # one of pydantic-ai's markers: ToolOutput(Bird)
        inner = [declared.output]
    for part in inner:
        _allow(part, seen)


def _fields_of(cls: Any) -> list[Any]:
    if kind_of(cls) == "model":
        return [field.annotation for field in cls.__pydantic_fields__.values()]
    try:
        return list(typing.get_type_hints(cls).values())
    except (NameError, TypeError):  # a name that is defined later; storing an instance says what is not allowed
        return []


def named_answer(declared: Any) -> Any:
    """Return a type of answers as a definition says it: the name of a class, which is allowed, or a JSON schema.

    Examples
    --------
    >>> named_answer(list[int])
    {'items': {'type': 'integer'}, 'type': 'array'}
    """
    if declared is None or isinstance(declared, str | Mapping):
        return declared
    if isinstance(declared, type) and not typing.get_args(declared) and kind_of(declared) is not None:
        allow_answers(declared)
        return name_of(declared)
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUserError

    try:
        return TypeAdapter(declared).json_schema()
    except PydanticUserError as error:
        raise SetupError(
            f"an answer cannot be of the type {declared!r} ({error.message.partition(chr(10))[0]}): write a class, a "
            "TypedDict, or a JSON schema"
        ) from error


def declared_answer(declared: Any) -> Any:
    """Return what a definition says under `Output`, once it is sure that it may mean something.

    Raises
    ------
    DefinitionError
        It is neither a JSON schema nor a name.
    """
    if isinstance(declared, Mapping):
        check_defined_schema(declared, "Output")
        return json_value(declared, "output")
    if declared is None or (isinstance(declared, str) and declared):
        return declared
    message = f"Output must be a JSON schema or the name of an allowed class, not {declared!r}"
    raise DefinitionError([Problem(message, key="Output", hint="write Output: {type: object, properties: ...}")])


def answer_type(declared: Any) -> Any:
    """Return what `Output` in a definition means: a JSON schema as it is, a name the class that has been allowed.

    Raises
    ------
    NotFoundError
        No class of that name was given to `divebook.allow` in this process.
    """
    if not isinstance(declared, str):
        return declared
    known = {name: cls for cls in allowed_classes() for name in (cls.__name__, name_of(cls))}
    if declared not in known:
        raise NotFoundError("class for Output (give it to divebook.allow)", declared, sorted(known))
    return known[declared]
