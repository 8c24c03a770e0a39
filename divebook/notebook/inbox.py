"""The inbox in a notebook: cards where the front end shows widgets, and what is understood without them.

Pages show the cards, and the same as text once their kernel is gone; where all who asked have ended, pages without
divebook's extension show what became of the questions in their place.
"""

from __future__ import annotations

import html
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from divebook.environment import Environment
from divebook.notebook.frontend import present_front_end
from divebook.notebook.lasting import LastingOutput
from divebook.notebook.listing import open_questions, questions, settled_text
from divebook.text.cuts import one_line
from divebook.text.shown import AS_TEXT, plural
from divebook.widgets.inbox import InboxFeed, inbox_publisher_of
from divebook.widgets.intents import Handlers

if TYPE_CHECKING:
    from divebook.widgets.inbox_view import InboxView
    from divebook.widgets.protocol.questions import Asked

_LINE = "margin:6px 0;overflow-wrap:anywhere"


class InboxOutput:
    """The output of ``%dive inbox`` in one cell, for front ends that show widgets; its commands name the `store`."""

    def __init__(self, environment: Environment, store: str | None = None) -> None:
        self._environment, self._store = environment, store
        self._lock, self._is_final = threading.Lock(), False
        with self._lock:  # the publisher may tell something before all is there
            self.view: InboxView = inbox_view(environment, self)
            bundle = static_bundle(environment, store)
            self._output = LastingOutput(self.view, bundle)
            self._output.save(bundle)

    def look(self, feed: InboxFeed) -> None:
        """Bring what is understood without a kernel up to date; on the publisher's thread."""
        with self._lock:
            if self._is_final:
                return
            if feed.is_over:
                self._is_final = not self._output.end(settled_bundle(feed.shown))
                return
            bundle = static_bundle(self._environment, self._store)
            self._output.save(bundle)


class InboxDisplay:
    """How a frame of questions is shown: as cards where that is possible."""

    def __init__(self, environment: Environment, store: str | None) -> None:
        self._environment, self._store = environment, store

    def in_cell(self) -> bool:
        """Show the cards in the present cell; return False where its front end shows no widgets."""
        from IPython.core.getipython import get_ipython

        if not present_front_end(get_ipython()).shows_widgets:
            return False
        InboxOutput(self._environment, self._store)
        return True

    def widget(self) -> InboxView:
        """Return the cards as a widget."""
        return inbox_view(self._environment)


def inbox_view(environment: Environment, output: InboxOutput | None = None) -> InboxView:
    """Return the questions of an environment as a widget."""
    from divebook.widgets.inbox_view import InboxView

    def told(feed: InboxFeed) -> None:
        if output is not None:
            output.look(feed)

    return InboxView(inbox_publisher_of(environment), Handlers(environment.answer), told)


# --- without widgets -----------------------------------------------------------------------------------------------


def static_bundle(environment: Environment, store: str | None = None) -> dict[str, Any]:
    """Return the open questions, and how to answer them, as text and as HTML with inline styles only."""
    asked = open_questions(environment, store)
    head = f"<p style='{_LINE}'><strong>{plural(len(asked), 'open question')}</strong></p>"
    return {
        "text/plain": questions(environment, store),
        "text/html": f"<div class='{AS_TEXT}'>{head}{''.join(map(_paragraph, asked))}</div>",
    }


def _paragraph(lines: list[str]) -> str:
    about, question, *more, command = map(html.escape, lines)
    way, _, typed = command.partition(": ")
    told = [f"<strong>{question}</strong>", *more, about, f"{way}: <code>{typed}</code>"]
    return f"<p style='{_LINE}'>{'<br>'.join(told)}</p>"


def settled_bundle(shown: Iterable[Asked]) -> dict[str, Any]:
    """Return what became of questions, as text and as HTML."""
    told = [_outcome(asked) for asked in shown]
    body = "".join(f"<p style='{_LINE}'><strong>{html.escape(q)}</strong><br>{html.escape(a)}</p>" for q, a in told)
    text = "\n".join(["no open questions", *(f"  {question}: {answer}" for question, answer in told)])
    head = f"<p style='{_LINE}'>No open questions</p>"
    return {"text/plain": text, "text/html": f"<div class='{AS_TEXT}'>{head}{body}</div>"}


def _outcome(asked: Asked) -> tuple[str, str]:
    """Return a question and its answer with who gave it."""
    question, where = asked["question"], f"{one_line(asked['workflow'], 60)}, {asked['execution_id']}"
    told = settled_text(question["became"] or "open", question["answered_by"], question["answered_us"])
    return one_line(question["question"], 200), f"{told} ({where})"
