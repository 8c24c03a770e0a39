"""What a model sees of a function, and what the function is called with."""

import asyncio

import pytest
from pydantic import BaseModel

from divebook.agents.signatures import library_tool
from divebook.definitions.tools import ToolFunction, tool, tool_of
from divebook.errors import DefinitionError


class Place(BaseModel):
    city: str
    zip: int = 0


def search(ctx: str, query: str, limit: int = 5, place: Place | None = None, idempotency_key: str = "") -> list[str]:
    """Find passages.

    Parameters
    ----------
    query
        What to look for.
    """
    return [ctx, query, str(limit), str(place), idempotency_key]


def google(query: str) -> str:
    """Find.

    Args:
        query: What to look for.
    """
    return query


def sphinx(query: str) -> str:
    """Find.

    :param query: What to look for.
    """
    return query


async def call(known, arguments):
    return known.name, arguments


def made_of(function, arguments):
    made = library_tool(tool_of(function), call)
    given = made.function_schema.validator.validate_python(arguments)
    return made, asyncio.run(made.function_schema.call(given, None))


def test_a_schema_says_what_signature_and_docstring_say_without_what_comes_with_the_call():
    made, called = made_of(search, {"ctx": "c", "query": "q", "place": {"city": "Ulm"}})
    schema = made.function_schema.json_schema
    assert (made.name, made.description, schema["required"]) == ("search", "Find passages.", ["ctx", "query"])
    assert list(schema["properties"]) == ["ctx", "query", "limit", "place"]
    assert schema["properties"]["query"]["description"] == "What to look for."
    assert called == ("search", {"ctx": "c", "query": "q", "limit": 5, "place": Place(city="Ulm")})


@pytest.mark.parametrize("function", [google, sphinx])
def test_docstrings_of_other_styles_are_read(function):
    made, _ = made_of(function, {"query": "q"})
    assert made.description == "Find."
    assert made.function_schema.json_schema["properties"]["query"]["description"] == "What to look for."


def test_a_description_and_a_schema_that_are_given_win():
    tool("seek", description="Look it up.")(google)
    assert made_of(google, {"query": "q"})[0].description == "Look it up."
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    made, called = made_of(ToolFunction("far", lambda **_: None, "Far away.", schema=schema), {"n": 1})
    assert (made.function_schema.json_schema, made.description, called) == (schema, "Far away.", ("far", {"n": 1}))


def odd(query: "Nowhere") -> None: ...  # noqa: F821 - the name is not defined, which is what is tested


def test_a_type_without_a_schema_is_refused_with_its_tool():
    with pytest.raises(DefinitionError, match=r'parameters of tool "odd" cannot be described to a model: .*Nowhere'):
        library_tool(tool_of(odd), call)


def test_a_function_that_is_shown_again_is_shown_as_it_is_then():
    def made(default, hint, doc):
        def look(name: hint = default):
            return name

        look.__doc__ = doc
        return library_tool(tool_of(look), call)

    first = made("owl", str, "Look.")
    again, other, number, said = (
        made("owl", str, "Look."),
        made("wren", str, "Look."),
        made(1, int, "Look."),
        made("owl", str, "See."),
    )
    assert again.function_schema.json_schema == first.function_schema.json_schema
    assert again.function_schema.function is again.function is not first.function
    assert other.function_schema.json_schema["properties"]["name"]["default"] == "wren"
    assert number.function_schema.json_schema["properties"]["name"]["type"] == "integer"
    assert said.description == "See."


def test_a_class_that_is_made_anew_is_seen_as_it_is_then():
    def made(**fields):
        cls = type("Place", (BaseModel,), {"__annotations__": fields})

        def look(place: cls, more: int = 0):
            return place

        return library_tool(tool_of(look), call).function_schema.json_schema

    assert list(made(city=str)["$defs"]["Place"]["properties"]) == ["city"]
    assert list(made(town=str)["$defs"]["Place"]["properties"]) == ["town"]
