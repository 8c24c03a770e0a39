"""The reference of keys: complete, equal to its page, and found by the names that people use."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest

from divebook.definitions import schema
from divebook.definitions.stored_form import Definition
from divebook.definitions.table import Key, Table
from divebook.errors import NotFoundError

PAGE = Path(__file__).parents[2] / "notebooks" / "KEYS.md"


def test_every_key_says_what_it_means():
    assert not [key for table in schema.TABLES.values() for key in table.keys if not key.means.endswith(".")]


def test_the_page_is_what_the_schema_says():
    assert PAGE.read_text(encoding="utf-8") == schema.page() + "\n"


@pytest.mark.parametrize("name", ["Step", "step", "Steps", "STEP"])
def test_a_part_is_found_by_its_name_or_by_the_key_that_holds_it(name):
    assert schema.reference(name)[0] == "step"


@pytest.mark.parametrize(
    ("name", "label"), [("Next", "Next entry"), ("mcp_servers", "MCP server"), ("Content", "content entry")]
)
def test_a_part_of_another_name_is_found_by_its_key(name, label):
    assert schema.reference(name)[0] == label


def test_an_unknown_part_names_the_nearest():
    with pytest.raises(NotFoundError, match="agent"):
        schema.reference("agnt")


@dataclass(frozen=True)
class Thing(Definition):
    now: Annotated[str, Key("When.", formerly=("Then",))] = ""


def test_former_names_are_shown(monkeypatch):
    monkeypatch.setitem(schema.TABLES, "thing", Table("thing", Thing))
    assert schema.reference("thing")[1] == [schema.KeyLine("Now", "string", "When.", "formerly Then")]
