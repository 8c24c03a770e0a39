"""JSON schemas of others: refused where they cannot be used, compared in bounded work, never fetched."""

import json
import socket
import urllib.request
from contextlib import suppress
from random import Random

import pytest
from jsonschema import Draft7Validator, Draft201909Validator, Draft202012Validator

from divebook import Agent, Environment, Step, Workflow
from divebook.definitions.json_schemas import check_defined_schema, complaint, require_possible_schema, require_schema
from divebook.definitions.reader import read_definitions
from divebook.errors import DefinitionError
from tests.processor_time import processor_time_at_most

PLACES = [
    "http://127.0.0.1:1/a",
    "https://example.org/a#/b",
    "file:///etc/passwd",
    "ftp://h/x",
    "other.json#/a",
    "//h/a",
]
PLACES += ["data:application/json,{}", "urn:a:b", "#/$defs/none", "#anchor", "http://[", "%00", "a b"]
PLACES += ["https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema#"]


def around(schema):
    """Return schemas in which another one stands at each kind of place."""
    yield from ({keyword: schema} for keyword in ("not", "if", "items", "contains", "propertyNames"))
    yield from ({keyword: [{}, schema]} for keyword in ("allOf", "anyOf", "oneOf", "prefixItems"))
    yield from ({keyword: {"a": schema}} for keyword in ("properties", "$defs", "dependentSchemas", "definitions"))
    yield {"patternProperties": {"^a": schema}}
    yield {"additionalProperties": schema, "unevaluatedItems": schema, "unevaluatedProperties": schema}
    yield {"$ref": "#/x/y", "x": {"y": schema}}
    yield {"$id": "http://127.0.0.1:1/root", "properties": {"a": {"$id": "inner", "items": schema}}}


@pytest.fixture
def alone(monkeypatch):
    """Let nothing be opened or connected to."""

    def refused(*_, **__):
        raise AssertionError("something was fetched")

    for place, name in ((socket.socket, "connect"), (urllib.request, "urlopen"), (socket, "create_connection")):
        monkeypatch.setattr(place, name, refused)
    require_schema({"type": "object"})  # what is loaded with the libraries is loaded now
    complaint({"properties": {"a": {"format": "date"}}}, {"a": ""})
    monkeypatch.setattr("builtins.open", refused)
    monkeypatch.setattr("pathlib.Path.open", refused)


@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef", "$recursiveRef"])
def test_a_reference_out_of_the_schema_is_refused_by_name_and_never_fetched(alone, keyword):
    count = 0
    for reference in PLACES:
        for schema in ({keyword: reference}, *around({keyword: reference})):
            with pytest.raises(DefinitionError) as caught:
                require_schema(schema)
            with suppress(DefinitionError):  # an address that is none, and a loop, are refused at once
                assert check_defined_schema(schema).severity == "warning"
            count += 1
            assert repr(reference) in str(caught.value) or "is not a valid address" in str(caught.value), schema
            assert "cannot be used" in complaint(schema, {"a": [{"a": 1}]})
    assert count == len(PLACES) * 18


ELSEWHERE = """
Agents:
- {Name: a, Model: scripted, Output: {properties: {n: {$ref: "file:///etc/passwd"}}}, Script: [{output: {n: 1}}]}
Workflows:
- {Name: asks, Steps: [{Name: s, Ask: {Question: "Which?", Schema: {$ref: "file:///etc/passwd"}}, Store: v}]}
- {Name: prompts, Steps: [{Name: s, Agent: a, Prompt: go, Store: v}]}
- {Name: wants, Steps: [{Name: s, Agent: a, Prompt: go, Output: {$ref: "file:///etc/passwd"}, Store: v}]}
"""


def test_a_step_whose_schema_refers_to_another_document_fails_before_anybody_is_asked():
    """Such a schema is valid, so that the rest of its file can be used; a warning names the step."""
    world = Environment(store="memory:")
    defined = read_definitions(ELSEWHERE)
    warnings = [problem.message for problem in defined.warnings]
    assert len(warnings) == 2
    assert all(
        "$ref 'file:///etc/passwd' does not refer to a part of this schema, and divebook does not fetch other documents"
        in it
        for it in warnings
    )
    world.define(defined)
    for name in ("asks", "prompts", "wants"):
        run = world.start(name).wait(20)
        assert (run.status, run.open_questions, run.requests) == ("failed", [], [])
        assert (
            "'file:///etc/passwd' does not refer to a part of this schema, and divebook does not fetch other documents"
            in run.error
        )


@pytest.mark.parametrize("dialect", ["http://127.0.0.1:1/meta", "file:///etc/passwd", "urn:x", ""])
def test_an_unknown_dialect_is_refused_and_never_fetched(alone, dialect):
    for schema in ({"$schema": dialect}, {"properties": {"a": {"$schema": dialect, "type": "object"}}}):
        with pytest.raises(DefinitionError, match=r"at (properties\.a\.)?\$schema"):
            require_schema(schema)


WITHIN = [
    ({"$defs": {"n": {"type": "integer"}}, "$ref": "#/$defs/n"}, 1, "x"),
    ({"$defs": {"n": {"$anchor": "here", "type": "integer"}}, "$ref": "#here"}, 1, "x"),
    ({"$id": "http://h/a", "$defs": {"n": {"$id": "n", "type": "integer"}}, "items": {"$ref": "n"}}, [1], ["x"]),
    ({"$id": "http://h/a", "$ref": "http://h/b", "$defs": {"n": {"$id": "b", "type": "integer"}}}, 1, "x"),
    ({"type": "object", "properties": {"a": {"$ref": "#"}}}, {"a": {"a": {}}}, {"a": {"a": 1}}),
    ({"$dynamicAnchor": "n", "type": "object", "properties": {"a": {"$dynamicRef": "#n"}}}, {"a": {}}, {"a": {"a": 1}}),
    ({"x": {"y": {"type": "integer"}}, "$ref": "#/x/y"}, 1, "x"),
    ({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "integer"}]}, [1, "x"], ["x"]),
    ({"$schema": "http://json-schema.org/draft-04/schema#", "maximum": 3, "exclusiveMaximum": True}, 2, 3),
    ({"const": {"$ref": "http://127.0.0.1:1/"}}, {"$ref": "http://127.0.0.1:1/"}, {}),
    ({"properties": {"$ref": {"type": "string"}}}, {"$ref": "http://127.0.0.1:1/"}, {"$ref": 1}),
]


@pytest.mark.parametrize(("schema", "fits", "unfit"), WITHIN, ids=lambda value: json.dumps(value)[:30])
def test_references_within_the_schema_are_followed(alone, schema, fits, unfit):
    require_possible_schema(schema)
    assert complaint(schema, fits) is None
    assert complaint(schema, unfit)


LOOPS = [
    {"$ref": "#"},
    {"allOf": [{"$ref": "#"}]},
    {"anyOf": [{"type": "string"}, {"$ref": "#"}]},
    {"not": {"$ref": "#"}},
    {"if": {"$ref": "#/$defs/a"}, "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"oneOf": [{"$ref": "#/$defs/a"}]}}},
    {"dependentSchemas": {"a": {"$ref": "#"}}},
    {"$dynamicAnchor": "n", "$dynamicRef": "#n"},
    {"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveAnchor": True, "$recursiveRef": "#"},
    {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
]


@pytest.mark.parametrize("schema", LOOPS, ids=json.dumps)
def test_a_schema_that_refers_to_itself_without_end_is_refused(schema):
    with pytest.raises(DefinitionError, match="its references form a cycle for the same value"):
        require_schema(schema)
    assert "form a cycle" in complaint(schema, {"a": 1})


def chain(length, make):
    """Return a schema of definitions of which each is made of references to the next."""
    made = {f"d{at}": make({"$ref": f"#/$defs/d{at + 1}"}) for at in range(length)}
    return {"$defs": {**made, f"d{length}": {"type": "string"}}, "$ref": "#/$defs/d0"}


DEEP = {"type": "object"}
for _ in range(400):
    DEEP = {"type": "object", "properties": {"a": DEEP}}
BOMBS = [
    (chain(60, lambda next_one: {"allOf": [next_one, next_one]}), "more than 100,000 schemas"),
    (chain(60, lambda next_one: {"anyOf": [next_one, next_one], "not": next_one}), "more than 100,000 schemas"),
    (chain(60, lambda next_one: {"if": next_one, "then": next_one, "else": next_one}), "more than 100,000 schemas"),
    (chain(500, lambda next_one: next_one), "a chain of more than 100 references"),
    (DEEP, "nested more than 100 levels deep"),
    ({"pattern": "((a{1000}){1000}){1000}"}, "repeats more than 100,000 parts"),
    ({"patternProperties": {"(": {}}}, "is not a regular expression"),
    ({"description": "x" * 1_100_000}, "more than 1,000,000 characters"),
    ({"anyOf": [{"type": "string"}] * 40_000}, "too large to be checked"),
]


@pytest.mark.parametrize(("schema", "reason"), BOMBS, ids=[reason for _, reason in BOMBS])
def test_a_schema_that_takes_too_much_work_is_refused(schema, reason):
    with pytest.raises(DefinitionError, match=reason):
        require_schema(schema)


LIMITED = [
    ({"pattern": "^(a|aa)+$"}, "a" * 90 + "!", "took longer"),
    ({"patternProperties": {"^(a|aa)+$": {}}, "additionalProperties": False}, {"a" * 90 + "!": 1}, "took longer"),
    ({"patternProperties": {"^(a|aa)+$": {}}, "unevaluatedProperties": False}, {"a" * 90 + "!": 1}, "took longer"),
    ({"propertyNames": {"pattern": "^(a|aa)+$"}}, {"a" * 90 + "!": 1}, "took longer"),
    ({"allOf": [{"type": "string"}] * 3_000}, list(range(20_000)), "more than 1,000,000 steps"),
    ({"items": {"anyOf": [{"enum": list(range(500))}] * 50}}, [-1] * 5_000, "more than 1,000,000 steps"),
    ({"additionalProperties": {"$ref": "#"}, "items": {"$ref": "#"}}, None, "nested too deeply"),
]


@pytest.mark.parametrize(("schema", "value", "reason"), LIMITED, ids=[str(at) for at in range(len(LIMITED))])
def test_a_comparison_that_takes_too_much_work_ends_with_its_limit(schema, value, reason, monkeypatch):
    if reason == "took longer":
        monkeypatch.setattr("divebook.text.patterns.MATCH_SECONDS", 0.2)
    if value is None:
        value = []
        for _ in range(900):
            value = [value]
    assert reason in complaint(schema, value)


LARGE = [
    ({"uniqueItems": True}, [{"a": at} for at in range(20_000)], True),
    ({"uniqueItems": True}, [1, True, "1", [1], [True], None, 0, False], True),
    ({"uniqueItems": True}, [{"a": 1, "b": 2.0}, {"b": 2, "a": 1.0}], False),
    ({"contains": {"type": "integer"}, "unevaluatedItems": False}, list(range(20_000)), True),
    ({"properties": {f"p{at}": {} for at in range(2_000)}, "unevaluatedProperties": False}, {"p1": 1, "q": 1}, False),
    ({"multipleOf": 0.1}, 0.3, True),
    ({"multipleOf": 0.1}, 0.35, False),
    ({"multipleOf": 0.5}, 10**400, True),
    ({"multipleOf": 1e-300}, 1e300, True),
    ({"multipleOf": 7}, float("inf"), False),
    ({"format": "iri"}, "http://h/" + "ä/" * 50_000, True),
    ({"format": "uri"}, "http://h/a b", False),
    ({"format": "date-time"}, "2026-01-02T03:04:05." + "1" * 100_000 + "Z", False),
    ({"format": "regex"}, "((a{1000}){1000}){1000}", False),
    ({"type": "string"}, 10**5_000, False),
]


@pytest.mark.parametrize(("schema", "value", "fits"), LARGE, ids=[str(at) for at in range(len(LARGE))])
def test_large_and_odd_values_are_compared(schema, value, fits):
    assert (complaint(schema, value) is None) is fits


def made_schema(random, depth=0):
    """Return a random schema of keywords that say something of small values."""
    schema = {}
    for _ in range(random.randint(1, 3)):
        inner = [made_schema(random, depth + 1) if depth < 3 else {} for _ in range(2)]
        keyword, value = random.choice(
            [
                ("type", random.choice(["string", "integer", "number", "object", "array", ["null", "boolean"]])),
                ("enum", [1, "a", None, [1]]),
                ("const", random.choice([1, True, "a", 1.0])),
                ("minLength", random.randint(0, 2)),
                ("maxLength", random.randint(0, 2)),
                ("pattern", random.choice(["^a", "b$", "a|b"])),
                ("minimum", random.choice([0, 1, 1.5])),
                ("exclusiveMaximum", random.choice([1, 2, 2.5])),
                ("multipleOf", random.choice([1, 2, 0.5])),
                ("properties", {"a": inner[0], "b": inner[1]}),
                ("patternProperties", {"^a": inner[0]}),
                ("additionalProperties", random.choice([False, inner[0]])),
                ("unevaluatedProperties", random.choice([False, inner[0]])),
                ("required", random.choice([["a"], ["a", "b"]])),
                ("propertyNames", {"maxLength": 1}),
                ("minProperties", random.randint(0, 2)),
                ("maxProperties", random.randint(0, 2)),
                ("dependentSchemas", {"a": inner[0]}),
                ("items", inner[0]),
                ("prefixItems", inner),
                ("contains", inner[0]),
                ("unevaluatedItems", random.choice([False, inner[0]])),
                ("minItems", random.randint(0, 2)),
                ("maxItems", random.randint(0, 2)),
                ("uniqueItems", True),
                ("allOf", inner),
                ("anyOf", inner),
                ("oneOf", inner),
                ("not", inner[0]),
                ("if", inner[0]),
                ("then", inner[1]),
            ]
        )
        schema[keyword] = value
    return schema


def made_value(random, depth=0):
    plain = [None, True, False, 0, 1, 2, 1.5, 1.0, "", "a", "b", "ab", "abc"]
    if depth > 2 or random.random() < 0.5:
        return random.choice(plain)
    inner = [made_value(random, depth + 1) for _ in range(random.randint(0, 3))]
    return inner if random.random() < 0.5 else dict(zip(("a", "b", "c"), inner, strict=False))


DIALECTS = {
    "https://json-schema.org/draft/2020-12/schema": (Draft202012Validator, set()),
    "https://json-schema.org/draft/2019-09/schema": (Draft201909Validator, {"prefixItems", "contains"}),
    "http://json-schema.org/draft-07/schema#": (Draft7Validator, set()),
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_hundreds_of_schemas_say_what_the_library_says(dialect):
    random = Random(11)
    library, left_out = DIALECTS[dialect]
    verdicts = {True: 0, False: 0}
    for _ in range(250):
        schema = {"$schema": dialect, **made_schema(random)}
        if any(f'"{keyword}"' in json.dumps(schema) for keyword in left_out):
            continue
        for _ in range(5):
            value = made_value(random)
            fits = complaint(schema, value) is None
            assert fits == library(schema).is_valid(value), (schema, value)
            verdicts[fits] += 1
    assert min(verdicts.values()) > 100, verdicts


def test_a_schema_that_a_value_fits_is_never_called_impossible():
    random = Random(12)
    refused = 0
    for _ in range(1_000):
        schema = made_schema(random)
        try:
            require_possible_schema(schema)
        except DefinitionError as error:
            assert "no value can match it" in str(error), schema  # noqa: PT017 - or it is possible
            refused += 1
            fitting = [value for _ in range(40) if complaint(schema, value := made_value(random)) is None]
            assert fitting == [], schema
    assert refused > 5


IMPOSSIBLE = [
    (False, "false allows no value"),
    ({"enum": []}, "none of its listed values"),
    ({"type": "string", "const": 5}, "none of its listed values"),
    ({"type": "string", "minLength": 5, "maxLength": 3}, "minLength 5 is greater than maxLength 3"),
    ({"type": "integer", "minimum": 1.2, "maximum": 1.8}, "no integer is in the range from 1.2 to 1.8"),
    ({"type": "number", "exclusiveMinimum": 1, "maximum": 1}, "no number"),
    ({"allOf": [{"type": "string"}, {"type": "integer"}]}, "contradict each other"),
    ({"not": {}}, "contradict each other"),
    ({"type": "object", "properties": {"a": False}, "required": ["a"]}, r"at properties.a: .*false allows no value"),
    (
        {"type": "object", "required": ["a"], "additionalProperties": False},
        "no value is possible for the required property 'a'",
    ),
    (
        {"type": "object", "required": ["a", "b"], "maxProperties": 1},
        "2 properties are required, but maxProperties is 1",
    ),
    ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "contains itself without end"),
    ({"type": "array", "items": {"$ref": "#"}, "minItems": 1}, "no value is possible for items"),
    ({"anyOf": [{"type": "string", "minLength": 2, "maxLength": 1}, {"enum": []}]}, "no value can match it"),
]


@pytest.mark.parametrize(("schema", "reason"), IMPOSSIBLE, ids=[str(at) for at in range(len(IMPOSSIBLE))])
def test_a_schema_that_nothing_fits_is_refused_where_it_shows(schema, reason):
    with pytest.raises(DefinitionError, match=reason):
        require_possible_schema(schema)


@pytest.mark.parametrize("schema", [{"type": "objekt"}, {"type": "string", "pattern": "("}, {"$ref": "#/x"}])
def test_definitions_with_such_schemas_are_refused_with_their_line(schema):
    written = json.dumps(schema)
    asks = f"Workflows:\n- Name: w\n  Steps:\n  - Name: q\n    Ask:\n      Question: Which?\n      Schema: {written}\n"
    agent = f"Agents:\n- Name: a\n  Model: scripted\n  Output: {written}\n"
    step = f"Workflows:\n- Name: w\n  Steps:\n  - Name: q\n    Agent: a\n    Prompt: x\n    Output: {written}\n"
    for text, line in ((asks, 7), (agent, 4), (step, 7)):
        with pytest.raises(DefinitionError, match="this JSON schema cannot be used at") as caught:
            read_definitions(text, source_name="t")
        assert caught.value.problems[0].line == line, str(caught.value)
    with pytest.raises(DefinitionError, match="cannot be used"):
        Agent("a", output=schema)


@pytest.mark.parametrize(
    ("ask", "is_sound"),
    [
        ({"schema": {"type": "integer"}, "default": "many"}, False),
        ({"schema": {"type": "integer"}, "default": 3}, True),
        ({"kind": "confirmation", "default": "perhaps"}, False),
        ({"kind": "confirmation", "default": False}, True),
        ({"schema": {"type": "object", "required": ["n"]}, "default": {"data": {}}}, False),
        ({"schema": {"type": "object", "required": ["n"]}, "default": {"n": 1}}, True),
    ],
)
def test_a_default_that_does_not_fit_is_refused(ask, is_sound):
    def made():
        return Workflow("w", [Step("q", ask={"question": "Which?", "expires_in": "1h", **ask})])

    if is_sound:
        made()
        return
    with pytest.raises(DefinitionError, match="Default is not a valid answer"):
        made()


NAMES = [f"p{number}" for number in range(2_000)]
EMPTY = {name: {} for name in NAMES}
ANCHORS = {name: {"$anchor": name} for name in NAMES}
ADDRESSES = {name: {"$id": f"http://example.org/{name}"} for name in NAMES}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"properties": EMPTY, "additionalProperties": False}, dict.fromkeys(NAMES, 1)),
        ({"patternProperties": {"^p": {}}, "additionalProperties": False}, dict.fromkeys(NAMES, 1)),
        ({"type": "object", "properties": EMPTY, "required": NAMES}, dict.fromkeys(NAMES, 1)),
        ({"$defs": ANCHORS, "items": {"$ref": "#p7"}}, [1] * 2_000),
        ({"$defs": ANCHORS, "properties": {name: {"$ref": f"#{name}"} for name in NAMES}}, dict.fromkeys(NAMES, 1)),
        ({"$defs": ADDRESSES, "items": {"$ref": "http://example.org/p7"}}, [1] * 2_000),
    ],
    ids=["properties", "patternProperties", "required", "anchor", "anchors", "address"],
)
def test_large_schemas_take_time_in_proportion_to_their_size(schema, value):
    with processor_time_at_most(15):  # it takes 1 s
        require_possible_schema(schema)
        assert complaint(schema, value) is None
