"""Wait steps: time passes, and a restart waits only for what is left."""

from __future__ import annotations

import math

from divebook.errors import StepError
from divebook.execution.context import StepContext
from divebook.execution.iterations import Outcome
from divebook.steps.evaluation import render_texts


async def wait_step(context: StepContext) -> Outcome:
    """Let the step's `Seconds` pass; a text is a template that gives a number."""
    written = context.step.seconds
    if isinstance(written, str):
        (written,) = await render_texts([written], context.names)
    try:
        seconds = float(written or 0)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds >= 0):
        raise StepError(f'Seconds of wait step "{context.step.name}" must be a number of seconds, got {written!r}')
    await context.sleep(seconds)
    return Outcome("", None)
