"""The state machine of an execution is one table, and what is written of it is made from it."""

from pathlib import Path

from divebook.engine.lifecycle import FINAL, LIFE_CYCLE, STATUSES, TERMINAL, as_table, may_follow
from divebook.events import catalog
from tests.engine.history import STARTED, state_after

CONTRIBUTING = Path(__file__).parents[2] / "CONTRIBUTING.md"


def test_every_status_stands_in_the_table_once():
    assert len(set(STATUSES)) == len(STATUSES) == len(LIFE_CYCLE)


def test_only_failed_and_cancelled_executions_can_be_taken_up_again():
    assert {"completed", "moved", "continued_as_new", "snapshot"} == FINAL
    resumable = {status for status in TERMINAL if may_follow(status, catalog.ExecutionResumed)}
    assert resumable == {"failed", "cancelled"}


def test_nothing_else_follows_an_end_but_what_people_say_of_it():
    assert all(may_follow(status, catalog.ExecutionAnnotated) for status in TERMINAL)
    others = set(catalog.PAYLOADS.values()) - {catalog.ExecutionResumed, catalog.ExecutionAnnotated}
    assert not [(status, kind) for status in TERMINAL for kind in others if may_follow(status, kind)]


def test_an_execution_begins_once():
    may_begin = [status for status in STATUSES if may_follow(status, catalog.ExecutionStarted)]
    assert may_begin == ["pending"]


def test_what_was_moved_is_over():
    state = state_after(STARTED, catalog.ExecutionMoved("log.jsonl"))
    assert (state.status, state.is_over) == ("moved", True)


def test_a_fork_tells_its_source_nothing():
    assert state_after(catalog.ExecutionStarted("w", parent="exec_0", origin=catalog.FORK)).parent is None
    assert state_after(catalog.ExecutionStarted("w", parent="exec_0")).parent == "exec_0"


def test_contributing_shows_the_table():
    assert as_table() in CONTRIBUTING.read_text(encoding="utf-8")
