"""A value of the form that a JSON schema asks for, for the commands that are printed beside a question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MOST_DEPTH = 8
"""Of schemas that contain themselves."""
ANY_TEXT = "TEXT"


def example_of(schema: Any) -> Any:
    """Return a value of a schema's form: its default, its first choice, or the plainest value of its type.

    >>> example_of({"type": "object", "properties": {"n": {"type": "integer"}, "why": {}}, "required": ["n"]})
    {'n': 1}
    """
    return _example(schema, schema, 0)


def _example(schema: Any, root: Any, depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth > MOST_DEPTH:
        return ANY_TEXT
    for key in ("default", "const"):
        if key in schema:
            return schema[key]
    for key in ("enum", "examples"):
        if isinstance(schema.get(key), list) and schema[key]:
            return schema[key][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(key), list) and schema[key]:
            return _example(schema[key][0], root, depth + 1)
    if isinstance(schema.get("$ref"), str):
        return _example(_referred(schema["$ref"], root), root, depth + 1)
    return _of_type(schema, root, depth)


def _of_type(schema: Mapping[str, Any], root: Any, depth: int) -> Any:
    named = schema.get("type")
    match named[0] if isinstance(named, list) and named else named:
        case "integer" | "number":
            return schema.get("minimum", schema.get("maximum", 1))
        case "boolean":
            return True
        case "null":
            return None
        case "array":
            return [_example(schema.get("items"), root, depth + 1)]
        case kind if kind == "object" or isinstance(schema.get("properties"), Mapping):
            properties = schema.get("properties") or {}
            required = schema.get("required") or list(properties)
            return {key: _example(properties.get(key), root, depth + 1) for key in required}
    return ANY_TEXT


def _referred(reference: str, root: Any) -> Any:
    """Return the part of a schema that ``#/$defs/Name`` names."""
    found = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found
