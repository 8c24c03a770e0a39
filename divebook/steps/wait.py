"""Wait steps: time passes, or a signal comes; a restart waits only for what is left."""

from __future__ import annotations

import math

from divebook.errors import StepError
from divebook.execution.context import StepContext
from divebook.execution.iterations import Outcome
from divebook.scripting import value_text
from divebook.steps.evaluation import render_texts
from divebook.text.ranges import SECONDS


async def wait_step(context: StepContext) -> Outcome:
    """Let the step's `Seconds` pass, or wait that long at most for its `Signal`, whose payload is the step's value."""
    seconds = await _seconds(context)
    if context.step.signal is None:
        await context.sleep(seconds or 0.0)
        return Outcome("", None)
    (name,) = await render_texts([context.step.signal], context.names)
    payload = await context.signal(name, seconds)
    return Outcome(value_text(payload), payload)


async def _seconds(context: StepContext) -> float | None:
    """Return the step's `Seconds`; a text is a template that gives a number."""
    written = context.step.seconds
    if written is None:
        return None
    if isinstance(written, str):
        (written,) = await render_texts([written], context.names)
    try:
        seconds = float(written or 0)
    except (ValueError, OverflowError):
        seconds = math.nan
    if not SECONDS.fits(seconds):
        raise StepError(f'Seconds of wait step "{context.step.name}" must be {SECONDS}, got {written!r:.60}')
    return seconds
