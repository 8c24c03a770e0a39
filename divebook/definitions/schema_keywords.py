"""Keyword functions for jsonschema that limit the work of a validation: steps are counted, and patterns have a time
limit.

`jsonschema` evaluates schemas without limits: nested ``allOf`` take exponential time, ``uniqueItems`` and
``unevaluatedProperties`` quadratic time, and patterns run in `re`. Each keyword function of its validators is wrapped
in a function that counts work (`_counted`). Keywords that need more than counting are replaced (`_REPLACED`).

This module is separate because it imports jsonschema, which takes up to a second. `divebook.definitions.json_schemas`
imports it when the first schema is used.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from functools import cache, partial
from ipaddress import IPv4Interface, IPv4Network, IPv6Interface, IPv6Network
from typing import Any, TypeAlias

from jsonschema import FormatChecker, validators
from jsonschema.exceptions import ValidationError
from referencing.jsonschema import lookup_recursive_ref

from divebook.errors import PatternError, SchemaLimitError
from divebook.text.patterns import MatchTime, compiled

MAX_STEPS = 1_000_000
"""Largest number of keyword evaluations in one validation."""
DEFAULT_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_DIALECTS = {
    "http://json-schema.org/draft-04/schema": validators.Draft4Validator,
    "http://json-schema.org/draft-06/schema": validators.Draft6Validator,
    "http://json-schema.org/draft-07/schema": validators.Draft7Validator,
    "https://json-schema.org/draft/2019-09/schema": validators.Draft201909Validator,
    DEFAULT_DIALECT: validators.Draft202012Validator,
}
DIALECTS = tuple(_DIALECTS)
MAX_FORMAT = 1_000
"""Largest number of characters of a string whose format the library checks."""
_CHEAP_FORMATS = (
    *("date", "date-time", "duration", "email", "hostname", "idn-email", "idn-hostname"),
    *("ipv4", "ipv6", "json-pointer", "relative-json-pointer", "time", "uuid"),
)
_ASCII = r"!#$%&'()*+,\-./0-9:;=?@A-Z\[\]_a-z~"
_ADDRESSES = {
    # The library parses these with a grammar, which takes seconds for some thousand characters.
    "uri": rf"^[A-Za-z][A-Za-z0-9+.\-]*:[{_ASCII}]*\Z",
    "uri-reference": rf"^[{_ASCII}]*\Z",
    "iri": rf"^[A-Za-z][A-Za-z0-9+.\-]*:[{_ASCII}\u00a0-\U0010fffd]*\Z",
    "iri-reference": rf"^[{_ASCII}\u00a0-\U0010fffd]*\Z",
}
_READERS: Mapping[str, Callable[[str], object]] = {
    "fraction": Fraction,
    "ipv4network": IPv4Network,
    "ipv4interface": IPv4Interface,
    "ipv6network": IPv6Network,
    "ipv6interface": IPv6Interface,
}
"""Classes of Python whose strings pydantic marks with a format of its own, by this format."""
Keyword: TypeAlias = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]


class Work:
    """Budget of work for validating one value against a JSON schema, counted in steps.

    jsonschema passes the format checker of a validator to all inner validators. A `Work` object is passed in place of
    the format checker, so that all keyword functions can reach it.

    Parameters
    ----------
    has_formats
        True if the keyword ``format`` is checked.
    """

    def __init__(self, steps: int = MAX_STEPS, *, has_formats: bool = True) -> None:
        self.has_formats = has_formats
        self._steps = steps
        self._remaining = steps
        self._time = MatchTime()

    def spend(self, steps: int) -> None:
        """Take a number of steps from the budget of work. Raise SchemaLimitError if the budget is exceeded."""
        self._remaining -= steps
        if self._remaining < 0:
            raise SchemaLimitError(f"checking it takes more than {self._steps:,} steps; simplify the schema")

    def contains(self, pattern: str, text: str) -> bool:
        """Return True if a regular expression matches somewhere in a string. Raise PatternError like
        `MatchTime.contains`.
        """
        # A match costs one step, and one more for each 1,000 characters. Time is limited separately.
        self.spend(1 + len(text) // 1_000)
        return self._time.contains(pattern, text)


@cache
def validator_class(dialect: str) -> Any:
    """Return the jsonschema validator class for a dialect of JSON schema, with keyword functions that count their work.
    Each instance needs a `Work`, the budget, as its argument `format_checker`.
    """
    base: Any = _DIALECTS[dialect]
    # All keywords of the dialect are wrapped, so that no work is uncounted.
    keywords = {name: _counted(_REPLACED.get(name, keyword)) for name, keyword in base.VALIDATORS.items()}
    types = base.TYPE_CHECKER.redefine("number", partial(_is_number, base.TYPE_CHECKER))
    validator = validators.extend(base, keywords, type_checker=types)  # type: ignore[no-untyped-call]
    validator.evolve = _evolve
    return validator


def _is_number(checker: Any, _checker: Any, value: Any) -> bool:
    """Return True if a value is a number. A `Decimal` that is not finite is none: no decimal type accepts it."""
    return bool(checker.is_type(value, "number")) and not (isinstance(value, Decimal) and not value.is_finite())


def _evolve(self: Any, **changes: Any) -> Any:
    """Return a copy of a validator with some attributes changed. The copy has the same class, so that its work stays
    limited.

    The original method of jsonschema would switch classes at an inner ``$schema``.
    """
    same = {"schema": self.schema, "format_checker": self.format_checker, "registry": self._registry}
    # The resolver belongs to the place in the schema at which references are looked up.
    return type(self)(**{**same, "_resolver": self._resolver, **changes})


def _counted(keyword: Keyword) -> Keyword:
    """Wrap a keyword function of jsonschema in a function that also subtracts its work from the budget (`Work`) of the
    validation.
    """

    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        work = validator.format_checker
        # A keyword may look at each item of a list or mapping.
        work.spend(1 + (len(value) // 4 if isinstance(value, list | dict) else 0))
        # Keyword functions of jsonschema are generators, or return None.
        for error in keyword(validator, value, instance, schema) or ():
            work.spend(1 + len(error.message) // 200)  # a message contains the value, which may be long
            yield error

    return counted


def _pattern(validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and not validator.format_checker.contains(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "object"):
        for pattern, schema in patterns.items():
            for name, value in instance.items():
                if validator.format_checker.contains(pattern, name):
                    yield from validator.descend(value, schema, path=name, schema_path=pattern)


def _additional_properties(validator: Any, schema: Any, instance: Any, within: Any) -> Iterator[ValidationError]:
    """Check an object against the keyword ``additionalProperties`` of the schema `within`. Yield errors with the
    messages of jsonschema.

    `schema` is the value of the keyword: a schema or a boolean.
    """
    if not validator.is_type(instance, "object"):
        return
    # Patterns are matched with a time limit (`Work.contains`).
    declared = _declared(validator, instance, within)
    extras = [name for name in instance if name not in declared]
    if validator.is_type(schema, "object"):
        for name in extras:
            yield from validator.descend(instance[name], schema, path=name)
    elif not schema and extras:
        shown = ", ".join(map(repr, sorted(extras)))
        if "patternProperties" in within:
            verb = "does" if len(extras) == 1 else "do"
            patterns = ", ".join(map(repr, sorted(within["patternProperties"])))
            yield ValidationError(f"{shown} {verb} not match any of the regexes: {patterns}")
        else:
            verb = "was" if len(extras) == 1 else "were"
            yield ValidationError(f"Additional properties are not allowed ({shown} {verb} unexpected)")


def _declared(validator: Any, instance: Mapping[str, Any], schema: Mapping[str, Any]) -> set[str]:
    """Return the property names of an object that a schema declares, under the keyword ``properties`` or by a pattern
    in ``patternProperties``.
    """
    contains = validator.format_checker.contains
    declared = set(instance.keys() & schema.get("properties", {}).keys())
    for pattern in schema.get("patternProperties", ()):
        declared |= {name for name in instance if name not in declared and contains(pattern, name)}
    return declared


def _unique_items(validator: Any, is_unique: bool, instance: Any, _schema: Any) -> Iterator[ValidationError]:  # noqa: FBT001
    if not is_unique or not validator.is_type(instance, "array"):
        return
    # One canonical text for each item: a comparison of all pairs would take quadratic time.
    forms = set()
    for item in instance:
        form = _canonical(item)
        validator.format_checker.spend(1 + len(form) // 100)
        forms.add(form)
    if len(forms) < len(instance):
        yield ValidationError(f"{instance!r} has non-unique elements")


def _canonical(value: Any) -> str:
    """Convert a JSON value to a string that is the same for all equal JSON values. ``1.0`` equals ``1``, and neither
    equals ``true``.
    """
    return json.dumps(_plain(value), sort_keys=True)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    # A boolean is not a float, so that ``true`` stays apart from ``1``.
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _multiple_of(validator: Any, factor: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    """Check a number against the keyword ``multipleOf``, with exact decimal numbers: ``0.3`` is a multiple of ``0.1``,
    and no quotient overflows.
    """
    if not validator.is_type(instance, "number"):
        return
    try:
        # The decimal digits as written: the float 0.1 itself is not exactly a tenth.
        is_multiple = Fraction(str(instance)) % Fraction(str(factor)) == 0
    except ValueError:  # not finite, or more digits than Python parses
        is_multiple = False
    if not is_multiple:
        yield ValidationError(f"{instance!r} is not a multiple of {factor!r}")


def _format(validator: Any, name: str, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    is_checked = isinstance(instance, str) and validator.format_checker.has_formats
    if is_checked and not _has_format(name, instance, validator.format_checker):
        yield ValidationError(f"{instance!r} is not a {name!r}")


def _has_format(name: str, text: str, work: Work) -> bool:
    if name == "regex":
        try:
            compiled(text)
        except PatternError:
            return False
        return True
    if name in _ADDRESSES:
        return work.contains(_ADDRESSES[name], text)
    work.spend(len(text) // 10)
    if name in _READERS:
        try:
            _READERS[name](text[: MAX_FORMAT + 1])
        except (ValueError, ZeroDivisionError):
            return False
        return len(text) <= MAX_FORMAT
    # An unknown format fits everything, as the specification demands. Very long strings fit no format.
    return name not in _CHEAP_FORMATS or (len(text) <= MAX_FORMAT and _formats().conforms(text, name))


@cache
def _formats() -> FormatChecker:
    # Some formats need optional libraries, which may be absent.
    return FormatChecker([name for name in _CHEAP_FORMATS if name in FormatChecker.checkers])


def _unevaluated_properties(validator: Any, schema: Any, instance: Any, within: Any) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    evaluated = _evaluated(validator, instance, within, is_top=True)
    remaining = [name for name in instance if name not in evaluated]
    # The first error of a part is enough.
    wrong = [name for name in remaining if next(validator.descend(instance[name], schema), None) is not None]
    if wrong:
        shown = ", ".join(map(repr, sorted(wrong)))
        verb = "was" if len(wrong) == 1 else "were"
        if schema is False:
            yield ValidationError(f"Unevaluated properties are not allowed ({shown} {verb} unexpected)")
        else:
            yield ValidationError(
                f"Unevaluated properties are not valid under the given schema ({shown} {verb} unevaluated and invalid)"
            )


def _unevaluated_items(validator: Any, schema: Any, instance: Any, within: Any) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "array"):
        return
    evaluated = _evaluated(validator, instance, within, is_top=True)
    remaining = [item for index, item in enumerate(instance) if index not in evaluated]
    wrong = [item for item in remaining if next(validator.descend(item, schema), None) is not None]
    if wrong:
        shown = ", ".join(map(repr, wrong))
        verb = "was" if len(wrong) == 1 else "were"
        yield ValidationError(f"Unevaluated items are not allowed ({shown} {verb} unexpected)")


def _evaluated(validator: Any, instance: Any, schema: Any, *, is_top: bool = False) -> set[Any]:
    """Return the parts of a value that a schema has evaluated: property names of an object, or indexes of a list. The
    keywords ``unevaluatedProperties`` and ``unevaluatedItems`` of the schema do not apply to these parts.

    These are the parts to which the keywords of the schema apply, and the parts to which fitting subschemas for the
    same value apply.

    Parameters
    ----------
    is_top
        True for the schema whose ``unevaluated`` keyword is being checked. This keyword itself does not count then.
    """
    if not isinstance(schema, Mapping):
        return set()
    # Each visited subschema costs a step, since references may lead here many times.
    validator.format_checker.spend(1)
    by_keywords = _own_properties if isinstance(instance, Mapping) else _own_items
    evaluated = by_keywords(validator, instance, schema, is_top=is_top)
    # Subschemas that apply to the same value evaluate parts as well: ``allOf: [{properties: ...}]``.
    for below, inner in _in_place(validator, instance, schema):
        evaluated |= _evaluated(below, instance, inner)
    return evaluated


def _own_properties(validator: Any, instance: Any, schema: Any, *, is_top: bool) -> set[Any]:
    # These keywords apply to all remaining properties, and thereby evaluate them. The keyword that is being checked
    # does not count.
    takes_all = "additionalProperties" in schema or ("unevaluatedProperties" in schema and not is_top)
    return set(instance) if takes_all else _declared(validator, instance, schema)


def _own_items(validator: Any, instance: Any, schema: Any, *, is_top: bool) -> set[Any]:
    items = schema.get("items")
    everything = set(range(len(instance)))
    is_prefix = isinstance(items, list)  # dialects before 2020-12
    if (items is not None and not is_prefix) or ("unevaluatedItems" in schema and not is_top):
        return everything
    if is_prefix and "additionalItems" in schema:
        return everything
    # The first items, one for each schema of the prefix.
    evaluated = set(range(min(len(instance), len(items if is_prefix else schema.get("prefixItems", ())))))
    if "contains" in schema:
        contains = validator.evolve(schema=schema["contains"])
        for index, item in enumerate(instance):
            if index not in evaluated and contains.is_valid(item):
                evaluated.add(index)
    return evaluated


def _in_place(validator: Any, instance: Any, schema: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the subschemas of a schema that apply to the whole value, as under ``allOf``, if the value fits them.
    Subschemas for parts of the value, as under ``properties``, are left out. Each is yielded with its validator.

    References and ``allOf``, ``anyOf``, ``oneOf`` come first, then the branch of ``if``, then ``dependentSchemas`` of
    existing properties.
    """
    yield from _referred(validator, schema)
    for keyword in ("allOf", "anyOf", "oneOf"):
        for inner in schema.get(keyword, ()):
            # Only a subschema that the value fits evaluates parts of it.
            if next(validator.descend(instance, inner), None) is None:
                yield validator, inner
    if "if" in schema:
        # ``if`` is not a constraint: it chooses between ``then`` and ``else``, and evaluates parts only if it holds.
        holds = next(validator.descend(instance, schema["if"]), None) is None
        if holds:
            yield validator, schema["if"]
        branch = "then" if holds else "else"
        if branch in schema:
            yield validator, schema[branch]
    for name, inner in schema.get("dependentSchemas", {}).items():
        if isinstance(instance, Mapping) and name in instance:
            yield validator, inner


def _referred(validator: Any, schema: Any) -> Iterator[tuple[Any, Any]]:
    for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
        if keyword in schema and keyword in validator.VALIDATORS:
            resolver = validator._resolver  # noqa: SLF001 - the library has no other way
            is_recursive = keyword == "$recursiveRef"
            # The dynamic reference depends on the path of references that led here, which the resolver knows.
            resolved = lookup_recursive_ref(resolver) if is_recursive else resolver.lookup(schema[keyword])
            yield validator.evolve(schema=resolved.contents, _resolver=resolved.resolver), resolved.contents


_REPLACED: dict[str, Keyword] = {
    "additionalProperties": _additional_properties,
    "format": _format,
    "multipleOf": _multiple_of,
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "unevaluatedItems": _unevaluated_items,
    "unevaluatedProperties": _unevaluated_properties,
    "uniqueItems": _unique_items,
}
