"""Arguments and results in a line: telling, short, free of secrets, and as quick for a huge value as for a small."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from divebook.events import catalog
from divebook.text import redaction
from divebook.widgets.source import PREVIEW_WIDTH, preview, result_preview
from tests.engine.history import begun
from tests.widgets.feeds import STEP, Log
from tests.widgets.test_feed import texts

HUGE = {"rows": [{"id": number, "text": "x" * 1000} for number in range(1000)]}
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=300),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=20), inner, max_size=5),
    max_leaves=30,
)


@given(PLAIN)
def test_a_preview_of_anything_is_one_short_line(value):
    shown = preview(value)
    assert len(shown) <= PREVIEW_WIDTH * 6  # a control character takes up to six
    assert "\n" not in shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"category": "billing", "n": 2}, '{"category": "billing", "n": 2}'),
        ([1, None, True, 0.5, "a"], '[1, null, true, 0.5, "a"]'),
        ("two\nlines", "two lines"),
        (None, ""),
        ({}, ""),
        (0, "0"),
        (False, "false"),
    ],
)
def test_values_look_as_they_are_written(value, shown):
    assert preview(value) == shown


def test_a_number_that_is_too_long_to_be_written_is_told_by_its_length():
    assert preview([1 << 40_000]) == "[a number of 40,001 bits]"


def test_of_a_huge_value_only_the_beginning_is_looked_at():
    preview(HUGE)
    tracemalloc.start()
    shown = preview(HUGE)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert shown.startswith('{"rows": [{"id": 0, "text": "xxx')
    assert most < 100_000


def test_a_secret_in_the_way_of_the_cut_leaves_no_half():
    token = "sk-" + "Ab1" * 20
    for before in range(PREVIEW_WIDTH - 70, PREVIEW_WIDTH):
        assert "Ab1Ab1" not in preview({"text": "y" * before + " " + token})


@pytest.mark.parametrize(
    ("kind", "parameters", "shown"),
    [
        ("action_execution", {"action_name": "Pay", "params": {"row": 1}}, '{"row": 1}'),
        ("step_execution", {"step": "parse", "arguments": {"answer": {"a": 1}}}, '{"answer": {"a": 1}}'),
        ("script_execution", {"script": "item['k'] * 2"}, "item['k'] * 2"),
        ("agent_response", {"agent": "critic", "prompt": "Judge this"}, "Judge this"),
        ("signal_wait", {"signal": "go"}, ""),
        ("child_workflow", {"workflow": "w", "inputs": {"n": 1}}, '{"inputs": {"n": 1}}'),
    ],
)
def test_a_span_says_what_it_was_given_and_what_came(kind, parameters, shown):
    log = Log()
    started = (catalog.OperationStarted("op_1", kind, parameters), "main", "s")
    log.write(*begun(), STEP, started)
    spans = log.feed.frame()["spans"]
    assert texts(spans, "given")[1:] == [shown]
    done = catalog.OperationCompleted("op_1", kind, 5, {"label": "billing"})
    log.feed.receive(log.write((done, "main", "s")))
    spans = log.feed.frame()["spans"]
    assert (texts(spans, "given"), texts(spans, "came")) == ([shown], ['{"label": "billing"}'])


def test_of_an_answer_of_a_model_its_text_came():
    thinking = {"part_kind": "thinking", "content": "First the tests."}
    assert (
        result_preview("agent_response", {"parts": [thinking, {"part_kind": "text", "content": "All good"}]})
        == "All good"
    )
    called = {"parts": [{"part_kind": "tool-call", "tool_name": "search"}]}
    assert result_preview("agent_response", called) == preview(called)


def test_what_stands_under_the_name_of_a_secret_is_not_shown():
    shown = redaction.shared().text(preview({"api_key": "hunter2hunter2", "row": 1}))
    assert "hunter2" not in shown
    assert '"row": 1' in shown
