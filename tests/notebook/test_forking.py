"""`%dive fork`: which run it begins, and what it says of one that cannot be."""

import pytest
from IPython.core.error import UsageError

from divebook.errors import InputError, NotFoundError, SetupError

FORKED = """\
%%dive workflow forked
Inputs: [{Name: more, Type: int, Default: 1}]
Steps:
  - {Name: first, Script: 1, Store: n}
  - {Name: then, Script: state.n + inputs.more, Store: m}
"""


def test_a_run_is_forked_at_an_event_and_shown_as_a_run(cell):
    cell(FORKED)
    source, _ = cell("%dive run forked")
    events = source.events
    at = int(events.sequence[events.type == "step_completed"].iloc[0])
    forked, shown = cell(f"r = %dive fork {source.id[:20]} --at {at} --set n=40 --input more=2\nr")
    assert forked.id != source.id
    assert (forked.status, forked.variables["m"], source.variables["m"]) == ("completed", 42, 2)
    assert forked.id in shown
    record = forked.environment.store.record(forked.id)
    assert (record.origin, record.parent) == ("fork", source.id)
    call = events.operation_id[events.type == "operation_completed"].iloc[0]
    other, _ = cell(f"%dive fork {source.id} --result {call}=10")
    assert other.variables == {"n": 10, "m": 11}


@pytest.mark.parametrize(
    ("line", "error", "message"),
    [
        ("--at 900", SetupError, "after one of its events, 1 to "),
        ("--at soon", UsageError, "--at must be an integer, not 'soon'"),
        ("--set n", InputError, "write NAME=VALUE, for example --set city=Bonn"),
        ("--set n=1 --set n=2", InputError, "--set n=... is given twice; keep one"),
        ("--input fewer=1", SetupError, "there is no input 'fewer' to change (inputs: more)"),
        ("--answer ask_1=yes", SetupError, "question ask_1 has not been asked yet at event "),
        ("--result op_1=3", SetupError, "the result of op_1 cannot be changed at event "),
        ("--store nowhere.db", NotFoundError, "execution not found: "),
    ],
)
def test_a_fork_that_cannot_be_says_why_and_starts_nothing(cell, line, error, message):
    cell(FORKED)
    source, _ = cell("%dive run forked")
    with pytest.raises(error) as caught:
        cell(f"%dive fork {source.id} {line}")
    assert message in caught.value.shown
    assert "Traceback" not in caught.value.shown
    assert len(cell("%dive runs")[0]) == 1
