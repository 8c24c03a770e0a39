"""For random workflows the live state is at every moment the fold of the log so far."""

from dataclasses import replace

import anyio
import anyio.lowlevel
from hypothesis import given, settings
from hypothesis import strategies as st

from divebook import Each, Step, Workflow
from divebook.engine.evolve import evolve, evolve_records, fold
from divebook.engine.state import ExecutionState
from divebook.events.event import Record
from divebook.steps.actions import Action
from tests.runtime.worlds import environment


@st.composite
def workflows(draw):
    count = draw(st.integers(1, 6))
    names = [f"s{n}" for n in range(count)]
    steps = [draw(steps_named(name, names[n + 1 :])) for n, name in enumerate(names)]
    outputs = draw(st.sampled_from([(), ("v0",)]))
    return Workflow("random", steps, inputs=["n"], outputs=outputs, continue_on_failure=draw(st.booleans()))


@st.composite
def steps_named(draw, name, later):
    targets = draw(st.lists(st.sampled_from(later), unique=True, max_size=3)) if later else []
    conditions = ["true", "false", "$(inputs.n > 1)", "$(len(state) % 2 == 0)", None]
    each = draw(
        st.none()
        | st.builds(Each, st.lists(st.integers(0, 3), max_size=3), as_=st.just("i"), parallel=st.integers(1, 3))
    )
    return Step(
        name,
        action=draw(st.sampled_from(["work", "work", "work", "fail"])),
        parameters={"value": draw(st.integers(0, 9))},
        store=draw(st.none() | st.sampled_from(["v0", "v1", "v2"])),
        each=each,
        next=[(target, draw(st.sampled_from(conditions))) for target in targets],
        join=bool(later) and draw(st.booleans()),
    )


async def work(value):
    await anyio.lowlevel.checkpoint()
    return value


async def fail(value):
    await anyio.lowlevel.checkpoint()
    raise RuntimeError(f"boom {value}")


ACTIONS = [Action("work", work), Action("fail", fail)]


class Audit:
    """Folds a log as it is written and compares each fold with the live state of that moment."""

    def __init__(self, execution):
        self.execution, self.folded = execution, ExecutionState(execution.id)
        self.moments, self.differences = 0, []

    def __call__(self, _, events):
        for event in events:
            self.folded = evolve(self.folded, event)
        self.moments += 1
        if self.folded != self.execution.state:
            self.differences.append(self.folded.last_sequence)


@settings(max_examples=60, deadline=None)
@given(workflows())
def test_the_state_is_the_fold_of_the_log_at_every_moment(workflow):
    world = environment(actions=ACTIONS)
    execution = world.create(workflow, {"n": 2})
    audit = Audit(execution)
    world.store.subscribe(audit)
    execution.start().wait(30)
    history = execution.history()
    assert audit.differences == []
    assert audit.moments >= 1  # an execution without any call is one commit
    assert execution.state == fold(execution.id, history) == audit.folded
    assert [event.sequence for event in history] == list(range(1, len(history) + 1))
    assert execution.status in ("completed", "failed")
    assert execution.state.active == 0


def together(draw, history):
    """Return records of a history: events of one path and step, some of them together."""
    records = []
    for event in history:
        record = Record.of(event)
        last = records[-1] if records else None
        if last is not None and (last.path, last.step) == (event.path, event.step) and draw(st.booleans()):
            records[-1] = replace(last, facts=(*last.facts, event.data))
        else:
            records.append(record)
    return records


@settings(max_examples=40, deadline=None)
@given(workflows(), st.data())
def test_events_that_are_folded_together_change_the_state_as_one_by_one(workflow, data):
    execution = environment(actions=ACTIONS).start(workflow, {"n": 2}).wait(30)
    records = together(data.draw, execution.history())
    states, one_by_one = [ExecutionState(execution.id)], [ExecutionState(execution.id)]
    for record in records:
        known = data.draw(st.integers(0, len(record.facts) - 1))
        before = evolve_records(states[-1], [(replace(record, facts=record.facts[:known]), 0)]) if known else states[-1]
        states.append(evolve_records(before, [(record, known)]))
        for event in record.events():
            one_by_one.append(evolve(one_by_one[-1], event))
    assert all(state == one_by_one[state.last_sequence] for state in states)
    assert evolve_records(states[0], [(record, 0) for record in records]) == states[-1]
    assert fold(execution.id, (event for record in records for event in record.events())) == states[-1]
