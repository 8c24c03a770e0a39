import json

import pytest

from tests.conformance.cases import UnusableFileError, left_out, load
from tests.conformance.report import check, not_run


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


DEFINITION = {
    "Steps": [{"Name": "a", "Script": "1", "Store": "n", "Next": [{"Step": "b"}]}, {"Name": "b", "Script": "2"}]
}
ASKING = {"Steps": [{"Name": "a", "Prompt": "hi", "Agent": "mock"}]}
REPLAYED = {"first_has_event": {"type": "operation_completed", "operation_type": "agent_response"}}


@pytest.mark.parametrize(
    ("group", "case", "key", "right", "wrong"),
    [
        ("event", {"given": {"event": {"id": "e"}}}, "error_contains", "execution id is required", "event id"),
        ("event", {"given": {"filter": {"limit": -1}}}, "valid", False, True),
        ("event", {"given": {}}, "types", ["step_started"], ["step_begun"]),
        ("event_store", {"given": {"append": [[1, "execution_started"]]}}, "history_sequences", [1], [2]),
        ("execution_api", {"given": {"workflow": None}}, "error_contains", "workflow is required", "agent"),
        ("hashing", {"given": {"a": {"x": 1}, "b": {"x": 1}, "c": {"x": 2}}}, "a==c", False, True),
        ("fingerprint", {"given": {"texts": ["a", "b"]}}, "sources", ["text", "text"], ["text"]),
        (
            "documents",
            {"given": {"put": {"path": "a/b.txt", "content": "x"}}},
            "file",
            {"a/b.txt": "x"},
            {"a/b.txt": "y"},
        ),
        ("documents", {"given": {"get": "none.txt"}}, "error_contains", "does not exist", "is secret"),
        ("resume", {"definition": {**DEFINITION, "Name": "w"}}, "restored", {"state.n": 1}, {"state.n": 2}),
        ("resume", {"given": {"definition": DEFINITION, "crash": "somewhere"}}, "b_operation_runs", 1, 2),
        (
            "replay",
            {"given": {"definition": ASKING, "first": "", "second": ""}, "agents": {"mock": ["x"]}},
            "agent_calls_total",
            1,
            2,
        ),
        (
            "replay",
            {"given": {"replay": True, "recorded_failure": {"op": "x", "error": "boom"}}},
            "error",
            "boom",
            "bang",
        ),
    ],
)
def test_a_case_of_facts_passes_where_it_is_right_and_fails_where_it_is_wrong(write, group, case, key, right, wrong):
    more = REPLAYED if "second" in case.get("given", {}) else {}
    whole = [
        {**case, "name": name, "group": group, "expect": {key: value, **more}}
        for name, value in (("right", right), ("wrong", wrong))
    ]
    first, second = load(write(whole))
    assert check(first) == []
    assert [difference.key for difference in check(second)] == [key]


PAYLOAD = {"required": ["iteration_index >= 0"], "optional": ["item", "item_key"], "empty_payload_valid": False}


@pytest.mark.parametrize(
    ("key", "wrong"),
    [("required", ["iteration_index", "item"]), ("optional", ["colour"]), ("empty_payload_valid", True)],
)
def test_what_an_event_requires_is_found_by_leaving_it_out(write, key, wrong):
    case = {"name": "a", "group": "event", "given": {"event_type": "iteration_started"}, "expect": PAYLOAD}
    right, other = load(write([case, {**case, "expect": {**PAYLOAD, key: wrong}}]))
    assert check(right) == []
    assert key in [difference.key for difference in check(other)]


def test_cases_that_cannot_be_run_are_named_with_the_reason(write):
    path = write([case("a", "workflow"), case("b", "retry"), case("c", "resume"), case("d", "retry")])
    assert not_run(left_out(path)) == [
        "not run, retry: Retry is a key of steps here, and says itself which errors are tried again: b, d",
        "not run, resume: what is given or expected is prose: c",
    ]
    assert not_run(left_out(path, ["resume"])) == ["not run, resume: what is given or expected is prose: c"]
