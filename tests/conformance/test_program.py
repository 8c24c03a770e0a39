import json

import pytest

from tests.conformance.__main__ import main

TRUE = {"name": "t", "group": "condition", "given": {"condition": "true", "globals": {}}, "expect": {"value": True}}
WRONG = {**TRUE, "name": "w", "expect": {"value": False}}
BROKEN = {**TRUE, "name": "b", "given": {}}


@pytest.fixture
def run(tmp_path, capsys):
    def run_cases(*cases, arguments=()):
        path = tmp_path / "cases.json"
        path.write_text(json.dumps(cases))
        return main([str(path), *arguments]), capsys.readouterr()

    return run_cases


def test_all_passing_ends_with_the_count_and_code_0(run):
    code, printed = run(TRUE)
    assert (code, printed.out) == (0, "1 of 1 cases pass\n")


def test_a_difference_names_case_key_and_both_values(run):
    code, printed = run(TRUE, WRONG)
    assert code == 1
    assert printed.out.splitlines() == [
        "condition/w",
        "  value",
        "    expected false",
        "    got      true",
        "1 of 2 cases pass",
    ]


def test_a_case_that_breaks_off_does_not_hide_the_others(run):
    code, printed = run(BROKEN, TRUE)
    assert code == 1
    assert "KeyError" in printed.out
    assert printed.out.endswith("1 of 2 cases pass\n")


def test_an_unknown_group_ends_with_code_2(run):
    code, printed = run(TRUE, arguments=["--group", "colour"])
    assert code == 2
    assert "no group 'colour'" in printed.err
