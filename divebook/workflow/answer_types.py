"""The types of answers that agents give: the classes they are made of are allowed in logs, and found there by name."""

from __future__ import annotations

import collections.abc
import importlib
import inspect
import json
import sys
import typing
from collections.abc import Callable, Mapping
from types import SimpleNamespace, UnionType
from typing import Any

from divebook.errors import DefinitionError, NotFoundError, Problem, SetupError
from divebook.events.classes import allow, allowed_classes, kind_of, name_of
from divebook.events.codec import json_form
from divebook.workflow.json_schemas import check_defined_schema, complaint
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


# Types of the inputs of workflow functions: what their annotations accept, and JSON schemas of them.
#
# An annotation such as ``datetime.date`` or ``list[Item]`` is read by pydantic, which is imported when the first value
# of such a type is converted or described.


_FIELD = "value"
_FAULTS = 3
"""Faults of one value that an error lists."""


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of a function; one that names what is not defined yet stays a string."""
    bare = inspect.unwrap(function)
    hints = {}
    for name, annotation in getattr(bare, "__annotations__", {}).items():
        hints[name] = resolve(annotation, bare)
    return hints


def resolve(annotation: Any, function: Any) -> Any:
    """Return an annotation with its strings evaluated where the function was defined; itself if a name is missing."""
    code = getattr(function, "__code__", None)
    cells = getattr(function, "__closure__", None) or ()
    near = {}
    for name, cell in zip(getattr(code, "co_freevars", ()), cells, strict=False):
        try:
            near[name] = cell.cell_contents
        except ValueError:  # not bound yet
            continue
    holder = SimpleNamespace(__annotations__={_FIELD: annotation})
    try:
        hints = typing.get_type_hints(holder, getattr(function, "__globals__", {}), near, include_extras=True)
    except (NameError, AttributeError, TypeError, SyntaxError):
        return annotation
    return type(None) if annotation is None else hints[_FIELD]


NO_FORM: Any = object()
"""Stands for a value that has no form in JSON."""


class ParameterType:
    """The annotated type of an input: converts values to it, and describes it as a JSON schema.

    Parameters
    ----------
    annotation
        The type as it is written in the function.
    function
        The function, which resolves names that were not defined when it was.
    """

    __slots__ = ("_annotation", "_function", "_model")

    def __init__(self, annotation: Any, function: Callable[..., Any]) -> None:
        self._annotation, self._function = annotation, inspect.unwrap(function)
        self._model: Any = None

    @property
    def name(self) -> str:
        """The type as it is written."""
        return self._annotation if isinstance(self._annotation, str) else inspect.formatannotation(self._annotation)

    def convert(self, value: Any, *, is_text: bool = False) -> Any:
        """Return a value as one of this type.

        Parameters
        ----------
        is_text
            The value is a string from a command line: where it does not fit as it is, it is read as JSON.

        Raises
        ------
        ValueError
            It cannot be one; the message says which part, and why.
        """
        model = self._read()
        if model is None:
            return value
        from pydantic import ValidationError

        try:
            return getattr(model.model_validate({_FIELD: value}), _FIELD)
        except ValidationError as error:
            as_data = _from_json(value) if is_text else value
            if as_data is not value:
                return self.convert(as_data)
            raise ValueError(_faults(error)) from None

    def json_form(self, value: Any) -> Any:
        """Return a value of this type in the form that its JSON schema describes; `NO_FORM` where it has none."""
        model = self._read()
        if model is None:
            return json_form(value)
        try:
            made = model.model_construct(**{_FIELD: value}).model_dump(mode="json", warnings="error")[_FIELD]
            json.dumps(made, allow_nan=False)
        # What pydantic and the classes of a person raise for a value that is not of the type, or has no form in JSON.
        except (TypeError, ValueError, AttributeError, UnicodeError):
            return NO_FORM
        return made

    def takes(self, form: Any) -> bool:
        """Return whether a value in its JSON form fits the type and its JSON schema."""
        if form is NO_FORM:
            return False
        try:
            self.convert(form)
        except ValueError:
            return False
        return complaint(self.schema(), form) is None

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of values of this type; ``{}`` where there is none, with definitions in ``$defs``."""
        model = self._read()
        if model is None:
            return {}
        from pydantic.errors import PydanticInvalidForJsonSchema

        try:
            whole = model.model_json_schema()
        except PydanticInvalidForJsonSchema:
            return {}
        schema: dict[str, Any] = whole["properties"][_FIELD]
        if schema.get("title") == _FIELD.title():
            del schema["title"]
        return {**schema, **({"$defs": whole["$defs"]} if "$defs" in whole else {})}

    def _read(self) -> Any:
        """Return the model with one field of this type; None where pydantic does not know the type."""
        if self._model is None:
            self._model = _model_of(resolve(self._annotation, self._function)) or False
        return self._model or None


def _model_of(annotation: Any) -> Any:
    # One field in a model: the configuration of a model also covers dataclasses and TypedDicts in it, so that a
    # misspelled key is refused; a TypeAdapter takes no configuration for these.
    from pydantic import ConfigDict, create_model
    from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation, PydanticUserError

    config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")
    try:
        field = (_with_portable_dicts(annotation, {}), ...)
        model: Any = create_model("Input", __config__=config, **{_FIELD: field})  # type: ignore[call-overload]
        model.model_rebuild(raise_errors=True)
    except (PydanticSchemaGenerationError, PydanticUndefinedAnnotation, PydanticUserError, TypeError):
        return None
    return model


def _with_portable_dicts(annotation: Any, dicts: dict[Any, Any]) -> Any:
    """Return an annotation with each TypedDict of `typing` as one of `typing_extensions`.

    Before Python 3.12 pydantic takes only those: a class of `typing` does not say which base declared a key optional.
    """
    if sys.version_info >= (3, 12):
        return annotation
    if typing.is_typeddict(annotation) and type(annotation).__module__ == "typing":
        return _portable_dict(annotation, dicts)
    parts = typing.get_args(annotation)
    origin = typing.get_origin(annotation)
    if not parts or origin in (typing.Literal, collections.abc.Callable):
        return annotation
    if origin is typing.Annotated:
        return typing.Annotated[(_with_portable_dicts(parts[0], dicts), *parts[1:])]
    changed = tuple(_with_portable_dicts(part, dicts) for part in parts)
    if changed == parts:
        return annotation
    # An `X | Y` of classes dicts at run time is a Union, whichever way it was written.
    return typing.Union[changed] if origin in (typing.Union, UnionType) else origin[changed]  # noqa: UP007


def _portable_dict(declared: Any, dicts: dict[Any, Any]) -> Any:
    # A dependency of pydantic, and none of ours: it is imported where pydantic asks for its classes only.
    typing_extensions = importlib.import_module("typing_extensions")
    if declared not in dicts:
        dicts[declared] = dict  # one that contains itself is checked one level deep
        hints = typing.get_type_hints(declared)
        fields = {name: _with_portable_dicts(hint, dicts) for name, hint in hints.items()}
        required = {
            name: field if name in declared.__required_keys__ else typing_extensions.NotRequired[field]
            for name, field in fields.items()
        }
        make: Any = typing_extensions.TypedDict
        dicts[declared] = make(declared.__name__, required)
    return dicts[declared]


def _from_json(text: Any) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _faults(error: Any) -> str:
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    shown = []
    for fault in faults[:_FAULTS]:
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in fault["loc"][1:])
        shown.append(f"{place.lstrip('.')}: {fault['msg']}" if place else fault["msg"])
    more = f"; and {len(faults) - _FAULTS} more" if len(faults) > _FAULTS else ""
    return "; ".join(shown) + more


def _rename_definitions(schema: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Return a schema with a prefix before the names of what it defines."""
    text = json.dumps({**schema, "$defs": {f"{prefix}{key}": part for key, part in schema["$defs"].items()}})
    renamed: dict[str, Any] = json.loads(text.replace('"#/$defs/', f'"#/$defs/{prefix}'))
    return renamed


def combine(schemas: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the schema of an object with these properties; what they define is defined once, at its top."""
    definitions: dict[str, Any] = {}
    properties = {}
    for name, schema in schemas.items():
        own = dict(schema)
        if any(definitions.get(key, part) != part for key, part in own.get("$defs", {}).items()):
            own = _rename_definitions(own, f"{name}.")  # two classes of one name
        definitions |= own.pop("$defs", {})
        properties[name] = own
    return {"type": "object", "properties": properties, **({"$defs": definitions} if definitions else {})}
