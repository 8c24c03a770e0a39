"""Sizes of memory and disk as people write them, in definitions of workspaces and of development environments."""

import json
import re
from importlib.resources import files

import pytest
from docker.utils import parse_bytes

from divebook.definitions.resources import is_memory
from divebook.text.format import parse_size

NUMBERS = ("0", "1", "512", "1024", "1.5", "0.25", "9999999")
LETTERS = ("", "b", "k", "m", "g", "t", "kb", "mb", "gb", "tb")
SIZES = [f"{number}{letter}" for number in NUMBERS for letter in LETTERS]


@pytest.mark.parametrize("text", [*SIZES, *map(str.upper, SIZES)])
def test_a_size_is_read_as_the_container_engine_reads_it(text):
    if "t" in text.lower():  # docker-py has no terabytes; the engine gets numbers
        assert parse_size(text) == 1024 * parse_size(re.sub("t", "g", text, flags=re.IGNORECASE))
    else:
        assert parse_size(text) == int(parse_bytes(text))
    assert is_memory(text) is (parse_size(text) > 0)


@pytest.mark.parametrize("limit", ["memory", "disk"])
def test_a_size_that_a_template_may_have_is_a_size(limit):
    schema = json.loads((files("divebook.devenv") / "config.schema.json").read_text("utf-8"))
    (pattern,) = {found["pattern"] for found in objects(schema, limit) if "pattern" in found}
    fitting = [text for text in [*SIZES, *map(str.upper, SIZES)] if re.search(pattern, text)]
    assert {"512", "1.5m", "1.5M", "512g"} <= {*fitting}
    assert all(parse_size(text) >= 0 for text in fitting)


def objects(schema, name):
    """Yield the schemas of all properties of this name."""
    if isinstance(schema, dict):
        yield from (value for key, value in schema.items() if key == name and isinstance(value, dict))
        for value in schema.values():
            yield from objects(value, name)


NONE = ["", "m", "b", ".", ".m", "-1", "1 m", " 1", "1x", "1mm", "1bb", "inf", "nan", "1_0", "1e999", "9" * 61, "٣"]


@pytest.mark.parametrize("text", NONE)
def test_another_text_is_no_size(text):
    with pytest.raises(ValueError, match="is not a size such as 512m"):
        parse_size(text)
    assert not is_memory(text)


@pytest.mark.parametrize("value", [None, 5, 1.5, True, "0m", "0.0g", "9" * 17])
def test_what_is_no_amount_of_memory_above_0(value):
    assert not is_memory(value)
