"""For random workflows the live state is at every moment the fold of the log so far."""

import anyio
import anyio.lowlevel
from hypothesis import given, settings
from hypothesis import strategies as st

from divebook import Each, Step, Workflow
from divebook.engine.evolve import evolve, fold
from divebook.engine.state import ExecutionState
from divebook.steps.actions import Action
from tests.execution.worlds import environment


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
    assert audit.moments > 1
    assert execution.state == fold(execution.id, history) == audit.folded
    assert [event.sequence for event in history] == list(range(1, len(history) + 1))
    assert execution.status in ("completed", "failed")
    assert execution.state.active == 0
