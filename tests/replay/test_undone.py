"""What was undone is not there for those that go on from its log: forks, runs with another definition, runs again."""

import pytest

from divebook import Step, Workflow
from divebook.definitions.functions import step, workflow
from divebook.engine.state import undone_in
from divebook.errors import SetupError
from divebook.events import catalog
from divebook.steps.actions import Action
from tests.runtime.travelling import ALL, Travel, trip, undone
from tests.runtime.worlds import environment

BOOKED = ALL[:3]


def ended(travel, made, **options):
    """Return a world and a run that was undone, and let what it failed of work from now on."""
    world = environment(made, actions=travel.actions(), **options)
    execution = world.start(made.name).wait(20)
    assert execution.status == "failed"
    travel.told.clear()
    travel.broken = False
    return world, execution


def mended(world, travel):
    """Return a world over the same store whose workflow has another last step."""
    return environment(trip(Step("flight", script="1")), actions=travel.actions(), store=world.store)


REUSE_MODES = {
    "a fork": lambda world, execution: world.run_of(execution.id).fork(),
    "a fork with another model": lambda world, execution: world.run_of(execution.id).fork(change={"inputs": {}}),
    "run again": lambda world, execution: world.run_of(execution.id).run_again(),
    "from the start": lambda world, execution: world.run_of(execution.id).retry("from_start"),
}


@pytest.mark.parametrize("how", REUSE_MODES)
@pytest.mark.parametrize("parallel", [1, 2])
def test_all_that_was_undone_is_done_again(how, parallel):
    travel = Travel()
    world, execution = ended(travel, trip(parallel=parallel))
    after = REUSE_MODES[how](world, execution).wait(20)
    assert (after.status, sorted(travel.told)) == ("completed", sorted(BOOKED))


@pytest.mark.parametrize("refusing", ["train-1", "rome-1"])
def test_what_is_still_to_be_undone_is_done_again_and_undone_once(refusing):
    travel = Travel()
    travel.refusing = {refusing}
    world, execution = ended(travel, trip())
    world = mended(world, travel)
    plan = world.run_of(execution.id).resume(definition="new", plan=True)
    assert plan.undone == ("train", "hotels")
    assert f"repeated, because it was rolled back in {execution.id}: train and hotels" in repr(plan)
    after = world.run_of(execution.id).resume(definition="new").wait(20)
    assert (after.status, travel.told) == ("completed", BOOKED)
    travel.refusing.clear()
    travel.told.clear()
    world.run_of(execution.id).resume().wait(20)
    assert travel.told == [f"cancel {refusing}"]


def test_what_goes_on_in_place_of_one_that_waits_does_again_what_is_undone_as_that_is_cancelled():
    travel = Travel()
    world = environment(trip(Step("ask", ask="Go on?")), actions=travel.actions())
    execution = world.start("trip").wait(20)
    travel.told.clear()
    world = mended(world, travel)
    assert world.run_of(execution.id).resume(definition="new", plan=True).undone == ("train", "hotels")
    after = world.run_of(execution.id).resume(definition="new").wait(20)
    assert (after.status, travel.told) == ("completed", [*ALL[3:], *BOOKED])


def test_one_that_is_run_again_as_edited_does_again_what_was_undone():
    travel = Travel()
    world, execution = ended(travel, trip())
    after = mended(world, travel).run_of(execution.id).run_again().wait(20)
    assert (after.status, travel.told) == ("completed", BOOKED)


def test_what_was_completed_counts_as_before():
    travel = Travel()
    travel.broken = False
    world = environment(trip(), actions=travel.actions())
    execution = world.start("trip").wait(20)
    travel.told.clear()
    world = mended(world, travel)
    assert (world.run_of(execution.id).run_again().wait(20).status, travel.told) == ("completed", [])


def test_what_comes_before_it_is_kept_and_what_is_asked_for_again_behind_it_too():
    travel, told = Travel(), []

    def note(value):
        told.append(value)
        return value

    steps = [
        Step("before", action="note", parameters={"value": "before"}),
        Step("train", action="book", parameters={"what": "train"}, rollback=undone()),
        Step("behind", action="note", parameters={"value": "behind"}),
        Step("flight", action="fly"),
    ]
    made = Workflow("w", steps)
    world = environment(made, actions=[*travel.actions(), Action("note", note)])
    execution = world.start("w").wait(20)
    travel.told.clear()
    travel.broken = False
    assert (world.run_of(execution.id).run_again().wait(20).status, travel.told) == ("completed", ["book train"])
    assert told == ["before", "behind"]


@pytest.mark.parametrize("shown", ["at", "skipped", "results"])
def test_what_would_have_to_count_though_it_is_undone_is_refused_by_name(shown):
    travel = Travel()
    world, execution = ended(travel, trip())
    log = execution.history()
    told = "its calls in 'train', 'hotels' have been or will be undone, so it cannot continue or be forked after event"
    if shown == "skipped":
        with pytest.raises(SetupError, match=told):
            world.run_of(execution.id).retry("skip_failed")
    elif shown == "at":
        done = next(event.sequence for event in log if isinstance(event.data, catalog.StepCompleted))
        with pytest.raises(SetupError, match=told):
            world.run_of(execution.id).fork(at=done)
        assert world.run_of(execution.id).fork(at=undone_in(log).before).wait(20).status == "completed"
    else:
        failed = next(event.data for event in log if isinstance(event.data, catalog.OperationFailed))
        with pytest.raises(SetupError, match=told):
            world.run_of(execution.id).fork(change={"results": {failed.operation_id: 1}})


def test_calls_of_a_function_that_were_undone_are_made_again():
    told, broken = [], [True]

    def unbook(what, result):
        told.append(f"undo {what}")

    @step(rollback=unbook)
    def book(what):
        told.append(f"book {what}")
        return what

    @step
    def note(what):
        told.append(f"note {what}")

    @workflow
    async def journey(ctx):
        await note("first")
        await book("train")
        await note("second")
        await ctx.gather(book("oslo"), note("third"), book("rome"))
        if broken[0]:
            raise ValueError("late")

    world = environment(journey)
    execution = world.start("journey").wait(20)
    told.clear()
    broken[0] = False
    assert world.run_of(execution.id).run_again().wait(20).status == "completed"
    assert sorted(told) == ["book oslo", "book rome", "book train"]


def test_a_what_if_takes_what_its_log_says():
    travel = Travel()
    world, execution = ended(travel, trip())
    world.run_of(execution.id).what_if({"variables": {"train": {"id": "x"}}})
    assert travel.told == []
