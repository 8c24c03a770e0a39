"""Buttons in a cell whose run was made by code that has changed since: the cell waits until one of them is pressed.

Where no browser shows them, and where the kernel is interrupted, the cell fails instead, and names the commands.
"""

from __future__ import annotations

import asyncio
import html
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from divebook.errors import CodeChangedError
from divebook.interrupts import INTERRUPTS, interruptible_wait
from divebook.notebook.commands import tell
from divebook.notebook.lasting import NOTHING, WIDGET_VIEW, display_bundle
from divebook.notebook.reattach import AGAIN, KEEP, REUSE
from divebook.notebook.waiting import GREETING, TICK, greeted
from divebook.widgets.protocol import Choice, Offer
from divebook.widgets.views import OfferView

if TYPE_CHECKING:
    from divebook.notebook.run import Run

LABELS = {AGAIN: "Run again", KEEP: "Keep the old run", REUSE: "Reuse and run"}
PATIENCE = 15.0
"""Seconds after which a cell goes on without a choice, where it may: Run All is to come to its end."""


class OfferOutput:
    """What a person can choose, in the present cell."""

    def __init__(self, error: CodeChangedError) -> None:
        self.chosen = ""
        choices = [Choice(name=name, label=LABELS[name], told=told) for name, told in error.choices.items()]
        offer = Offer(type="offer", view="", id="edited", text=_text(error), choices=choices)
        self.view = OfferView(offer, self._choose)
        shown = {"version_major": 2, "version_minor": 0, "model_id": self.view.model_id}
        self._output = display_bundle({**static_bundle(error), WIDGET_VIEW: shown})

    @property
    def is_watched(self) -> bool:
        """Whether a browser shows the buttons, and its messages arrive."""
        return self.view.greeted.is_set()

    def _choose(self, name: str) -> None:
        self.chosen = self.chosen or name

    def leave(self) -> None:
        """Take the buttons away: what was chosen, or why nothing was, is shown in their place."""
        self._output.update(NOTHING, raw=True)
        self.view.retire()


def _text(error: CodeChangedError) -> str:
    after = "" if error.default is None else f" {LABELS[error.default]} begins by itself after {PATIENCE:.0f} seconds."
    return f"{error.told}{after}"


def static_bundle(error: CodeChangedError) -> dict[str, str]:
    """Return what a page shows that has no kernel: the same as text, with the commands."""
    ways = "".join(
        f"<li><code>--changed {html.escape(name)}</code>: {html.escape(told)}</li>"
        for name, told in error.choices.items()
    )
    told = f"<p style='margin:6px 0'>{html.escape(error.told)} To go on, add to its line:</p>"
    return {"text/plain": str(error), "text/html": f"<div>{told}<ul style='margin:0'>{ways}</ul></div>"}


async def chosen_awaited(error: CodeChangedError) -> Run:
    """Await what a person chooses, and return the run that comes of it."""
    with _offered(error) as output:
        if not await greeted(output):
            return _begun_unasked(error)
        until = _end_of_patience(error)
        while not output.chosen and time.monotonic() < until:  # noqa: ASYNC110 - an idle loop does not see interrupts
            await asyncio.sleep(TICK)
    return _begun(error, output)


def chosen_blocking(error: CodeChangedError) -> Run:
    """Wait for what a person chooses, and return the run that comes of it."""
    with _offered(error) as output:
        if not interruptible_wait(output.view.greeted, GREETING):
            return _begun_unasked(error)
        until = _end_of_patience(error)
        while not output.chosen and time.monotonic() < until:
            INTERRUPTS.raise_pending()
            time.sleep(TICK)
    return _begun(error, output)


@contextmanager
def _offered(error: CodeChangedError) -> Iterator[OfferOutput]:
    output = OfferOutput(error)
    try:
        yield output
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise error from None
    finally:
        output.leave()


def _end_of_patience(error: CodeChangedError) -> float:
    return math.inf if error.default is None else time.monotonic() + PATIENCE


def _begun_unasked(error: CodeChangedError) -> Run:
    """Begin what holds if nobody chooses; where a person must, raise."""
    if error.default is None:
        raise error
    return _told(error.begin(error.default))


def _begun(error: CodeChangedError, output: OfferOutput) -> Run:
    return _told(error.begin(output.chosen or error.default or ""))


def _told(run: Run) -> Run:
    if run.remark:
        tell(run.remark)
    return run
