import json

import pytest

from tests.conformance.cases import UnusableFileError, load
from tests.conformance.report import check


def case(name, group):
    return {"name": name, "group": group, "expect": {}}


def steps(name, group):
    return {**case(name, group), "setup": [], "action": {"op": "new"}}


@pytest.fixture
def write(tmp_path):
    def write_file(content):
        path = tmp_path / "cases.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return write_file


def test_all_runnable_groups_are_loaded_by_default(write):
    path = write([case("a", "workflow"), case("b", "prose"), case("c", "template")])
    assert [loaded.name for loaded in load(path)] == ["a", "c"]


def test_groups_can_be_chosen(write):
    path = write([case("a", "workflow"), case("b", "condition"), case("c", "template")])
    assert [loaded.name for loaded in load(path, ["condition", "template"])] == ["b", "c"]


def test_every_group_of_cases_written_as_steps_is_loaded(write):
    path = write({"dsl": {}, "subject": "Envelope", "cases": [steps("a", "bounds"), steps("b", "loop")]})
    assert [(loaded.name, loaded.is_scenario) for loaded in load(path)] == [("a", True), ("b", True)]
    assert [loaded.name for loaded in load(path, ["loop"])] == ["b"]


@pytest.mark.parametrize(
    ("content", "groups", "message"),
    [
        ("{", [], "cases.json"),
        ({"dsl": "...", "subject": "Weather", "cases": []}, [], "does not know yet; it knows those about Envelope"),
        ({"dsl": "...", "subject": "Envelope", "cases": [case("a", "g")]}, [], "`action`, `expect`"),
        ({"dsl": "...", "subject": "Envelope", "cases": [steps("a", "g")]}, ["h"], "no group 'h'; there are g"),
        ({"cases": []}, [], "not a list of cases"),
        ([{"name": "a"}], [], "not a list of cases"),
        ([case("a", "prose")], ["prose"], "written for people"),
        ([case("a", "workflow")], ["workflows"], "no group 'workflows'; there are workflow"),
    ],
)
def test_what_cannot_be_run_says_why(write, content, groups, message):
    with pytest.raises(UnusableFileError, match=message):
        load(write(content), groups)


def test_a_missing_file_says_so(tmp_path):
    with pytest.raises(UnusableFileError, match="No such file"):
        load(tmp_path / "none.json")


def test_a_loose_group_gives_the_cases_that_are_data(write):
    data = {**case("a", "config"), "given": {"yaml": "Name: n"}, "expect": {"Name": "n", "non_empty": ["Name"]}}
    prose = {**case("b", "config"), "given": {"path": "any", "twice": True}, "expect": {"Name": "n"}}
    wrong = {**data, "name": "c", "expect": {"Name": "m", "non_empty": ["Agents"]}}
    loaded = load(write([data, prose, wrong]))
    assert [[difference.key for difference in check(one)] for one in loaded] == [[], ["Name", "non_empty"]]
