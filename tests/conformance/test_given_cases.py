"""The case files that are kept beside a checkout, where there are any."""

import os
from pathlib import Path

import pytest

from tests.conformance.cases import load
from tests.conformance.report import check, describe
from tests.conformance.scenario.run import unknown_operations

FOLDER = Path(os.environ.get("DIVEBOOK_CASES", Path(__file__).parents[3] / "shared" / "conformance"))
FILES = ("dive.json", "envelope.json", "workspace.json")


def cases():
    """Return the cases whose operations are all known; `python -m tests.conformance` runs the others too, and fails."""
    found = [case for name in FILES if (FOLDER / name).exists() for case in load(FOLDER / name)]
    return [case for case in found if not case.is_scenario or not unknown_operations(case.data)]


@pytest.mark.parametrize("name", FILES)
def test_there_are_cases_to_run(name):
    if not (FOLDER / name).exists():
        pytest.skip(f"no case file {name}; DIVEBOOK_CASES names the folder that holds it")
    assert load(FOLDER / name)


@pytest.mark.parametrize("case", cases(), ids=lambda case: f"{case.group}-{case.name}")
def test_a_given_case_passes(case):
    differences = check(case)
    assert not differences, describe(case, differences)
