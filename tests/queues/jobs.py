"""What the workers of these tests run: three calls, each of which writes who makes it into the file ``TRACE``.

Each takes ``PAUSE`` seconds.
"""

import asyncio
import os
from pathlib import Path

from divebook import Step, Workflow, action


@action(idempotent=True)
async def mark(run: str, step: int) -> int:
    """Write one line in one piece."""
    await asyncio.sleep(float(os.environ["PAUSE"]))
    with Path(os.environ["TRACE"]).open("a", encoding="utf-8", buffering=1) as file:  # noqa: ASYNC230 - one line, at once
        file.write(f"{run} {step} {os.getpid()}\n")
    return os.getpid()


job = Workflow(
    "job",
    [
        Step(f"s{n}", action="mark", parameters={"run": "$(inputs.run)", "step": str(n)}, store=f"who{n}")
        for n in range(3)
    ],
    inputs=["run"],
)
