"""Comparison, provenance, inspection and step-wise replay."""

from datetime import datetime, timedelta
from typing import assert_type

import pandas as pd

import divebook
from divebook import Context, Environment, step, workflow
from divebook.events import Event
from divebook.replay import Comparison, Inspection, LogWalk, Provenance, Verification


@step
def grow(n: int) -> int:
    return n + 1


@workflow
async def chain(ctx: Context, n: int) -> int:
    return await grow(await grow(n))


def names(events: list[Event]) -> list[str]:
    return [event.event_type for event in events]


if __name__ == "__main__":
    with Environment(store="memory:") as environment:
        one = environment.start(chain, {"n": 1}).wait()
        two = environment.start(chain, {"n": 2}).wait()
        comparison = divebook.compare(one, two)
        assert_type(comparison, Comparison)
        assert_type(comparison.frame(), pd.DataFrame)
        first = comparison.first
        assert first is not None and not comparison.is_same and comparison.summary
        walk = one.replay()
        assert_type(walk, LogWalk)
        stopped = walk.run_to(lambda event: event.event_type == "operation_completed")
        assert stopped is not None and walk.event is not None
        position: int = walk.position
        assert walk.seek(position).step_back().step_forward().position == position
        variables: dict[str, object] = walk.variables
        assert isinstance(variables, dict)
        why = one.why("result")
        assert_type(why, Provenance)
        assert_type(why.inputs, list[str])
        inspection: Inspection = one.inspect()
        assert_type(inspection.duration, timedelta)
        shares: dict[str, float] = {str(kind): share for kind, share in inspection.shares.items()}
        assert shares is not None
        verification: Verification = one.verify()
        assert verification.equal
        started: datetime | None = one.started_at
        assert started is not None and one.ended_at is not None
        history = list(one.history(2))
        assert names(history)[-1] == "execution_completed"
        for failure in one.failures:
            raise AssertionError(failure.message)
        assert one.failure is None
