"""What a fork drops, keeps and changes: the fold of `execution_forked`, and what a change may hold."""

import pytest

from divebook.definitions.definition import Workflow
from divebook.definitions.step import Step
from divebook.engine.evolve import fold
from divebook.engine.forks import Change, opened_as, require_reach, snapped
from divebook.engine.lifecycle import violations
from divebook.engine.state import ExecutionState
from divebook.errors import DefinitionError, SetupError, UnstorableValueError
from divebook.events import catalog
from tests.engine.history import begun, events, reloaded, state_after, step

STEP = catalog.StepStarted("function")
LONG = "x" * 500
OURS = catalog.ExecutionStarted("w", {"x": 1}, {"name": "w"}), (catalog.PathStarted("a"), "main")
"""A log that this engine wrote begins so."""


def at(fact, path="main", name="a"):
    return fact, path, name


def begins(operation, kind="action_execution", **fields):
    return at(catalog.OperationStarted(operation, kind, **fields))


def ends(operation, kind="action_execution", result=1, **fields):
    return at(catalog.OperationCompleted(operation, kind, 0, result, **fields))


def asks(question="ask_1", **fields):
    return at(catalog.InterruptRaised(question, "clarification", "why?", **fields))


def forked(source_events, change=None, **fields):
    told = Change.of(change)
    return catalog.ExecutionForked(
        "exec_0", source_events, "w", change=told.to_data() or None, model=told.model, **fields
    )


def fork_of(*facts, change=None, **fields):
    """Return the state of a fork after these events of its source, once it has been resumed."""
    return state_after(*facts, forked(len(facts), change, **fields), catalog.ExecutionResumed())


def open_operations(state):
    return {key: (record.status, record.result) for key, record in state.paths["main"].open.operations.items()}


def test_a_call_in_flight_is_dropped_and_one_that_has_ended_stays():
    """Trap 11: nobody is asked what became of a call that is the source's."""
    state = fork_of(*begun(), at(STEP), begins("op_1"), ends("op_1"), begins("op_2"))
    assert open_operations(state) == {"op_1": ("completed", 1)}


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        ("timer", {"seconds": 5}),
        ("signal_wait", {"signal": "go"}),
        ("child_workflow", {"workflow": "w", "signal": "exec_9"}),
        ("agent_response", {"agent": "x"}),
    ],
)
def test_what_runs_is_the_sources_whatever_it_is(kind, parameters):
    """Trap 12: a fork while a timer runs, a signal is waited for, a child runs."""
    reserved = {"tokens": 9, "cost": 5, "calls": 1}
    running = begins("op_1", kind, parameters=parameters, reserved=reserved)
    state = fork_of(*begun(), at(STEP), running)
    assert (open_operations(state), state.sleeping, state.status) == ({}, 0, "running")
    assert (state.ledger.reserved_tokens, state.ledger.reserved_cost, state.ledger.reserved_calls) == (0, 0, 0)


def test_inside_an_agents_turn_the_turn_is_entered_again_with_what_has_ended_in_it():
    """Trap 12: inside an agent's turn."""
    facts = (
        *(*OURS, at(STEP), begins("op_t", "agent_turn")),
        *(begins("op_1", "tool_call", within=4), ends("op_1", "tool_call"), begins("op_2", "tool_call", within=4)),
    )
    state = fork_of(*facts)
    assert open_operations(state) == {"op_t": ("running", None), "op_1": ("completed", 1)}
    assert state.paths["main"].open.operations["op_t"].holds == ("op_1",)
    goes_on = (*facts, forked(len(facts)), catalog.ExecutionResumed(), begins("op_2", "tool_call", within=4))
    assert not list(violations(events(*goes_on)))


def test_a_child_that_failed_is_begun_anew_and_not_driven_on():
    """Trap 14: a fork's child is not the source's child at that place."""
    child = begins("op_1", "child_workflow", parameters={"workflow": "w", "signal": "exec_9"})
    failed = at(catalog.OperationFailed("op_1", "child_workflow", 0, "no"))
    ended = at(catalog.StepFailed("no", ("op_1",))), (catalog.PathFailed("no"), "main")
    facts = (*begun(), at(STEP), child, failed, *ended)
    assert "op_1" in state_after(*facts, catalog.ExecutionResumed()).paths["main"].open.operations
    assert open_operations(fork_of(*facts)) == {}


def test_an_open_question_is_asked_anew_and_an_answered_one_stays():
    """Trap 13: a question that was answered in the prefix is not asked again, an open one is asked once in each."""
    answered = at(catalog.InterruptResolved("ask_1", {"text": "so"}, "ann", 7))
    state = fork_of(*begun(), at(STEP), asks(), answered, asks("ask_2"))
    assert {key: question.response for key, question in state.interrupts.items()} == {"ask_1": {"text": "so"}}
    assert (state.asking, state.paths["main"].asking, state.pending_interrupts(), state.taken) == (0, 0, [], 0)


def test_its_questions_have_the_ids_of_the_sources():
    source = state_after(*begun())
    assert fork_of(*begun(), seed="exec_1").question_id("x") == source.question_id("x")


def test_its_time_is_its_own_and_what_was_spent_counts_for_its_bounds_only():
    """Trap 15: the prefix's usage counts for limits; `max_seconds` counts from the fork."""
    used = {"requests": 1, "input_tokens": 5}
    call = begins("op_1", "agent_response"), ends("op_1", "agent_response", usage=used)
    state = fork_of(*begun(), at(STEP), *call)
    assert (state.usage.input_tokens, state.own_usage.input_tokens, state.ledger.llm_calls) == (5, 0, 1)
    assert (state.running_us, state.started_us) == (0, 6_000_000)


def test_changed_variables_are_seen_by_what_is_open_and_by_what_comes():
    held = at(catalog.StateMutated((catalog.Mutation("set", "x", LONG),)))
    facts = (*begun(), *step("b", catalog.StateMutated((catalog.Mutation("set", "x", LONG),))), at(STEP), held)
    new = "y" * 500
    log = events(*facts, forked(len(facts), {"variables": {"x": new, "z": 1}}), catalog.ExecutionResumed())
    state = state_after(*facts, forked(len(facts), {"variables": {"x": new, "z": 1}}), catalog.ExecutionResumed())
    for told in (state, reloaded(state, log)):
        path = told.paths["main"]
        assert [dict(found) for found in (told.variables, path.variables, path.open.entry_variables)] == [
            {"x": new, "z": 1}
        ] * 3


def test_a_changed_input_comes_back_from_a_checkpoint():
    """Trap 16: a large input stands in the first event, a changed one does not."""
    log = events(*begun(), forked(2, {"inputs": {"x": LONG}}))
    state = fork_of(*begun(), change={"inputs": {"x": LONG}})
    assert (dict(state.inputs), dict(reloaded(state, log).inputs)) == ({"x": LONG}, {"x": LONG})


@pytest.mark.parametrize("result", [2, LONG])
@pytest.mark.parametrize("has_ended", [True, False])
def test_a_changed_result_is_that_of_the_call(has_ended, result):
    facts = (*begun(), at(STEP), begins("op_1"), *([ends("op_1")] if has_ended else []))
    told = forked(len(facts), {"results": {"op_1": result}})
    state = state_after(*facts, told)
    assert open_operations(state) == open_operations(reloaded(state, events(*facts, told)))
    assert open_operations(state) == {"op_1": ("completed", result)}


@pytest.mark.parametrize("output", ["short", LONG])
def test_the_output_of_a_skipped_step_comes_back_from_a_checkpoint(output):
    """Also where the step had a large output before: no event holds the new one."""
    loop = (*step("a", output=LONG), *step("b", output="short"))
    failed = at(catalog.StepFailed("no"), name="a"), (catalog.PathFailed("no"), "main")
    facts = (*begun(), *loop, (catalog.StepStarted("script", None, 2), "main", "a"), *failed)
    told = (*facts, forked(len(facts), {"skipped": {"main": output}}), catalog.ExecutionResumed())
    state = state_after(*told)
    assert dict(state.paths["main"].step_outputs) == {"a": output, "b": "short"}
    assert reloaded(state, events(*told)) == state


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_changed_answer_is_that_of_the_question(is_answered):
    answer = [at(catalog.InterruptResolved("ask_1", {"text": "so"}))] if is_answered else []
    state = fork_of(*begun(), at(STEP), asks(), *answer, change={"answers": {"ask_1": {"text": "no"}}})
    assert (state.interrupts["ask_1"].response, state.interrupts["ask_1"].is_open) == ({"text": "no"}, False)


def test_model_code_bounds_and_who_asks_are_those_of_the_newest_opening():
    told = {
        "fingerprint": "f2",
        "code": {"action x": "1"},
        "bounds": {"max_llm_calls": 3},
        "identity": {"user_id": "u"},
    }
    state = fork_of(*begun(), change={"model": "scripted"}, **told)
    assert (state.model, state.fingerprint, dict(state.code)) == ("scripted", "f2", {"action x": "1"})
    assert (state.bounds.max_llm_calls, dict(state.identity)) == (3, {"user_id": "u"})


def state_in(log):
    return lambda at: fold(log[0].execution_id, log[:at])


def test_the_end_of_the_source_is_not_shared():
    log = events(*begun(), (catalog.PathFailed("no"), "main"), catalog.ExecutionFailed("no"))
    assert snapped(log, 4, state_in(log)) == 3


def test_what_people_say_after_the_end_does_not_bring_the_end_into_a_fork():
    said = catalog.ExecutionAnnotated(note="good")
    log = events(*begun(), (catalog.PathCompleted("a"), "main"), catalog.ExecutionCompleted(), said, said)
    assert [snapped(log, at, state_in(log)) for at in (3, 4, 5, 6)] == [3, 3, 3, 3]


def test_no_rule_is_cut_in_half():
    """Trap 10: path_completed and path_joined, step_failed and path_failed, a store and step_completed."""
    facts = [
        (catalog.PathCompleted("a"), catalog.PathJoined("b")),
        (catalog.StepFailed("no"), catalog.PathFailed("no")),
        (catalog.StateMutated((catalog.Mutation("set", "x"),)), catalog.StepCompleted()),
        (catalog.OperationFailed("op_1", "timer", 0, "no"), catalog.StepRetried()),
    ]
    for pair in facts:
        log = events(*begun(), *pair)
        assert [snapped(log, number, lambda _: ExecutionState("exec_1")) for number in (2, 3, 4)] == [2, 4, 4]


def test_a_log_with_a_fork_in_it_is_sound():
    facts = (*OURS, at(STEP), begins("op_1"), asks())
    goes_on = (forked(len(facts)), catalog.ExecutionResumed(), begins("op_1"), ends("op_1"), asks())
    assert not list(violations(events(*facts, *goes_on)))
    ends_it = (*facts, forked(len(facts)), catalog.ExecutionResumed(), ends("op_1"))
    assert [number for number, _ in violations(events(*ends_it))] == [len(ends_it)]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"variable": {}}, "did you mean 'variables'"),
        ({"variables": [1]}, "variables of a change must be a mapping of names of variables"),
        ({"results": {1: 2}}, "1 is not a valid key"),
        ({"prompts": {"a": 1}}, "the prompt of step 'a' must be a string, not int"),
        ({"model": 3}, "model must be the name of a model"),
        ({"definition": "Name: x"}, "write workflow.to_dict()"),
        ("x", "a change must be a mapping such as"),
    ],
)
def test_a_change_says_what_is_wrong_with_it(given, said):
    with pytest.raises(SetupError) as caught:
        Change.of(given)
    assert said in str(caught.value).replace('"', "'")


def test_a_value_that_no_log_can_hold_is_named():
    with pytest.raises(UnstorableValueError, match=r"variables\.x"):
        Change(variables={"x": object()})


def test_a_change_is_read_back_from_its_event():
    change = Change(variables={"x": 1}, answers={"ask_1": {"text": "a"}}, model="scripted")
    assert Change.recorded(forked(1, change)) == change
    assert (Change().named, change.named) == ((), ("variables", "answers", "model"))


def test_a_changed_prompt_is_one_of_a_step_that_has_one():
    workflow = Workflow("w", [Step("ask", prompt="Greet"), Step("run", script="1")])
    changed = Change(prompts={"ask": "Insult"}).workflow(workflow)
    assert [step.prompt for step in changed.steps] == ["Insult", None]
    assert changed.fingerprint != workflow.fingerprint
    assert Change().workflow(workflow) is workflow
    with pytest.raises(SetupError, match=r"no step 'run' with a prompt \(steps with a prompt: ask\)"):
        Change(prompts={"run": "x"}).workflow(workflow)


@pytest.mark.parametrize("definition", [{"steps": []}, {"name": "w", "steps": 7}, {"name": "w", "steps": [7]}], ids=str)
def test_a_changed_definition_has_the_shape_of_one(definition):
    with pytest.raises(SetupError, match="must have a name and a list of steps"):
        Change(definition=definition).workflow(Workflow("w", [Step("s", script="1")]))


@pytest.mark.parametrize("steps", [[], [{"name": "s"}], [{"nme": "s"}]], ids=str)
def test_a_changed_definition_keeps_the_rules_of_one_that_is_written(steps):
    with pytest.raises(DefinitionError):
        Change(definition={"name": "w", "steps": steps}).workflow(Workflow("w", [Step("s", script="1")]))


def test_a_changed_definition_is_read():
    workflow = Workflow("w", [Step("run", script="1")])
    other = Workflow("w", [Step("run", script="2")])
    assert Change(definition=other.to_dict()).workflow(workflow) == other
    assert Change.of({"definition": other}) == Change(definition=other.to_dict())  # which an event can hold


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"results": {"op_9": 1}}, "the result of op_9 cannot be changed at event 4 of execution exec_1"),
        ({"answers": {"ask_9": {}}}, r"ask_9 has not been asked yet at event 4 .*\(asked there: none\)"),
        ({"inputs": {"y": 1}}, r"no input 'y' to change \(inputs: x\)"),
    ],
)
def test_what_a_change_names_must_be_there(change, said):
    source = state_after(*begun(), at(STEP), begins("op_1"))
    require_reach(Change(results={"op_1": 1}), source)
    with pytest.raises(SetupError, match=said):
        require_reach(Change.of(change), source)


def test_openings_follow_each_other():
    first = catalog.ExecutionStarted("w", {"x": 1}, {"old": 1}, "f1", "text", key="k", model="m")
    opened = opened_as(
        first, [forked(3, {"inputs": {"x": 2}}), forked(5, None, definition={"new": 1}, fingerprint="f2")]
    )
    assert (dict(opened.inputs), opened.definition, opened.source) == ({"x": 2}, {"new": 1}, "")
    assert (opened.fingerprint, opened.key, opened.model, opened.came_from) == ("f2", None, "m", "fork")
