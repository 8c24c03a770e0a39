"""What the workers of these tests run: three calls, each of which writes who makes it into the file ``TRACE``.

Each takes ``PAUSE`` seconds. They are made by the execution itself, by one that it starts, or by those as which it goes
on.
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


def _marks(number: str) -> Step:
    return Step(f"s{number}", action="mark", parameters={"run": "$(inputs.run)", "step": number}, store=f"who{number}")


job = Workflow("job", [_marks(str(n)) for n in range(3)], inputs=["run"])
outer = Workflow("outer", [Step("child", workflow="job", inputs={"run": "$(inputs.run)"})], inputs=["run"])
chain = Workflow(
    "chain",
    [
        Step("mark", action="mark", parameters={"run": "$(inputs.run)", "step": "$(inputs.n)"}),
        Step("more", script="inputs.n < 2", store="more", next=[("again", "state.more"), ("end", "not state.more")]),
        Step("again", type="continue_as_new", inputs={"run": "$(inputs.run)", "n": "$(inputs.n + 1)"}),
        Step("end", script="1"),
    ],
    inputs=["run", "n"],
)
FAMILIES = ("job", "outer", "chain")
