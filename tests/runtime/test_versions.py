"""Changed functions: which version an execution follows, by what its log has ahead."""

from divebook import Environment, Retry
from divebook.definitions.functions import step, workflow
from tests.runtime.test_resuming import cut
from tests.runtime.worlds import environment


@step(idempotent=True)
async def double(number):
    return number * 2


def versioned(*, changed, low=1, high=2):
    if not changed:

        @workflow(name="versioned")
        async def first(ctx):
            return [await double(1), await double(2)]

        return

    @workflow(name="versioned")
    async def second(ctx):
        one = await double(1)
        extra = [await double(10)] if await ctx.version("more", low, high) >= 2 else []
        return [one, *extra, await double(2)]


def test_a_new_execution_follows_the_newest_version_and_keeps_it():
    versioned(changed=True)
    execution = environment().start("versioned").wait(20)
    assert execution.outputs == {"result": [2, 20, 4]}
    length = next(e.sequence for e in reversed(execution.history()) if e.event_type == "operation_completed")
    versioned(changed=True, high=3)
    again = Environment(store=cut(execution.store, execution, length - 1)).run_of(execution.id).resume().wait(20)
    assert again.outputs == execution.outputs


def test_an_execution_older_than_the_change_follows_the_oldest_version():
    versioned(changed=False)
    execution = environment().start("versioned").wait(20)
    length = next(e.sequence for e in reversed(execution.history()) if e.event_type == "operation_started")
    versioned(changed=True)
    again = Environment(store=cut(execution.store, execution, length)).run_of(execution.id).resume().wait(20)
    assert again.outputs == {"result": [2, 4]}


def test_attempts_that_failed_are_not_history_ahead():
    tries = []

    @step(retry=Retry(3, seconds=0.001))
    async def flaky(value):
        tries.append(value)
        if len(tries) < 3:
            raise ValueError("not yet")
        return value

    def defined(*, changed):
        @workflow(name="grows")
        async def grows(ctx):
            found = await flaky(1)
            return [found, await ctx.version("more", 1, 2) if changed else 1, await double(2)]

    defined(changed=False)
    execution = environment().start("grows").wait(20)
    length = next(
        e.sequence for e in execution.history() if e.event_type == "operation_completed" and e.data.result == 1
    )
    defined(changed=True)
    again = Environment(store=cut(execution.store, execution, length)).run_of(execution.id).resume().wait(20)
    assert (again.outputs, tries) == ({"result": [1, 2, 4]}, [1, 1, 1])


def test_a_version_that_is_no_longer_supported_is_told():
    versioned(changed=True)
    execution = environment().start("versioned").wait(20)
    length = next(e.sequence for e in reversed(execution.history()) if e.event_type == "operation_completed")
    versioned(changed=True, low=3, high=4)
    again = Environment(store=cut(execution.store, execution, length - 1)).run_of(execution.id).resume().wait(20)
    assert "follows version 2 of 'more', and the function supports 3 to 4" in again.error
