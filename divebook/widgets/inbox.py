"""The questions of all executions over one store as the browser follows them: what changed since the last frame.

New events of this process wake the publisher; what other processes write is found at its heartbeat. Executions are
read on, never from the beginning, and only those whose log has grown.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from divebook.environment import Environment
from divebook.errors import ExecutionNotFoundError
from divebook.events import Event
from divebook.events.catalog import (
    ExecutionCancelled,
    ExecutionCompleted,
    ExecutionFailed,
    InterruptExpired,
    InterruptRaised,
    InterruptResolved,
)
from divebook.execution.execution import Execution
from divebook.execution.overview import badge_of, badged
from divebook.questions.kinds import CANCELLED, PENDING, InterruptStatus
from divebook.questions.wording import address_of, became
from divebook.starting import CELL
from divebook.text.cuts import one_line
from divebook.widgets.protocol.questions import Asked, Inbox, InboxDelta, QuestionView
from divebook.widgets.publisher import Publisher
from divebook.widgets.source import question_of

MAX_OPEN, MAX_SETTLED = 100, 50
"""Questions that are shown: of the open ones the oldest, of the others the latest."""
_TELLING = (
    InterruptRaised,
    InterruptResolved,
    InterruptExpired,
    ExecutionCompleted,
    ExecutionFailed,
    ExecutionCancelled,
)


class InboxFeed:
    """What is asked over one store, and what changed of it; what the environment defines does not matter here."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self._followed: dict[str, Execution] = {}
        self._behind = True
        self._last = self._hidden = 0
        self._is_over = False
        self._known: dict[str, Asked] = {}
        self._told: dict[str, Asked] = {}

    # --- what happens ----------------------------------------------------------------------------------------------

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` when something is asked or settled in this process; call what is returned to stop it."""

        def hear(_execution_id: str, events: Sequence[Event]) -> None:
            if any(isinstance(event.data, _TELLING) for event in events):
                self.look_again()
                wake()

        return self.environment.store.subscribe(hear)

    def look_again(self) -> None:
        """Look into the store at the next frame: another process may have appended; any thread."""
        self._behind = True

    @property
    def has_news(self) -> bool:
        """Whether the next frame is likely to tell something."""
        return self._behind

    # --- frames ----------------------------------------------------------------------------------------------------

    @property
    def shown(self) -> list[Asked]:
        """What the last frame left: all that is open, of a great many the oldest, and what was settled lately."""
        return list(self._told.values())

    @property
    def is_over(self) -> bool:
        """Whether all who asked something have ended, as of the last frame."""
        return self._is_over

    def frame(self) -> InboxDelta | None:
        """Return what changed since the last frame, or None."""
        if self._behind:
            self._behind = False
            self._read()
        shown, hidden = self._shown()
        changed = [asked for name, asked in shown.items() if self._told.get(name) != asked]
        is_over = not any(asked["execution_id"] in self._followed for asked in self._known.values())
        if not changed and (hidden, is_over) == (self._hidden, self._is_over):
            return None
        self._is_over = is_over
        after, self._last, self._hidden, self._told = self._last, self._last + 1, hidden, shown
        return InboxDelta(type="asked", after=after, last=self._last, now_us=_now_us(), hidden=hidden, asked=changed)

    def welcome(self, view: str, _since: int) -> Inbox:
        """Return all that is shown."""
        asked = list(self._told.values())
        return Inbox(type="inbox", view=view, last=self._last, now_us=_now_us(), hidden=self._hidden, asked=asked)

    def _read(self) -> None:
        for execution in list(self._followed.values()):
            with suppress(ExecutionNotFoundError):  # it was deleted
                self._take(execution.refresh())
                if not execution.state.is_over:
                    continue
            self._leave(execution)
        for execution_id, _ in self.environment.store.asking():
            if execution_id not in self._followed:
                self._followed[execution_id] = self.environment.execution(execution_id)
                self._take(self._followed[execution_id])

    def _leave(self, execution: Execution) -> None:
        """Show no longer what an execution that has ended still asks."""
        del self._followed[execution.id]
        for name, asked in self._known.items():
            if asked["execution_id"] == execution.id and _is_open(asked):
                withdrawn = QuestionView(**asked["question"])
                withdrawn["status"], withdrawn["became"] = InterruptStatus.CANCELLED, became(CANCELLED, None)
                self._known[name] = Asked(**{**asked, "question": withdrawn})

    def _take(self, execution: Execution) -> None:
        badge = badge_of(self.environment.store.record(execution.id))
        workflow = badged(one_line(execution.workflow.name, 120), badge)
        for asked in execution.asked.values():
            address = address_of(execution.id, asked)  # copies of an execution ask under the same ids
            if not asked.is_open and address not in self._known:
                continue  # settled before anybody looked here
            question = question_of(asked._replace(id=address))
            cell = str((execution.state.identity.get(CELL) or {}).get("cell") or "")
            self._known[address] = Asked(execution_id=execution.id, workflow=workflow, question=question, cell=cell)

    def _shown(self) -> tuple[dict[str, Asked], int]:
        """Return what is shown, and how many open questions are not; forget what was settled long ago."""
        open_ = sorted(filter(_is_open, self._known.values()), key=lambda asked: asked["question"]["raised_us"])
        settled = [asked for asked in self._known.values() if not _is_open(asked)][-MAX_SETTLED:]
        self._known = dict(_by_name([*settled, *open_]))
        return dict(_by_name([*settled, *open_[:MAX_OPEN]])), max(0, len(open_) - MAX_OPEN)


def _is_open(asked: Asked) -> bool:
    return asked["question"]["status"] == PENDING


def _by_name(asked: Sequence[Asked]) -> Iterator[tuple[str, Asked]]:
    return ((entry["question"]["interrupt_id"], entry) for entry in asked)


def _now_us() -> int:
    return time.time_ns() // 1000


_publishers: weakref.WeakValueDictionary[int, Publisher[InboxFeed]] = weakref.WeakValueDictionary()


def inbox_publisher_of(environment: Environment) -> Publisher[InboxFeed]:
    """Return the publisher of an environment's questions: one for all its views."""
    publisher = _publishers.get(id(environment))  # it holds the environment, so that no other one gets this id
    if publisher is None:
        publisher = _publishers[id(environment)] = Publisher(InboxFeed(environment))
    return publisher
