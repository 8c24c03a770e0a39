"""What a step reads, by its definition."""

import pytest

from divebook import Each, Step
from divebook.scripting.needs import EVERYTHING, NOTHING, ReadKeys, reads_of, reads_of_condition


@pytest.mark.parametrize(
    ("step", "state", "inputs"),
    [
        (Step("s", script="state.set('a', state.b + inputs.n)"), {"b"}, {"n"}),
        (Step("s", script="state.delete('a')"), {"a"}, set()),
        (Step("s", script="state.set(state.key, 1)"), {"key"}, set()),
        (Step("s", script="len(state)"), None, set()),
        (Step("s", script="eval('state.a')"), None, None),
        (Step("s", prompt="${state.a} of ${inputs.n}", thread="t-${state.b}"), {"a", "b"}, {"n"}),
        (Step("s", action="f", parameters={"x": "$(state.a)", "y": ["$(state.b)"]}), {"a", "b"}, set()),
        (
            Step("s", action="f", parameters={"x": "$(row)"}, each=Each("$(state.rows)", as_="row")),
            {"rows", "row"},
            set(),
        ),
        (Step("s", ask={"question": "${state.a}?", "data": {"b": "$(state.b)"}}), {"a", "b"}, set()),
        (Step("s", workflow="w", inputs={"x": "$(state.a)"}), {"a"}, set()),
        (Step("s", type="wait", seconds="${state.a}"), {"a"}, set()),
        (Step("s", type="function", script="..."), set(), None),
        (Step("s", type="stage"), None, None),
    ],
)
def test_what_a_step_reads(step, state, inputs):
    assert reads_of(step) == ReadKeys(*(keys if keys is None else frozenset(keys) for keys in (state, inputs)))


def test_what_the_items_of_a_step_come_from_is_read_before_there_is_one():
    step = Step("s", action="f", parameters={"x": "$(row)", "y": "$(state.a)"}, each=Each("$(state.rows)", as_="row"))
    assert reads_of(step, only_items=True) == ReadKeys(frozenset({"rows"}))


def test_conditions_of_edges_are_read_after_the_step():
    step = Step("s", script="1", next=[("t", "$(state.a)")])
    assert reads_of(step) == NOTHING
    assert reads_of_condition("$(state.a)") == ReadKeys(frozenset({"a"}))
    assert reads_of_condition("true") == NOTHING


def test_a_type_of_step_that_others_have_added_may_read_everything():
    assert reads_of(Step("s", type="of their own")) == EVERYTHING
