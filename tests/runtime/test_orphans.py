"""Children that are cancelled with their parent, and the parent that goes on again before it hears of that."""

from divebook import Step, Workflow
from divebook.definitions.functions import workflow
from divebook.runtime.children import orphaned
from tests.runtime.worlds import environment

ASKS = Workflow("asks", [Step("ask", type="interrupt", ask="Who?", store="who")], outputs=["who"])


def parent_and_child():
    """Return a world with a parent that waits for a child, which asks a question."""

    @workflow
    async def parent(ctx):
        return (await ctx.run("asks"))["who"]

    world = environment(ASKS)
    begun = world.start(parent).wait(20)
    (child,) = [record for record in world.store.records() if record.execution_id != begun.id]
    return world, begun, world.run_of(child.execution_id)


def test_word_of_its_end_that_comes_late_ends_no_parent_that_goes_on_again():
    """It failed once more by its own earlier failure, over a slow store each time that it was resumed."""
    world, parent, child = parent_and_child()
    for status in ("failed", "cancelled"):
        world.run_of(child.id).cancel(orphaned(parent.id, status)).wait(20)
        assert world.run_of(parent.id).wait(20).status == "waiting"
        assert world.run_of(child.id).wait(20).status == "waiting"
    ((_, question),) = world.inbox()
    world.answer(question.id, "ann").wait(20)
    assert world.run_of(parent.id).wait(20).outputs == {"result": "ann"}


def test_who_cancels_a_child_has_its_parent_fail():
    world, parent, child = parent_and_child()
    child.cancel(orphaned(child.id, "failed")).wait(20)
    assert "is cancelled: its parent" in world.run_of(parent.id).wait(20).error
