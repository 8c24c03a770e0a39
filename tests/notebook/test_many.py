"""One thing done with many runs: a row for each, what fails for one stops no other."""

import pytest

import divebook
from divebook.errors import SetupError

FLOWS = """\
Workflows:
- {Name: asks, Steps: [{Name: s, Ask: Which?, Store: it}]}
- {Name: done, Steps: [{Name: s, Script: 1 + 1}]}
"""


@pytest.fixture
def three(session):
    divebook.define(FLOWS)
    return [divebook.run(name).wait() for name in ("asks", "done", "asks")]


def test_all_that_a_filter_leaves_are_cancelled_and_taken_up_again(three):
    first, done, last = three
    frame = divebook.runs(status="waiting").cancel()
    assert set(frame["execution_id"]) == {first.id, last.id}
    assert (set(frame["before"]), set(frame["status"])) == ({"waiting"}, {"cancelled"})
    taken_up = divebook.runs(of=frame).resume()
    assert set(taken_up["status"]) == {"waiting"}
    assert done.refresh().status == "completed"


def test_what_fails_for_one_is_its_row_and_the_others_go_on(three):
    first, done, last = three
    frame = divebook.runs(of=[done.id, "exec_none", first.id, last.id]).cancel()
    assert list(frame["status"].fillna("")) == ["completed", "", "cancelled", "cancelled"]
    assert list(frame["error_type"].fillna(""))[1] == "ExecutionNotFoundError"
    assert [run.refresh().status for run in (first, last)] == ["cancelled", "cancelled"]


def test_tags_and_notes_are_given_to_runs_and_to_a_frame_of_them(three):
    divebook.runs(of=three).tag("baseline", "mine")
    assert len(divebook.runs(tag="baseline")) == 3
    divebook.runs(of=divebook.runs(workflow="asks").frame()).untag("mine")
    assert [run.id for run in divebook.runs(tag="mine")] == [three[1].id]
    assert divebook.runs(of=three).note("look at it")["error"].isna().all()


def test_anything_else_can_be_done_with_each_and_may_make_another_execution(three):
    again = divebook.runs(of=three[1]).handle(lambda run: run.environment.start("done"))
    assert list(again["status"]) == ["completed"]
    assert again["made"][0] != three[1].id


def test_those_named_one_by_one_are_a_list_and_take_no_filters(three):
    chosen = divebook.runs(of=[three[0].id, three[1].id])
    assert [run.id for run in chosen] == [three[0].id, three[1].id]
    assert three[2].id not in repr(chosen)
    with pytest.raises(SetupError, match="cannot be combined with status"):
        divebook.runs(status="failed", of=three)


def test_a_line_cancels_several(three, cell):
    frame, _ = cell(f"%dive cancel {three[0].id} {three[2].id}")
    assert list(frame["status"]) == ["cancelled", "cancelled"]


def test_a_line_says_something_of_several(three, cell):
    frame, _ = cell(f'%dive annotate {three[0].id} {three[2].id} --note "read twice" --label quality=3 --tag seen')
    assert list(frame["error"].isna()) == [True, True]
    records = [run.environment.store.record(run.id) for run in three]
    assert [record.note for record in records] == ["read twice", None, "read twice"]
    assert (dict(three[0].refresh().state.labels), three[0].tags) == ({"quality": 3}, ("seen",))
    with pytest.raises(SetupError, match="nothing to record"):
        cell(f"%dive annotate {three[0].id}")


def test_a_line_takes_several_up_again(three, cell):
    first, _, last = three
    divebook.runs(of=[first.id, last.id]).cancel()
    frame, _ = cell(f"%dive resume {first.id} {last.id} exec_none")
    assert list(frame["status"].fillna("")) == ["waiting", "waiting", ""]
    with pytest.raises(SetupError, match="apply to a single run; name only one run"):
        cell(f"%dive resume {first.id} {last.id} --definition new")
