"""Queues, priorities, start keys, schedules and several workers."""

from datetime import UTC, datetime, timedelta
from typing import assert_type

from divebook import Context, Environment, Run, step, workflow
from divebook.definitions import ScheduleDefinition
from divebook.queues import Worker
from divebook.stores import MemoryStore


@step
def work(n: int) -> int:
    return n * n


@workflow
async def job(ctx: Context, n: int = 2) -> int:
    return await work(n)


def enqueue_all(environment: Environment, numbers: range) -> list[Run[int]]:
    return [
        environment.enqueue(job, {"n": n}, queue="jobs", priority=n, key=f"job {n}", on_conflict="return", tags=["x"])
        for n in numbers
    ]


if __name__ == "__main__":
    store = MemoryStore()
    with Environment(store=store, workflows=[job]) as environment:
        runs = enqueue_all(environment, range(3))
        later = environment.enqueue("job", at=datetime.now(UTC) + timedelta(hours=1))
        assert_type(later, Run)
        assert {entry.queue for entry in environment.queues.queued()} == {"jobs", "default"}
        with environment.worker(["jobs"], parallel=2, name="one") as worker:
            assert_type(worker, Worker)
            results: list[int] = [run.result("30 s") for run in runs]
        assert results == [0, 1, 4]
        environment.schedules.add(ScheduleDefinition("nightly", cron="0 3 * * *", workflow="job", zone="UTC"))
        assert environment.schedules[0].name == "nightly"
        assert len(environment.queues.workers()) <= 1
        later.cancel()
