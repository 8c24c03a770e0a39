"""What the rules say comes next: states in, instructions out, no clock and no network."""

import pytest

from divebook.definitions.definition import OutputDefinition, Workflow
from divebook.definitions.step import Step
from divebook.engine.decide import decide, decide_end, decide_joins, decide_path, outputs_of
from divebook.engine.instructions import AwaitJoin, CancelPaths, EvaluateConditions, RecordFacts, RunStep
from divebook.events import catalog
from tests.engine.history import begun, state_after, step


def script(name, **settings):
    return Step(name, script="1", **settings)


def facts(instruction):
    return [(fact.data.event_type, fact.path) for fact in instruction.facts]


CHAIN = Workflow("w", [script("a"), script("b")])
BRANCHING = Workflow("w", [script("a", next=["b", "c"]), script("b", end=True), script("c", end=True)])


def branched(*targets, path="main", at="a", first=1):
    new_paths = tuple({"id": f"{path}-{n}", "current_step": target} for n, target in enumerate(targets, start=first))
    return (catalog.PathBranched(new_paths), path, at), (catalog.PathCompleted(at), path)


def test_a_started_path_runs_its_step():
    assert decide_path(CHAIN, state_after(*begun()), "main") == RunStep("main", "a", 1)


def test_a_step_that_began_is_taken_up_again():
    state = state_after(*begun(), (catalog.StepStarted("script"), "main", "a"))
    assert decide_path(CHAIN, state, "main") == RunStep("main", "a", 1, resumed=True)


def test_a_single_edge_leads_on_without_an_event():
    assert decide_path(CHAIN, state_after(*begun(), *step("a")), "main") == RunStep("main", "b", 1)


def test_a_path_without_edges_completes():
    state = state_after(*begun(), *step("a"), *step("b"))
    assert facts(decide_path(CHAIN, state, "main")) == [("path_completed", "main")]


def test_conditions_are_asked_for_before_edges_are_chosen():
    workflow = Workflow("w", [script("a", next=[("b", "$(x)"), "c"]), script("b", end=True), script("c", end=True)])
    state = state_after(*begun(), *step("a"))
    assert decide_path(workflow, state, "main") == EvaluateConditions("main", "a", (("$(x)", "b"),))


def test_only_the_conditions_that_are_missing_are_asked_for():
    workflow = Workflow(
        "w", [script("a", next=[("b", "$(x)"), ("c", "$(y)")]), script("b", end=True), script("c", end=True)]
    )
    state = state_after(*begun(), *step("a"), (catalog.ConditionEvaluated("$(x)", "b", True), "main", "a"))
    assert decide_path(workflow, state, "main") == EvaluateConditions("main", "a", (("$(y)", "c"),))


@pytest.mark.parametrize(("first", "second", "expected"), [(True, False, "b"), (False, True, "c")])
def test_true_conditions_are_followed(first, second, expected):
    workflow = Workflow(
        "w", [script("a", next=[("b", "$(x)"), ("c", "$(y)")]), script("b", end=True), script("c", end=True)]
    )
    state = state_after(
        *begun(),
        *step("a"),
        (catalog.ConditionEvaluated("$(x)", "b", first), "main", "a"),
        (catalog.ConditionEvaluated("$(y)", "c", second), "main", "a"),
    )
    assert decide_path(workflow, state, "main") == RunStep("main", expected, 1)


def test_two_edges_branch_and_end_the_parent():
    instruction = decide_path(BRANCHING, state_after(*begun(), *step("a")), "main")
    assert facts(instruction) == [("path_branched", "main"), ("path_completed", "main")]
    assert [path["id"] for path in instruction.facts[0].data.new_paths] == ["main-1", "main-2"]


@pytest.mark.parametrize(
    ("dialect", "expected"), [("divebook", ["main-1-1", "main-1-2"]), ("dive", ["main-1-3", "main-1-4"])]
)
def test_children_are_numbered_per_parent_and_per_execution_in_the_old_dialect(dialect, expected):
    steps = [script("a", next=["b", "c"]), script("b", next=["c", "d"]), script("c", end=True), script("d", end=True)]
    workflow = Workflow("w", steps, dialect=dialect)
    state = state_after(
        *begun(), *step("a"), *branched("b", "c"), (catalog.PathStarted("b"), "main-1"), *step("b", path="main-1")
    )
    instruction = decide_path(workflow, state, "main-1")
    assert [path["id"] for path in instruction.facts[0].data.new_paths] == expected


def test_a_loop_counts_its_visits():
    workflow = Workflow("w", [script("a", next=["a"])])
    assert decide_path(workflow, state_after(*begun(), *step("a")), "main") == RunStep("main", "a", 2)


def test_the_execution_completes_after_its_last_path():
    state = state_after(*begun(), *step("a"), *step("b"), (catalog.PathCompleted("b"), "main"))
    assert decide(CHAIN, state) == (decide_end(CHAIN, state),)
    assert facts(decide_end(CHAIN, state)) == [("execution_completed", "")]


def test_nothing_follows_the_end():
    state = state_after(
        *begun(), *step("a"), *step("b"), (catalog.PathCompleted("b"), "main"), catalog.ExecutionCompleted()
    )
    assert decide(CHAIN, state) == ()


def failed_branch():
    return state_after(
        *begun(),
        *step("a"),
        *branched("b", "c"),
        (catalog.PathStarted("b"), "main-1"),
        (catalog.PathFailed("boom"), "main-1"),
    )


def test_a_failure_stops_the_siblings():
    assert isinstance(decide_end(BRANCHING, failed_branch()), CancelPaths)


def test_siblings_go_on_where_the_workflow_says_so():
    patient = Workflow("w", BRANCHING.steps, continue_on_failure=True)
    assert decide_end(patient, failed_branch()) is None


def test_the_first_failure_is_the_executions_error():
    state = state_after(
        *begun(), *step("a"), *branched("b", "c"),
        (catalog.PathStarted("b"), "main-1"), (catalog.PathStarted("c"), "main-2"),
        (catalog.PathFailed("second in age"), "main-2"), (catalog.PathFailed("first in age"), "main-1"),
    )  # fmt: skip
    assert decide_end(BRANCHING, state).facts[0].data.error == "second in age"


JOINING = Workflow(
    "w", [script("a", next=["b", "c"]), script("b", next=["j"]), script("c", next=["j"]), script("j", join=True)]
)


def at_join(*more):
    return state_after(
        *begun(), *step("a"), *branched("b", "c"),
        (catalog.PathStarted("b"), "main-1"), (catalog.PathStarted("c"), "main-2"),
        *step("b", path="main-1"), *more,
    )  # fmt: skip


def test_a_path_waits_at_a_join():
    assert facts(decide_path(JOINING, at_join(), "main-1")) == [("path_waiting", "main-1")]


def test_a_join_waits_for_paths_that_may_still_come():
    state = at_join((catalog.PathWaiting("j"), "main-1"))
    assert decide_path(JOINING, state, "main-1") == AwaitJoin("main-1")
    assert decide_joins(JOINING, state) == ()


def test_the_oldest_path_goes_on_for_all_that_came():
    state = at_join(
        (catalog.PathWaiting("j"), "main-1"), *step("c", path="main-2"), (catalog.PathWaiting("j"), "main-2")
    )
    (record,) = decide_joins(JOINING, state)
    assert facts(record) == [("path_completed", "main-2"), ("path_joined", "main-1")]


def test_a_join_does_not_wait_for_a_path_that_cannot_come():
    steps = [script("a", next=["b", "c"]), script("b", next=["j"]), script("c", end=True), script("j", join=True)]
    (record,) = decide_joins(Workflow("w", steps), at_join((catalog.PathWaiting("j"), "main-1")))
    assert facts(record) == [("path_joined", "main-1")]


def test_paths_that_wait_for_each_other_are_let_go_in_order_of_age():
    steps = [
        script("a", next=["b", "c"]), script("b", next=["j"]), script("c", next=["k"]),
        script("j", join=True, next=["k"]), script("k", join=True, next=["j"]),
    ]  # fmt: skip
    state = at_join(
        (catalog.PathWaiting("j"), "main-1"), *step("c", path="main-2"), (catalog.PathWaiting("k"), "main-2")
    )
    (record,) = decide_joins(Workflow("w", steps), state)
    assert facts(record) == [("path_joined", "main-1")]


def test_a_joined_path_runs_the_join_step_with_the_outputs_of_all():
    state = at_join(
        (catalog.PathWaiting("j"), "main-1"),
        *step("c", path="main-2", output="C"), (catalog.PathWaiting("j"), "main-2"),
        (catalog.PathCompleted("c"), "main-2"), (catalog.PathJoined("j", ("main-2",)), "main-1"),
    )  # fmt: skip
    assert decide_path(JOINING, state, "main-1") == RunStep("main-1", "j", 1)
    assert state.paths["main-1"].step_outputs["c"] == "C"


def test_declared_outputs_come_from_variables_then_defaults_then_nothing():
    outputs = [OutputDefinition("n"), OutputDefinition("m", default=3), OutputDefinition("o")]
    workflow = Workflow("w", [script("a")], outputs=outputs)
    n = catalog.StateMutated((catalog.Mutation("set", "n", 1),))
    assert outputs_of(workflow, state_after(*begun(), *step("a", n))) == {"n": 1, "m": 3, "o": None}


def test_a_single_unstored_output_is_the_text_of_the_last_step():
    workflow = Workflow("w", [script("a")], outputs=["text"])
    state = state_after(*begun(), *step("a", output="done"), (catalog.PathCompleted("a"), "main"))
    assert outputs_of(workflow, state) == {"text": "done"}


def test_deciding_is_the_same_whether_asked_path_by_path_or_for_all():
    state = at_join()
    separately = [decide_path(JOINING, state, path.id) for path in state.active_paths()]
    assert list(decide(JOINING, state)) == [*separately, *decide_joins(JOINING, state)]
    assert all(isinstance(found, RecordFacts | RunStep) for found in separately)
