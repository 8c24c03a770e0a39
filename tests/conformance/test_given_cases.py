"""The case files that are kept beside a checkout, where there are any."""

import os
from pathlib import Path

import pytest

from tests.conformance.cases import load
from tests.conformance.report import check, describe

FOLDER = Path(os.environ.get("DIVEBOOK_CASES", Path(__file__).parents[3] / "shared" / "conformance"))
FILE = FOLDER / "dive.json"
CASES = load(FILE) if FILE.exists() else []


@pytest.mark.skipif(not CASES, reason=f"no case file {FILE.name}; DIVEBOOK_CASES names the folder that holds it")
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.group}-{case.name}")
def test_a_given_case_passes(case):
    differences = check(case)
    assert not differences, describe(case, differences)
