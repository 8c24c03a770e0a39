"""A log as stretches of time."""

from divebook.events import catalog
from divebook.projections.spans import spans_of
from tests.engine.history import STARTED, begun, events, step

OPERATION = catalog.OperationStarted("op_1", "action_execution", {"n": 1})


def spans(*facts):
    return spans_of(events(*facts))


def inside(data, step="a", path="main"):
    return data, path, step


def test_a_step_its_item_and_its_operation_are_spans_in_the_order_they_began():
    log = (
        inside(catalog.StepStarted("action")),
        inside(catalog.IterationStarted(0, "x")),
        inside(catalog.OperationStarted("op_1", "action_execution", None, None, 0)),
        inside(catalog.OperationCompleted("op_1", "action_execution", 5, "r", {"input_tokens": 3})),
        inside(catalog.IterationCompleted(0, {"text": "r"})),
        inside(catalog.StepCompleted("# x")),
    )
    found = spans(*begun(), *log)
    assert [(span.kind, span.name, span.status) for span in found] == [
        ("step", "a", "completed"),
        ("item", "a[0]", "completed"),
        ("operation", "a[0]", "completed"),
    ]
    assert [span.duration_us for span in found] == [5_000_000, 3_000_000, 1_000_000]
    assert found[0].items == 1
    assert found[0].result == "# x"
    assert found[2].usage == {"input_tokens": 3}


def test_what_runs_when_its_path_fails_is_cancelled():
    log = (
        inside(catalog.StepStarted("action")),
        inside(OPERATION),
        inside(catalog.StepFailed("bad")),
        (catalog.PathFailed("bad"), "main"),
    )
    step_span, operation = spans(*begun(), *log)
    assert (step_span.status, step_span.error) == ("failed", "bad")
    assert operation.status == "cancelled"


def test_what_runs_elsewhere_goes_on_when_a_path_is_cancelled():
    log = (
        inside(catalog.StepStarted("action"), path="main-1"),
        inside(catalog.StepStarted("action"), path="main-2"),
        (catalog.PathCancelled("sibling failed"), "main-1"),
    )
    assert [span.status for span in spans(*begun(), *log)] == ["cancelled", "running"]


def test_a_resumed_step_goes_on_and_counts_its_attempts():
    log = (
        inside(catalog.StepStarted("action")),
        inside(OPERATION),
        inside(catalog.StepFailed("bad")),
        (catalog.PathFailed("bad"), "main"),
        catalog.ExecutionFailed("bad"),
        catalog.ExecutionResumed("failed"),
        inside(OPERATION),
        inside(catalog.OperationCompleted("op_1", "action_execution", 1)),
        inside(catalog.StepCompleted("fine")),
    )
    step_span, operation = spans(*begun(), *log)
    assert (step_span.status, step_span.attempts, step_span.error) == ("completed", 2, None)
    assert (operation.status, operation.attempts) == ("completed", 2)


def test_after_a_crash_an_operation_that_ran_is_over_while_its_step_goes_on():
    log = (inside(catalog.StepStarted("action")), inside(OPERATION), catalog.ExecutionResumed("running"))
    assert [span.status for span in spans(*begun(), *log)] == ["running", "cancelled"]


def test_what_ran_when_its_process_ended_has_ended_by_the_last_event_and_not_when_it_is_taken_up_again():
    log = (inside(catalog.StepStarted("action")), inside(OPERATION), inside(catalog.EventEmitted("last", None)))
    died = spans(*begun(), *log)
    step_span, operation, _ = spans(*begun(), *log, catalog.ExecutionResumed("running"))
    assert (step_span.ended_us, operation.ended_us) == (None, died[-1].started_us)


def test_a_step_whose_choice_of_a_way_failed_counts_as_completed_again_when_resumed():
    log = (
        *step("a"),
        inside(catalog.StepFailed("no such name")),
        (catalog.PathFailed("no such name"), "main"),
        catalog.ExecutionFailed("no such name"),
    )
    (failed,) = spans(*begun(), *log)
    assert (failed.status, failed.error) == ("failed", "no such name")
    (resumed,) = spans(*begun(), *log, catalog.ExecutionResumed("failed"))
    assert (resumed.status, resumed.error) == ("completed", None)


def test_a_caught_step_stays_failed_when_its_execution_is_resumed():
    log = (
        inside(catalog.StepStarted("action")),
        inside(catalog.StepFailed("bad")),
        inside(catalog.StepCaught("b", "bad")),
        catalog.ExecutionCancelled(),
        catalog.ExecutionResumed("cancelled"),
    )
    assert [span.status for span in spans(*begun(), *log)] == ["failed"]


def test_a_retried_item_counts_its_attempts():
    log = (
        inside(catalog.StepStarted("action")),
        inside(catalog.IterationStarted(0, "x")),
        inside(catalog.StepRetried(1, "bad", 0.0, 0)),
    )
    assert [span.attempts for span in spans(*begun(), *log)] == [1, 2]


def test_events_without_their_beginning_are_no_trouble():
    log = (
        inside(catalog.StepCompleted("x")),
        inside(catalog.IterationCompleted(0)),
        inside(catalog.OperationFailed("op_9", "action_execution", 1, "bad")),
        inside(OPERATION),
    )
    assert [span.kind for span in spans(STARTED, *log)] == ["operation"]


def test_a_persons_own_event_stands_where_it_happened():
    said = catalog.EventEmitted("found", {"n": 3})
    log = events(*begun(), (catalog.StepStarted("script"), "main", "a"), (said, "main", "a"))
    own = spans_of(log)[-1]
    assert (own.kind, own.called, own.step, own.parameters) == ("event", "found", "a", {"data": {"n": 3}})
    assert (own.status, own.duration_us) == ("completed", 0)
