"""Values that JSON lacks, in the envelopes of pipelines: the same live, resumed and replayed."""

import asyncio
import io
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePosixPath
from uuid import UUID

import pytest

from divebook import allow
from divebook.stores.transfer import export, import_
from tests.pipeline.worlds import Script, chain, envelope, pipeline, world


@allow
@dataclass
class Paid:
    amount: int


VALUES = {
    "bytes": b"\x00",
    "counter": Counter("ab"),
    "date": date(2025, 6, 1),
    "datetime": datetime(2025, 6, 1, tzinfo=UTC),
    "decimal": Decimal("1.10"),
    "fraction": Fraction(1, 3),
    "infinity": float("inf"),
    "keys": {1: 2},
    "large": 2**70,
    "path": PurePosixPath("a"),
    "set": {"b", "a"},
    "tag-like": {"$type": "nothing"},
    "tag of a date": {"$type": "date", "value": "2026-01-02"},
    "tag of a date in a list": [{"n": {"$type": "date", "value": "2026-01-02"}}],
    "tag of a dict": {"$type": "dict", "value": [["a", 1]]},
    "tag of a path": {"$type": "path", "value": ["PosixPath", "/etc"]},
    "tag of an object": {
        "$type": "dataclass",
        "value": {"class": "tests.pipeline.test_values.Paid", "fields": {"amount": 500}},
    },
    "timedelta": timedelta(seconds=1.5),
    "tuple": (1, (2.5,)),
    "uuid": UUID(int=7),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_stage_gets_the_same_value_live_resumed_and_replayed(name):
    value = VALUES[name]
    seen = []

    def look(envelope):
        seen.append((envelope.metadata["given"], envelope.metadata.get("added")))
        envelope.metadata["added"] = [value]
        return {}

    config, script = chain("a", "b", "c"), Script(a=[look], b=[look], c=[look])
    made = world()
    request = envelope(metadata={"given": value})
    execution = pipeline(config, script, environment=made).start(request).wait(20)
    assert seen == [(value, None), (value, [value]), (value, [value])]
    assert made.run_of(execution.id).verify().equal
    # The fork begins after stage a, with the state that is read from the log.
    (ended,) = [event for event in execution.history() if event.event_type == "step_completed" and event.step == "a"]
    fork = made.run_of(execution.id).fork(ended.sequence).wait(20)
    assert seen[3:] == seen[1:3]
    for run in (execution, fork):
        elsewhere = world()
        pipeline(config, script, environment=elsewhere)
        lines = io.BytesIO()
        export(made.store, run.id, lines)
        lines.seek(0)
        assert elsewhere.run_of(import_(lines, elsewhere.store)).verify().equal
        assert elsewhere.run_of(run.id).envelope.metadata == {"given": value, "added": [value]}


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
@pytest.mark.parametrize("name", VALUES)
def test_a_stage_returns_and_streams_any_value(name, mode):
    value = VALUES[name]
    output = {"value": value, "items": [value]}
    config = {**chain("a"), "default_run_mode": mode}
    runner = pipeline(config, Script(a=[output]), environment=world())
    request = envelope()
    outputs = asyncio.run(_streamed(runner, request))
    assert request.outputs == {"a": output}
    assert _as_lists(outputs["a"]) == _as_lists(output), "JSON has no tuples"


async def _streamed(runner, request):
    return {item.stage: item.output async for item in runner.stream(request)}


def _as_lists(value):
    if isinstance(value, list | tuple):
        return [_as_lists(item) for item in value]
    if type(value) is dict:
        return {str(key): _as_lists(item) for key, item in value.items()}
    return value
