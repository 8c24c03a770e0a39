"""Buttons for a cell whose code has changed since its last run: run again, keep the old run, or reuse completed calls.

The cell waits until a person presses a button. If no browser shows the buttons, or the kernel is interrupted, the cell
fails with a `CodeChangedError` that names the equivalent options of ``%dive run``.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from divebook.errors import CodeChangedError
from divebook.interrupts import INTERRUPTS, interruptible_wait
from divebook.notebook.commands import print_answer
from divebook.notebook.rerun import AGAIN, KEEP, REUSE
from divebook.notebook.run_wait import GREETING_TIMEOUT, POLL_INTERVAL, browser_shows
from divebook.notebook.view_output import NOTHING, WIDGET_VIEW, display_bundle
from divebook.report.model import Items, Paragraph, Report, Text
from divebook.report.shown import bundle_of
from divebook.widgets.protocol import Choice, Offer
from divebook.widgets.views import OfferView

if TYPE_CHECKING:
    from divebook.runtime.run import Run

LABELS = {AGAIN: "Run again", KEEP: "Keep the old run", REUSE: "Reuse and run"}
CHOICE_TIMEOUT = 15.0
"""Seconds after which the default choice is made, if there is one. Run All is then not blocked for ever."""


async def await_choice(error: CodeChangedError) -> Run:
    """Ask the person how to continue a cell whose code has changed. The choices of `error` are shown as buttons; the
    run that the pressed button starts or keeps is returned. If no browser shows the buttons, or if none is pressed in
    time, the default choice is made.

    Raises
    ------
    CodeChangedError
        No browser shows the buttons and `error` has no default choice, or the kernel was interrupted.
    """
    with _buttons(error) as output:
        # Without a browser no button can be pressed, and the cell would wait for ever.
        if not await browser_shows(output):
            return _run_of_default(error)
        deadline = _deadline(error)
        while not output.choice and time.monotonic() < deadline:  # noqa: ASYNC110 - an idle loop sees no interrupts
            await asyncio.sleep(POLL_INTERVAL)
    # The buttons are removed before the run starts, so that its view appears in their place.
    return _run_of(error, output.choice or error.default or "")


def wait_for_choice(error: CodeChangedError) -> Run:
    """Show the choices of a `CodeChangedError` like `await_choice`, but block the thread until a choice is made.

    Raises the same errors as `await_choice`.
    """
    with _buttons(error) as output:
        # A cell blocks this thread. Messages of the browser can arrive only on another one
        # (`divebook.widgets.views.answer_while_busy`).
        if not interruptible_wait(output.view.greeted, GREETING_TIMEOUT):
            return _run_of_default(error)
        deadline = _deadline(error)
        while not output.choice and time.monotonic() < deadline:
            # Interrupts are deferred here. Without this call, the stop button would have no effect while no button is
            # pressed.
            INTERRUPTS.raise_pending()
            time.sleep(POLL_INTERVAL)
    return _run_of(error, output.choice or error.default or "")


class ChoiceOutput:
    """Output of the current cell that shows the choices of a `CodeChangedError` as buttons."""

    def __init__(self, error: CodeChangedError) -> None:
        self.choice = ""
        """Name of the button that was pressed first; empty if none was pressed yet."""
        choices = [
            Choice(name=name, label=LABELS[name], description=description)
            for name, description in error.choices.items()
        ]
        offer = Offer(type="offer", view="", id="edited", text=_text(error), choices=choices)
        self.view = OfferView(offer, self._choose)
        # The view is created here and not by a cell's last value, so the reference to it is written by hand. JupyterLab
        # and other front ends find the widget by `model_id`.
        reference = {"version_major": 2, "version_minor": 0, "model_id": self.view.model_id}
        self._output = display_bundle({**static_bundle(error), WIDGET_VIEW: reference})

    @property
    def is_watched(self) -> bool:
        """True if a browser shows the buttons and the kernel receives the browser's messages."""
        return self.view.greeted.is_set()

    def _choose(self, name: str) -> None:
        # Intents arrive on another thread, and a double click sends two. The first one counts.
        self.choice = self.choice or name

    def remove(self) -> None:
        """Remove the buttons from the cell, which then shows the run or the error."""
        # `retire` closes the view as soon as no page shows it, so the pages get the empty output first.
        self._output.update(NOTHING, raw=True)
        self.view.retire()


def _text(error: CodeChangedError) -> str:
    if error.default is None:
        return error.told
    return f"{error.told} {LABELS[error.default]} starts automatically after {CHOICE_TIMEOUT:.0f} seconds."


def static_bundle(error: CodeChangedError) -> dict[str, object]:
    """Return the choices of a `CodeChangedError` as text and HTML, by MIME type. Pages without a kernel show them
    instead of buttons.

    The choices are shown as options of ``%dive run``.
    """
    items = tuple((Text(f"--changed {name}", "code"), f": {about}") for name, about in error.choices.items())
    report = Report(
        blocks=(
            Paragraph((f"{error.told} To continue, add one of these options to the line that starts the run:",)),
            Items(items),
        )
    )
    return bundle_of(report)


@contextmanager
def _buttons(error: CodeChangedError) -> Iterator[ChoiceOutput]:
    """Show the choices of a `CodeChangedError` as buttons during a ``with`` block. If the kernel is interrupted in the
    block, raise the `CodeChangedError`.
    """
    output = ChoiceOutput(error)
    try:
        yield output
    # ipykernel cancels the coroutine of a cell that awaits, and raises KeyboardInterrupt in a cell that blocks.
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise error from None
    # Also after an error, because nothing would react to the buttons of a cell that has ended.
    finally:
        output.remove()


def _deadline(error: CodeChangedError) -> float:
    """Return the time of the monotonic clock at which the cell stops waiting for a button and makes the default choice.
    Return infinity if `error` has no default choice.
    """
    return math.inf if error.default is None else time.monotonic() + CHOICE_TIMEOUT


def _run_of_default(error: CodeChangedError) -> Run:
    if error.default is None:
        raise error
    return _run_of(error, error.default)


def _run_of(error: CodeChangedError, choice: str) -> Run:
    """Make the choice of a person whose cell has changed code: run again, keep the old run or reuse completed calls.
    Return the resulting run, after printing its remark if it has one.
    """
    # `begin` belongs to `divebook.notebook.rerun`, which knows the earlier run and the new definitions.
    run: Run = error.begin(choice)
    if run.internals.options.remark:
        print_answer(run.internals.options.remark)
    return run
