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
    return Workflow(
        "random", steps, continue_on_failure=draw(st.booleans()), outputs=draw(st.sampled_from([(), ("v0",)]))
    )


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


@settings(max_examples=60, deadline=None)
@given(workflows())
def test_the_state_is_the_fold_of_the_log_at_every_moment(workflow):
    workflow = Workflow(
        workflow.name,
        workflow.steps,
        inputs=["n"],
        outputs=workflow.outputs,
        continue_on_failure=workflow.continue_on_failure,
    )
    world = environment(actions=ACTIONS)
    folded = [ExecutionState("")]
    differences = []

    def compare(events):
        state = folded[-1]
        for event in events:
            state = evolve(state, event)
        folded.append(state)
        if execution.state.last_sequence == state.last_sequence and execution.state != state:
            differences.append(state.last_sequence)

    execution = world.start(workflow, {"n": 2})
    folded[0] = ExecutionState(execution.id)
    history_before = []
    stop = execution.subscribe(lambda events: history_before.append(tuple(events)))
    execution.wait(30)
    stop()
    history = execution.history()
    compare(history)
    assert differences == []
    assert execution.state == fold(execution.id, history)
    assert [event.sequence for event in history] == list(range(1, len(history) + 1))
    assert execution.status in ("completed", "failed")
    assert execution.state.active == 0
