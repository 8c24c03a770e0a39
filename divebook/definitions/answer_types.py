"""Python types in definitions: output types of agents, and types of the inputs of workflow functions.

A definition stores the output type of an agent as a JSON schema or as the name of a class. A named class must be
allowed in logs (`divebook.allow`). Declaring a type as an output type allows its classes (`allow_answers`).
"""

from __future__ import annotations

import collections.abc
import functools
import importlib
import inspect
import json
import math
import re
import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from enum import Enum, Flag
from functools import partial
from types import SimpleNamespace, UnionType
from typing import Any, NoReturn

from divebook.definitions.json_schemas import (
    check_defined_schema,
    complaint,
    faults_in_words,
    require_possible_schema,
)
from divebook.definitions.stored_form import json_value
from divebook.definitions.yaml_text import QUOTES, value_typed
from divebook.errors import DefinitionError, NotFoundError, Problem, SetupError, StepError, UnstorableValueError
from divebook.events.classes import allow, allowed_classes, kind_of, name_of
from divebook.events.codec import canonical_hash, json_form, storable
from divebook.events.recorded import opened
from divebook.questions.question import NARROWED, without_formats
from divebook.text.arguments import describe


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
    # ``Literal[Mode.FAST]`` has members as its arguments.
    if isinstance(declared, Enum):
        declared = type(declared)
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
            f"an answer cannot have the type {declared!r} ({error.message.partition(chr(10))[0]}); use a class, a "
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

    __slots__ = ("_annotation", "_function", "_model", "_validator")

    def __init__(self, annotation: Any, function: Callable[..., Any]) -> None:
        self._annotation = annotation
        self._function = inspect.unwrap(function)
        self._model: Any = None
        self._validator: Any = None

    @property
    def name(self) -> str:
        """Source text of the type annotation, for people."""
        if isinstance(self._annotation, str):
            return self._annotation
        module = getattr(self._function, "__module__", None)
        return inspect.formatannotation(_without_metadata(self._annotation), base_module=module)

    def convert(self, value: Any, *, is_text: bool = False) -> Any:
        """Convert a value to the annotated type, for example a string to a date. An instance of the type stays as it
        is. Numbers and booleans are not made from strings.

        Parameters
        ----------
        is_text
            True for a string from a command line. It is parsed as YAML. If the parsed value does not fit, the string
            itself counts.

        Raises
        ------
        ValueError
            The value does not fit. The message states the faulty parts and the reasons.
        """
        if not is_text:
            return self._validated(value)
        parsed = self._parsed(value)
        for candidate in (parsed, value, BOOLEAN_WORDS.get(value.strip().lower(), value)):
            with suppress(ValueError):
                return self._validated(candidate)
        # The error is about the form that the person has written: a list or mapping, or else a text.
        return self._validated(parsed if isinstance(parsed, list | dict) else value)

    def _parsed(self, text: str) -> Any:
        """Parse a string from a command line as YAML. A number for a `Decimal` keeps all of its digits."""
        parsed = parsed_word(text)
        if self._read() is None or not isinstance(parsed, int | float | list | dict):
            return parsed
        if isinstance(parsed, bool) or not self._validator.reads_decimals:
            return parsed
        with suppress(ValueError):
            # An integer has no minus zero.
            parse_int = int if self._validator.reads_integers else Decimal
            return json.loads(text, parse_float=Decimal, parse_int=parse_int)
        # `.5` is a number of YAML and not of JSON.
        return Decimal(text) if isinstance(parsed, float) and math.isfinite(parsed) else parsed

    def _validated(self, value: Any) -> Any:
        if self._read() is None:
            return value
        from pydantic import ValidationError

        try:
            return self._validator.validate(value)
        except ValidationError as error:
            raise ValueError(faults_in_words(error)) from None
        # A key or an item of a set that cannot be hashed, such as a signaling NaN.
        except TypeError as error:
            raise ValueError(str(error)) from None

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
            form = instance.model_dump(mode="json", warnings="error", by_alias=True)[_FIELD]
            # A NaN has no form in JSON.
            json.dumps(form, allow_nan=False)
        # Pydantic and classes of users raise these for a value that is not of the type or has no form in JSON.
        except (TypeError, ValueError, AttributeError, UnicodeError):
            return NO_FORM
        return form

    def takes(self, form: Any, value: Any = NO_FORM) -> bool:
        """Return True if `form`, the JSON form of a value, fits both the annotated type and its JSON schema, and is
        converted to `value` if that is passed.
        """
        if form is NO_FORM:
            return False
        try:
            converted = self.convert(form)
        except ValueError:
            return False
        # Other types may have the same JSON form, such as a date and a text.
        if value is not NO_FORM and _digest(converted) != _digest(value):
            return False
        # A datetime may have no offset, which the format of JSON schema demands.
        return complaint(without_formats(self.schema()), form) is None

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of this type, with definitions in ``$defs``; ``{}`` if no schema can be generated."""
        model = self._read()
        if model is None:
            return {}
        from pydantic.errors import PydanticInvalidForJsonSchema

        try:
            whole = model.model_json_schema(schema_generator=_schema_generator())
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
            resolved = resolve(self._annotation, self._function)
            if isinstance(resolved, str):
                return None  # a name in it is not defined yet
            # The classes of an annotation that names them before they are defined are known only now.
            if isinstance(self._annotation, str):
                allow_answers(resolved)
            self._model = _model_of(resolved) or False
            self._validator = Validator(self._model) if self._model else None
        # None: not created yet. False: the type has no model.
        return self._model or None


def schema_of(answer: Any) -> Mapping[str, Any]:
    """Return the JSON schema of the Python type `answer`, for example of a pydantic model. If `answer` is a JSON
    schema, check it and return it unchanged.
    """
    if isinstance(answer, Mapping):
        require_possible_schema(answer)
        return answer
    schema: Mapping[str, Any] = _type_adapter(answer).json_schema(schema_generator=_answer_schema_generator())
    return schema


def _type_adapter(answer: Any) -> Any:
    """Return pydantic's adapter of a type for answers. Raise `SetupError` for an object that is not such a type."""
    from pydantic import PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter

    try:
        return TypeAdapter(_with_portable_dicts(answer, {}))
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        example = 'Literal["yes", "no"] for a choice' if isinstance(answer, list | tuple | set | str) else "answer=int"
        expected = "the type of an answer must be convertible to JSON, or be a JSON schema"
        raise SetupError(f"{expected}, not {describe(answer)}; write {example}") from error


def instance_of(answer: Any, value: Any) -> Any:
    """Convert the answer to a question, which is plain JSON data that fits the JSON schema of the Python type `answer`,
    to an instance of this type. If `answer` is a JSON schema, return the data unchanged.

    The rules are those of pydantic, not the rules of inputs: ``date | str`` reads ``"2026-01-31"`` as a string. A log
    has the plain data only, so that other rules would give a replay another value than the run had.
    """
    if isinstance(answer, Mapping):
        return value
    from pydantic import ValidationError

    try:
        instance = _type_adapter(answer).validate_python(value)
    except ValidationError as error:
        # A rule of the class itself, which its JSON schema cannot express.
        name = getattr(answer, "__name__", str(answer))
        raise StepError(f"the answer does not fit {name}: {faults_in_words(error)}") from None
    # Code gets the value that a step would return after it was recorded. Pydantic has a class of its own for offsets.
    with suppress(UnstorableValueError):
        return opened(storable(instance, "answer"))
    return instance


def _digest(value: Any) -> str:
    return canonical_hash(storable(value, "value"), "value")


# --- adaptation of pydantic's rules -----------------------------------------------------------------------------------
#
# Pydantic converts more than JSON and a reader expect (``"5"`` and true to an integer, a number to a date), and less
# (to an enum whose values are tuples). Its rules for a type are a tree of dicts, the *core schema*. `Validator` changes
# some nodes of a copy of this tree. Models of pydantic inside a type keep their own rules.


class Validator:
    """Validator of the values of one type: the rules of pydantic, changed as `_adapted` describes.

    Parameters
    ----------
    model
        Pydantic model with one field of the type.
    """

    def __init__(self, model: Any) -> None:
        from pydantic_core import SchemaValidator

        core = model.__pydantic_core_schema__
        # Recursive types are wrapped: {"type": "definitions", "schema": ..., "definitions": [...]}.
        inner = core["schema"] if core["type"] == "definitions" else core
        shared = {part["ref"]: part for part in core.get("definitions", ())}
        field = _adapted(inner["schema"]["fields"][_FIELD]["schema"], shared)
        definitions = [_adapted(part, shared) for part in shared.values()]
        whole: Any = {"type": "definitions", "schema": field, "definitions": definitions} if definitions else field
        kinds = {part.get("type") for part in _nodes(whole)}
        self.reads_decimals = "decimal" in kinds and "float" not in kinds
        """True if a number with a fraction can only be for a `Decimal`."""
        self.reads_integers = "int" in kinds
        """True if a number without a fraction may be for an integer."""
        # The configuration refuses misspelled keys of dataclasses and TypedDicts.
        self._validator = SchemaValidator(whole, {"extra_fields_behavior": "forbid"})

    def validate(self, value: Any) -> Any:
        """Return the value, converted to the type. Raise `pydantic.ValidationError` if it does not fit."""
        return self._validator.validate_python(value)


_OPAQUE = frozenset({"config", "default", "expected", "members", "metadata", "serialization"})
"""Keys of nodes of a core schema under which no rules for values stand."""


def _nodes(core: Any) -> Iterator[Mapping[str, Any]]:
    """Yield all nodes of a core schema."""
    if isinstance(core, Mapping):
        yield core
        for key, part in core.items():
            if key not in _OPAQUE:
                yield from _nodes(part)
    elif isinstance(core, list | tuple):
        for part in core:
            yield from _nodes(part)


def _adapted(core: Any, shared: Mapping[str, Any], *, is_key: bool = False) -> Any:
    """Return a copy of a core schema with other rules for some types. `shared` has the definitions to which parts of
    the schema refer, by name.

    - Numbers and booleans are not made from strings, and booleans are not numbers. Keys of JSON objects are strings, so
      they are converted (`is_key`).
    - A date, time or duration is not made from a number or boolean, and strings for them are in ISO 8601. A complex
      number or fraction is not made from a boolean, and a member of an enum of numbers not from a string.
    - An enum or literal accepts the JSON form of a value that JSON lacks.
    - A decimal may be infinite or NaN if it has no limits.
    - A union reads a string as a date, datetime, time, timedelta or UUID if one of them is in the union and the string
      has its form, and a value of JSON as a member of an enum or literal in the union. The order of the union does not
      matter: ``date | str`` and ``str | date`` read ``"2026-01-31"`` as a date, ``date | datetime`` as well.
    - An iterable stays the list, tuple or set that it is, instead of becoming an iterator.
    """
    if isinstance(core, list | tuple):
        return type(core)(_adapted(part, shared, is_key=is_key) for part in core)
    if not isinstance(core, Mapping):
        return core
    changed = {
        key: part if key in _OPAQUE else _adapted(part, shared, is_key=is_key or key == "keys_schema")
        for key, part in core.items()
    }
    match changed.get("type"):
        case "int" | "float" | "bool" if not is_key:
            changed["strict"] = True
        case str(kind) if kind in _CHECKS:
            return _before(_CHECKS[kind], changed)
        case "enum":
            pairs = [(member.value, member) for member in changed["members"]]
            odd_pairs = [(plain, member) for plain, member in pairs if type(plain) not in _ATOM_TYPES]
            choice = _before(partial(_choice, pairs, odd_pairs), changed)
            return choice if is_key else _before(partial(_without_other_types, changed["cls"]), choice)
        case "literal":
            pairs = [(getattr(value, "value", value), value) for value in changed["expected"]]
            odd_pairs = [(plain, choice) for plain, choice in pairs if type(choice) not in _ATOM_TYPES]
            return _before(partial(_choice, pairs, odd_pairs), changed)
        case "decimal":
            is_unlimited = changed.keys() <= {"type", "metadata", "strict"}
            return _before(_without_underscores, {**changed, "allow_inf_nan": is_unlimited})
        case "union":
            readers = _special_readers(core["choices"], shared)
            return _before(partial(_read_special, readers), changed) if readers else changed
        case "generator":
            items = changed.get("items_schema", {"type": "any"})
            sequences = [{"type": kind, "items_schema": items} for kind in ("list", "set", "frozenset")]
            values = {"type": "tuple", "items_schema": [items], "variadic_item_index": 0}
            return {"type": "union", "choices": [*sequences, values]}
    return changed


def _before(function: Callable[[Any], Any], core: dict[str, Any]) -> dict[str, Any]:
    """Return a core schema that passes a value through a function before the rules of `core` apply."""
    # Other parts of the type may refer to this node, and mean the whole of it.
    reference = {"ref": core.pop("ref")} if "ref" in core else {}
    return {
        "type": "function-before",
        "function": {"type": "no-info", "function": function},
        "schema": core,
        **reference,
    }


_ISO_FORMS = {
    "date": re.compile(r"\s*[0-9]{4}-[0-9]{2}-[0-9]{2}\s*"),
    "datetime": re.compile(r"\s*[0-9]{4}-.*"),
    "time": re.compile(r"\s*[0-9]{2}:.*"),
    "timedelta": re.compile(r"\s*[-+]?P.*"),
}
"""Beginnings of strings for a date, datetime, time or timedelta. Pydantic reads numbers and other forms too."""
_ISO_EXAMPLES = {
    "date": "date such as 2026-01-31",
    "datetime": "date and time such as 2026-01-31T14:30:00Z",
    "time": "time such as 14:30:00",
    "timedelta": "duration such as PT90S",
}


def _in_iso(kind: str, value: Any) -> Any:
    """Raise an error if the value of a date, datetime, time or timedelta is a number, which pydantic would read as
    seconds, or a string in another form than that of ISO 8601.
    """
    if isinstance(value, str):
        is_fit = _ISO_FORMS[kind].fullmatch(value) is not None
    else:
        is_fit = not isinstance(value, int | float | Decimal)
    if not is_fit:
        _refuse(f"Input should be a {_ISO_EXAMPLES[kind]} in ISO 8601, not a number")
    return value


def _without_booleans(value: Any) -> Any:
    if isinstance(value, bool):
        _refuse("Input should not be a boolean")
    return value


def _without_underscores(value: Any) -> Any:
    # `Decimal` accepts them anywhere.
    if isinstance(value, str) and "_" in value:
        _refuse("Input should be a number without underscores")
    return value


def _without_other_types(cls: Any, value: Any) -> Any:
    """Raise an error for a string if no member of an enum has one, and for a negative combination of flags."""
    is_member = isinstance(value, cls)
    if isinstance(value, str) and not is_member and issubclass(cls, int):
        _refuse("Input should be a number")
    if isinstance(value, int) and not is_member and value < 0 and issubclass(cls, Flag):
        _refuse("Input should be a combination of flags")
    return value


_CHECKS: Mapping[str, Callable[[Any], Any]] = {
    **{kind: partial(_in_iso, kind) for kind in _ISO_FORMS},
    "complex": _without_booleans,
    "fraction": _without_booleans,
}
"""Functions through which a value passes before the rules of pydantic for a type, by the type in a core schema."""


def _refuse(message: str) -> NoReturn:
    from pydantic_core import PydanticCustomError

    raise PydanticCustomError("divebook", message)


_ATOM_TYPES = frozenset({str, int, float, bool, type(None)})


def _choice(pairs: list[tuple[Any, Any]], odd_pairs: list[tuple[Any, Any]], value: Any) -> Any:
    """Return the choice of an enum or literal whose value has the JSON form `value`; any other value unchanged.

    Parameters
    ----------
    pairs
        The value of each choice, and the choice itself.
    odd_pairs
        The pairs of choices that pydantic does not find by their JSON form, such as an enum member with a date.
    """
    # In Python True equals 1, in JSON it does not.
    if isinstance(value, bool) and not any(isinstance(plain, bool) for plain, _ in pairs):
        _refuse("Input should not be a boolean")
    if any(value is choice for _, choice in odd_pairs):
        return value
    return next((choice for plain, choice in odd_pairs if _form_of(plain) == value), value)


def _form_of(value: Any) -> Any:
    """Return the JSON form of the value of an enum member; `NO_FORM` if it has none."""
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        return to_jsonable_python(value)
    except (PydanticSerializationError, UnicodeDecodeError):
        return NO_FORM


# Pydantic prefers the type of a union that a value has already. A value from JSON, YAML or a command line has the type
# `str` or `int` where a date, a UUID or a member of an enum is meant, since nothing else can be written there.
_WRITTEN_AS_TEXTS = frozenset({"date", "datetime", "time", "timedelta", "uuid"})
"""Types whose values are written as strings, and which few strings fit. Any string is a path, and any may be meant as
text in a union of `str` and `Decimal`, because numbers are not made from strings.
"""


def _special_readers(choices: list[Any], shared: Mapping[str, Any]) -> list[Callable[[Any], Any]]:
    """Return the validators of those choices of a union that are tried before the others. They raise
    `pydantic.ValidationError` for a value that does not fit.
    """
    from pydantic_core import SchemaValidator

    readers = []
    for choice in choices:
        core = choice[0] if isinstance(choice, tuple) else choice
        core = shared[core["schema_ref"]] if core["type"] == "definition-ref" else core
        kind = core["type"]
        # Other parts of the type refer to the definition itself, not to this copy.
        core = {key: part for key, part in core.items() if key != "ref"}
        if kind in _WRITTEN_AS_TEXTS:
            core = _before(_special_text, _adapted(core, shared))
        elif kind in ("enum", "literal"):
            core = _adapted(core, shared)
        else:
            continue
        readers.append((kind, SchemaValidator(core)))
    # A datetime may be written without its time, which is a date.
    readers.sort(key=lambda pair: pair[0] == "datetime")
    return [reader.validate_python for _, reader in readers]


def _special_text(value: Any) -> Any:
    """Raise an error if a value is not a string."""
    if not isinstance(value, str):
        _refuse("Input should be a string")
    return value


def _read_special(readers: list[Callable[[Any], Any]], value: Any) -> Any:
    """Return a plain string or number as the type of the first reader that it fits; any other value unchanged."""
    from pydantic import ValidationError

    if type(value) not in _ATOM_TYPES:
        return value
    for read in readers:
        with suppress(ValidationError):
            return read(value)
    return value


@functools.cache
def _schema_generator() -> Any:
    """Return the class that generates the JSON schema of a type, with the same differences from pydantic as
    `_adapted`.
    """
    from pydantic.json_schema import GenerateJsonSchema

    class Generator(GenerateJsonSchema):
        def is_instance_schema(self, schema: Any) -> dict[str, Any]:  # noqa: ARG002 - no value of JSON is an instance
            return {"not": {}}

    for kind, change in _SCHEMA_CHANGES.items():
        method = f"{kind}_schema"
        if hasattr(GenerateJsonSchema, method):  # older versions of pydantic have other kinds
            setattr(Generator, method, _changed_method(getattr(GenerateJsonSchema, method), change))
    return Generator


@functools.cache
def _answer_schema_generator() -> Any:
    """Return the class that generates the JSON schema of a type of answers. Pydantic accepts fewer strings for some
    types than its JSON schema, such as any string for a decimal. A pattern refuses the others where a person answers.
    """
    from pydantic.json_schema import GenerateJsonSchema

    changes: dict[str, Any] = {kind: partial(_narrowed, pattern) for kind, pattern in _ANSWER_PATTERNS.items()}
    changes["dict"] = _narrowed_keys
    methods = {
        f"{kind}_schema": _changed_method(getattr(GenerateJsonSchema, f"{kind}_schema"), change)
        for kind, change in changes.items()
    }
    return type("Generator", (GenerateJsonSchema,), methods)


def _narrowed(pattern: str, described: dict[str, Any], _core: Any) -> dict[str, Any]:
    """Add a pattern to the string in the JSON schema of a type, or to the one among its alternatives."""
    for part in (described, *described.get("anyOf", ())):
        if part.get("type") == "string" and "pattern" not in part:
            part |= {"pattern": pattern, "$comment": NARROWED}
    return described


def _narrowed_keys(described: dict[str, Any], core: Any) -> dict[str, Any]:
    kind = core.get("keys_schema", {}).get("type")
    if kind in _KEY_PATTERNS and "propertyNames" not in described:
        described |= {"propertyNames": {"pattern": _KEY_PATTERNS[kind]}, "$comment": NARROWED}
    return described


def _changed_method(original: Any, change: Callable[[dict[str, Any], Any], dict[str, Any]]) -> Any:
    def method(self: Any, core: Any) -> dict[str, Any]:
        return change(original(self, core), core)

    return method


# Each of these functions gets the JSON schema of pydantic and the core schema of a type, and returns the JSON schema of
# what `Validator` accepts.


def _enum_schema(described: dict[str, Any], core: Any) -> dict[str, Any]:
    # Every combination of flags is a value.
    if issubclass(core["cls"], Flag):
        return {"type": "integer", "minimum": 0, "maximum": sum(member.value for member in core["members"])}
    return described


def _named_tuple_schema(described: dict[str, Any], core: Any) -> dict[str, Any]:
    names = [field["name"] for field in core["fields"]]
    properties = dict(zip(names, described.get("prefixItems", ()), strict=True))
    required = names[: described.get("minItems", 0)]
    # Pydantic accepts a list and an object.
    by_name = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {"anyOf": [described, by_name]}


def _set_schema(described: dict[str, Any], _core: Any) -> dict[str, Any]:
    # An item may be written several times.
    return {key: part for key, part in described.items() if key != "uniqueItems"}


def _duration_schema(described: dict[str, Any], _core: Any) -> dict[str, Any]:
    # Few programs check the format.
    return {**described, "pattern": "^[-+]?P"}


def _complex_schema(described: dict[str, Any], _core: Any) -> dict[str, Any]:
    return {"anyOf": [{"type": "number"}, {**described, "pattern": rf"^\s*({_COMPLEX}|\(\s*{_COMPLEX}\s*\))\s*$"}]}


def _dict_schema(described: dict[str, Any], core: Any) -> dict[str, Any]:
    # Names of properties are strings, whatever their Python type is.
    keys = core.get("keys_schema", {})
    if keys.get("type") in _KEY_PATTERNS:
        return {**described, "propertyNames": {"pattern": _KEY_PATTERNS[keys["type"]]}}
    if keys.get("type") == "enum":
        return {**described, "propertyNames": {"enum": [str(_form_of(member.value)) for member in keys["members"]]}}
    # Such keys have no form in JSON.
    if keys.get("type") in ("tuple", "named-tuple", "frozenset"):
        return {**described, "maxProperties": 0}
    if described.get("propertyNames", {}).get("type", "string") != "string":
        return {key: part for key, part in described.items() if key != "propertyNames"}
    return described


_PART = (
    r"([0-9](_?[0-9])*\.?([0-9](_?[0-9])*)?|\.[0-9](_?[0-9])*)([eE][-+]?[0-9](_?[0-9])*)?"
    r"|[iI][nN][fF]([iI][nN][iI][tT][yY])?|[nN][aA][nN]"
)
_COMPLEX = rf"([-+]?({_PART})|[-+]?({_PART})?[jJ]|[-+]?({_PART})[-+]({_PART})?[jJ])"
"""Pattern of a complex number in Python: ``1``, ``2j`` or ``1+2j``."""
_DIGITS = r"\s*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?\s*"
_NOT_FINITE = r"\s*[-+]?([iI][nN][fF]([iI][nN][iI][tT][yY])?|[sS]?[nN][aA][nN][0-9]*)\s*"


_ANSWER_PATTERNS: Mapping[str, str] = {
    "decimal": f"^{_DIGITS}$",
    "complex": rf"^\s*({_COMPLEX}|\(\s*{_COMPLEX}\s*\))\s*$",
}
"""Patterns of the strings that are converted to a type, by the kind of its core schema."""


_KEY_PATTERNS = {
    "int": r"^\s*[-+]?[0-9](_?[0-9])*(\.0+)?\s*$",
    "float": rf"^\s*[-+]?({_PART})\s*$",
    "decimal": f"^({_DIGITS}|{_NOT_FINITE.replace('[sS]?', '')})$",  # a signaling NaN cannot be a key
    "bool": "^([01]|[tTfFyYnN]|[tT][rR][uU][eE]|[fF][aA][lL][sS][eE]|[oO][nN]|[oO][fF][fF]|[yY][eE][sS]|[nN][oO])$",
}
"""Patterns of strings that are converted to a key of a mapping, by the type of the key in a core schema."""


def _decimal_schema(described: dict[str, Any], core: Any) -> dict[str, Any]:
    """Add the pattern of a number to the strings in the JSON schema of a decimal, which pydantic accepts as any."""
    may_be_infinite = core.keys() <= {"type", "metadata", "strict"}
    pattern = f"^({_DIGITS}|{_NOT_FINITE})$" if may_be_infinite else f"^{_DIGITS}$"
    for part in described.get("anyOf", ()):
        if part.get("type") == "string":
            part.setdefault("pattern", pattern)
    return described


def _closed_schema(described: dict[str, Any], _core: Any) -> dict[str, Any]:
    return {"additionalProperties": False, **described} if described.get("type") == "object" else described


_SCHEMA_CHANGES: Mapping[str, Callable[[dict[str, Any], Any], dict[str, Any]]] = {
    "enum": _enum_schema,
    "dataclass": _closed_schema,
    "typed_dict": _closed_schema,
    "named_tuple": _named_tuple_schema,
    "set": _set_schema,
    "frozenset": _set_schema,
    "dict": _dict_schema,
    "decimal": _decimal_schema,
    "timedelta": _duration_schema,
    "complex": _complex_schema,
}
"""Changes of the JSON schema of a type, by the kind of its core schema."""


def _with_parts(annotation: Any, change: Callable[[Any], Any]) -> Any:
    """Return an annotation whose arguments, such as the type of the items of a list, are changed by a function."""
    parts = typing.get_args(annotation)
    origin = typing.get_origin(annotation)
    # Arguments of these are values or lists, not types.
    if not parts or origin in (typing.Literal, collections.abc.Callable):
        return annotation
    if origin is typing.Annotated:
        return typing.Annotated[(change(parts[0]), *parts[1:])]
    changed = tuple(change(part) for part in parts)
    if changed == parts:
        return annotation
    # `X | Y` of classes is a Union at run time, however it was written.
    return typing.Union[changed] if origin in (typing.Union, UnionType) else origin[changed]  # noqa: UP007


def _without_metadata(annotation: Any) -> Any:
    """Return an annotation without the metadata of ``Annotated`` in it, which is unreadable in messages."""
    if typing.get_origin(annotation) is typing.Annotated:
        return _without_metadata(typing.get_args(annotation)[0])
    return _with_parts(annotation, _without_metadata)


def with_union_rule(annotation: Any) -> Any:
    """Return an annotation for pydantic whose unions read a value as an input of the same type does. Values that do not
    fit by the rules of inputs are left to pydantic, which also reads numbers in strings.
    """
    changed = _with_parts(annotation, with_union_rule)
    is_union = typing.get_origin(annotation) in (typing.Union, UnionType)
    alternatives = [part for part in typing.get_args(annotation) if part is not type(None)]
    if not is_union or len(alternatives) == 1:
        return changed
    try:
        return typing.Annotated[changed, _union_reader(annotation)]
    # Some metadata of ``Annotated`` cannot be hashed.
    except TypeError:
        return typing.Annotated[changed, _union_reader.__wrapped__(annotation)]


# Cached, because annotations with equal validators have a schema in common.
@functools.lru_cache(maxsize=256)
def _union_reader(annotation: Any) -> Any:
    from pydantic import BeforeValidator

    declared = ParameterType(annotation, with_union_rule)

    def read(value: Any) -> Any:
        try:
            return declared.convert(value)
        except ValueError:
            return value

    return BeforeValidator(read)


def _model_of(annotation: Any) -> Any:
    # The type becomes a field of a model, because the configuration of a model also applies to dataclasses and
    # TypedDicts in it, so that a misspelled key is refused. A TypeAdapter has no configuration for them.
    from pydantic import ConfigDict, InstanceOf, create_model
    from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation, PydanticUserError

    config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")
    try:
        field = (_with_portable_dicts(annotation, {}), ...)
        model: Any = create_model("Input", __config__=config, **{_FIELD: field})  # type: ignore[call-overload]
        # Names that are still undefined raise an error here, and not at the first value.
        model.model_rebuild(raise_errors=True)
    except (PydanticSchemaGenerationError, PydanticUndefinedAnnotation, PydanticUserError, TypeError):
        # Pydantic knows the class, and requires more about it, such as the types of a defaultdict.
        instance_of_class: Any = InstanceOf
        is_class = typing.get_origin(annotation) is None and isinstance(annotation, type)
        return _model_of(instance_of_class[annotation]) if is_class else None
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
    return _with_parts(annotation, lambda part: _with_portable_dicts(part, dicts))


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


def parsed_word(text: str) -> Any:
    """Parse a string from a command line as YAML, such as ``5``, ``null`` or ``[a, b]``. Return a string that is not
    YAML, or a word without another meaning in YAML, unchanged.
    """
    if not text.strip():
        return text
    try:
        parsed = value_typed(text)
    except DefinitionError:
        return text
    # YAML strips spaces and comments, which belong to the word.
    if isinstance(parsed, str) and text[:1] not in QUOTES:
        return text
    return parsed


BOOLEAN_WORDS: Mapping[str, bool] = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}
"""Booleans by the words of a command line that stand for them, in lower case."""


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
