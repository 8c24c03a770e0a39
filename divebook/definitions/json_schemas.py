"""JSON schemas from untrusted sources: checks of a schema, and validation of values with limited work.

Schemas come from definitions, models and MCP servers. Everything about them is therefore limited: their size, their
references (only within the schema; nothing is fetched), their patterns, and the work of one validation. `complaint`
validates a value. `require_schema`, `require_possible_schema` and `check_defined_schema` check a schema without a
value. The limits of a validation are in `divebook.definitions.schema_keywords`, which imports jsonschema and is
therefore loaded when a schema is first used.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NoReturn

from divebook.definitions.yaml_text import yaml_of
from divebook.errors import (
    DefinitionError,
    PatternError,
    Place,
    Problem,
    SchemaLimitError,
    did_you_mean,
)
from divebook.questions import Fitting
from divebook.questions.question import is_narrowed
from divebook.text.patterns import compiled

# --- the graph of subschemas ------------------------------------------------------------------------------------------
#
# A schema is a graph: its subschemas are nodes, and keywords and references are edges. An edge is *in place* if both
# subschemas apply to the same value (``allOf``, ``$ref``). Otherwise it leads into the value (``properties``,
# ``items``). This graph shows without a value: references that leave the schema, endless loops in place
# (``{"$ref": "#"}``), the size with all references expanded, and whether any value can fit.
#
# An example: in ``{"properties": {"next": {"$ref": "#"}}}`` the root has an edge *into the value* to the schema of
# ``next``, which has an edge *in place* back to the root. The loop passes an edge into the value, so that it ends with
# the value, and the schema is valid.


MAX_CHAIN = 100
"""Largest number of schemas in a chain of references and ``allOf`` that apply to the same value."""
MAX_EXPANDED = 100_000
"""Largest number of schemas that apply to one value. A schema counts once for each chain of references to it."""
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_IN_PLACE = "in place"
_INTO = "into the value"
_DEFINED = "defined"
_KEYWORDS: Final = {
    # keyword: kind of its edges, and whether its value is a schema, a list or a mapping of schemas
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


class SchemaFault(Exception):  # noqa: N818 - becomes a DefinitionError, or the complaint about an answer
    """Error in a JSON schema: the reason, the path of the faulty subschema, and a hint.

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


# Nodes are compared by identity, since equal subschemas at two places are two nodes. They serve as keys of dicts.
@dataclass(eq=False)
class Node:
    """Node of a `SchemaGraph`: one subschema of a JSON schema. Its edges lead to the subschemas that it contains or
    refers to.
    """

    schema: Any
    place: Place
    edges: dict[tuple[str | int, ...], tuple[str, Node]] = field(default_factory=dict)
    """Kind and target of each edge. The key is the keyword with the position or name under it."""

    def to(self, keyword: str) -> list[Node]:
        """Return the nodes of the subschemas under a keyword of this subschema, such as all schemas in ``allOf``."""
        return [node for key, (_, node) in self.edges.items() if key[0] == keyword]

    def named(self, keyword: str, name: str | int) -> Node | None:
        """Return the node of the subschema under a keyword and a name (or list position), such as ``properties`` and
        ``price``; None if the schema does not have it.
        """
        return self.edges[keyword, name][1] if (keyword, name) in self.edges else None


class SchemaGraph:
    """Graph of the subschemas of one JSON schema, and of the references between the subschemas.

    The schema must already be valid according to the meta-schema of its dialect.

    Parameters
    ----------
    check
        Function that raises an error for an invalid subschema. It is called for subschemas that have not been checked.
    has_patterns
        True if patterns must be valid.

    Raises
    ------
    SchemaFault
        A reference has no target within the schema, a pattern is not valid, or schemas refer to each other endlessly.
    """

    def __init__(
        self, schema: Any, dialect: str, check: Callable[[Any, Place], None], *, has_patterns: bool = True
    ) -> None:
        # The library is loaded with the first schema: it takes a sixth of the time of `%load_ext`.
        from referencing import Registry
        from referencing.jsonschema import UnknownDialect, specification_with

        self._dialect = dialect
        self._check = check
        self._has_patterns = has_patterns
        self.outside: SchemaFault | None = None
        """Fault of the first reference to another document, which makes the schema unusable; None without one."""
        self._specification = specification_with(dialect)
        # Nodes by the id of their schema object. The schema is freshly parsed from JSON, so that each subschema is one
        # object, which the node keeps alive.
        self._nodes: dict[int, Node] = {}
        # References to follow when all nodes exist: (node, keyword, reference, resolver).
        self._waiting: list[tuple[Node, str, str, Any]] = []
        resource = self._specification.create_resource(schema)
        try:
            # Without a function that fetches, a registry contains only the schema itself. A registry that has not been
            # crawled searches the whole schema for each reference to an anchor or an $id.
            address = resource.id() or ""
            self.resolver = Registry().with_resource(address, resource).crawl().resolver(address)
            self.root = self._node(schema, (), self.resolver)
            while self._waiting:
                self._follow(*self._waiting.pop())
        except (UnknownDialect, ValueError) as error:  # an $id or $schema within it is not a valid address
            raise SchemaFault(f"an $id or $schema in it is not a valid address: {error}") from None
        self._require_bounded()

    def _node(self, schema: Any, place: Place, resolver: Any) -> Node:
        """Return the graph node of a subschema. Create it, and the nodes of all subschemas inside it, if necessary.
        References are followed later.
        """
        if id(schema) in self._nodes:
            return self._nodes[id(schema)]
        node = Node(schema, place)
        if not isinstance(schema, Mapping):
            return node  # true and false are shared, and refer to nothing
        # Before the subschemas: a schema that contains itself in Python must not recurse without end.
        self._nodes[id(schema)] = node
        if place and schema.get("$schema", self._dialect).rstrip("#") != self._dialect:
            raise SchemaFault("a nested schema must not have a different $schema; remove it", (*place, "$schema"))
        # An ``$id`` in the subschema changes the base of the references in it.
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
        """Resolve a reference (``$ref``): add an edge from the node that contains it, and create the nodes of the
        schema to which it refers.
        """
        from referencing.exceptions import Unresolvable
        from referencing.jsonschema import lookup_recursive_ref

        place = (*node.place, keyword)
        try:
            is_recursive = keyword == "$recursiveRef" and reference == "#"  # the only valid value of the keyword
            resolved = lookup_recursive_ref(resolver) if is_recursive else resolver.lookup(reference)
        except Unresolvable:
            fault = SchemaFault(
                f"{keyword} {reference!r} does not refer to a part of this schema, and divebook does not fetch other "
                "documents",
                place,
                "copy the target schema into $defs, and write '#/$defs/NAME'",
            )
            # A reference within this document must have a target. One to another document only makes the schema
            # unusable.
            if reference.startswith("#"):
                raise fault from None
            self.outside = self.outside or fault
            return
        if not isinstance(resolved.contents, bool | Mapping):
            raise SchemaFault(f"{keyword} {reference!r} does not refer to a schema", place)
        if isinstance(resolved.contents, Mapping) and id(resolved.contents) not in self._nodes:
            self._check(resolved.contents, place)  # the target is under a keyword that the dialect does not have
        node.edges[keyword,] = _IN_PLACE, self._node(resolved.contents, place, resolved.resolver)

    def _require_bounded(self) -> None:
        """Raise `SchemaFault` if the references of the schema make the work of validating one value unlimited: they
        form an endless loop, a chain longer than `MAX_CHAIN`, or expand to more than `MAX_EXPANDED` subschemas.

        Nodes are visited after the nodes that they refer to. Length of the longest chain and expanded size of a node
        are computed from the values of its targets.
        """
        chains: dict[Node, int] = {}
        sizes: dict[Node, int] = {}
        # Only edges in place are followed: a loop through an edge into the value ends with the value.
        for node in _children_first(list(self._nodes.values()), _DEFINED, _INTO):
            below = [inner for kind, inner in node.edges.values() if kind == _IN_PLACE]
            if any(inner not in sizes for inner in below):
                # All targets have been visited, except a node that leads back here.
                raise SchemaFault(
                    "its references form a cycle for the same value",
                    node.place,
                    "a schema may refer to itself only under properties or items",
                )
            # For ``a -> b -> c`` the chains are c: 1, b: 2, a: 3. A node that two parents refer to counts in both
            # sizes.
            chains[node] = 1 + max((chains[inner] for inner in below), default=0)
            sizes[node] = 1 + sum(sizes[inner] for inner in below)
            if chains[node] > MAX_CHAIN:
                raise SchemaFault(f"a chain of more than {MAX_CHAIN} references applies to the same value", node.place)
            if sizes[node] > MAX_EXPANDED:
                raise SchemaFault(
                    f"with its references expanded, more than {MAX_EXPANDED:,} schemas apply to the same value",
                    node.place,
                    "refer to large definitions from fewer places",
                )

    # --- whether any value fits --------------------------------------------------------------------------------------

    def require_possible(self, fits: Callable[[Any, Any], bool]) -> None:
        """Raise `SchemaFault` if no value can fit the schema, for example because its keywords contradict each other.

        The set of possible types is computed for each node from the sets of its subschemas, repeatedly until nothing
        changes. ``{"type": "string", "allOf": [{"type": "integer"}]}`` has no possible type.

        Parameters
        ----------
        fits
            Function that validates a value against a subschema, for the values of ``enum`` and ``const``.
        """
        possible: dict[Node, frozenset[str]] = {}
        # Definitions under ``$defs`` that nothing refers to may be impossible.
        nodes = _children_first([self.root], _DEFINED)
        enums = {node: _of_values(node, fits) for node in nodes}
        # All nodes begin as impossible: a schema that contains itself is possible only through values that end.
        for _ in range(MAX_CHAIN):
            before = dict(possible)
            for node in nodes:
                possible[node] = _possible_types(node, possible) & enums[node]
            if possible == before:
                break
        # No result after so many rounds: nothing is claimed about the schema.
        else:
            return
        if not possible[self.root]:
            node, reason = _culprit(self.root, possible, enums)
            raise SchemaFault(f"no value can match it: {reason}", node.place)


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
    """Return all nodes of the schema graph that can be reached from `starts`. The order is depth-first postorder: each
    node comes after the nodes to which its edges lead.

    Edges of the kinds in `without` are not followed.
    """
    # Iterative, because a schema may be nested more deeply than Python's recursion limit.
    ordered: dict[Node, None] = {}
    entered: set[Node] = set()
    # The stack is taken from its end. `reversed` lets the first start be visited first.
    waiting = [(node, False) for node in reversed(starts)]
    while waiting:
        node, is_done = waiting.pop()
        if is_done:
            ordered[node] = None
        elif node not in entered:
            entered.add(node)
            # The node is entered again when everything that was pushed after it is done: this gives the postorder.
            waiting.append((node, True))
            waiting += [(below, False) for kind, below in node.edges.values() if kind not in without]
    return list(ordered)


_SCHEMA_TYPES = frozenset({"null", "boolean", "object", "array", "string", "integer", "fraction"})
"""Types of JSON values. Numbers are split into integers and fractions."""


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
"""Keywords that can be evaluated alone, without other keywords or subschemas."""


def _of_values(node: Node, fits: Callable[[Any, Any], bool]) -> frozenset[str]:
    """Return the JSON types of the values that a subschema lists under ``enum`` or ``const``. Values that its own
    simple keywords, such as ``minLength``, exclude are left out.

    A schema without these two keywords has all types.
    """
    schema = node.schema
    if not isinstance(schema, Mapping) or not schema.keys() & {"enum", "const"}:
        return _SCHEMA_TYPES
    values = [schema["const"]] if "const" in schema else list(schema["enum"])
    rest = {name: value for name, value in schema.items() if name in _SIMPLE}
    # A value that the schema's own limits exclude is not possible: {"enum": ["a"], "minLength": 2}.
    return frozenset(_type_of(value) for value in values if fits(rest, value))


def _type_of(value: Any) -> str:
    """Return the JSON type of a value. A number has the type ``integer`` or ``fraction``.

    A boolean is also an int in Python, and is tested first. JSON does not distinguish ``1.0`` from ``1``.
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "integer" if isinstance(value, int) or value.is_integer() else "fraction"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _possible_types(node: Node, possible: Mapping[Node, frozenset[str]]) -> frozenset[str]:
    """Return the JSON types of the values that may fit a schema, computed from the possible types of its subschemas.

    Subschemas that must all fit (references, ``allOf``) intersect the types. The types of alternatives (``anyOf``,
    ``oneOf``) are united first. ``not`` removes types only if it excludes all their values.
    """
    schema = node.schema
    if not isinstance(schema, Mapping):
        return _SCHEMA_TYPES if schema else frozenset()

    def of(inner: Node) -> frozenset[str]:
        # A node without a result so far has no possible type.
        return possible.get(inner, frozenset())

    types = _named_types(schema.get("type")) - {kind for kind, _ in _impossible(node, possible)}
    for keyword in (*_REFERENCES, "allOf"):
        for inner in node.to(keyword):
            types &= of(inner)
    for keyword in ("anyOf", "oneOf"):
        if schema.get(keyword):
            types &= frozenset().union(*map(of, node.to(keyword)))
    for inner in node.to("not"):
        # ``not: {}`` excludes every value.
        if inner.schema is True or inner.schema == {}:
            return frozenset()
        # Other negations exclude only a part of a type, and leave the type possible.
        if isinstance(inner.schema, Mapping) and inner.schema.keys() == {"type"}:
            types -= _named_types(inner.schema["type"])
    return types


def _impossible(node: Node, possible: Mapping[Node, frozenset[str]]) -> Iterator[tuple[str, str]]:
    """Find the JSON types of which no value can fit a subschema, for example because its limits contradict each other.
    Yield each of these types together with the reason.

    Limits can contradict each other (``minLength`` above ``maxLength``), and parts that must exist can be impossible:
    required properties, items up to ``minItems``, items for ``contains``.
    """
    schema = node.schema
    for kind, low, high in (
        ("string", "minLength", "maxLength"),
        ("array", "minItems", "maxItems"),
        ("object", "minProperties", "maxProperties"),
    ):
        # Absent limits are 0 and infinity.
        if schema.get(low, 0) > schema.get(high, math.inf):
            yield kind, f"{low} {schema[low]} is greater than {high} {schema[high]}"
    yield from _impossible_numbers(schema)
    required = schema.get("required", ())
    if isinstance(required, list):
        additional = next(iter(node.to("additionalProperties")), None)
        for name in required:
            inner = node.named("properties", name)
            # A required property that is not declared falls under ``additionalProperties``, unless a pattern may match
            # its name.
            if inner is None and additional is not None and not schema.get("patternProperties"):
                inner = additional
            if inner is not None and not possible.get(inner):
                yield "object", f"no value is possible for the required property {name!r}"
        if len(set(required)) > schema.get("maxProperties", math.inf):
            yield (
                "object",
                f"{len(set(required))} properties are required, but maxProperties is {schema['maxProperties']}",
            )
    contains = next(iter(node.to("contains")), None)
    # ``contains`` requires one item by default, and none with ``minContains: 0``.
    if contains is not None and not possible.get(contains) and schema.get("minContains", 1) > 0:
        yield "array", "no value can match the schema in `contains`"
    items = node.edges.get(("items",))
    least = max(schema.get("minItems", 0), 0)
    # ``items`` applies behind the items of the prefix.
    if items is not None and not possible.get(items[1]) and least > len(schema.get("prefixItems", ())):
        yield "array", f"minItems is {least}, but no value is possible for items"


def _impossible_numbers(schema: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    low = schema.get("minimum", -math.inf)
    high = schema.get("maximum", math.inf)
    above = schema.get("exclusiveMinimum", -math.inf)
    below = schema.get("exclusiveMaximum", math.inf)
    if isinstance(above, bool) or isinstance(below, bool):  # these keywords have another meaning in draft 4
        return
    # An inclusive limit may equal an inclusive one, but not an exclusive one.
    if low > high or max(low, above) >= below or above >= high:
        reason = f"no number is in the range from {max(low, above)} to {min(high, below)}"
        yield from (("integer", reason), ("fraction", reason))
    elif -math.inf < max(low, above) and min(high, below) < math.inf:
        # The least and the greatest integer in the range: 0.5 <= n < 3 has 1 and 2.
        first = max(low if low == -math.inf else math.ceil(low), above if above == -math.inf else math.floor(above) + 1)
        last = min(high if high == math.inf else math.floor(high), below if below == math.inf else math.ceil(below) - 1)
        if first > last:
            yield "integer", f"no integer is in the range from {max(low, above)} to {min(high, below)}"
        # One number only: it is an integer or a fraction, and the other type is impossible.
        if low == high:
            yield ("fraction" if low == math.floor(low) else "integer"), f"only {low} is allowed"


def _culprit(
    root: Node, possible: Mapping[Node, frozenset[str]], enums: Mapping[Node, frozenset[str]]
) -> tuple[Node, str]:
    """Find the cause why no value can fit a schema. Return the innermost subschema that makes the whole schema
    impossible, and the reason.

    The search begins at the root and follows impossible subschemas, until there is none that was not visited.
    """
    node = root
    visited = {root}
    is_endless = False
    while True:
        causes = [below for keyword in (*_REFERENCES, "allOf", "anyOf", "oneOf") for below in node.to(keyword)]
        required = node.schema.get("required", ()) if isinstance(node.schema, Mapping) else ()
        # If other types are allowed as well, an impossible property does not make the schema impossible.
        if _named_types(node.schema.get("type") if isinstance(node.schema, Mapping) else None) == {"object"}:
            causes += [inner for name in required if (inner := node.named("properties", name)) is not None]
        within = next((below for below in causes if not possible.get(below) and below not in visited), None)
        if within is None:
            # A cause that was visited before, and that is not the node itself, closes a circle.
            is_endless = any(below in visited and below is not node for below in causes)
            break
        node = within
        visited.add(node)
    if not isinstance(node.schema, Mapping):
        return node, "the schema false allows no value"
    if not enums[node]:
        return node, "none of its listed values matches the rest of the schema"
    reasons = dict.fromkeys(reason for _, reason in _impossible(node, possible))
    otherwise = "it contains itself without end" if is_endless else "its parts contradict each other"
    return node, "; ".join(reasons) or otherwise


# --- checks and validation --------------------------------------------------------------------------------------------


MAX_CHARACTERS = 1_000_000
"""Largest number of characters of a schema as JSON."""
MAX_DEPTH = 100
"""Largest number of nested levels of a schema as JSON."""
_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")


def complaint(schema: Mapping[str, Any], value: Any) -> str | None:
    """Validate a value against a JSON schema. Return the most relevant error message; None if the value fits.

    The work is limited, and patterns are matched for at most `divebook.text.patterns.MATCH_SECONDS`. A schema that is
    not valid or exceeds a limit results in an error as well: a value that cannot be checked does not fit.
    """
    # Schemas are cached by their text, because callers pass a new mapping each time.
    try:
        usable = _usable(_json(schema))
        usable.require_whole("Schema")
    except DefinitionError as error:
        return error.problems[0].message
    return usable.complaint(value)


def load() -> None:
    """Import the library jsonschema in advance, because the import takes a second with all its optional
    dependencies.
    """
    from divebook.definitions import schema_keywords  # noqa: F401


def _written(text: str) -> Any:
    return yaml_of(text, "the answer")


FITTING = Fitting(complaint, _written)
"""Validation of answers by schema and parsing of YAML answers, for `divebook.questions.checked_answer`."""


def require_schema(schema: Mapping[str, Any], key: str = "Schema", *, has_patterns: bool = True) -> None:
    """Raise DefinitionError unless `schema` is a usable JSON schema. The error names the faulty part of the schema.

    Parameters
    ----------
    key
        Key of the definition that holds the schema.
    has_patterns
        True if its patterns must be valid in Python. Patterns of a server may be of another language.
    """
    _usable(_json(schema, key), key, has_patterns=has_patterns).require_whole(key)


def require_possible_schema(schema: Mapping[str, Any], key: str = "Schema") -> None:
    """Raise DefinitionError unless `schema` is a usable JSON schema (see `require_schema`) that at least one value can
    fit.
    """
    usable = _usable(_json(schema, key), key)
    usable.require_whole(key)
    usable.require_possible(key)


def check_defined_schema(schema: Mapping[str, Any], key: str = "Schema") -> Problem | None:
    """Check a JSON schema in a definition. Return None if it is valid, or a warning if it refers to another document.

    Such a schema is valid, but no step can use it, because documents are never fetched.

    Raises
    ------
    DefinitionError
        `require_possible_schema` refuses the schema for any other reason.
    """
    usable = _usable(_json(schema, key), key)
    # A reference to another document is only a warning here. Whether any value fits cannot be examined then.
    if usable.outside is None:
        usable.require_possible(key)
        return None
    return replace(_problem(key, usable.outside), severity="warning")


MOST_FAULTS = 3
"""Number of faults that an error names."""


def faults_in_words(error: Any) -> str:
    """Return the first faults of a `pydantic.ValidationError` as one line: places and messages, without the values."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    shown = []
    for fault in faults[:MOST_FAULTS]:
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in fault["loc"])
        # pydantic's prefix for an error that a validator of the class has raised.
        message = fault["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
        shown.append(f"{place.lstrip('.')}: {message}" if place else message)
    more = f"; and {len(faults) - MOST_FAULTS} more" if len(faults) > MOST_FAULTS else ""
    return "; ".join(shown) + more


class _Usable:
    """A valid JSON schema, together with the validator for values and the graph of its subschemas."""

    def __init__(self, validator: Any, graph: SchemaGraph) -> None:
        self._validator = validator
        self._graph = graph
        self.outside = graph.outside
        """Fault of a reference to another document, which makes the schema unusable: documents are never fetched."""

    def require_whole(self, key: str) -> None:
        """Raise DefinitionError if this schema refers to another document. `key` is the key of the definition that has
        the schema.
        """
        if self.outside is not None:
            raise DefinitionError([_problem(key, self.outside)])

    def complaint(self, value: Any) -> str | None:
        """Validate a value against this schema. Return the most relevant error message; None if the value fits."""
        from divebook.definitions.schema_keywords import Work

        # Each validation gets its own budget. The validator itself is shared.
        return _first_error(self._validator.evolve(format_checker=Work()), value)

    def require_possible(self, key: str) -> None:
        """Raise DefinitionError if no value can fit this schema, for example because its keywords contradict each
        other. `key` is the key of the definition that has the schema.
        """
        from divebook.definitions.schema_keywords import Work

        # One budget for all values of the schema together.
        work = Work()

        def fits(schema: Any, value: Any) -> bool:
            return bool(self._validator.evolve(schema=schema, format_checker=work).is_valid(value))

        try:
            self._graph.require_possible(fits)
        except SchemaFault as fault:
            raise DefinitionError([_problem(key, fault)]) from None
        except (PatternError, SchemaLimitError):
            return  # the answer would cost too much work


def _json(schema: Mapping[str, Any], key: str = "Schema") -> str:
    """Convert a JSON schema to a JSON string, under which the checked schema is cached. Raise DefinitionError if the
    schema is not JSON.
    """
    try:
        return json.dumps(schema, default=_plain, allow_nan=False)
    except RecursionError:
        _refuse(key, f"it is nested too deeply; a schema may have {MAX_DEPTH} levels")
    except (TypeError, ValueError) as error:
        _refuse(key, f"it is not JSON: {error}")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


@functools.lru_cache(maxsize=256)
def _usable(text: str, key: str = "Schema", *, has_patterns: bool = True) -> _Usable:
    """Check a JSON schema that is passed as a JSON string, and return it ready for use. Raise DefinitionError if it is
    not valid. The result is cached.
    """
    from divebook.definitions.schema_keywords import DEFAULT_DIALECT, DIALECTS, Work, validator_class

    if len(text) > MAX_CHARACTERS:
        _refuse(key, f"it has more than {MAX_CHARACTERS:,} characters")
    # A copy with plain dicts and lists: no object occurs at two places, and later changes have no effect.
    schema = json.loads(text)
    # Before the library sees the schema: it recurses for each level.
    if _depth(schema) > MAX_DEPTH:
        _refuse(key, f"it is nested more than {MAX_DEPTH} levels deep; put inner parts under $defs")
    dialect = DEFAULT_DIALECT
    if isinstance(schema, dict) and "$schema" in schema:
        # "http://json-schema.org/draft-07/schema#" is written with and without the "#".
        dialect = str(schema["$schema"]).rstrip("#")
        if dialect not in DIALECTS:
            _refuse(
                key,
                f"{schema['$schema']!r} is not a supported dialect",
                ("$schema",),
                f"remove $schema, or write {DEFAULT_DIALECT}",
            )
    form = validator_class(dialect)
    # Validator of schemas: the meta-schema describes the schemas of a dialect.
    of_schemas = form(form.META_SCHEMA)

    def check(part: Any, place: Place) -> None:
        # The graph reports faulty patterns and references with a reason; the meta-schema only that they are invalid.
        _require_valid(of_schemas.evolve(format_checker=Work(has_formats=False)), part, key, place)

    check(schema, ())
    try:
        graph = SchemaGraph(schema, dialect, check, has_patterns=has_patterns)
    except SchemaFault as fault:
        raise DefinitionError([_problem(key, fault)]) from None
    # The validator resolves references with the registry of the graph, and fetches nothing.
    return _Usable(form(schema, _resolver=graph.resolver), graph)


def _require_valid(validator: Any, schema: Any, key: str, place: Place) -> None:
    from jsonschema.exceptions import best_match

    try:
        # `best_match` prefers errors that are less deep in the value.
        error = best_match(validator.iter_errors(schema))
    except SchemaLimitError:
        _refuse(key, "it is too large to be checked", place)
    if error is not None:
        # A misspelled type gets a hint.
        is_type = isinstance(error.instance, str) and list(error.absolute_path)[-1:] == ["type"]
        hint = did_you_mean(error.instance, _TYPES) or f"use {', '.join(_TYPES)}" if is_type else None
        _refuse(key, error.message, (*place, *error.absolute_path), hint)


def _first_error(validator: Any, value: Any) -> str | None:
    """Validate a value with `validator`. Return the most relevant error message, or the reason why the value cannot be
    checked; None if the value fits.
    """
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
    message = str(error.message)
    if error.validator in ("anyOf", "oneOf"):
        message = message.replace("is not valid under any of the given schemas", "has none of the expected forms")
    elif error.validator in ("pattern", "propertyNames") and is_narrowed(error.schema):
        message = f"{error.instance!r} does not have the expected form"
    return f"{where}: {message}" if where else message


def _path(parts: Any) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).lstrip(".")


def _depth(value: Any) -> int:
    """Return the number of nested levels of lists and objects in a JSON value."""
    depth = 0
    level = [value]
    while level:
        below: list[Any] = []
        for part in level:
            if isinstance(part, dict):
                below += part.values()
            elif isinstance(part, list):
                below += part
        level = below
        depth += 1
    return depth


def _problem(key: str, fault: SchemaFault) -> Problem:
    where = f" at {_path(fault.place)}" if fault.place else ""
    message = f"this JSON schema cannot be used{where}: {fault.reason}"
    return Problem(message, key=key, hint=fault.hint, place=(key,))


def _refuse(key: str, reason: str, place: Place = (), hint: str | None = None) -> NoReturn:
    raise DefinitionError([_problem(key, SchemaFault(reason, place, hint))])
