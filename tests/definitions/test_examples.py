"""Every key has an example, and each example is read without a word."""

import pytest

from divebook.definitions.schema import TABLES, reference
from divebook.definitions.table import Reading
from divebook.definitions.yaml_text import parse_yaml

KEYS = [(label, line) for label in TABLES for line in reference(label)[1] if "an error" not in line.notes]


@pytest.mark.parametrize(("label", "line"), KEYS, ids=lambda value: getattr(value, "key", value))
def test_the_example_of_a_key_is_read_without_a_problem(label, line):
    reading = Reading(line.example)
    TABLES[label].read(parse_yaml(reading), (), reading)
    about_it = [problem.message for problem in reading.problems if line.key in problem.place and problem.key != "Name"]
    assert line.example.startswith(f"{line.key}: ")
    assert about_it == []
