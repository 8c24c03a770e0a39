"""Every field of a definition has a key, or is known to have none."""

import inspect
from dataclasses import fields

import pytest

from divebook.definitions import schema
from divebook.definitions.step import Retry
from divebook.definitions.table import Table, snake_case

TABLES = [(table, table.definition) for table in vars(schema).values() if isinstance(table, Table)]
NOT_WRITTEN = {
    "has_default",
    "has_policies",
    "blocks",
    "fingerprints",
    "dialect",
    "source",
    "written",
    "warnings",
    "positions",
    "is_text",
}


@pytest.mark.parametrize(("table", "record"), TABLES, ids=lambda value: getattr(value, "label", None))
def test_every_field_has_a_key(table, record):
    unwritten = NOT_WRITTEN - {key.field for key in table.keys}
    written = {entry.name for entry in fields(record) if entry.init} - unwritten
    assert {key.field for key in table.keys} == written | {key.field for key in table.more}


@pytest.mark.parametrize(
    ("key", "spelling"),
    [
        ("ResponseTimeout", "response_timeout"),
        ("MCPServers", "mcp_servers"),
        ("URL", "url"),
        ("ID", "id"),
        ("PKCEEnabled", "pkce_enabled"),
        ("RedirectURI", "redirect_uri"),
        ("OAuth", "oauth"),
        ("DynamicFrom", "dynamic_from"),
    ],
)
def test_the_other_spelling_of_a_key(key, spelling):
    assert snake_case(key) == spelling


@pytest.mark.parametrize(("table", "record"), TABLES, ids=lambda value: getattr(value, "label", None))
def test_signatures_show_types_alone(table, record):
    signature = inspect.signature(record)
    assert "Key(" not in str(signature)
    assert "Annotated" not in str(signature)


def test_a_signature_shows_the_type_of_each_field():
    shown = str(inspect.signature(Retry))
    assert "attempts: 'int' = 3" in shown
    assert "errors: 'tuple[str, ...]' = ()" in shown
