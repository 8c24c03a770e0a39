"""What is kept of a long log: a sample of the whole run, with all failures and questions."""

import pytest

from divebook.definitions.definition import Workflow
from divebook.definitions.step import Each, Step
from divebook.projections.spans import spans_of
from divebook.steps.actions import Action
from divebook.widgets.recording import sample_of
from tests.runtime.worlds import environment

ITEMS, BROKEN = 400, (7, 123, 399)


def check(i):
    if i in BROKEN:
        raise ValueError(f"row {i} is broken")
    return i


@pytest.fixture(scope="module")
def log():
    each = Each(items=list(range(ITEMS)), as_="i", on_item_error="keep")
    workflow = Workflow(
        "w",
        [Step("rows", each=each, action="check", parameters={"i": "$(i)"}), Step("sure", ask="Sure?")],
    )
    world = environment(workflow, actions=[Action("check", check)])
    execution = world.start("w").wait(20)
    return execution.answer(execution.open_questions[0].id, "yes").wait(20).history()


@pytest.fixture(scope="module")
def sample(log):
    return sample_of(log, spans_of(log))


def test_a_log_that_fits_is_kept_whole(log, sample):
    assert sample.cut(len(log)) == [event.sequence for event in log]
    assert sample.description(sample.cut(len(log))) == ""


@pytest.mark.parametrize("limit", [1000, 300, 100])
def test_a_sample_has_all_failures_and_questions_and_is_spread_over_the_run(log, sample, limit):
    kept = sample.cut(limit)
    assert limit * 0.9 - 5 <= len(kept) <= limit
    assert kept == sorted(set(kept))
    assert {kept[0], kept[-1]} == {1, len(log)}
    wanted = {e.sequence for e in log if e.event_type.startswith("interrupt_") or e.event_type.endswith("_failed")}
    assert wanted <= set(kept)
    assert (
        sample.description(kept) == f"Sample of {len(kept):,} of {len(log):,} events, with all failures and questions"
    )
    quarters = [
        sum(1 for one in kept if quarter * len(log) <= one * 4 < (quarter + 1) * len(log)) for quarter in range(4)
    ]
    assert max(quarters) < 3 * min(quarters)


def test_what_begins_in_a_sample_ends_in_it(log, sample):
    kept = set(sample.cut(300))
    for span in spans_of(log):
        assert span.sequences[0] not in kept or kept.issuperset(span.sequences)


def test_a_smaller_sample_is_a_part_of_a_larger_one(sample):
    larger = sample.cut(300)
    assert set(sample.cut(120, set(larger))) < set(larger)


def test_what_has_no_place_for_all_failures_says_how_many_it_has(log, sample):
    kept = sample.cut(12)
    assert len(kept) <= 12
    assert sample.description(kept).startswith(
        f"Sample of {len(kept)} of {len(log):,} events, with 1 of 3 failures and all"
    )
