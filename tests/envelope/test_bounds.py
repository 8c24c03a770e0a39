from decimal import Decimal

import pytest
from hypothesis import given

from divebook.engine.bounds import REASONS
from divebook.errors import BoundsError
from divebook.pipeline.envelope import Bounds, ReasonClass, TerminalReason
from divebook.pipeline.envelope.envelope import COUNTS
from divebook.questions.bounds import edge_key
from tests.envelope.strategies import bounds, fresh


@given(bounds)
def test_written_bounds_are_read_back_the_same(value):
    assert Bounds.from_dict(value.to_dict()) == value
    assert hash(Bounds.from_dict(value.to_dict())) == hash(value)


def test_each_bound_of_the_engine_has_a_reason_of_the_envelope():
    reasons = {reason.value for reason in TerminalReason if reason.classification is ReasonClass.BOUNDS_EXCEEDED}
    assert reasons == {*REASONS.values(), "max_stage_visits_exceeded"}


@pytest.mark.parametrize(("bound", "count"), COUNTS.items())
def test_the_reason_of_an_exceeded_bound_is_that_of_the_engine(bound, count):
    envelope = fresh(bounds=Bounds.read({bound: 2}))
    setattr(envelope, count, 3)
    assert envelope.exceeded_bound() is TerminalReason(REASONS[bound])


def test_no_bounds_are_written_as_nothing():
    assert Bounds.none().to_dict() == {}
    assert Bounds.read({"max_tokens": None, "edges": None}) == Bounds.none()


@pytest.mark.parametrize(
    ("key", "name", "value"),
    [
        ("MaxLLMCalls", "max_llm_calls", 4),
        ("max_agent_hops", "max_agent_hops", 0),
        ("MaxSeconds", "max_seconds", 1.5),
        ("Edges", "edges", {"a->b": 2}),
        ("MaxRepeats", "max_repeats", 1),
    ],
)
def test_keys_are_read_in_either_spelling(key, name, value):
    assert getattr(Bounds.read({key: value}), name) == value


@pytest.mark.parametrize(("written", "cost"), [(2.1, "2.1"), ("0.10", "0.10"), (3, "3"), (Decimal("1.5"), "1.5")])
def test_a_cost_stays_exact(written, cost):
    assert Bounds.read({"max_cost": written}).max_cost == Decimal(cost)


def test_spaces_around_an_arrow_do_not_matter():
    assert Bounds.read({"edges": {" draft ->  review": 2}}).edges == {edge_key("draft", "review"): 2}


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"max_llm_call": 3}, "bound max_llm_call: there is no such bound; did you mean max_llm_calls?"),
        ({"colour": 3}, "the bounds are edges, max_agent_hops"),
        ({7: 3}, "bound 7: there is no such bound"),
        ({"max_tokens": -1}, "bound max_tokens: -1: give an integer from 0 to"),
        ({"max_tokens": True}, "max_tokens: True"),
        ({"max_tokens": "12"}, "max_tokens: '12'"),
        ({"max_iterations": 2.5}, "max_iterations: 2.5"),
        ({"max_repeats": 0}, "an integer from 1"),
        ({"max_cost": "two"}, "max_cost: 'two': give US dollars such as 2.50: a number from 0"),
        ({"max_cost": "NaN"}, "US dollars"),
        ({"max_cost": -1}, "US dollars"),
        ({"max_cost": True}, "US dollars"),
        ({"max_seconds": float("nan")}, "seconds"),
        ({"max_seconds": "1x"}, "max_seconds: '1x'"),
        ({"edges": ["a->b"]}, "give a mapping such as"),
        ({"edges": {"a": 1}}, "edges: 'a': name an edge by its two steps"),
        ({"edges": {"a->": 1}}, "name an edge"),
        ({"edges": {"a->b": -1}}, "edges['a->b']: -1"),
        ({"edges": {"a->b": 1, "a -> b": 2}}, "a->b occurs twice"),
        ({"max_tokens": 1, "MaxTokens": 2}, "max_tokens occurs twice"),
        ([1], "give a mapping, for example"),
    ],
)
def test_what_is_no_bound_is_refused_with_what_to_write(given_, message):
    with pytest.raises(BoundsError) as caught:
        Bounds.read(given_)
    assert message in str(caught.value)


def test_bounds_do_not_change_with_the_mapping_they_were_made_from():
    edges = {"a->b": 1}
    value = Bounds(edges=edges)
    edges["a->b"] = 9
    assert value.edges == {"a->b": 1}
