from datetime import UTC, datetime, timedelta

import pytest

from tests.conformance.scenario.matchers import meets
from tests.conformance.scenario.paths import MISSING, assign, read
from tests.conformance.scenario.run import differences
from tests.conformance.scenario.world import World

CREATE = {"op": "create", "args": {"user_message": "m", "user_id": "user-1", "session_id": "s"}}


def keys(expect, action, *setup):
    return [found.key for found in differences({"setup": setup, "action": action, "expect": expect})]


def call(method, *arguments, on="env", **more):
    return {"op": "call", "on": on, "method": method, "args": list(arguments), **more}


def test_a_met_case_has_no_differences_and_an_unmet_one_names_the_path():
    action = call("set_output", "a", {"k": [1, {"n": 2}]})
    assert keys({"env.outputs.a.k.1.n": 2}, action, CREATE) == []
    assert keys({"env.outputs.a.k.1.n": 3, "env.user_id": "user-1"}, action, CREATE) == ["env.outputs.a.k.1.n"]


def test_what_is_not_there_is_not_null():
    assert keys({"result.nothing": None}, call("to_state_dict"), CREATE) == ["result.nothing"]


def test_results_are_bound_to_their_name_and_reach_later_steps():
    one = call("create", "clarification", on="svc", **{"as": "i"})
    answer = call("resolve", {"$ref": "i.id"}, {"text": "x"}, "user-1", on="svc")
    assert keys({"result.id": {"$eq_ref": "i.id"}, "i.status": "resolved"}, answer, {"op": "service"}, one) == []


def test_a_method_may_be_called_on_a_part():
    ask = call("set_interrupt", "timeout", "q")
    assert keys({"result.id": "q"}, call("to_dict", on="env.interrupt"), CREATE, ask) == []


def test_parts_of_the_origin_may_be_given():
    one = call("create", "clarification", on="svc", kwargs={"request_id": "r9"})
    found = call("pending_for_request", "r9", on="svc")
    assert keys({"result.request_id": "r9", "result.user_id": "user-1"}, found, {"op": "service"}, one) == []


def test_a_wanted_failure_must_come_with_its_type_and_text():
    negative = {"op": "set", "path": "env.iteration", "value": -1}
    wanted = {"type": "ValidationError", "contains": "iteration"}
    assert keys({"$raises": wanted}, {"op": "validate"}, CREATE, negative) == []
    assert keys({"$raises": {**wanted, "contains": "x"}}, {"op": "validate"}, CREATE, negative) == ["$raises"]
    assert keys({"$raises": {**wanted, "type": "OtherError"}}, {"op": "validate"}, CREATE, negative) == ["$raises"]
    assert keys({"$raises": wanted}, {"op": "validate"}, CREATE) == ["$raises"]


def test_an_unknown_operation_fails_its_case_and_says_so():
    (difference,) = differences({"setup": [CREATE], "action": {"op": "levitate"}, "expect": {}})
    assert "levitate" in difference.got


def test_time_moves_only_when_told():
    expect = {"env.completed_at": {"$approx_now_plus": -5, "tolerance": 0}}
    assert keys(expect, {"op": "advance_clock", "seconds": 5}, CREATE, call("terminate", "done")) == []


NOW = World().clock()
NAMES = {"a": [1, 2], "b": [1, 2], "t": NOW, "n": None}


@pytest.mark.parametrize(
    ("matcher", "got", "met"),
    [
        ({"$re": "^a.$"}, "ab", True),
        ({"$re": "^a.$"}, "abc", False),
        ({"$re": "a"}, None, False),
        ({"$len": 2}, [1, 2], True),
        ({"$len": 2}, 7, False),
        ({"$contains": "b"}, "abc", True),
        ({"$contains": 2}, [1, 2], True),
        ({"$contains": 2}, None, False),
        ({"$falsy": True}, None, True),
        ({"$falsy": True}, "x", False),
        ({"$not_none": True}, "", True),
        ({"$not_none": True}, None, False),
        ({"$ne": "end"}, "a", True),
        ({"$ne": "end"}, "end", False),
        ({"$eq_ref": "a"}, [1, 2], True),
        ({"$eq_ref": "nowhere"}, None, False),
        ({"$ne_ref": "a"}, [2], True),
        ({"$ne_ref": "a"}, [1, 2], False),
        ({"$keys_exact": ["a"]}, {"a": 1}, True),
        ({"$keys_exact": ["a"]}, {"a": 1, "b": 1}, False),
        ({"$keys_superset": ["a"]}, {"a": 1, "b": 1}, True),
        ({"$keys_superset": ["c"]}, {"a": 1}, False),
        ({"$missing_key": "c"}, {"a": 1}, True),
        ({"$missing_key": "a"}, {"a": 1}, False),
        ({"$missing_key": "a"}, None, False),
        ({"$superset": [1]}, [1, 2], True),
        ({"$superset": [3]}, [1, 2], False),
        ({"$approx_now_plus": 60, "tolerance": 2}, NOW + timedelta(seconds=61), True),
        ({"$approx_now_plus": 60, "tolerance": 2}, NOW + timedelta(seconds=63), False),
        ({"$approx_now_plus": 0, "tolerance": 2}, NOW.replace(tzinfo=None), False),
        ({"$same_instant": "2026-01-25T11:00:00+01:00"}, datetime(2026, 1, 25, 10, tzinfo=UTC), True),
        ({"$same_instant": "2026-01-25T11:00:00Z"}, "2026-01-25T10:00:00Z", False),
        ({"$falsy": True, "$len": 1}, [], False),
        ({"$colour": 1}, 1, False),
        ({"$falsy": True}, MISSING, False),
        ({"$missing": True}, MISSING, True),
        ({"$missing": True}, b"there", False),
        ({"$hex": "00ff"}, b"\x00\xff", True),
        ({"$hex": "00"}, b"\x01", False),
        ({"$unordered": [["a", 1], ["b", 2]]}, [("b", 2), ("a", 1)], True),
        ({"$unordered": ["a"]}, ["a", "a"], False),
        ({"$contains": ["a", False]}, [("a", False)], True),
        ({"$gte": 1}, 1, True),
        ({"$gte": 1}, 0.5, False),
        ({"$lte": 1}, 2, False),
        ({"$dir": True}, b"", False),
        ({"$same_object": "a"}, [1, 2], False),
        ({"$key_value": ["k", [1]]}, {"k": (1,)}, True),
        ({"$key_value": ["k", 1]}, {}, False),
        (None, MISSING, False),
        (1, True, False),
    ],
)
def test_matchers(matcher, got, met):
    assert meets(World(dict(NAMES)), matcher, got) is met


FILES = {"op": "fs", "files": {"ws/a.txt": "text", "out/b": {"hex": "00"}}, "dirs": ["ws/d"], "links": {"ws/l": "out"}}
ENTER = {"op": "enter", "workspace": {"default": "ws", "allowed": ["ws"]}}


def file(method, *arguments, **more):
    return {"op": "file", "method": method, "args": list(arguments), **more}


def test_a_case_about_a_workspace_has_a_folder_of_its_own_that_goes_with_it():
    where = {"op": "shell", "command": "pwd -P; echo {out}"}
    expect = {"result.stdout": "{ws}\n{out}\n", "fs": {"ws/d": {"$dir": True}, "ws/a.txt": "other"}}
    assert keys(expect, where, FILES, ENTER) == ["fs:ws/a.txt"]
    world = World()
    root = world.place.root
    world.close()
    assert not root.exists()


def test_what_a_case_wants_refused_must_be():
    outside = {"type": "PathNotAllowed"}
    assert keys({"$raises": outside}, file("read_file", "l/b"), FILES, ENTER) == []
    assert keys({"$raises": outside}, file("read_file", "a.txt"), FILES, ENTER) == ["$raises"]
    assert keys({"$raises": {"type": "Key"}}, file("read_file", "l/b"), FILES, ENTER) == ["$raises"]


def test_a_case_about_a_container_has_an_engine_that_notes_what_it_is_asked():
    enter = {"op": "enter", "docker": {"mount": "ws", "image": "i"}}
    expect = {"result.stdout": "in\n", "engine.last_exec.workdir": "/workspace", "engine.runs": 2}
    engine = {"op": "fake_engine", "exec": {"stdout": "in\n"}}
    assert keys(expect, {"op": "shell", "command": "pwd"}, engine, enter) == ["engine.runs"]


def test_paths_lead_through_keys_positions_and_attributes():
    names = {"d": {"l": [{"x": 1}], "2": 3}, "t": NOW}
    assert read(names, "d.l.0.x") == 1
    assert read(names, "d.2") == 3
    assert read(names, "t.year") == 2026
    assert [read(names, path) for path in ("d.l.5", "d.l.x", "e.f", "t.colour")] == [MISSING] * 4
    assign(names, "d.l.0.x", 9)
    assign(names, "new", 1)
    assert (names["d"]["l"], names["new"]) == ([{"x": 9}], 1)
    with pytest.raises(LookupError, match="nothing stands at e"):
        assign(names, "e.f", 1)
