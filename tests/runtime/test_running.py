"""How executions run: order of events, branches, joins, loops, values."""

import threading

import anyio
import pytest

from divebook import Each, Step, Workflow
from divebook.definitions.definition import InputDefinition
from divebook.errors import DefinitionError, InputError, NotFoundError, SetupError, UnstorableValueError
from divebook.steps.actions import Action
from divebook.stores import MemoryStore
from tests.runtime.worlds import Calls, Failing, Gate, environment, event_types, run


def test_one_script_step_makes_exactly_eight_events():
    execution = run(Workflow("w", [Step("calculate", script="1 + 1")]))
    assert event_types(execution) == [
        "execution_started", "path_started", "step_started", "operation_started",
        "operation_completed", "step_completed", "path_completed", "execution_completed",
    ]  # fmt: skip


def test_an_execution_is_pending_then_completed_with_times():
    execution = run(Workflow("w", [Step("a", script="1")]))
    assert execution.status == "completed"
    assert execution.started_at <= execution.ended_at


def test_the_definition_travels_with_the_execution():
    workflow = Workflow("w", [Step("a", script="1")])
    started = run(workflow).history()[0].data
    assert started.fingerprint == workflow.fingerprint
    assert Workflow.from_dict(started.definition) == workflow


def test_values_keep_their_types_and_outputs_are_text():
    execution = run(Workflow("w", [Step("a", script='{"n": [1, 2.5, None, True]}', store="v")]))
    assert execution.variables == {"v": {"n": [1, 2.5, None, True]}}
    assert isinstance(execution.internals.paths["main"].step_outputs["a"], str)


def test_branches_run_side_by_side_and_share_the_variables():
    calls = Calls()
    steps = [
        Step("a", script="1", next=["b", "c"]),
        Step("b", action="note", parameters={"value": "b"}, store="b", end=True),
        Step("c", action="note", parameters={"value": "c"}, store="c", end=True),
    ]
    execution = run(Workflow("w", steps), actions=[calls.action()])
    assert sorted(calls) == ["b", "c"]
    assert execution.variables == {"b": "b", "c": "c"}
    assert {path.id: path.status for path in execution.internals.paths.values()} == dict.fromkeys(
        ["main", "main-1", "main-2"], "completed"
    )


def test_a_join_runs_its_step_once_after_all_branches():
    calls = Calls()
    steps = [
        Step("a", script="1", next=["b", "c", "d"]),
        Step("b", script="2", store="b", next="j"),
        Step("c", script="3", store="c", next="j"),
        Step("d", script="4", store="d", next="j"),
        Step("j", action="note", parameters={"value": "${state.b + state.c + state.d}"}, join=True),
    ]
    execution = run(Workflow("w", steps), actions=[calls.action()])
    assert calls == ["9"]
    assert set(execution.internals.paths["main-1"].step_outputs) == {"b", "c", "d", "j"}


def test_a_join_waits_for_nested_branches():
    calls = Calls()
    steps = [
        Step("a", script="1", next=["b", "j"]),
        Step("b", script="2", next=["c", "d"]),
        Step("c", script="3", next="j"),
        Step("d", script="4", next="j"),
        Step("j", action="note", join=True),
    ]
    assert run(Workflow("w", steps), actions=[calls.action()]).status == "completed"
    assert calls == [None]


def test_a_loop_keeps_its_path():
    steps = [Step("a", script='state.get("n", 0) + 1', store="n", next=[("a", "$(state.n < 5)")])]
    execution = run(Workflow("w", steps))
    assert execution.variables == {"n": 5}
    assert list(execution.internals.paths) == ["main"]


def test_conditions_are_recorded_with_their_results():
    steps = [Step("a", script="3", store="n", next=[("b", "$(state.n > 2)"), ("b", "false")]), Step("b", script="1")]
    history = run(Workflow("w", steps)).history()
    assert [(e.data.target, e.data.result) for e in history if e.event_type == "condition_evaluated"] == [
        ("b", True),
        ("b", False),
    ]


@pytest.mark.parametrize("parallel", [1, 4])
def test_each_keeps_the_order_of_items(parallel):
    each = Each([3, 1, 2], as_="n", parallel=parallel)
    execution = run(Workflow("w", [Step("a", script="n * 10", each=each, store="r")]))
    assert execution.variables == {"r": [30, 10, 20]}


def test_each_gives_its_variable_back():
    steps = [Step("a", script="'before'", store="i"), Step("b", script="state.i", each=Each(["x"], as_="i"), store="r")]
    assert run(Workflow("w", steps)).variables == {"i": "before", "r": ["x"]}


def test_each_item_has_its_own_operations():
    execution = run(Workflow("w", [Step("a", script="1", each=Each(["same", "same"], as_="i"))]))
    started = [e.data for e in execution.history() if e.event_type == "operation_started"]
    assert [data.iteration_index for data in started] == [0, 1]
    assert len({data.operation_id for data in started}) == 2


def test_each_records_the_beginning_and_end_of_items():
    history = run(Workflow("w", [Step("a", script="i", each=Each(["x"], as_="i"))])).history()
    (begun,) = (e.data for e in history if e.event_type == "iteration_started")
    (done,) = (e.data for e in history if e.event_type == "iteration_completed")
    assert (begun.item, done.result["text"]) == ("x", "x")


def test_parallel_items_overlap():
    arrived, both = Calls(), anyio.Event()

    async def meet(value):
        arrived.append(value)
        if len(arrived) == 2:
            both.set()
        await both.wait()
        return value

    each = Each([0, 1], as_="i", parallel=2)
    workflow = Workflow("w", [Step("a", action="meet", parameters={"value": "${i}"}, each=each, store="r")])
    assert run(workflow, actions=[Action("meet", meet)]).variables == {"r": ["0", "1"]}


def test_declared_outputs_are_in_the_last_event():
    workflow = Workflow("w", [Step("a", script="41 + 1", store="answer")], outputs=["answer"])
    execution = run(workflow)
    assert execution.outputs == {"answer": 42}
    assert execution.history()[-1].data.outputs == {"answer": 42}


def test_inputs_are_read_by_attribute_and_by_key():
    workflow = Workflow("w", [Step("a", script='inputs.n + inputs["n"]', store="r")], inputs=["n"])
    assert run(workflow, {"n": 2}).variables == {"r": 4}


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, 'input "n" is required by workflow '),
        ({"n": 1, "m": 2}, 'unknown input "m"'),
        ({"n": "one"}, "must be of type int, got str"),
        ([1], r"a mapping of names to values, not \[1\]"),
    ],
)
def test_wrong_inputs_start_nothing(inputs, message):
    store = MemoryStore()
    workflow = Workflow("w", [Step("a", script="1")], inputs=[InputDefinition("n", "int")])
    with pytest.raises(InputError, match=message):
        environment(workflow, store=store).start("w", inputs)
    assert store.records() == []


def test_inputs_that_cannot_be_stored_start_nothing():
    store = MemoryStore()
    workflow = Workflow("w", [Step("a", script="1")], inputs=["n"])
    with pytest.raises(UnstorableValueError, match=r"inputs\.n\.rows\[1\]"):
        environment(workflow, store=store).start("w", {"n": {"rows": [1, object()]}})
    assert store.records() == []


def test_unknown_names_are_refused_before_anything_runs_with_a_suggestion():
    calls = Calls()
    world = environment(actions=[calls.action("note")])
    with pytest.raises(NotFoundError, match=r'action "notr" of step "b" not found \(did you mean \'note\'\?\)'):
        world.start(Workflow("w", [Step("a", action="note"), Step("b", action="notr")]))
    with pytest.raises(DefinitionError, match="agent ghost not found"):
        world.start(Workflow("w", [Step("a", action="note"), Step("b", prompt="hi", agent="ghost")]))
    with pytest.raises(NotFoundError, match="no agent specified"):
        world.start(Workflow("w", [Step("a", action="note"), Step("b", prompt="hi")]))
    assert calls == []


def test_a_workflow_is_required():
    with pytest.raises(SetupError, match="workflow is required"):
        environment().start(None)
    with pytest.raises(NotFoundError, match="did you mean 'audit'"):
        environment(Workflow("audit", [Step("a", script="1")])).start("audti")


def test_an_option_of_a_start_that_does_not_exist_is_refused():
    store = MemoryStore()
    with pytest.raises(SetupError, match=r"the option 'durabilty' \(did you mean 'durability'\?\)"):
        environment(store=store).start(Workflow("w", [Step("a", script="1")]), durabilty="full")
    assert store.records() == []


def test_an_environment_needs_a_name():
    with pytest.raises(SetupError, match="environment name is required"):
        environment(name="")


def test_a_whole_expression_gives_an_action_its_value_and_a_template_gives_text():
    seen = []

    async def look(rows, text, plain):
        seen.append((rows, text, plain))

    steps = [
        Step("a", script="[1, {'k': None}]", store="rows"),
        Step("b", action="look", parameters={"rows": "$(state.rows)", "text": "${len(state.rows)} rows", "plain": [1]}),
    ]
    assert run(Workflow("w", steps), actions=[Action("look", look)]).status == "completed"
    assert seen == [([1, {"k": None}], "2 rows", [1])]


def test_what_goes_on_after_a_failed_path_can_be_paused():
    failing, gate, failed = Failing(), Gate(), threading.Event()
    steps = [
        Step("split", script="1", next=["fails", "goes on"]),
        Step("fails", action="fail"),
        Step("goes on", action="gate", next="later"),
        Step("later", script="2"),
    ]
    world = environment(actions=[failing.action(), gate.action()])
    execution = world.create(Workflow("w", steps, continue_on_failure=True))
    execution.subscribe(lambda events: [failed.set() for event in events if event.event_type == "path_failed"])
    execution.start()
    assert failed.wait(20)
    assert gate.reached.wait(20)
    execution.pause()
    gate.opened.set()
    assert execution.wait(20).state.paused
    assert world.run_of(execution.id).resume().wait(20).status == "failed"
    assert execution.internals.paths["main-2"].status == "completed"
