"""`%dive what-if`, and what-ifs of many runs: the words are those of a fork, what fails is a row."""

import pytest
from IPython.core.error import UsageError

import divebook
from divebook.errors import InputError, SetupError

FLOW = """\
%%dive workflow guess
Inputs: [{Name: more, Type: int, Default: 1}]
Steps:
  - {Name: first, Script: 1, Store: n}
  - {Name: then, Script: state.n + inputs.more, Store: m}
"""


def test_a_run_is_gone_through_again_with_one_change_and_stays_the_newest(cell):
    cell(FLOW)
    source, _ = cell("%dive run guess")
    found, shown = cell("w = %dive what-if --set n=40\nw")
    assert (found.source, found.run.variables["m"], found.live) == (source.id, 41, 0)
    assert "what-if changed: variables (n), from event " in shown
    assert "variable m" in shown
    call = source.events.operation_id[source.events.type == "operation_completed"].iloc[0]
    again, _ = cell(f"w = %dive what-if {source.id[:20]} --result {call}=10 --repeat 2\nw")
    assert [each.run.variables["m"] for each in again] == [11, 11]
    plan, shown = cell(f"p = %dive what-if {source.id} --input more=2 --plan\np")
    assert (plan.reused, plan.live) == (0, ())
    assert "plan of a what-if of " in shown
    listed, _ = cell("r = %dive runs --origin what-if\nr")
    assert len(listed) == 3


@pytest.mark.parametrize(
    ("line", "error", "message"),
    [
        ("--at 900", SetupError, "after one of its events, 1 to "),
        ("--at soon", UsageError, "--at must be an integer, not 'soon'"),
        ("--repeat many", UsageError, "--repeat must be an integer, not 'many'"),
        ("--repeat 0", SetupError, "must be run at least once, not 0 times"),
        ("--tools some", UsageError, "--tools must be one of recorded, read-only, live, not 'some'"),
        ("--set n", InputError, "write NAME=VALUE, for example --set city=Bonn"),
        ("--prompt then=hi", SetupError, "has no step 'then' with a prompt"),
        ("--set n=1 --input more=2", SetupError, "the changes of the fork take effect after event 1"),
        ("--set gone=1", SetupError, "variable 'gone' of execution "),
    ],
)
def test_a_what_if_that_cannot_be_says_why_and_makes_nothing(cell, line, error, message):
    cell(FLOW)
    source, _ = cell("%dive run guess")
    with pytest.raises(error) as caught:
        cell(f"%dive what-if {source.id} {line}")
    assert message in caught.value.shown
    assert "Traceback" not in caught.value.shown
    assert len(cell("%dive runs")[0]) == 1


def test_what_ifs_and_forks_of_many_runs_are_a_frame_in_which_errors_are_rows(session, cell):
    cell(FLOW)
    one, _ = cell("%dive run guess")
    other, _ = cell("%dive run guess more=5")
    named = [one.id, "exec_none", other.id]
    found = divebook.runs(of=named).what_if({"variables": {"n": 10}})
    assert list(found["status"].fillna("")) == ["completed", "", "completed"]
    assert list(found["error_type"].fillna("")) == ["", "ExecutionNotFoundError", ""]
    made = [session.environment.run_of(name) for name in found["made"].dropna()]
    assert [each.variables["m"] for each in made] == [11, 15]
    assert [session.environment.store.record(each.id).origin for each in made] == ["what-if"] * 2
    refused = divebook.runs(of=named).what_if({"variables": {"none": 1}})
    assert list(refused["error_type"]) == ["SetupError", "ExecutionNotFoundError", "SetupError"]
    forked = divebook.runs(of=found[found.error.isna()]).fork(change={"inputs": {"more": 100}}, at=1)
    assert [session.environment.run_of(name).variables["m"] for name in forked["made"]] == [101, 101]
