"""What every store promises about what lists show beside the lines of executions: summaries, and what people say."""

import pytest

from divebook.errors import CorruptStoreError, ExecutionEndedError, StoreError
from divebook.events.catalog import ExecutionAnnotated, ExecutionStarted
from divebook.stores import Owner
from divebook.stores.backend import StoredSummary
from divebook.stores.maintenance import check
from tests.store.logs import ONE, THREE, TWO, completed, event, failed, log, resumed


def tagged(*tags):
    return [event(1, ExecutionStarted(workflow_name="greet", tags=tags), path=""), *log(4)[1:]]


def said(sequence, **what):
    return event(sequence, ExecutionAnnotated(**what), path="")


class ListingPromises:
    """Part of the suite."""

    # --- what is no text

    def test_what_is_no_text_is_in_no_store_and_damages_none(self, store):
        store.append(ONE, log(3), 0)
        half = "exec_\ud800"
        for look in (
            lambda: store.records(tag=half),
            lambda: store.records(workflow=half),
            lambda: store.records(key=half),
            lambda: store.asking(half),
            lambda: store.record(half),
            lambda: store.read(half),
            lambda: store.inbox(half, 0),
            lambda: store.has_untaken(half),
            lambda: store.lease_of(half),
            lambda: store.acquire(half, Owner.current()),
            lambda: store.delete(half),
            lambda: store.checkpoint(half),
            lambda: store.last_addressee("answer", half),
        ):
            try:
                assert look() in ([], None)
            except StoreError as error:
                assert not isinstance(error, CorruptStoreError)  # noqa: PT017 - either is right
        assert len(store.records()) == 1

    # --- tags and notes

    def test_tags_are_given_and_taken_away_whatever_the_status(self, store):
        store.append(ONE, tagged("first"), 0)
        store.append(ONE, [said(5, tags=["late", "first", "late"])], 4)
        assert store.record(ONE).tags == ("first", "late")
        store.append(ONE, [completed(6)], 5)
        store.append(ONE, [said(7, tags=["after"]), said(8, untagged=["first"])], 6)
        assert store.record(ONE).tags == ("late", "after")
        assert [record.tags for record in store.records()] == [("late", "after")]
        assert check(store).ok

    def test_executions_are_found_by_the_tags_they_have_now(self, store):
        for name in (ONE, TWO):
            store.append(name, log(3, name), 0)
        store.append(ONE, [said(4, tags=["baseline"])], 3)
        assert [record.execution_id for record in store.records(tag="baseline")] == [ONE]
        store.append(ONE, [said(5, untagged=["baseline"])], 4)
        assert store.records(tag="baseline") == []

    def test_tags_stay_as_the_log_goes_on(self, store):
        store.append(ONE, tagged("first"), 0)
        store.append(ONE, [said(5, tags=["late"]), failed(6)], 4)
        store.append(ONE, [said(7, tags=["later"])], 6)
        store.append(ONE, [resumed(8)], 7)
        store.append(ONE, [completed(9)], 8)
        assert (store.record(ONE).tags, store.record(ONE).status) == (("first", "late", "later"), "completed")
        assert check(store).ok

    def test_what_people_say_after_the_end_wakes_nothing(self, store):
        store.append(ONE, log(3), 0)
        store.append(ONE, [completed(4)], 3)
        before = store.record(ONE)
        store.append(ONE, [said(5, note="read again", labels={"quality": "good"})], 4)
        after = store.record(ONE)
        assert (after.note, after.last_sequence) == ("read again", 5)
        assert (after.status, after.ended_at, after.wake_at) == (before.status, before.ended_at, before.wake_at)
        assert store.orphans() == []
        with pytest.raises(ExecutionEndedError):
            store.append(ONE, [said(6, note="and on"), resumed(7)], 5)
        assert store.record(ONE).note == "read again"
        store.append(ONE, [said(6, note="")], 5)
        assert store.record(ONE).note is None
        assert check(store).ok

    def test_a_log_that_comes_as_a_whole_has_the_tags_of_its_events(self, store):
        store.append(ONE, [*tagged("first"), said(5, tags=["late"], untagged=["first"], note="n"), completed(6)], 0)
        assert (store.record(ONE).tags, store.record(ONE).note) == (("late",), "n")
        assert [record.execution_id for record in store.records(tag="late")] == [ONE]
        assert store.records(tag="first") == []
        assert check(store).ok

    # --- summaries

    def test_the_latest_summary_of_each_execution_is_kept(self, store):
        for name in (ONE, TWO, THREE):
            store.append(name, log(3, name), 0)
        store.put_summaries({ONE: StoredSummary(2, b"two"), TWO: StoredSummary(3, b"\0" * 9_000)})
        store.put_summaries({ONE: StoredSummary(3, b"three")})
        assert store.summaries([ONE, THREE]) == {ONE: StoredSummary(3, b"three")}
        assert store.summaries([TWO]) == {TWO: StoredSummary(3, b"\0" * 9_000)}

    def test_the_summary_of_an_execution_that_is_gone_is_left_out(self, store):
        store.put_summaries({ONE: StoredSummary(3, b"early")})
        store.append(ONE, log(3), 0)
        assert store.summaries([ONE]) == {}

    def test_a_summary_goes_with_its_execution(self, store):
        store.append(ONE, log(3), 0)
        store.put_summaries({ONE: StoredSummary(3, b"old")})
        store.delete(ONE)
        store.append(ONE, log(3), 0)
        assert store.summaries([ONE]) == {}
        assert check(store).ok
