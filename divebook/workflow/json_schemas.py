"""JSON schemas: checked where they are defined, compared with values in bounded work, and never fetched.

Schemas come from definitions, models and MCP servers, so that everything about them is limited: their size, what they
refer to (only what is within them), their patterns, and the work of one comparison.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from divebook.errors import DefinitionError, PatternError, Place, Problem, SchemaLimitError, did_you_mean
from divebook.questions import Fitting
from divebook.workflow.yaml_value import yaml_of

if TYPE_CHECKING:
    from divebook.workflow.schema_graph import SchemaFault, SchemaGraph

MAX_CHARACTERS = 1_000_000
"""Characters of a schema as JSON."""
MAX_DEPTH = 100
"""Levels of a schema as JSON."""
_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")


def complaint(schema: Mapping[str, Any], value: Any) -> str | None:
    """Return what is wrong with a value, the most telling thing first, or None if it fits.

    Takes a bounded amount of work, and at most `divebook.text.patterns.MATCH_SECONDS` of matching patterns. A schema
    that cannot be used, or takes more, is a complaint too: what nobody can check fits nothing.
    """
    try:
        usable = _usable(_json(schema))
        usable.require_whole("Schema")
    except DefinitionError as error:
        return error.problems[0].message
    return usable.complaint(value)


def load() -> None:
    """Import jsonschema ahead of its use: with all its optional parts that takes a second."""
    from divebook.workflow import schema_graph, schema_keywords  # noqa: F401


def _written(text: str) -> Any:
    return yaml_of(text, "the answer")


FITTING = Fitting(complaint, _written)
"""For `divebook.questions.checked_answer`."""


def require_schema(schema: Mapping[str, Any], key: str = "Schema", *, has_patterns: bool = True) -> None:
    """Raise DefinitionError unless `schema` is a JSON schema that can be used; the error names the place within it.

    Parameters
    ----------
    key
        The key of a definition under which it stands.
    has_patterns
        Whether its patterns must be valid here: those of a server may be of another language.
    """
    _usable(_json(schema, key), key, has_patterns=has_patterns).require_whole(key)


def require_possible_schema(schema: Mapping[str, Any], key: str = "Schema") -> None:
    """Raise DefinitionError for what `require_schema` refuses, and where it shows that no value fits the schema."""
    usable = _usable(_json(schema, key), key)
    usable.require_whole(key)
    usable.require_possible(key)


def check_defined_schema(schema: Mapping[str, Any], key: str = "Schema") -> Problem | None:
    """Return a warning about a schema that refers to another document: valid, but no step can use it.

    Raises
    ------
    DefinitionError
        `require_possible_schema` refuses the schema for any other reason.
    """
    usable = _usable(_json(schema, key), key)
    if usable.outside is None:
        usable.require_possible(key)
        return None
    return replace(_problem(key, usable.outside), severity="warning")


def schema_of(answer: Any) -> Mapping[str, Any]:
    """Return the JSON schema of a type, for example of a pydantic model; a schema is returned as it is."""
    if isinstance(answer, Mapping):
        require_possible_schema(answer)
        return answer
    from pydantic import TypeAdapter

    return TypeAdapter(answer).json_schema()


def instance_of(answer: Any, value: Any) -> Any:
    """Return a plain value as an instance of the type that was asked for."""
    if isinstance(answer, Mapping):
        return value
    from pydantic import TypeAdapter

    return TypeAdapter(answer).validate_python(value)


class _Usable:
    """A schema that can be used."""

    def __init__(self, validator: Any, graph: SchemaGraph) -> None:
        self._validator, self._graph = validator, graph
        self.outside = graph.outside
        """The reason why it cannot be used, if it refers to another document; documents are never fetched."""

    def require_whole(self, key: str) -> None:
        """Raise DefinitionError if it refers to another document."""
        if self.outside is not None:
            raise DefinitionError([_problem(key, self.outside)])

    def complaint(self, value: Any) -> str | None:
        """Return what is wrong with a value, or None."""
        from divebook.workflow.schema_keywords import Work

        return _first_error(self._validator.evolve(format_checker=Work()), value)

    def require_possible(self, key: str) -> None:
        """Raise DefinitionError if it shows that no value fits."""
        from divebook.workflow.schema_graph import SchemaFault
        from divebook.workflow.schema_keywords import Work

        work = Work()

        def fits(schema: Any, value: Any) -> bool:
            return bool(self._validator.evolve(schema=schema, format_checker=work).is_valid(value))

        try:
            self._graph.require_possible(fits)
        except SchemaFault as fault:
            raise DefinitionError([_problem(key, fault)]) from None
        except (PatternError, SchemaLimitError):
            return  # it does not show at little cost


def _json(schema: Mapping[str, Any], key: str = "Schema") -> str:
    """Return a schema as JSON text, by which what is known of it is found again."""
    try:
        return json.dumps(schema, default=_plain, allow_nan=False)
    except RecursionError:
        _refuse(key, f"it is nested too deeply; a schema may have {MAX_DEPTH} levels")
    except (TypeError, ValueError) as error:
        _refuse(key, f"it is not JSON: {error}")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not a value of JSON")


@functools.lru_cache(maxsize=256)
def _usable(text: str, key: str = "Schema", *, has_patterns: bool = True) -> _Usable:
    """Return a schema that can be used, by its JSON text; raises DefinitionError."""
    from divebook.workflow.schema_graph import SchemaFault, SchemaGraph
    from divebook.workflow.schema_keywords import DEFAULT_DIALECT, DIALECTS, Work, validator_class

    if len(text) > MAX_CHARACTERS:
        _refuse(key, f"it has more than {MAX_CHARACTERS:,} characters")
    schema = json.loads(text)
    if _depth(schema) > MAX_DEPTH:
        _refuse(key, f"it is nested more than {MAX_DEPTH} levels deep; put inner parts under $defs")
    dialect = DEFAULT_DIALECT
    if isinstance(schema, dict) and "$schema" in schema:
        dialect = str(schema["$schema"]).rstrip("#")
        if dialect not in DIALECTS:
            _refuse(
                key,
                f"{schema['$schema']!r} is not a dialect known here",
                ("$schema",),
                f"leave $schema out, or write {DEFAULT_DIALECT}",
            )
    form = validator_class(dialect)
    of_schemas = form(form.META_SCHEMA)

    def check(part: Any, place: Place) -> None:
        # The graph says what is wrong with a pattern or a reference, and a schema's own schema only that.
        _require_valid(of_schemas.evolve(format_checker=Work(has_formats=False)), part, key, place)

    check(schema, ())
    try:
        graph = SchemaGraph(schema, dialect, check, has_patterns=has_patterns)
    except SchemaFault as fault:
        raise DefinitionError([_problem(key, fault)]) from None
    return _Usable(form(schema, _resolver=graph.resolver), graph)


def _require_valid(validator: Any, schema: Any, key: str, place: Place) -> None:
    from jsonschema.exceptions import best_match

    try:
        error = best_match(validator.iter_errors(schema))
    except SchemaLimitError:
        _refuse(key, "it is too large to be checked", place)
    if error is not None:
        is_type = isinstance(error.instance, str) and list(error.absolute_path)[-1:] == ["type"]
        hint = did_you_mean(error.instance, _TYPES) or f"use {', '.join(_TYPES)}" if is_type else None
        _refuse(key, error.message, (*place, *error.absolute_path), hint)


def _first_error(validator: Any, value: Any) -> str | None:
    """Return the most telling error of a value, or why it cannot be checked."""
    from jsonschema.exceptions import best_match

    try:
        error = best_match(validator.iter_errors(value))
    except (PatternError, SchemaLimitError) as limit:
        return str(limit)
    except RecursionError:
        return "it is nested too deeply to be checked"
    except ValueError as limit:  # an integer with more digits than Python writes
        return f"it cannot be shown: {limit}"
    if error is None:
        return None
    where = _path(error.absolute_path)
    return f"{where}: {error.message}" if where else str(error.message)


def _path(parts: Any) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).lstrip(".")


def _depth(value: Any) -> int:
    """Return how many levels of lists and objects there are."""
    depth, level = 0, [value]
    while level:
        level = [
            inner
            for part in level
            if isinstance(part, dict | list)
            for inner in (part.values() if isinstance(part, dict) else part)
        ]
        depth += 1
    return depth


def _problem(key: str, fault: SchemaFault) -> Problem:
    where = f" at {_path(fault.place)}" if fault.place else ""
    message = f"this JSON schema cannot be used{where}: {fault.reason}"
    return Problem(message, key=key, hint=fault.hint, place=(key,))


def _refuse(key: str, reason: str, place: Place = (), hint: str | None = None) -> NoReturn:
    from divebook.workflow.schema_graph import SchemaFault

    raise DefinitionError([_problem(key, SchemaFault(reason, place, hint))])
