import datetime as dt
import json
import math
import pathlib
import threading
import uuid
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from divebook.errors import InvalidEnvelopeError, UncopyableValueError
from divebook.events.codec import decode, encode
from divebook.pipeline import create_envelope
from divebook.pipeline.envelope import Bounds, Envelope, InterruptKind, TerminalReason
from divebook.pipeline.envelope.envelope import STATE_KEYS, recorded_state
from tests.envelope.strategies import FIELDS, NOW, envelopes, fresh, json_values


def restore(state, **options):
    return Envelope.from_state_dict(state, clock=lambda: NOW, new_id=lambda prefix: f"{prefix}_new", **options)


def nested(depth):
    value = {}
    for _ in range(depth):
        value = {"in": value}
    return value


def test_every_field_is_among_the_random_ones():
    assert FIELDS.keys() == set(STATE_KEYS) - {"max_iterations", "max_llm_calls", "max_agent_hops"}


@given(envelopes)
def test_a_recorded_state_is_what_a_log_holds_and_restores_the_same_envelope(envelope):
    recorded = recorded_state(envelope)
    assert decode(encode(recorded)) == recorded
    assert Envelope.from_state_dict(recorded, strict=True) == envelope


@given(envelopes)
def test_a_state_restores_the_same_envelope(envelope):
    assert restore(envelope.to_state_dict()) == envelope
    assert restore(json.loads(json.dumps(envelope.to_state_dict())), strict=True) == envelope


@given(st.dictionaries(st.sampled_from([*STATE_KEYS, "schema_version", "other"]), json_values) | json_values)
def test_a_malformed_state_never_crashes(state):
    envelope = restore(state)
    assert restore(envelope.to_state_dict()) == envelope


@given(st.sampled_from(sorted(STATE_KEYS)), json_values)
def test_one_wrong_value_leaves_the_rest_as_it_was(key, value):
    state = {**fresh().to_state_dict(), "raw_input": "kept", "metadata": {"kept": 1}, key: value}
    envelope = restore(state)
    if key != "raw_input":
        assert envelope.raw_input == "kept"
    if key != "metadata":
        assert envelope.metadata == {"kept": 1}
    assert restore(envelope.to_state_dict()) == envelope


@pytest.mark.parametrize(
    "value",
    [
        object(),
        threading.Lock(),
        b"x",
        float("inf"),
        float("nan"),
        10**5000,
        nested(5000),
        [nested(5000)],
        {1: {}},
        {"a": {2: 3}},
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_that_json_lacks_do_not_crash_either(value):
    for key in STATE_KEYS:
        envelope = restore({key: value, "raw_input" if key != "raw_input" else "user_id": "kept"})
        assert "kept" in {envelope.raw_input, envelope.user_id}


@pytest.mark.parametrize("depth", range(194, 204))
@pytest.mark.parametrize("wrap", [lambda deep: {"outputs": {"a": deep}}, lambda deep: {"errors": [deep]}])
def test_whatever_was_read_can_be_written_again(depth, wrap):
    envelope = restore(wrap(nested(depth)))
    assert restore(envelope.to_state_dict()) == envelope.clone()


def test_a_cycle_is_left_out_and_noted():
    loop = {}
    loop["self"] = loop
    assert restore({"metadata": {"loop": loop, "kept": 1}}).metadata == {"kept": 1}
    with pytest.raises(InvalidEnvelopeError, match=r"cannot copy metadata\.loop\.self"):
        restore({"metadata": {"loop": loop}}, strict=True)


def test_strict_names_everything_that_is_not_as_it_is_written():
    state = fresh().to_state_dict()
    del state["cost"]
    state |= {
        "schema_version": 2,
        "iteration": 2.5,
        "stage_order": ["a", 1],
        "metdata": {},
        "received_at": "yesterday",
        "interrupt": {"kind": "clarification", "id": 3, "response": {"approved": "yes"}},
        "bounds": {"max_llm_call": 3, "max_cost": "much"},
        "processing_history": [7, {"agent": "a"}],
    }
    with pytest.raises(InvalidEnvelopeError) as caught:
        restore(state, strict=True)
    assert {problem.partition(":")[0] for problem in caught.value.problems} >= {
        "schema_version",
        "'metdata'",
        "cost",
        "iteration",
        "stage_order[1]",
        "received_at",
        "interrupt.id",
        "interrupt.created_at",
        "interrupt.response.approved",
        "bound max_llm_call",
        "bound max_cost",
        "processing_history[0]",
        "processing_history[1].started_at",
    }
    assert "'metdata': unknown; did you mean 'metadata'?" in caught.value.problems
    assert "received_at: expected a time such as 2026-01-25T10:00:00Z, not 'yesterday'" in caught.value.problems


def test_no_state_at_all_gives_a_fresh_envelope():
    assert restore(None).user_id == "anonymous"
    with pytest.raises(InvalidEnvelopeError, match="state: expected a mapping, not NoneType"):
        restore(None, strict=True)


def test_words_come_back_as_members_and_unknown_ones_as_text():
    envelope = restore({"terminal_reason": "completed", "interrupt": {"kind": "timeout"}})
    assert envelope.terminal_reason is TerminalReason.COMPLETED
    assert envelope.get_interrupt_kind() is InterruptKind.TIMEOUT
    other = restore({"terminal_reason": "bored", "interrupt": {"kind": "riddle"}})
    assert (other.terminal_reason, other.get_interrupt_kind()) == ("bored", "riddle")


def test_an_empty_interrupt_is_one():
    assert restore({"interrupt": {}}).interrupt.id == ""
    assert restore({"interrupt": None}).interrupt is None


def test_bounds_come_from_their_own_key_and_the_reference_keys_win():
    assert restore({"bounds": {}}).bounds == Bounds.none()
    assert restore({"bounds": {"max_tokens": 5, "max_iterations": 1}, "max_iterations": 7}).bounds == Bounds(
        max_tokens=5, max_iterations=7
    )
    assert restore({"max_llm_calls": None}).max_llm_calls == 10


def test_a_state_is_plain_and_shares_nothing():
    envelope = fresh()
    envelope.outputs["a"] = {"k": [1]}
    envelope.record_agent_start("a", 1)
    envelope.cost = Decimal("0.10")
    state = envelope.to_state_dict()
    envelope.outputs["a"]["k"].append(2)
    assert state["outputs"] == {"a": {"k": [1]}}
    assert state["schema_version"] == 1
    assert state["cost"] == "0.10"
    assert state["created_at"] == "2026-01-25T10:00:00.000000Z"
    assert type(state["processing_history"][0]["status"]) is str


def test_what_cannot_be_written_is_named():
    envelope = fresh()
    envelope.metadata["clients"] = [{"lock": threading.Lock()}]
    with pytest.raises(
        UncopyableValueError, match=r"cannot copy metadata\.clients\[0\]\.lock: objects of type lock cannot be copied"
    ):
        envelope.to_state_dict()


# --- values that JSON lacks ----------------------------------------------------------------------------------------


class Unknown:
    def __eq__(self, other):
        return isinstance(other, Unknown)

    __hash__ = None


LACKING = [
    dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
    dt.date(2026, 1, 2),
    dt.timedelta(seconds=90),
    Decimal("1.50"),
    uuid.UUID(int=7),
    {1, 2},
    frozenset({"a"}),
    (1, ("a", None)),
    b"\xff",
    math.inf,
    10**30,
    {1: "a", (2, 3): "b"},
    pathlib.PurePosixPath("a/b"),
    {"$type": "set", "value": [1]},
    {"nested": [{"deep": {Decimal(1)}}]},
]


@pytest.mark.parametrize("value", LACKING, ids=lambda value: str(value)[:30])
@pytest.mark.parametrize("place", ["outputs", "metadata"])
def test_values_that_json_lacks_survive_as_json(value, place):
    envelope = create_envelope("text", "ann", "s1")
    getattr(envelope, place)["slot"] = {"value": value}
    written = json.dumps(envelope.to_state_dict(), allow_nan=False)
    again = Envelope.from_state_dict(json.loads(written), strict=True)
    found = getattr(again, place)["slot"]["value"]
    assert (found, type(found)) == (value, type(value))
    assert again.to_state_dict() == envelope.to_state_dict()


def test_nan_and_frames_survive_as_json():
    envelope = create_envelope("text", "ann", "s1")
    envelope.metadata = {"nan": math.nan, "array": np.array([1, 2]), "frame": pd.DataFrame({"a": [1, None]})}
    again = Envelope.from_state_dict(json.loads(json.dumps(envelope.to_state_dict(), allow_nan=False)))
    assert math.isnan(again.metadata["nan"])
    assert list(again.metadata["array"]) == [1, 2]
    pd.testing.assert_frame_equal(again.metadata["frame"], envelope.metadata["frame"])


def test_an_object_that_no_log_can_hold_is_copied():
    envelope = create_envelope("text", "ann", "s1")
    envelope.metadata = {"object": Unknown()}
    state = envelope.to_state_dict()
    assert state["metadata"] == envelope.metadata
    assert state["metadata"]["object"] is not envelope.metadata["object"]


def test_what_only_looks_tagged_stays_as_it_is():
    state = create_envelope("text", "ann", "s1").to_state_dict()
    state["metadata"] = {"a": {"$type": "no such type", "value": 1}}
    assert Envelope.from_state_dict(state).metadata == state["metadata"]
