"""JSON schemas: checked where they are defined, compared with values in bounded work, and never fetched.

Schemas come from definitions, models and MCP servers, so that everything about them is limited: their size, what they
refer to (only what is within them), their patterns, and the work of one comparison.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NoReturn

from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import UnknownDialect, lookup_recursive_ref, specification_with

from divebook.errors import DefinitionError, PatternError, Place, Problem, SchemaLimitError, did_you_mean
from divebook.questions import Fitting
from divebook.text.patterns import compiled
from divebook.workflow.yaml_text import yaml_of

# The subschemas of a JSON schema and how they refer to each other, as far as that shows without a value.
#
# A schema is a graph: its subschemas are nodes, and keywords and references lead from one to another. An edge is *in
# place* if both are about the same value (``allOf``, ``$ref``), else it leads into the value (``properties``,
# ``items``). Everything that can be said before there is a value is said of this graph: references that leave the
# schema, loops in place (``{"$ref": "#"}``), its size once every reference is written out, and whether any value fits
# at all.


MAX_CHAIN = 100
"""Schemas that may be about one value by way of each other."""
MAX_EXPANDED = 100_000
"""Schemas that may be about one value, each counted once for every way that leads to it."""
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_IN_PLACE = "in place"
_INTO = "into the value"
_DEFINED = "defined"
_KEYWORDS: Final = {
    # keyword: whether it is about the same value, and whether its value is a schema, a list or a mapping of them
    **dict.fromkeys(("not", "if", "then", "else"), (_IN_PLACE, "one")),
    **dict.fromkeys(("allOf", "anyOf", "oneOf"), (_IN_PLACE, "list")),
    **dict.fromkeys(("dependentSchemas", "dependencies"), (_IN_PLACE, "mapping")),
    **dict.fromkeys(
        (
            "additionalProperties",
            "unevaluatedProperties",
            "additionalItems",
            "unevaluatedItems",
            "contains",
            "propertyNames",
            "contentSchema",
        ),
        (_INTO, "one"),
    ),
    "items": (_INTO, "one or list"),
    "prefixItems": (_INTO, "list"),
    **dict.fromkeys(("properties", "patternProperties"), (_INTO, "mapping")),
    **dict.fromkeys(("$defs", "definitions"), (_DEFINED, "mapping")),
}


class SchemaFault(Exception):  # noqa: N818 - a finding, which becomes a DefinitionError or an answer's complaint
    """A fault of a schema.

    Parameters
    ----------
    place
        Keys and positions within the schema.
    """

    def __init__(self, reason: str, place: Place = (), hint: str | None = None) -> None:
        self.reason = reason
        self.place = place
        self.hint = hint
        super().__init__(reason)


@dataclass(eq=False)
class Node:
    """A subschema."""

    schema: Any
    place: Place
    edges: dict[tuple[str | int, ...], tuple[str, Node]] = field(default_factory=dict)
    """By the keyword, and the position or name under it: whether an edge stays in place, and where it leads."""

    def to(self, keyword: str) -> list[Node]:
        """Return the schemas under a keyword."""
        return [node for key, (_, node) in self.edges.items() if key[0] == keyword]

    def named(self, keyword: str, name: str | int) -> Node | None:
        """Return the schema of a name or position under a keyword."""
        return self.edges[keyword, name][1] if (keyword, name) in self.edges else None


class SchemaGraph:
    """The graph of one schema, which is valid by the schema of its dialect.

    Parameters
    ----------
    check
        Raises an error for a subschema that is not valid, of which that is not known yet.
    has_patterns
        Whether patterns must be valid.

    Raises
    ------
    SchemaFault
        A reference leads to nothing within the schema, a pattern cannot be used, or `loops` finds one.
    """

    def __init__(
        self, schema: Any, dialect: str, check: Callable[[Any, Place], None], *, has_patterns: bool = True
    ) -> None:
        self._dialect = dialect
        self._check = check
        self._has_patterns = has_patterns
        self.outside: SchemaFault | None = None
        """Why the schema cannot be used: one of its references leads to another document."""
        self._specification = specification_with(dialect)
        self._nodes: dict[int, Node] = {}
        self._waiting: list[tuple[Node, str, str, Any]] = []
        resource = self._specification.create_resource(schema)
        try:
            # Without a function that fetches, a registry holds the schema itself and nothing else. A registry that is
            # not crawled searches the whole schema for each reference to an anchor or an $id.
            address = resource.id() or ""
            self.resolver = Registry().with_resource(address, resource).crawl().resolver(address)
            self.root = self._node(schema, (), self.resolver)
            while self._waiting:
                self._follow(*self._waiting.pop())
        except (UnknownDialect, ValueError) as error:  # an address within that is none
            raise SchemaFault(f"an $id or $schema within it is not an address: {error}") from None
        self._require_bounded()

    def _node(self, schema: Any, place: Place, resolver: Any) -> Node:
        if id(schema) in self._nodes:
            return self._nodes[id(schema)]
        node = Node(schema, place)
        if not isinstance(schema, Mapping):
            return node  # true and false are shared, and refer to nothing
        self._nodes[id(schema)] = node
        if place and schema.get("$schema", self._dialect).rstrip("#") != self._dialect:
            raise SchemaFault("a schema within another has the same $schema; leave it out", (*place, "$schema"))
        resolver = resolver.in_subresource(self._specification.create_resource(schema))
        for keyword, (kind, form) in _KEYWORDS.items():
            for key, inner in _schemas_under(keyword, schema.get(keyword), form):
                node.edges[key] = kind, self._node(inner, (*place, *key), resolver)
        for keyword in _REFERENCES:
            if isinstance(schema.get(keyword), str):
                self._waiting.append((node, keyword, schema[keyword], resolver))
        for pattern, at in _patterns(schema) if self._has_patterns else ():
            try:
                compiled(pattern)
            except PatternError as error:
                raise SchemaFault(str(error), (*place, *at)) from None
        return node

    def _follow(self, node: Node, keyword: str, reference: str, resolver: Any) -> None:
        """Add the edge of a reference, and what it leads to."""
        place = (*node.place, keyword)
        try:
            is_recursive = keyword == "$recursiveRef" and reference == "#"  # the only value that it may have
            resolved = lookup_recursive_ref(resolver) if is_recursive else resolver.lookup(reference)
        except Unresolvable:
            fault = SchemaFault(
                f"{keyword} {reference!r} is not within this schema, and nothing is fetched",
                place,
                "put what it refers to under $defs, and write '#/$defs/NAME'",
            )
            if reference.startswith("#"):
                raise fault from None
            self.outside = self.outside or fault
            return
        if not isinstance(resolved.contents, bool | Mapping):
            raise SchemaFault(f"{keyword} {reference!r} does not lead to a schema", place)
        if isinstance(resolved.contents, Mapping) and id(resolved.contents) not in self._nodes:
            self._check(resolved.contents, place)  # under a keyword that the dialect does not know
        node.edges[keyword,] = _IN_PLACE, self._node(resolved.contents, place, resolved.resolver)

    def _require_bounded(self) -> None:
        """Raise `SchemaFault` for a loop in place, and for schemas whose number doubles with each reference."""
        chains: dict[Node, int] = {}
        sizes: dict[Node, int] = {}
        for node in _children_first(list(self._nodes.values()), _DEFINED, _INTO):
            below = [inner for kind, inner in node.edges.values() if kind == _IN_PLACE]
            if any(inner not in sizes for inner in below):
                # All that can be reached from here comes first, but for what leads back here.
                raise SchemaFault(
                    "it refers to itself for the same value, without end",
                    node.place,
                    "a schema may contain itself under properties or items only",
                )
            chains[node] = 1 + max((chains[inner] for inner in below), default=0)
            sizes[node] = 1 + sum(sizes[inner] for inner in below)
            if chains[node] > MAX_CHAIN:
                raise SchemaFault(f"more than {MAX_CHAIN} schemas refer to each other for the same value", node.place)
            if sizes[node] > MAX_EXPANDED:
                raise SchemaFault(
                    f"with its references written out, more than {MAX_EXPANDED:,} schemas are about the same value",
                    node.place,
                    "refer to large definitions from fewer places",
                )

    # --- whether any value fits --------------------------------------------------------------------------------------

    def require_possible(self, fits: Callable[[Any, Any], bool]) -> None:
        """Raise `SchemaFault` if it shows without trying that no value fits.

        Parameters
        ----------
        fits
            Tells whether a value fits a subschema; it is asked about the values of ``enum`` and ``const``.
        """
        possible: dict[Node, frozenset[str]] = {}
        nodes = _children_first([self.root], _DEFINED)
        enums = {node: _of_values(node, fits) for node in nodes}
        # A schema that contains itself is possible only by way of values that end, so that all begin as impossible.
        for _ in range(MAX_CHAIN):
            before = dict(possible)
            for node in nodes:
                possible[node] = _possible_types(node, possible) & enums[node]
            if possible == before:
                break
        else:
            return
        if not possible[self.root]:
            node, reason = _culprit(self.root, possible, enums)
            raise SchemaFault(f"no value fits it: {reason}", node.place)


def _schemas_under(keyword: str, value: Any, form: str) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    if form == "one or list":
        form = "list" if isinstance(value, list) else "one"
    if form == "one" and isinstance(value, bool | Mapping):
        yield (keyword,), value
    elif form == "list" and isinstance(value, list):
        yield from (((keyword, index), inner) for index, inner in enumerate(value))
    elif form == "mapping" and isinstance(value, Mapping):
        # In older dialects a dependency may be a list of names.
        yield from (((keyword, name), inner) for name, inner in value.items() if isinstance(inner, bool | Mapping))


def _patterns(schema: Mapping[str, Any]) -> Iterator[tuple[str, Place]]:
    if isinstance(schema.get("pattern"), str):
        yield schema["pattern"], ("pattern",)
    for pattern in schema.get("patternProperties") or ():
        yield pattern, ("patternProperties", pattern)


def _children_first(starts: list[Node], *without: str) -> list[Node]:
    """Return all nodes below some, those below a node before it, without the edges of some kinds."""
    ordered: dict[Node, None] = {}
    entered: set[Node] = set()
    waiting = [(node, False) for node in reversed(starts)]
    while waiting:
        node, is_done = waiting.pop()
        if is_done:
            ordered[node] = None
        elif node not in entered:
            entered.add(node)
            waiting.append((node, True))
            waiting += [(below, False) for kind, below in node.edges.values() if kind not in without]
    return list(ordered)


# The types of JSON values, numbers as those that are integers and those that are not.
_SCHEMA_TYPES = frozenset({"null", "boolean", "object", "array", "string", "integer", "fraction"})


def _named_types(declared: Any) -> frozenset[str]:
    if declared is None:
        return _SCHEMA_TYPES
    names = [declared] if isinstance(declared, str) else declared
    return frozenset(kind for name in names for kind in (("integer", "fraction") if name == "number" else (name,)))


_SIMPLE = frozenset(
    {
        *("type", "enum", "const", "minLength", "maxLength", "pattern"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    }
)
"""Keywords that say all they say about a value by themselves."""


def _of_values(node: Node, fits: Callable[[Any, Any], bool]) -> frozenset[str]:
    """Return the types of the values that ``enum`` and ``const`` allow and that fit the rest; all without them."""
    schema = node.schema
    if not isinstance(schema, Mapping) or not schema.keys() & {"enum", "const"}:
        return _SCHEMA_TYPES
    values = [schema["const"]] if "const" in schema else list(schema["enum"])
    rest = {name: value for name, value in schema.items() if name in _SIMPLE}
    return frozenset(_type_of(value) for value in values if fits(rest, value))


def _type_of(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    if isinstance(value, int | float):
        return "integer" if isinstance(value, int) or value.is_integer() else "fraction"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def _possible_types(node: Node, possible: Mapping[Node, frozenset[str]]) -> frozenset[str]:
    """Return the types of values that may fit, by what is known of the schemas that it is made of."""
    schema = node.schema
    if not isinstance(schema, Mapping):
        return _SCHEMA_TYPES if schema else frozenset()

    def of(inner: Node) -> frozenset[str]:
        return possible.get(inner, frozenset())

    types = _named_types(schema.get("type")) - {kind for kind, _ in _impossible(node, possible)}
    for keyword in (*_REFERENCES, "allOf"):
        for inner in node.to(keyword):
            types &= of(inner)
    for keyword in ("anyOf", "oneOf"):
        if schema.get(keyword):
            types &= frozenset().union(*map(of, node.to(keyword)))
    for inner in node.to("not"):
        if inner.schema is True or inner.schema == {}:
            return frozenset()
        if isinstance(inner.schema, Mapping) and inner.schema.keys() == {"type"}:
            types -= _named_types(inner.schema["type"])
    return types


def _impossible(node: Node, possible: Mapping[Node, frozenset[str]]) -> Iterator[tuple[str, str]]:
    """Yield the types that no value can have because of the keywords of one schema, and why."""
    schema = node.schema
    for kind, low, high in (
        ("string", "minLength", "maxLength"),
        ("array", "minItems", "maxItems"),
        ("object", "minProperties", "maxProperties"),
    ):
        if schema.get(low, 0) > schema.get(high, math.inf):
            yield kind, f"{low} {schema[low]} is above {high} {schema[high]}"
    yield from _impossible_numbers(schema)
    required = schema.get("required", ())
    if isinstance(required, list):
        others = next(iter(node.to("additionalProperties")), None)
        for name in required:
            inner = node.named("properties", name)
            if inner is None and others is not None and not schema.get("patternProperties"):
                inner = others
            if inner is not None and not possible.get(inner):
                yield "object", f"the required {name!r} can have no value"
        if len(set(required)) > schema.get("maxProperties", math.inf):
            yield "object", f"{len(set(required))} names are required, and maxProperties is {schema['maxProperties']}"
    contains = next(iter(node.to("contains")), None)
    if contains is not None and not possible.get(contains) and schema.get("minContains", 1) > 0:
        yield "array", "nothing can be what contains asks for"
    items = node.edges.get(("items",))
    least = max(schema.get("minItems", 0), 0)
    if items is not None and not possible.get(items[1]) and least > len(schema.get("prefixItems", ())):
        yield "array", f"minItems is {least}, and items can have no value"


def _impossible_numbers(schema: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    low = schema.get("minimum", -math.inf)
    high = schema.get("maximum", math.inf)
    above = schema.get("exclusiveMinimum", -math.inf)
    below = schema.get("exclusiveMaximum", math.inf)
    if isinstance(above, bool) or isinstance(below, bool):  # draft 4 has other meanings
        return
    if low > high or max(low, above) >= below or above >= high:
        reason = f"no number is from {max(low, above)} to {min(high, below)}"
        yield from (("integer", reason), ("fraction", reason))
    elif -math.inf < max(low, above) and min(high, below) < math.inf:
        first = max(low if low == -math.inf else math.ceil(low), above if above == -math.inf else math.floor(above) + 1)
        last = min(high if high == math.inf else math.floor(high), below if below == math.inf else math.ceil(below) - 1)
        if first > last:
            yield "integer", f"no integer is from {max(low, above)} to {min(high, below)}"
        if low == high:
            yield ("fraction" if low == math.floor(low) else "integer"), f"only {low} is allowed"


def _culprit(
    root: Node, possible: Mapping[Node, frozenset[str]], enums: Mapping[Node, frozenset[str]]
) -> tuple[Node, str]:
    """Return the schema that is furthest within the reason why nothing fits, and the reason."""
    node = root
    seen = {root}
    is_endless = False
    while True:
        causes = [below for keyword in (*_REFERENCES, "allOf", "anyOf", "oneOf") for below in node.to(keyword)]
        required = node.schema.get("required", ()) if isinstance(node.schema, Mapping) else ()
        if _named_types(node.schema.get("type") if isinstance(node.schema, Mapping) else None) == {"object"}:
            causes += [inner for name in required if (inner := node.named("properties", name)) is not None]
        within = next((below for below in causes if not possible.get(below) and below not in seen), None)
        if within is None:
            is_endless = any(below in seen and below is not node for below in causes)
            break
        node = within
        seen.add(node)
    if not isinstance(node.schema, Mapping):
        return node, "false allows no value"
    if not enums[node]:
        return node, "none of the values that it names fits the rest of it"
    reasons = dict.fromkeys(reason for _, reason in _impossible(node, possible))
    otherwise = "it contains itself without end" if is_endless else "its parts exclude each other"
    return node, "; ".join(reasons) or otherwise


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
    from divebook.workflow import schema_keywords  # noqa: F401


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
        self._validator = validator
        self._graph = graph
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
    depth = 0
    level = [value]
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

    raise DefinitionError([_problem(key, SchemaFault(reason, place, hint))])
