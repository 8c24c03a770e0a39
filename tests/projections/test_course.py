"""How a run went on: what it did at each moment, and how far its steps have come."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from divebook.engine.operations import AGENT_TURN, SIGNAL_WAIT, TIMER
from divebook.events import Event, catalog
from divebook.projections.activity import ASLEEP, PAUSED, STOPPED, WAITED, WORKED, Phase, activity_of

S = 1_000_000
CALL, TURN = "action_execution", AGENT_TURN


def log(*told):
    """Return a log of facts, each with the second in which it was recorded."""
    return [
        Event(f"event_{number}", "exec_1", number, int(second * S) + S, data, "main", "s")
        for number, (second, data) in enumerate(told, 1)
    ]


def started(name, kind=CALL):
    return catalog.OperationStarted(name, kind)


def ended(name, kind=CALL):
    return catalog.OperationCompleted(name, kind, 1)


STARTED = (0, catalog.ExecutionStarted("w"))
ASKED, ANSWERED = catalog.InterruptRaised("ask_1", "question", "Well?"), catalog.InterruptResolved("ask_1", {})
OVER = catalog.ExecutionCompleted()


def spent_of(*told, now=0):
    """Return the seconds that were spent with everything, without what took none."""
    course = activity_of(log(STARTED, *told))
    kinds = (WORKED, WAITED, PAUSED, ASLEEP, STOPPED)
    return {kind: spent / S for kind in kinds if (spent := course.spent(kind, int(now * S) + S))}


def test_a_run_waits_for_a_person_while_a_question_is_open_and_nothing_else_goes_on():
    told = (1, ASKED), (1, started("op_1")), (3, ended("op_1")), (63, ANSWERED), (64, OVER)
    assert spent_of(*told) == {WORKED: 4.0, WAITED: 60.0}


def test_a_paused_run_neither_works_nor_waits():
    paused = (3, catalog.ExecutionPaused("lunch")), (10, catalog.ExecutionResumed())
    assert spent_of((1, ASKED), *paused, (11, ANSWERED), (12, OVER)) == {WORKED: 2.0, WAITED: 3.0, PAUSED: 7.0}


@pytest.mark.parametrize("kind", [TIMER, SIGNAL_WAIT])
def test_a_run_that_lets_time_pass_is_asleep(kind):
    assert spent_of((1, started("op_1", kind)), (9, ended("op_1", kind)), (10, OVER)) == {WORKED: 2.0, ASLEEP: 8.0}


def test_the_turn_of_an_agent_that_asks_is_no_work():
    assert spent_of((1, started("op_1", TURN)), (2, ASKED), (8, ANSWERED), (9, ended("op_1", TURN))) == {
        WORKED: 3.0,
        WAITED: 6.0,
    }


def test_a_call_of_which_it_is_asked_whether_it_took_effect_works_no_more():
    doubt = catalog.InterruptRaised("ask_1", "outcome_unknown", "Well?", operation_id="op_1")
    assert spent_of((0, started("op_1")), (2, doubt), (9, ANSWERED), (9, OVER)) == {WORKED: 2.0, WAITED: 7.0}


def test_the_time_after_a_process_ended_until_the_next_took_over_is_nobodys():
    assert spent_of((0, started("op_1")), (100, catalog.ExecutionResumed()), (102, OVER)) == {
        WORKED: 2.0,
        STOPPED: 100.0,
    }


def test_the_time_after_a_failure_until_somebody_resumes_is_nobodys():
    told = (1, catalog.ExecutionFailed("boom")), (61, catalog.ExecutionResumed("failed")), (63, OVER)
    assert spent_of(*told) == {WORKED: 3.0, STOPPED: 60.0}


def test_a_question_that_is_open_when_the_process_ends_is_still_waited_for():
    told = (1, ASKED), (90, catalog.ExecutionResumed("waiting")), (90, ANSWERED), (91, OVER)
    assert spent_of(*told) == {WORKED: 2.0, WAITED: 89.0}


def test_the_moment_between_two_calls_is_work():
    told = (0, ASKED), (0, started("op_1")), (1, ended("op_1")), (1.01, started("op_2")), (2, ended("op_2"))
    course = activity_of(log(STARTED, *told))
    assert course.phases == []
    assert course.current == Phase(WAITED, 3 * S)


def test_what_goes_on_counts_up_to_now_and_what_is_over_does_not_grow():
    assert spent_of((1, ASKED), now=5) == {WORKED: 1.0, WAITED: 4.0}
    assert spent_of((1, OVER), now=500) == {WORKED: 1.0}


def test_everything_together_is_the_time_since_the_beginning():
    told = (
        (1, ASKED), (2, started("op_1")), (4, ended("op_1")), (5, ANSWERED), (6, started("op_2", TIMER)),
        (8, catalog.ExecutionPaused("lunch")), (20, catalog.ExecutionResumed()), (21, ended("op_2", TIMER)),
        (22, catalog.ExecutionCancelled()), (50, catalog.ExecutionResumed()), (52, started("op_3")),
        (60, catalog.ExecutionResumed()), (61, OVER),
    )  # fmt: skip
    for count in range(1, len(told) + 1):
        assert sum(spent_of(*told[:count]).values()) == told[count - 1][0]


FACTS = [
    STARTED[1], OVER, ASKED, ANSWERED, catalog.ExecutionPaused(""), catalog.ExecutionResumed(),
    catalog.ExecutionFailed("x"),
    started("op_1"), started("op_2"), started("op_3", TIMER), ended("op_1"), ended("op_2"), ended("op_3", TIMER),
    catalog.StepStarted("action"), catalog.StepCompleted(), catalog.StepFailed("x"), catalog.PathCancelled("x"),
    catalog.IterationStarted(0, 0, total=-5), catalog.IterationStarted(1, 1, total=10**30),
    catalog.IterationStarted(2, 2),
    catalog.IterationCompleted(0), catalog.IterationFailed(1, "x"), catalog.IterationFailed(2, "x", result={}),
]  # fmt: skip


@given(st.lists(st.tuples(st.integers(-5, 500), st.sampled_from(FACTS)), max_size=40))
def test_whatever_a_log_says_each_moment_belongs_to_one_thing(told):
    """Also where clocks were set back, and of logs that no engine has written."""
    told = [(second, data) for second, data in told if data is not STARTED[1]]
    course = activity_of(log(STARTED, *told))
    spent = [course.spent(kind) for kind in (WORKED, WAITED, PAUSED, ASLEEP, STOPPED)]
    assert min(spent) >= 0
    if not course.is_over:
        assert sum(spent) == course.last_us - S
    for step in course.progress:
        assert min(step.done, step.total, step.failed, step.running, step.left_us or 0) >= 0
        assert 0 <= step.failed_open <= step.failed


# --- how far steps have come ---------------------------------------------------------------------------------------


def begins(index, total=None):
    return catalog.IterationStarted(index, index, total=total)


def progress_of(*told):
    (found,) = activity_of(log(STARTED, (0, catalog.StepStarted("action")), *told)).progress
    return found


def test_progress_counts_what_is_done_and_what_has_failed():
    first = (0, begins(0, 4)), (1, catalog.IterationCompleted(0))
    failed = (1, begins(1)), (2, catalog.IterationFailed(1, "boom", result={"skipped": True}))
    told = progress_of(*first, *failed, (2, begins(2)))
    assert (told.step, told.done, told.total, told.failed, told.running) == ("s", 2, 4, 1, 1)


def test_the_latest_items_say_how_long_the_others_take_and_pauses_do_not_count():
    pause = (2, catalog.ExecutionPaused("lunch")), (102, catalog.ExecutionResumed())
    items = (0, begins(0, 10)), (2, catalog.IterationCompleted(0)), *pause, (104, catalog.IterationCompleted(1))
    assert progress_of(*items).left_us == 8 * 2 * S


def test_nothing_is_estimated_before_an_item_has_ended_or_once_the_step_is_over():
    assert progress_of((0, begins(0, 2))).left_us is None
    done = (1, catalog.IterationCompleted(0)), (2, catalog.IterationCompleted(1))
    assert progress_of((0, begins(0, 2)), *done, (2, catalog.StepCompleted())).left_us is None


def test_an_item_that_failed_and_is_made_again_has_not_failed():
    ends = catalog.IterationFailed(0, "boom"), catalog.StepFailed("boom"), catalog.ExecutionFailed("boom")
    failed = [(0, begins(0, 2)), *((1, end) for end in ends)]
    assert progress_of(*failed).failed == 1
    again = progress_of(*failed, (9, catalog.ExecutionResumed("failed")), (9, begins(0, 2)))
    assert (again.failed, again.total, again.running) == (0, 2, 1)


def test_a_step_that_is_entered_again_begins_to_count_anew():
    first = (0, begins(0, 1)), (1, catalog.IterationCompleted(0)), (1, catalog.StepCompleted())
    told = progress_of(*first, (2, catalog.StepStarted("action", visit=2)), (2, begins(0, 5)))
    assert (told.done, told.total) == (0, 5)


def test_a_log_that_does_not_say_how_many_items_there_are_tells_how_many_are_done():
    told = progress_of((0, begins(0)), (1, catalog.IterationCompleted(0)))
    assert (told.done, told.total, told.left_us) == (1, 0, None)
