"""What every store promises about what lists show beside the lines of executions: summaries, and people's tags."""

import pytest

from divebook.errors import ExecutionNotFoundError, SetupError
from divebook.events.catalog import ExecutionStarted
from divebook.store.check import check
from divebook.store.summaries import StoredSummary
from tests.store.logs import ONE, THREE, TWO, completed, event, failed, log, resumed


def tagged(*tags):
    return [event(1, ExecutionStarted(workflow_name="greet", tags=tags), path=""), *log(4)[1:]]


class ListingPromises:
    """Part of the suite."""

    # --- tags

    def test_tags_are_given_and_taken_away_whatever_the_status(self, store):
        store.append(ONE, tagged("first"), 0)
        assert store.retag(ONE, ["late", "first", "late"]) == ("first", "late")
        store.append(ONE, [completed(5)], 4)
        assert store.retag(ONE, ["after"], ["first"]) == ("late", "after")
        assert store.record(ONE).tags == ("late", "after")
        assert [record.tags for record in store.records()] == [("late", "after")]

    def test_executions_are_found_by_the_tags_they_have_now(self, store):
        for name in (ONE, TWO):
            store.append(name, log(3, name), 0)
        store.retag(ONE, ["baseline"])
        assert [record.execution_id for record in store.records(tag="baseline")] == [ONE]
        store.retag(ONE, remove=["baseline"])
        assert store.records(tag="baseline") == []

    def test_tags_stay_as_the_log_goes_on(self, store):
        store.append(ONE, tagged("first"), 0)
        store.retag(ONE, ["late"])
        store.append(ONE, [failed(5)], 4)
        store.append(ONE, [resumed(6)], 5)
        store.retag(ONE, ["later"])
        store.append(ONE, [completed(7)], 6)
        assert (store.record(ONE).tags, store.record(ONE).status) == (("first", "late", "later"), "completed")
        assert check(store).ok

    def test_tagging_leaves_the_log_as_it_is(self, store):
        store.append(ONE, tagged("first"), 0)
        before = store.read(ONE)
        store.retag(ONE, ["late"], ["first"])
        assert store.read(ONE) == before
        assert check(store).ok

    def test_what_is_no_tag_is_refused(self, store):
        store.append(ONE, log(3), 0)
        for wrong in ("", "  ", 7, None):
            with pytest.raises(SetupError, match="a tag must be a word"):
                store.retag(ONE, [wrong])
        with pytest.raises(ExecutionNotFoundError):
            store.retag(TWO, ["x"])

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
