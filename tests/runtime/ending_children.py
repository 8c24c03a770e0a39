"""A parent whose child ends in a process that dies as soon as this end is committed.

``python -m tests.runtime.ending_children STORE`` answers the question of the child, and dies.
"""

import os
import subprocess
import sys
from pathlib import Path

from divebook import Environment, Step, Workflow
from divebook.definitions.functions import workflow
from divebook.queues import Worker
from divebook.stores import open_store
from divebook.stores.postgres import PostgresStore
from divebook.stores.sqlite import SqliteStore

EXIT_CODE = 9
ASKS = Workflow("asks", [Step("ask", type="interrupt", ask="Who?", store="who")], outputs=["who"])


def world(store):
    """Return an environment with a workflow that waits for a child, which asks a question."""

    @workflow
    async def parent(ctx):
        return (await ctx.run("asks"))["who"]

    return Environment(store=store, workflows=[ASKS, parent])


def dying(kind):
    """Return a store class whose process dies after the commit that ends a child."""

    class Dying(kind):
        def _write(self, batches):
            answers = super()._write(batches)
            if any(batch.to_parent is not None for batch in batches):
                os._exit(EXIT_CODE)
            return answers

    return Dying


def end_child_and_die(location):
    """Answer the child in another process, which dies directly after the commit that ends the child."""
    command = [sys.executable, "-m", "tests.runtime.ending_children", str(location)]
    process = subprocess.run(command, cwd=Path(__file__).parents[2], timeout=100, check=False)
    assert process.returncode == EXIT_CODE


def check_recovery(location):
    """Check that the parent is among the executions to recover, and completes when it is recovered."""
    with world(open_store(location)) as before:
        execution = before.start("parent").wait(20)
        assert execution.status == "waiting"
    end_child_and_die(location)
    with world(open_store(location)) as after:
        assert [record.execution_id for record in after.queues.recoverable()] == [execution.id]
        assert after.queues.recover(execution.id).wait(20).outputs == {"result": "ann"}


def check_worker(location):
    """Check that the next worker completes the parent."""
    with world(open_store(location)) as before, Worker(before) as worker:
        execution = before.enqueue("parent").wait(20)
        assert worker.wait_until_idle(20)
    end_child_and_die(location)
    with world(open_store(location)) as after, Worker(after):
        assert after.run_of(execution.id).wait(20).outputs == {"result": "ann"}


if __name__ == "__main__":
    address = sys.argv[1]
    opened = dying(PostgresStore if address.startswith("postgresql:") else SqliteStore)(address)
    with world(opened) as environment, Worker(environment):
        ((_, question),) = environment.inbox()
        environment.answer(question.id, "ann").wait(60)
