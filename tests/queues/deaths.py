"""``python -m tests.queues.deaths``: a process with the imports behind it, which forks one worker at a time.

It reads lines of JSON, ``[store, days, waiting]``, and answers each with the exit code of the worker: negative for a
signal. The clock of the worker is so many days ahead. The worker kills itself as soon as so many executions wait. With
0 it ends when it is idle, unless an execution kills it before.
"""

import json
import os
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import replace

from divebook import Environment, Step, Workflow
from divebook.definitions.functions import WORKFLOW_FUNCTIONS, step, workflow
from divebook.errors import OperationError
from divebook.events.catalog import OperationCompleted
from divebook.queues import Worker
from divebook.runtime import queueing
from divebook.runtime.clock import SystemClock
from divebook.stores import open_store

MOST_SECONDS = 60
DAY = 86_400
STORE = "DIVEBOOK_DEATHS"
"""Variable with the place of the store, for code that looks at its own log."""


def die():
    """End this process as a machine does that loses its power."""
    signal.raise_signal(signal.SIGKILL)


class Ahead(SystemClock):
    """A clock that is some days ahead."""

    def __init__(self, days):
        super().__init__()
        self._microseconds = days * DAY * 1_000_000

    def now(self):
        return super().now() + self._microseconds


# --- executions that kill the process that drives them ---------------------------------------------------------------


@step(idempotent=True)
async def deadly():
    """Kill the process in a call, whose start is in the log."""
    die()


@step(idempotent=True)
async def harmless():
    return 1


@workflow
async def nap(ctx):
    await ctx.sleep(60 * DAY)
    return 1


@workflow
async def nothing(ctx):
    return 1


@workflow
async def dies_at_once(ctx):
    die()


@workflow
async def beside_a_child(ctx):
    await ctx.gather(ctx.run("nap"), deadly())


@workflow
async def beside_a_timer(ctx):
    await ctx.gather(ctx.sleep(60 * DAY), deadly())


@workflow
async def beside_a_signal(ctx):
    await ctx.gather(ctx.wait_signal("go"), deadly())


@workflow
async def after_its_child(ctx):
    await ctx.run("nothing")
    die()


@workflow
async def after_its_signal(ctx):
    await ctx.wait_signal("go")
    die()


@workflow
async def after_its_answer(ctx):
    await ctx.ask("Which one?")
    die()


@workflow
async def after_its_timer(ctx):
    await ctx.sleep(60 * DAY)
    die()


@workflow
async def its_child_dies_at_once(ctx):
    await ctx.run("dies_at_once")


class OwnLog:
    """The log of the only execution, for code that dies after an event of it is in the store."""

    def await_end_of_call(self):
        until = time.monotonic() + 5
        while time.monotonic() < until and not self._has_end():
            time.sleep(0.01)

    @staticmethod
    def _has_end():
        with open_store(os.environ[STORE]) as store:
            (record,) = store.records()
            return any(isinstance(event.data, OperationCompleted) for event in store.read(record.execution_id))


OWN_LOG = OwnLog()


@workflow
async def own_code_beside_a_timer(ctx):
    async def own():
        await harmless()
        OWN_LOG.await_end_of_call()
        die()

    await ctx.gather(ctx.sleep(60 * DAY), own())


# --- executions that only wait ---------------------------------------------------------------------------------------


@workflow
async def waits_for_its_child(ctx):
    await ctx.run("nap")


@workflow
async def waits_in_two_ways(ctx):
    async def wait():
        with suppress(OperationError):
            await ctx.wait_signal("go", within=59 * DAY)

    await harmless()
    await ctx.gather(ctx.sleep(60 * DAY), wait())


branches = Workflow(
    "branches",
    [
        Step("begin", script="1", next=["sleep", "quick"]),
        Step("sleep", type="wait", seconds=60 * DAY, next=["end"]),
        Step("quick", script="2", next=["end"]),
        Step("end", script="3", join=True),
    ],
)
WORKFLOWS = [one for one in dict(globals()).values() if isinstance(one, Workflow)]
FUNCTIONS = {one.name: WORKFLOW_FUNCTIONS[one.name] for one in WORKFLOWS if one.name in WORKFLOW_FUNCTIONS}
"""The functions of these workflows. The tests of another module do not see them."""


# --- the worker ------------------------------------------------------------------------------------------------------


def work(store, days, *, waiting):
    """Drive what is in the queue."""
    os.environ[STORE] = store
    # The number of attempts counts, not their pauses.
    queueing.RESUMPTIONS = replace(queueing.RESUMPTIONS, seconds=0.0)
    with Environment(store=store, workflows=WORKFLOWS, clock=Ahead(days)) as environment:
        before = {
            lease.execution_id: environment.store.record(lease.execution_id) for lease in environment.store.leases()
        }
        with Worker(environment) as worker:
            if waiting:
                while _count_waiting(environment, before) < waiting:
                    time.sleep(0.01)
                die()
            worker.wait_until_idle(MOST_SECONDS)


def _count_waiting(environment, before):
    """Return how many executions wait. Those whose lease was left count after this worker has resumed them."""
    return sum(
        record.status == "waiting" and record != before.get(record.execution_id)
        for record in environment.store.records()
    )


def life(store, days, *, waiting):
    """Fork a worker; return its exit code."""
    assert threading.active_count() == 1, "a fork copies only the thread that makes it"
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        signal.alarm(MOST_SECONDS)
        work(store, days, waiting=waiting)
        code = 0
    except BaseException:  # noqa: BLE001 - the child must not go on as a second runner, whatever happens
        traceback.print_exc()
    finally:
        os._exit(code)


def main():
    """Answer until there are no more lines."""
    for line in sys.stdin:
        store, days, waiting = json.loads(line)
        sys.stdout.write(f"{life(store, days, waiting=waiting)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
