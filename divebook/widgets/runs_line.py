"""Those who follow the executions of a store, with the inbox beside them: what a person wants done is done here.

The run browser of a cell is a widget; the side panel of JupyterLab hears the same on a line of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, cast

from divebook.environment import Environment
from divebook.errors import DivebookError, SetupError
from divebook.widgets.following import FollowingView
from divebook.widgets.inbox import inbox_publisher_of
from divebook.widgets.inbox_line import InboxFollower
from divebook.widgets.intents import Handlers
from divebook.widgets.line import KernelLine
from divebook.widgets.protocol.runs import RunsPage, RunsQuery, RunsWish
from divebook.widgets.publisher import Publisher
from divebook.widgets.runs import RunsFeed


class RunsFollower(InboxFollower):
    """Tells of executions, takes answers, and does what a person wants; while no page shows it, nothing is looked up.

    Parameters
    ----------
    feed
        The list.
    show
        Called with the id of the execution that is to be shown below the list, and None for none; None where there is
        no such place.
    """

    def __init__(
        self,
        feed: RunsFeed,
        show: Callable[[str | None], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runs = Publisher(feed, clock)
        handlers = Handlers(feed.environment.answer, wish=Wishes(feed, show).carry_out)
        super().__init__(inbox_publisher_of(feed.environment), handlers, clock=clock)

    def _attach(self) -> None:
        super()._attach()
        leave_inbox, leave_list = self._detach, self._runs.add(self._list)

        def detach() -> None:
            leave_inbox()
            leave_list()

        self._detach = detach

    def _list(self, page: RunsPage) -> int:
        if not self._audience:
            return 0
        self.send(page)
        return 1

    def _greet(self, view: str, since: int) -> None:
        super()._greet(view, since)
        self._runs.post(lambda: self.send(self._runs.feed.welcome(view, since)), urgent=True)

    def _look_up(self, request: Mapping[str, Any]) -> None:
        if request["type"] != "list":
            super()._look_up(request)
            return
        self._runs.feed.ask(cast("RunsQuery", request))


class RunsView(RunsFollower, FollowingView):
    """Shows the executions of a store in a cell."""

    bundle = "runs"


class RunsLine(RunsFollower, KernelLine):
    """What the side panel of JupyterLab is told."""

    target = "divebook.runs"


class Wishes:
    """Does what a person wants with executions of a list."""

    def __init__(self, feed: RunsFeed, show: Callable[[str | None], None] | None) -> None:
        self._feed, self._show = feed, show

    @property
    def _environment(self) -> Environment:
        return self._feed.environment

    def carry_out(self, wish: RunsWish) -> None:
        """Do it with each execution; those that refuse do not hold up the others, and the error names them."""
        command, names = wish["command"], wish["executions"]
        if command in ("open", "close"):
            self._open(names[0] if command == "open" and names else None)
            return
        refused = [told for name in names if (told := self._tried(name, wish)) is not None]
        self._feed.look_at(names)
        if refused:
            done = f"{len(names) - len(refused)} of {len(names)} done; " if len(names) > 1 else ""
            raise SetupError(f"{done}{'; '.join(refused)}")

    def _open(self, execution_id: str | None) -> None:
        if self._show is None:
            raise SetupError("nothing can be shown here; run %dive show ID in a cell")
        self._show(execution_id)
        self._feed.opened = execution_id
        self._feed.look_at(())

    def _tried(self, execution_id: str, wish: RunsWish) -> str | None:
        """Do it with one execution; return why not, if that is so."""
        try:
            self._do(execution_id, wish)
        except DivebookError as error:
            return f"{execution_id}: {error}"
        return None

    def _do(self, execution_id: str, wish: RunsWish) -> None:
        match wish["command"]:
            case "resume":
                self._environment.resume(execution_id)
            case "cancel":
                self._environment.cancel(execution_id).wait()
            case "tag":
                self._environment.tag(execution_id, *wish["tags"])
            case "untag":
                self._environment.untag(execution_id, *wish["tags"])
