"""What the fields of events may hold: the same when they are read and before they are written."""

import copy
import json
import random
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest

from divebook import allow
from divebook.errors import CorruptStoreError, DivebookError, InvalidEventError
from divebook.events.catalog import (
    PAYLOADS,
    ExecutionStarted,
    Mutation,
    OperationsAbandoned,
    PathBranched,
    PathJoined,
    RandomGenerated,
    StateMutated,
    StepCompleted,
    StepRetried,
)
from divebook.events.codec import (
    checked_data,
    compile_data_function,
    decode,
    decode_payload,
    encode,
    encode_shown,
    json_form,
    readable,
    valid_data,
)
from divebook.events.event import Event
from divebook.events.recorded import BigInt, NonFinite, opened
from divebook.events.values import normalize
from divebook.stores import MemoryStore

CHECKED = {
    "new_paths": [{"id": "main-1", "current_step": "a"}],
    "mutations": (Mutation("set", "k", 1),),
    "iteration_index": 0,
    "value": "x",
}
"""Fields that payloads check themselves when they are made."""
JSON = {
    "text": "x",
    "an integer": 7,
    "a larger number": 2**63,
    "a number": 0.5,
    "true or false": True,
    "null": None,
    "a list": ["x", 7],
    "a mapping": {"x": ["x"]},
}
"""A value of each type that JSON has; no field that is a list or a mapping of something may hold these."""
FITS = {
    "str": {"text"},
    "int": {"an integer"},
    "float": {"an integer", "a number"},
    "bool": {"true or false"},
    "str | int": {"text", "an integer"},
    "Mapping[str, Any]": {"a mapping"},
    "Sequence[Any]": {"a list"},
}


@allow
@dataclass
class Spot:
    x: int
    y: object


def example(kind):
    checked = {name: value for name, value in CHECKED.items() if name in kind.field_names}
    return kind(**{**dict.fromkeys(kind.required, "x"), **checked})


EXAMPLES = [example(kind) for kind in PAYLOADS.values()]
FIELDS = [(payload, name) for payload in EXAMPLES for name in payload.field_names]


def refusal(payload):
    """Return why a payload is not written."""
    began = replace(EXAMPLES[0], workflow_name="w")
    first, *rest = [payload] if isinstance(payload, ExecutionStarted) else [began, payload]
    events = [Event(f"event_{n}", "exec_1", n, n, data) for n, data in enumerate((first, *rest), 1)]
    store = MemoryStore()
    try:
        store.append("exec_1", events, 0)
    except InvalidEventError as error:
        assert store.records() == []
        return str(error)
    return None


@pytest.mark.parametrize("payload", EXAMPLES, ids=lambda payload: payload.event_type)
def test_sound_payloads_are_read_and_written(payload):
    assert refusal(payload) is None
    assert decode_payload(payload.event_type, encode(payload.to_data())).event_type == payload.event_type


@pytest.mark.parametrize(("payload", "name"), FIELDS, ids=lambda part: getattr(part, "event_type", part))
def test_a_field_of_a_wrong_type_is_refused_when_it_is_read_and_before_it_is_written(payload, name):
    declared = type(payload).__annotations__[name]
    fits = FITS.get(declared.removesuffix(" | None"), set()) | ({"null"} if declared.endswith("| None") else set())
    for kind, value in JSON.items():
        data = {**payload.to_data(), name: value}
        if declared == "Any" or kind in fits:
            decode_payload(payload.event_type, encode({**data, name: payload.to_data().get(name, value)}))
            continue
        with pytest.raises(CorruptStoreError, match=rf"{payload.event_type}: {name}\S* (must be|is required)") as found:
            decode_payload(payload.event_type, encode(data))
        assert kind in str(found.value) or f"{name}." in str(found.value) or f"{name}[" in str(found.value)
        if value is not None and name not in CHECKED:
            assert f"{payload.event_type}: {name}" in refusal(replace(payload, **{name: value}))


WRONG = [
    (ExecutionStarted("w", inputs=["Ada"]), "inputs must be a mapping, got a list"),
    (ExecutionStarted("w", inputs={1: "Ada"}), "Dict key must be str"),
    (ExecutionStarted("w", tags=["a", 5]), "tags[1] must be text, got an integer"),
    (StepCompleted(usage={"tokens": 2**64}), "usage.tokens must be an integer of 64 bits, got a larger number"),
    (StepCompleted(output="\ud800"), "output: str is not valid UTF-8"),
    (StepRetried(delay=float("nan")), "delay must be a number, got nan"),
    (RandomGenerated("seed", 1, seed=0.5), "seed must be an integer of 64 bits or a larger one or null"),
    (StateMutated((("set", "x"),)), "'tuple' object has no attribute 'to_data'"),
]


@pytest.mark.parametrize(("payload", "message"), WRONG)
def test_the_field_and_what_it_holds_are_named(payload, message):
    assert message in refusal(payload)


def outcome(look, payload):
    try:
        return repr(look(payload))
    except (InvalidEventError, TypeError) as error:
        return str(error)


@pytest.mark.parametrize(("payload", "name"), FIELDS, ids=lambda part: getattr(part, "event_type", part))
def test_what_the_compiled_check_lets_pass_is_what_the_other_gives(payload, name):
    odd = [
        0.0,
        -0.0,
        float("inf"),
        -(2**63),
        BigInt(2**70),
        NonFinite("nan"),
        (),
        [],
        {},
        b"x",
        np.int64(1),
        ["x", None],
    ]
    let_pass = 0
    plain = compile_data_function(type(payload), lambda _: None)
    for value in [*JSON.values(), *odd, {"a": 1}, {"a": 2**64}]:
        changed = copy.copy(payload)
        object.__setattr__(changed, name, value)
        assert outcome(valid_data, changed) == outcome(checked_data, changed)
        let_pass += plain(changed) is not None
    # These hold more than plain values.
    assert let_pass or type(payload) in (OperationsAbandoned, PathBranched, PathJoined, StateMutated)


def test_new_paths_and_changed_variables_have_names_that_are_texts():
    with pytest.raises(InvalidEventError, match="key is required, and must be text"):
        Mutation("set", ["x"], 1)
    with pytest.raises(InvalidEventError, match=r"new_paths\[0\].id is required, and must be text"):
        PathBranched([{"id": 1, "current_step": "s"}])


@pytest.mark.parametrize("name", ["id", "execution_id", "path", "step", "sequence", "recorded_at"])
def test_the_fields_of_the_event_itself_are_looked_at(name):
    wrong = replace(Event("event_1", "exec_1", 1, 1, ExecutionStarted("w")), **{name: ["x"]})
    with pytest.raises(InvalidEventError, match=rf"invalid event at index 0: {name} must be .*, got a list"):
        MemoryStore().append("exec_1", [wrong], 0)


def test_a_time_beyond_the_year_9999_is_refused():
    late = Event("event_1", "exec_1", 1, 2**62, ExecutionStarted("w"))
    with pytest.raises(InvalidEventError, match="timestamp is required and must be in a year up to 9999"):
        MemoryStore().append("exec_1", [late], 0)


def test_a_time_before_1970_is_refused_by_the_name_of_what_is_wrong():
    early = Event("event_1", "exec_1", 1, -1, ExecutionStarted("w"))
    with pytest.raises(InvalidEventError, match="before 1970: set the clock of this machine"):
        MemoryStore().append("exec_1", [early], 0)


@pytest.mark.parametrize("depth", [255, 1000])
def test_what_is_nested_deeper_than_anything_written_is_refused(depth):
    raw = b'{"value":' + b"[" * depth + b"]" * depth + b"}"
    with pytest.raises(ValueError, match="nested deeper than 254 levels"):
        decode(raw)
    assert decode(b'{"value":[' + b"[]," * depth + b"[]]}")


# --- values in a form of ours --------------------------------------------------------------------------------------

VALUES = [
    10**30,
    float("nan"),
    {"$type": 1},
    b"abc",
    pd.Timestamp("2020", tz="UTC").to_pydatetime(),
    Spot(1, (2, {3: 4})),
    pd.DataFrame({"a": [1, 2], "b": ["x", None], "c": pd.Categorical(["u", "v"])}),
    pd.Series([1.5, 2], index=pd.MultiIndex.from_tuples([(1, "a"), (2, "b")])),
    np.array([1, "x", None], dtype=object),
    pd.Period("2020", "M"),
    pd.Interval(1, 2),
]
JUNK = (None, -1, 2**63, 0.5, "", "\0", "object", "<M8[ns]", "numpy.ndarray", [], {}, [[1]], {"x": {}}, "A" * 50)
FACES = (repr, encode, encode_shown, readable, json_form, normalize, opened)


def places(value, path=()):
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from places(part, (*path, key))


def with_junk(value, path, chance):
    if path:
        copy = value.copy()
        copy[path[0]] = with_junk(value[path[0]], path[1:], chance)
        return copy
    if isinstance(value, str) and len(value) > 100:  # one letter of a frame
        at = chance.randrange(len(value))
        return value[:at] + chance.choice("AB/+x") + value[at + 1 :]
    return chance.choice(JUNK)


def test_a_forged_value_is_refused_or_can_be_looked_at():
    chance, refused = random.Random("values"), 0
    raws = [json.loads(encode(normalize(value))) for value in VALUES]
    for _ in range(1500):
        raw = chance.choice(raws)
        raw = with_junk(raw, chance.choice(list(places(raw))), chance)
        try:
            value = decode(json.dumps(raw))
        except ValueError:
            refused += 1
            continue
        for face in FACES:
            try:
                face(value)
            except DivebookError:
                assert face is opened
    assert 300 < refused < 1200
