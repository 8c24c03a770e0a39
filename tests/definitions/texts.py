"""Definition texts for tests, and what is said about wrong ones."""

import pytest

from divebook.definitions.reader import read_definitions
from divebook.errors import DefinitionError


def problems_of(text, **options):
    with pytest.raises(DefinitionError) as caught:
        read_definitions(text, **options)
    return caught.value.problems


def lines_of(text, **options):
    with pytest.raises(DefinitionError) as caught:
        read_definitions(text, source_name="cell", **options)
    return str(caught.value).splitlines()


def steps(*lines):
    return "Name: w\nSteps:\n" + "".join(f"{line}\n" for line in lines)


def step_error(text, **options):
    return lines_of(text, body="workflow", **options)
