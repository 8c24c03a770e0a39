"""Python types in definitions: output types of agents, and types of the inputs of workflow functions.

A definition stores the output type of an agent as a JSON schema or as the name of a class. A named class must be
allowed in logs (`divebook.allow`). Declaring a type as an output type allows its classes (`allow_answers`).
"""

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

from divebook.definitions.json_schemas import check_defined_schema, complaint
from divebook.definitions.stored_form import json_value
from divebook.errors import DefinitionError, NotFoundError, Problem, SetupError
from divebook.events.classes import allow, allowed_classes, kind_of, name_of
from divebook.events.codec import json_form


def allow_answers(declared: Any) -> None:
    """Allow the classes in the output type of an agent, as `divebook.allow` does, so that a log can record their
    instances.

    A person who declares the type wants its values to be recorded.

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


def _allow(declared: Any, visited: set[int]) -> None:
    """Allow all classes in an output type, including those of its fields, as `divebook.allow` does. `visited` has the
    ids of types that were processed already.
    """
    # Classes may refer to each other in a cycle. A string or a schema contains no class.
    if declared is None or isinstance(declared, str | Mapping) or id(declared) in visited:
        return
    visited.add(id(declared))
    # A list of types means alternatives: ``[Bird, Fish]``. A generic such as ``list[Bird]`` has its types as arguments.
    inner = list(declared) if isinstance(declared, list | tuple) else list(typing.get_args(declared))
    if isinstance(declared, type) and not typing.get_args(declared) and kind_of(declared) is not None:
        allow(declared)
        inner = _fields_of(declared)
    elif hasattr(declared, "output"):  # a marker of pydantic-ai: ToolOutput(Bird)
        inner = [declared.output]
    for part in inner:
        _allow(part, visited)


def _fields_of(cls: Any) -> list[Any]:
    if kind_of(cls) == "model":
        return [field.annotation for field in cls.__pydantic_fields__.values()]
    try:
        return list(typing.get_type_hints(cls).values())
    except (NameError, TypeError):  # a name that is defined later; storing an instance then reports the missing class
        return []


def named_answer(declared: Any) -> Any:
    """Convert the output type of an agent to the form in which its definition stores the type: a class becomes its
    name, any other type a JSON schema. The classes in the type are allowed, as by `divebook.allow`.

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
    """Check the value of the key `Output` in an agent's definition: the name of a class, or a JSON schema. Return the
    value as plain JSON, in which form the definition stores it.

    Raises
    ------
    DefinitionError
        The value is neither a JSON schema nor a name.
    """
    if isinstance(declared, Mapping):
        check_defined_schema(declared, "Output")
        return json_value(declared, "output")
    if isinstance(declared, str) and declared:
        return declared
    message = f"Output must be a JSON schema or the name of an allowed class, not {declared!r}"
    raise DefinitionError([Problem(message, key="Output", hint="write Output: {type: object, properties: ...}")])


def answer_type(declared: Any) -> Any:
    """Return the output type that an agent's definition states under the key `Output`. For the name of a class this is
    the class. A JSON schema and None are returned unchanged.

    Raises
    ------
    NotFoundError
        No class of that name was given to `divebook.allow` in this process.
    """
    if not isinstance(declared, str):
        return declared
    # Two allowed classes may have the same short name. The full name then identifies one.
    classes = {name: cls for cls in allowed_classes() for name in (cls.__name__, name_of(cls))}
    if declared not in classes:
        raise NotFoundError("class for Output (give it to divebook.allow)", declared, sorted(classes))
    return classes[declared]


# --- types of the inputs of workflow functions ------------------------------------------------------------------------
#
# Pydantic converts values to annotations such as ``datetime.date`` or ``list[Item]``, and describes them as JSON
# schemas. It is imported when this is first needed.


_FIELD = "value"
_FAULTS = 3
"""Largest number of faults that an error about one value lists."""


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the type annotations of a function by parameter name. Annotations that are strings are evaluated.

    An annotation with an undefined name stays a string.
    """
    # The annotations belong to the function inside the decorators.
    bare = inspect.unwrap(function)
    hints = {}
    for name, annotation in getattr(bare, "__annotations__", {}).items():
        hints[name] = resolve(annotation, bare)
    return hints


def resolve(annotation: Any, function: Any) -> Any:
    """Evaluate the strings in a type annotation with the names that are visible in a function. Return the annotation
    unchanged if one of its names is undefined.
    """
    code = getattr(function, "__code__", None)
    cells = getattr(function, "__closure__", None) or ()
    # Classes that are defined inside a function are visible in its closure only.
    near = {}
    for name, cell in zip(getattr(code, "co_freevars", ()), cells, strict=False):
        try:
            near[name] = cell.cell_contents
        except ValueError:  # not bound yet
            continue
    # `get_type_hints` evaluates strings of an object with annotations. A namespace with one annotation is such an
    # object.
    holder = SimpleNamespace(__annotations__={_FIELD: annotation})
    try:
        hints = typing.get_type_hints(holder, getattr(function, "__globals__", {}), near, include_extras=True)
    except (NameError, AttributeError, TypeError, SyntaxError):
        return annotation
    return type(None) if annotation is None else hints[_FIELD]


NO_FORM: Any = object()
"""Marker for a value that cannot be represented in JSON."""


class ParameterType:
    """Type of an input of a workflow function, from its annotation. It converts and validates values, and generates a
    JSON schema.

    Parameters
    ----------
    annotation
        Annotation of the parameter.
    function
        The function. Names in the annotation may be defined after it, and are resolved in its scope when needed.
    """

    __slots__ = ("_annotation", "_function", "_model")

    def __init__(self, annotation: Any, function: Callable[..., Any]) -> None:
        self._annotation = annotation
        self._function = inspect.unwrap(function)
        self._model: Any = None

    @property
    def name(self) -> str:
        """Source text of the type annotation, for people."""
        return self._annotation if isinstance(self._annotation, str) else inspect.formatannotation(self._annotation)

    def convert(self, value: Any, *, is_text: bool = False) -> Any:
        """Convert a value to the annotated type with pydantic, for example a string to a date.

        Parameters
        ----------
        is_text
            True for a string from a command line. If it does not fit, it is parsed as JSON.

        Raises
        ------
        ValueError
            The value does not fit. The message states the faulty parts and the reasons.
        """
        model = self._read()
        if model is None:
            return value
        from pydantic import ValidationError

        try:
            return getattr(model.model_validate({_FIELD: value}), _FIELD)
        except ValidationError as error:
            # A string that fits as it is stays a string: "1" for an annotation ``str``. Otherwise it is data, such as
            # "[1, 2]".
            as_data = _from_json(value) if is_text else value
            if as_data is not value:
                return self.convert(as_data)
            raise ValueError(_faults(error)) from None

    def json_form(self, value: Any) -> Any:
        """Return the JSON form of a value of this type, which fits the JSON schema of the type. Return `NO_FORM` if the
        value has no JSON form.
        """
        model = self._read()
        if model is None:
            return json_form(value)
        try:
            # The value is not validated again, which could change it. The serializer reports values of other types as
            # errors.
            instance = model.model_construct(**{_FIELD: value})
            form = instance.model_dump(mode="json", warnings="error")[_FIELD]
            # A NaN has no form in JSON.
            json.dumps(form, allow_nan=False)
        # Pydantic and classes of users raise these for a value that is not of the type or has no form in JSON.
        except (TypeError, ValueError, AttributeError, UnicodeError):
            return NO_FORM
        return form

    def takes(self, form: Any) -> bool:
        """Return True if `form`, the JSON form of a value, fits both the annotated type and its JSON schema."""
        if form is NO_FORM:
            return False
        try:
            self.convert(form)
        except ValueError:
            return False
        return complaint(self.schema(), form) is None

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of this type, with definitions in ``$defs``; ``{}`` if no schema can be generated."""
        model = self._read()
        if model is None:
            return {}
        from pydantic.errors import PydanticInvalidForJsonSchema

        try:
            whole = model.model_json_schema()
        except PydanticInvalidForJsonSchema:
            return {}
        schema: dict[str, Any] = whole["properties"][_FIELD]
        # Pydantic derives the title of the schema from the name of the field, which means nothing to a person.
        if schema.get("title") == _FIELD.title():
            del schema["title"]
        return {**schema, **({"$defs": whole["$defs"]} if "$defs" in whole else {})}

    def _read(self) -> Any:
        """Return a pydantic model with one field of the annotated type; None if pydantic does not support the type. The
        model is cached.
        """
        if self._model is None:
            self._model = _model_of(resolve(self._annotation, self._function)) or False
        # None: not created yet. False: the type has no model.
        return self._model or None


def _model_of(annotation: Any) -> Any:
    # The type becomes a field of a model, because the configuration of a model also applies to dataclasses and
    # TypedDicts in it, so that a misspelled key is refused. A TypeAdapter has no configuration for them.
    from pydantic import ConfigDict, create_model
    from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation, PydanticUserError

    config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")
    try:
        field = (_with_portable_dicts(annotation, {}), ...)
        model: Any = create_model("Input", __config__=config, **{_FIELD: field})  # type: ignore[call-overload]
        # Names that are still undefined raise an error here, and not at the first value.
        model.model_rebuild(raise_errors=True)
    except (PydanticSchemaGenerationError, PydanticUndefinedAnnotation, PydanticUserError, TypeError):
        return None
    return model


def _with_portable_dicts(annotation: Any, dicts: dict[Any, Any]) -> Any:
    """Return an annotation in which each TypedDict of `typing` is replaced by an equal one of `typing_extensions`,
    because pydantic requires this in older versions of Python.

    Before Python 3.12 pydantic accepts only TypedDicts of `typing_extensions`, because a class of `typing` does not
    record which of its bases declared a key optional.
    """
    if sys.version_info >= (3, 12):
        return annotation
    if typing.is_typeddict(annotation) and type(annotation).__module__ == "typing":
        return _portable_dict(annotation, dicts)
    parts = typing.get_args(annotation)
    origin = typing.get_origin(annotation)
    # Arguments of these are values or lists, not types.
    if not parts or origin in (typing.Literal, collections.abc.Callable):
        return annotation
    if origin is typing.Annotated:
        return typing.Annotated[(_with_portable_dicts(parts[0], dicts), *parts[1:])]
    changed = tuple(_with_portable_dicts(part, dicts) for part in parts)
    if changed == parts:
        return annotation
    # `X | Y` of classes is a Union at run time, however it was written.
    return typing.Union[changed] if origin in (typing.Union, UnionType) else origin[changed]  # noqa: UP007


def _portable_dict(declared: Any, dicts: dict[Any, Any]) -> Any:
    # A dependency of pydantic, not of divebook: it is imported only where pydantic requires its classes.
    typing_extensions = importlib.import_module("typing_extensions")
    if declared not in dicts:
        dicts[declared] = dict  # a TypedDict that contains itself is checked one level deep
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
        # The first part of the location is the field of the model.
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in fault["loc"][1:])
        shown.append(f"{place.lstrip('.')}: {fault['msg']}" if place else fault["msg"])
    more = f"; and {len(faults) - _FAULTS} more" if len(faults) > _FAULTS else ""
    return "; ".join(shown) + more


def _rename_definitions(schema: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Return a copy of a JSON schema in which the names of its definitions (``$defs``), and all references to them,
    begin with a prefix.
    """
    text = json.dumps({**schema, "$defs": {f"{prefix}{key}": part for key, part in schema["$defs"].items()}})
    # References are texts in the schema. JSON is the one form in which all of them can be replaced.
    renamed: dict[str, Any] = json.loads(text.replace('"#/$defs/', f'"#/$defs/{prefix}'))
    return renamed


def combine(schemas: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the JSON schema of an object whose properties have the given schemas. The ``$defs`` of the properties are
    moved to the top level of the result.
    """
    definitions: dict[str, Any] = {}
    properties = {}
    for name, schema in schemas.items():
        part_schema = dict(schema)
        if any(definitions.get(key, part) != part for key, part in part_schema.get("$defs", {}).items()):
            part_schema = _rename_definitions(part_schema, f"{name}.")  # two classes with the same name
        definitions |= part_schema.pop("$defs", {})
        properties[name] = part_schema
    return {"type": "object", "properties": properties, **({"$defs": definitions} if definitions else {})}
