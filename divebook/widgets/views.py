"""Jupyter widgets and comms that show executions in a browser.

A publisher (`divebook.widgets.publisher`) sends frames, which are messages with changes. `Intents` carries out intents,
which are commands of a person in a view. `ViewModel` connects both with the views. It has a second base class that
transports the messages: a widget (`CleanWidget`) or a comm of the kernel (`Comm`).
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NoReturn, TypeAlias, TypedDict, cast

import anywidget
import traitlets

from divebook.environments.environment import Environment
from divebook.errors import AnswerKeptError, DivebookError, SetupError
from divebook.replay.replayer import Positions
from divebook.report.hints import advised
from divebook.text.redaction import shared
from divebook.widgets.feed import Feed
from divebook.widgets.protocol import (
    Ack,
    AnswerGiven,
    Bundle,
    BundleName,
    Delta,
    Header,
    InboxDelta,
    InboxToBrowser,
    Offer,
    OfferToBrowser,
    PictureToBrowser,
    QuestionView,
    ReplayToBrowser,
    ReplayToKernel,
    RunsPage,
    RunsQuery,
    RunsToBrowser,
    RunsWish,
    Steering,
    TakingOver,
    ToBrowser,
    ToKernel,
    Welcome,
    refusal,
    refused,
)
from divebook.widgets.publisher import Audience, Publisher
from divebook.widgets.runs_and_questions import InboxFeed, RunsFeed, inbox_publisher_of
from divebook.widgets.source import Source
from divebook.widgets.stepping import Steppable, SteppedLog, reply_of


class ViewModel:
    """Kernel side of a view in a browser: it sends the messages of a publisher to the browser, and handles messages of
    the browser.

    A frame is a message with all changes since the previous frame. Commands of a person go to `handlers`.
    """

    # Provided by the other base class: a widget (`CleanWidget`) or a comm (`Comm`).
    comm: Any
    send: Callable[..., None]
    on_msg: Callable[..., None]

    def __init__(
        self, publisher: Publisher[Any], handlers: Handlers, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._publisher = publisher
        self._detach: Callable[[], None] = lambda: None
        self._intents = Intents(handlers, lambda ack: self._reply(lambda: ack, urgent=True))
        self._audience = Audience(clock)
        # Set by `retire`. The view closes itself when its last page has left.
        self._is_retired = False
        self.greeted = threading.Event()
        """Set as soon as a browser shows the view and its first message has arrived."""
        self.is_hosted = False
        """True if the page can show the saved form of the view after the view is closed."""
        self._on_hosted: Callable[[], None] = lambda: None
        # The base class opens the comm, after which messages may arrive on another thread. All attributes exist by now.
        # A message before `on_msg` is lost, and the page sends it again.
        super().__init__()
        answer_while_busy(self.comm)
        self.on_msg(self._receive)
        # The last statement: the publisher may call `_on_frame` before `add` returns.
        self._attach()

    def when_hosted(self, callback: Callable[[], None]) -> None:
        """Call a function as soon as a page reports (`Hosted`) that it can show the view's saved form, its text and
        HTML without a kernel.

        If a page has reported so already, the function is called at once. It is called on the publisher's thread.
        """
        self._on_hosted = callback
        # On the publisher's thread like every other call of the function, so that the caller may hold a lock.
        if self.is_hosted:
            self._publisher.post(callback, urgent=True)

    def retire(self) -> None:
        """Close this view as soon as no page shows it any more, because its output was replaced. If no page shows it
        now, close it at once.

        Pages that were loaded later do not learn of the replacement, and still show the view.
        """
        self._is_retired = True
        if not self._audience:
            self.close()

    def close(self) -> None:
        """Stop showing changes of the publisher, and remove the view from the page."""
        self._detach()
        super().close()  # type: ignore[misc]  # of the class beside it

    def _attach(self) -> None:
        # `close` is called when the publisher is stopped, for example as the extension is unloaded.
        self._detach = self._publisher.add(self._on_frame, self._on_heartbeat, self.close)

    def follow(self, publisher: Publisher[Any]) -> None:
        """Show the data of another publisher from now on. Each open view receives all of this data in a `Welcome`
        message.
        """
        # Detached first, so that no frame of the old publisher follows the new data.
        self._detach()
        self._publisher = publisher
        self._attach()
        # 0 makes each page discard the spans of the other execution.
        for view in self._audience.views:
            self._greet(view, 0)

    # --- to the browser, on the publisher's thread -------------------------------------------------------------------

    def _on_frame(self, frame: Any) -> int:
        """Send a frame (a message with changes) to the page if at least one view is open. Return the number of messages
        that were sent.
        """
        if not self._audience:
            return 0
        self.send(frame)
        return 1

    def _on_heartbeat(self) -> None:
        self._audience.expire()
        # Silent pages count as gone, so that a retired view whose tabs were closed without a message closes too.
        if self._is_retired:
            self.retire()

    def _reply(self, make: Callable[[], MessageToBrowser], *, urgent: bool) -> None:
        self._publisher.post(lambda: self.send(make()), urgent=urgent)

    # --- from the browser, on whatever thread the kernel likes -------------------------------------------------------

    def _receive(self, _widget: object, message: Mapping[str, Any], _buffers: object) -> None:
        """Handle a message from a page.

        Invalid messages are refused. Messages about the state of a view (``hello``, ``alive``, ``bye``) update the
        audience. Intents go to `Intents`, which acknowledges them. All other messages are queries (`_look_up`).
        """
        wrong = refusal(message, ToKernel)
        if wrong is not None:
            self._refuse(message, wrong)
            return
        match message:
            case {"type": "hello", "view": view, "feed": feed, "since": since}:
                self._greet(view, since, feed)
            case {"type": "alive", "view": view, "feed": feed, "since": since}:
                # The kernel removed a page that was silent for long, for example while the machine slept. It gets all
                # data again.
                if self._audience.record_view(view):
                    self._greet(view, since, feed)
                # Without an answer the page shows that the kernel does not answer, because it is busy or not connected.
                else:
                    self._reply(lambda: Ack(type="ack", id=view, accepted=True, text=""), urgent=False)
            # Each page of the view reports hosting, and repeats it. The callback runs once.
            case {"type": "hosted"}:
                was_hosted = self.is_hosted
                self.is_hosted = True
                if not was_hosted:
                    self._publisher.post(self._on_hosted, urgent=True)
            case {"type": "bye", "view": view}:
                self._audience.leave(view)
                if self._is_retired:
                    self.retire()
            case {"type": "answer" | "control" | "wish" | "take_over"} as intent:
                # Accepted here and executed later, because this thread belongs to the kernel.
                self._intents.take(cast("Intent", intent))
            case request:
                self._look_up(request)

    def _refuse(self, message: Any, why: str) -> None:
        self._reply(lambda: refused(message, why), urgent=False)  # a flood of them must not hold up what people do

    def _greet(self, view: str, since: int, feed: str = "") -> None:  # noqa: ARG002 - for `LiveView`
        """Send the first message to a view. It knows the data of the feed `feed` up to number `since`."""
        self._audience.record_view(view)
        # Set before the reply: a waiting cell may continue as soon as a browser is known to show the view.
        self.greeted.set()
        self._reply(lambda: self._publisher.feed.welcome(view, since), urgent=True)

    def _look_up(self, request: Mapping[str, Any]) -> None:
        """Answer a query (request for data) of one view. This method refuses all queries; subclasses answer the queries
        that they support.
        """
        self._refuse(request, f"this view does not accept messages of type {request['type']!r}")


# --- comms for the JupyterLab extension ------------------------------------------------------------------------------
#
# These messages do not belong to a cell. The kernel opens a comm. A page that was loaded later finds it by asking the
# kernel for the comms of its target (`widgets/src/lab/comms.ts`). Pages without the extension close their end.


class Comm:
    """A Jupyter comm (message channel between kernel and page) that replaces secrets in its messages."""

    target: ClassVar[str]
    """Target name of the comm, by which the JupyterLab extension recognizes it."""

    def __init__(self) -> None:
        from comm import create_comm

        self.comm = create_comm(target_name=self.target)

    def send(self, content: Mapping[str, Any], buffers: Any = None) -> None:
        """Replace the secrets in a message, and send it to all pages."""
        self.comm.send(data=shared().value(content), buffers=buffers)

    def on_msg(self, callback: Callable[[object, Any, object], None]) -> None:
        """Call a function with each message that a page sends to this comm. The function gets the same arguments as for
        messages to a widget.
        """
        # The arguments of a widget's callback: sender, content and buffers.
        self.comm.on_msg(lambda message: callback(self, message["content"]["data"], message.get("buffers")))

    def close(self) -> None:
        """Close the comm."""
        self.comm.close()


# --- intents of a person ---------------------------------------------------------------------------------------------
#
# A page sends an intent again until it is acknowledged, so it may arrive several times. It is carried out once. The
# thread that receives messages only submits the intent to an executor, because a kernel may call back on its main
# thread, between two lines of a cell.


REMEMBERED = 1000
"""Number of intents whose acknowledgement is remembered."""


ShowRuns: TypeAlias = Callable[[Sequence[str]], None]
"""Function that shows executions below the list: none, one, or several compared with each other."""
Intent: TypeAlias = AnswerGiven | Steering | RunsWish | TakingOver


def _refuse() -> NoReturn:
    raise SetupError("this view accepts only answers")


def _refuse_wish(wish: RunsWish) -> None:
    raise SetupError(f"this view has no list of runs, so the command {wish['command']!r} is not available here")


def _refuse_files(wish: TakingOver) -> str:
    raise SetupError(
        f"this view cannot copy changed files to your folder; use {advised('apply')} with {', '.join(wish['paths'])}"
    )


@dataclass(frozen=True, slots=True)
class Handlers:
    """Functions that carry out the commands that a person gives in a view.

    They are called on a separate thread. A `DivebookError` is sent to the view as a refusal.
    """

    answer: Callable[[str, Any], object]
    """Answers a question; the arguments are its id and the response. If the answer is stored, but the run is blocked,
    the function raises `AnswerKeptError`.
    """
    pause: Callable[[], object] = _refuse
    resume: Callable[[], object] = _refuse
    cancel: Callable[[], object] = _refuse
    plan: Callable[[], str] = field(default=_refuse, kw_only=True)
    """Returns a text about the effect of `fix` if a person must confirm it, else an empty string; makes no calls."""
    fix: Callable[[], object] = field(default=_refuse, kw_only=True)
    """Continues a failed run with the current definitions."""
    again: Callable[[], object] = field(default=_refuse, kw_only=True)
    """Starts a new run with the inputs of a failed run."""
    wish: Callable[[RunsWish], object] = field(default=_refuse_wish, kw_only=True)
    take_over: Callable[[TakingOver], str] = field(default=_refuse_files, kw_only=True)
    """Writes changed files into the folder that their workspace is a copy of; returns a text about the result."""


class Intents:
    """Executor of the commands (intents) that a person gives in a view. It runs one at a time on a separate thread, and
    acknowledges each.
    """

    def __init__(
        self, handlers: Handlers, acknowledge: Callable[[Ack], None], executor: Executor | None = None
    ) -> None:
        self._handlers = handlers
        self._acknowledge = acknowledge
        # One thread: commands of a person take effect in the order in which they were given.
        self._executor = executor or ThreadPoolExecutor(1, "divebook-intents")
        # None while the command is being executed.
        self._outcomes: OrderedDict[str, Ack | None] = OrderedDict()

    def take(self, intent: Intent) -> None:
        """Execute a command (intent) of a person. A command that is received again is not executed again; its
        acknowledgement is sent again, if it has ended.
        """
        identity = intent["id"]
        if identity not in self._outcomes:
            # Recorded before it is submitted. A repeated message then finds the entry and is not executed again.
            self._remember(identity, None)
            # The context contains the cell to which output belongs.
            context = contextvars.copy_context()
            self._executor.submit(context.run, self._carry_out, intent)
            return
        # Without an outcome, the acknowledgement follows when the command has ended.
        outcome = self._outcomes[identity]
        if outcome is not None:
            self._acknowledge(outcome)

    def _remember(self, identity: str, outcome: Ack | None) -> None:
        self._outcomes[identity] = outcome
        # The oldest acknowledgements are dropped. A page has far fewer commands that are not acknowledged yet.
        while len(self._outcomes) > REMEMBERED:
            self._outcomes.popitem(last=False)

    def _carry_out(self, intent: Intent) -> None:
        try:
            text = self._call(intent)
        # The answer is stored, so the page must not offer the question again. The text explains why the run does not
        # continue.
        except AnswerKeptError as stored:
            outcome = Ack(type="ack", id=intent["id"], accepted=True, text=str(stored))
        except Exception as error:  # noqa: BLE001 - whatever went wrong, the person who asked must hear of it
            reason = str(error) if isinstance(error, DivebookError) else f"{type(error).__name__}: {error}"
            outcome = Ack(type="ack", id=intent["id"], accepted=False, text=reason)
        else:
            outcome = Ack(type="ack", id=intent["id"], accepted=True, text=text)
        # Remembered before it is sent: a repetition that arrives meanwhile gets this acknowledgement.
        self._remember(intent["id"], outcome)
        self._acknowledge(outcome)

    def _call(self, intent: Intent) -> str:
        """Execute a command (intent) by calling its handler, and return the text for the acknowledgement; empty if the
        handler returns none.
        """
        if intent["type"] == "answer":
            self._handlers.answer(intent["interrupt_id"], intent["response"])
        elif intent["type"] == "wish":
            self._handlers.wish(intent)
        elif intent["type"] == "take_over":
            return self._handlers.take_over(intent)
        elif intent["command"] == "plan":
            return self._handlers.plan()
        # `refusal` has checked that the command is one of `Command`, each of which is a field of `Handlers`.
        else:
            getattr(self._handlers, intent["command"])()
        return ""


MessageToBrowser: TypeAlias = ToBrowser | ReplayToBrowser | InboxToBrowser | OfferToBrowser | RunsToBrowser


def answer_while_busy(comm: object) -> None:
    """Make ipykernel 7.4 deliver the browser's messages for this comm at once, even while a cell blocks the main
    thread.

    ipykernel routes messages to the shell that sent last, which is the busy main shell. Without this memory it routes
    them to the subshell of the front end.
    """
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = None  # noqa: SLF001 - there is no public way; kernels without it need none


# --- base classes of widgets -----------------------------------------------------------------------------------------


HOSTED_VIEW = "application/vnd.divebook.view+json"
"""MIME type of an output that JupyterLab's extension shows: the live view, or its saved form after the view is closed
(``widgets/src/lab/host.ts``).
"""
STATIC = Path(__file__).parent / "static"


def built(name: str) -> str:
    """Return the content of a file of the front end. Raise `SetupError` if the front end was not built."""
    path = STATIC / name
    if not path.exists():
        raise SetupError(f"{path} is missing; build the front end with `python widgets/frontend.py build`")
    return path.read_text(encoding="utf-8")


def bundle_of(view: str, name: BundleName) -> Bundle:
    """Return the message with the code of a part of the front end, for a view that requested it."""
    # The path is safe: `refusal` has checked that the name is one of `BundleName`.
    return Bundle(type="bundle", view=view, name=name, script=built(f"{name}.js"))


class CleanWidget(anywidget.AnyWidget):
    """A widget that replaces secrets in its messages to the browser, except in the code of the front end."""

    def send(self, content: Any, buffers: Any = None) -> None:
        """Replace the secrets in a message, and send it to the browser."""
        # A secret that occurs in the code as a word must not be replaced there.
        is_code = content["type"] == "bundle"
        super().send(content if is_code else shared().value(content), buffers)


class FollowingView(ViewModel, CleanWidget):
    """A widget that shows the data of a publisher and its changes."""

    bundle: ClassVar[str]
    """Name of the script and style files of the widget."""

    @property
    def _esm(self) -> str:
        return built(f"{self.bundle}.js")

    @property
    def _css(self) -> str:
        return built(f"{self.bundle}.css")

    def close(self) -> None:
        """Stop showing changes of the publisher, and remove the view from the page."""
        # The layout is a widget with its own comm, which `close` of the view does not close.
        layout = self.layout
        super().close()
        layout.close()


# --- the live view ---------------------------------------------------------------------------------------------------
#
# One model serves all views of an execution. It has the bundle, a small snapshot for views that appear while the kernel
# is busy, and exchanges messages in both directions (`divebook.widgets.protocol`).


MAX_PENDING = 20
"""Maximum number of questions in the snapshot."""


class LiveView(FollowingView):
    """Live view of one execution as a widget."""

    bundle = "live"
    snapshot = traitlets.Dict().tag(sync=True)
    """Status and open questions. A view shows them until it gets a `Welcome`."""

    def __init__(
        self, publisher: Publisher[Feed], handlers: Handlers, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._feed = publisher.feed
        self._questions: dict[str, QuestionView] = {}
        self._moved: Callable[[Publisher[Feed]], None] = lambda _: None
        # Made when a person opens the replay. Most views never need it.
        self._stepped: SteppedLog | None = None
        super().__init__(publisher, handlers, clock)

    def follow(self, publisher: Publisher[Feed]) -> None:
        """Show another execution from now on."""
        self._feed = publisher.feed
        self._questions = {}
        super().follow(publisher)
        # The callback comes after the change, since it may send messages about the new execution.
        self._moved(publisher)

    def when_moved(self, callback: Callable[[Publisher[Feed]], None]) -> None:
        """Call a function each time this view starts to show another execution. The argument of the function is the
        publisher that sends the changes of that execution.
        """
        self._moved = callback

    def _greet(self, view: str, since: int, feed: str = "") -> None:
        # Numbers of events mean nothing to another feed, such as that of another execution or of an earlier kernel.
        super()._greet(view, since if feed == self._feed.id else 0, feed)

    def _on_frame(self, delta: Delta) -> int:
        sent = super()._on_frame(delta)
        # A view that appears while the kernel is busy gets the snapshot only, so that questions can be answered there.
        self._questions.update((question["interrupt_id"], question) for question in delta["questions"])
        return sent + self._take_snapshot(delta["header"])

    def _take_snapshot(self, header: Header) -> int:
        pending = [question for question in self._questions.values() if question["status"] == "pending"][:MAX_PENDING]
        snapshot = shared().value({"status": header["status"], "workflow": header["workflow"], "pending": pending})
        # An equal snapshot sends nothing, and therefore counts as no message.
        if snapshot == self.snapshot:
            return 0
        # A traitlet is sent as a message of its own, which counts for the rate of the publisher.
        self.snapshot = snapshot
        return 1

    def _look_up(self, request: Mapping[str, Any]) -> None:
        """Answer a query about the execution: conversation, variables, files, bundle, spans, events of a span, or
        replay.

        All queries are answered on the publisher's thread.
        """
        # The local variable, because `follow` may replace the feed before the reply is made. Ids of spans belong to
        # this feed. All replies are made on the publisher's thread, since a feed is not safe for other threads.
        feed = self._feed
        # Large answers alternate with frames. Small ones that a person waits for are urgent.
        match request:
            case {"type": "conversation", "view": view, "id": index, "since": since}:
                self._reply(lambda: feed.conversation(view, index, since), urgent=False)
            case {"type": "sent", "view": view, "id": index}:
                self._reply(lambda: feed.sent(view, index), urgent=False)
            case {"type": "variables", "view": view, "version": version}:
                self._reply(lambda: feed.variables(view, version), urgent=False)
            case {"type": "files", "view": view, "version": version, "at": at, "since": since}:
                self._reply(lambda: feed.files(view, version, at, since), urgent=False)
            case {"type": "bundle", "view": view, "name": name}:
                self._reply(lambda: bundle_of(view, name), urgent=True)
            case {"type": "range", "view": view, "first": first, "stop": stop}:
                self._reply(lambda: feed.history(view, first, stop), urgent=False)
            case {"type": "detail", "view": view, "id": index}:
                self._reply(lambda: feed.detail(view, index), urgent=True)
            case {"type": "state" | "event" | "events" | "said" | "why"}:
                self._reply(lambda: self._step(request), urgent=True)

    def _step(self, request: Mapping[str, Any]) -> ReplayToBrowser:
        """Answer a message of the replay of the execution's log, which a person has opened inside the live view."""
        source = self._feed.source
        name = source.header()["execution_id"]
        # After `follow` the replay must read the log of the other execution.
        if self._stepped is None or self._stepped.positions.execution_id != name:
            self._stepped = SteppedLog(Positions(name, source.read, source.total), source.history)
        return cast("ReplayToBrowser", reply_of(self._stepped, request))


# --- open questions --------------------------------------------------------------------------------------------------


class InboxFollower(ViewModel):
    """Kernel side of a view of the open questions, which also takes answers.

    It reads the store only while a view is open. `on_change` is called after each frame, on the publisher's thread.
    """

    def __init__(
        self,
        publisher: Publisher[InboxFeed],
        handlers: Handlers,
        on_change: Callable[[InboxFeed], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._feed = publisher.feed
        self._on_change = on_change
        # `_greet` runs on the thread of messages, `_on_heartbeat` on the publisher's thread.
        self._attaching = threading.Lock()
        self._is_attached = False
        super().__init__(publisher, handlers, clock)

    def _on_frame(self, frame: InboxDelta) -> int:
        sent = super()._on_frame(frame)
        self._on_change(self._feed)
        return sent

    def _attach(self) -> None:
        super()._attach()
        self._is_attached = True

    def _greet(self, view: str, since: int, feed: str = "") -> None:
        with self._attaching:
            # Noted before `_attach`, so that a heartbeat in between does not see an empty audience and detach again.
            self._audience.record_view(view)
            if not self._is_attached:
                self._attach()
        super()._greet(view, since, feed)

    def _on_heartbeat(self) -> None:
        super()._on_heartbeat()
        with self._attaching:
            # Without views nothing is read. The next ``hello`` attaches again.
            if not self._audience and self._is_attached:
                self._is_attached = False
                self._detach()


class InboxComm(InboxFollower, Comm):
    """Comm that sends the open questions to JupyterLab's notifications, status bar and notebook tabs."""

    target = "divebook.inbox"


class InboxView(InboxFollower, FollowingView):
    """Widget that shows the open questions of a store."""

    bundle = "inbox"


# --- the list of executions, with the open questions -----------------------------------------------------------------
#
# The run browser of a cell is a widget. The side panel of JupyterLab receives the same messages on a comm.


class RunsFollower(InboxFollower):
    """Kernel side of a view of the list of executions and of the open questions.

    It reads the store only while a view is open.

    Parameters
    ----------
    feed
        The list.
    show
        Called with the id of the execution to show below the list, and with None for none. None if executions cannot be
        shown.
    """

    def __init__(
        self,
        feed: RunsFeed,
        show: ShowRuns | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # A publisher for the list beside the shared one for the questions, because each widget has its own filters.
        self._runs = Publisher(feed, clock)
        handlers = Handlers(feed.environment.answer, wish=RunCommands(feed, show).carry_out)
        super().__init__(inbox_publisher_of(feed.environment), handlers, clock=clock)

    def _attach(self) -> None:
        super()._attach()
        # `_detach` of the base class covers the questions only.
        leave_inbox = self._detach
        leave_list = self._runs.add(self._list)

        def detach() -> None:
            leave_inbox()
            leave_list()

        self._detach = detach

    def _list(self, page: RunsPage) -> int:
        if not self._audience:
            return 0
        self.send(page)
        return 1

    def _greet(self, view: str, since: int, feed: str = "") -> None:
        super()._greet(view, since, feed)
        # The reply contains the last page, or makes the first one.
        self._runs.post(lambda: self.send(self._runs.feed.welcome(view, since)), urgent=True)

    def _look_up(self, request: Mapping[str, Any]) -> None:
        if request["type"] != "list":
            super()._look_up(request)
            return
        self._runs.feed.ask(cast("RunsQuery", request))


class RunsView(RunsFollower, FollowingView):
    """Widget that shows the list of the executions of a store."""

    bundle = "runs"


class RunsComm(RunsFollower, Comm):
    """Comm that sends the list of executions to JupyterLab's side panel."""

    target = "divebook.runs"


class RunCommands:
    """Executor of the commands that a person gives to executions in the list: open, resume, cancel, tag, ..."""

    def __init__(self, feed: RunsFeed, show: ShowRuns | None) -> None:
        self._feed = feed
        self._show = show

    @property
    def _environment(self) -> Environment:
        return self._feed.environment

    def carry_out(self, wish: RunsWish) -> None:
        """Apply a command that a person chose in the list to each selected execution.

        If an execution refuses the command, the others still get it. An error at the end lists all refusals.
        """
        command = wish["command"]
        names = wish["executions"]
        if command in ("open", "close", "compare"):
            count = {"open": 1, "close": 0}.get(command, len(names))
            self._open(names[:count])
            return
        # Each execution is tried. One that refuses must not stop the others.
        errors = [self._tried(name, wish) for name in names]
        refused = [error for error in errors if error is not None]
        # Before the error, so that the list shows the effect on the others.
        self._feed.refresh(names)
        if refused:
            done = f"{len(names) - len(refused)} of {len(names)} done; " if len(names) > 1 else ""
            raise SetupError(f"{done}{'; '.join(refused)}")

    def _open(self, names: Sequence[str]) -> None:
        """Show nothing, one execution, or the comparison of several executions below the list."""
        if self._show is None:
            raise SetupError(f"runs cannot be shown here; run {advised('show ID', 'divebook.show(ID)')} in a cell")
        # Shown first: if this fails, the list does not mark the execution as open.
        self._show(names)
        self._feed.opened = names[0] if len(names) == 1 else None
        self._feed.refresh(())

    def _tried(self, execution_id: str, wish: RunsWish) -> str | None:
        """Apply a command to one execution. Return the text of the error if the execution refuses it, else None."""
        try:
            self._do(execution_id, wish)
        except DivebookError as error:
            return f"{execution_id}: {error}"
        return None

    def _do(self, execution_id: str, wish: RunsWish) -> None:
        match wish["command"]:
            case "resume":
                self._environment.run_of(execution_id).resume()
            case "cancel":
                # A cancelled execution may still finish a call. The acknowledgement comes when it has ended.
                self._environment.run_of(execution_id).cancel().wait()
            case "tag":
                self._environment.run_of(execution_id).tag(*wish["tags"])
            case "untag":
                self._environment.run_of(execution_id).untag(*wish["tags"])


# --- a choice of actions ---------------------------------------------------------------------------------------------


class OfferFeed:
    """Feed for a view of an `Offer` (a choice between several actions). It never has changes, because an offer is
    constant.
    """

    has_news = False

    def __init__(self, offer: Offer) -> None:
        self.offer = offer

    def frame(self) -> None:
        """Return None, which means that there are no changes."""

    def request_refresh(self) -> None:
        """Skip the refresh, because nothing can have changed."""

    def subscribe(self, _wake: Callable[[], None]) -> Callable[[], None]:
        """Return a function that ends the subscription. It does nothing, since there are no changes to report."""
        return self.request_refresh

    def welcome(self, view: str, _since: int) -> Offer:
        """Return the message with the offer for a view that has just started."""
        return Offer(**{**self.offer, "view": view})


class OfferView(FollowingView):
    """Widget that shows an `Offer`, a choice between several actions, as buttons.

    Parameters
    ----------
    offer
        The offer.
    choose
        Called with the name of the chosen action, on a separate thread.
    """

    bundle = "offer"

    def __init__(self, offer: Offer, choose: Callable[[str], None]) -> None:
        def take(_offer_id: str, name: object) -> None:
            # A message may be forged, so the name is compared with the choices.
            names = [choice["name"] for choice in offer["choices"]]
            if name not in names:
                raise SetupError(f"unknown choice {name!r}; choose one of: {', '.join(names)}")
            choose(str(name))

        super().__init__(Publisher(OfferFeed(offer)), Handlers(take))


# --- timeline and graph beside a replay ------------------------------------------------------------------------------


AT_ONCE = 100_000
"""Maximum number of events of a log that is read while the page waits, which takes about a second. A longer log is read
in the background.
"""
MOST_PICTURED = 1_000_000
"""Maximum number of events of a log that is shown with timeline and graph. Reading them takes about 15 s of CPU
time.
"""
MOST_SPANS = 100_000
"""Maximum number of spans that a page gets. If there are more, the sent spans are spread over the run."""
THREAD = "divebook-picture"


class ReplayPictures:
    """Provider of the timeline and the graph that a view shows beside a replay.

    Parameters
    ----------
    welcome
        Returns the data for a view. None while it is being read: the page asks again.
    """

    def __init__(self, welcome: Callable[[str], Welcome | None]) -> None:
        self._welcome = welcome

    @classmethod
    def of(cls, source: Callable[[], Source]) -> ReplayPictures:
        """Return a provider for the log that the function `source` reads. It calls `source` for each query of a view,
        so that the answer includes the newest events.

        For a log of more than `MOST_PICTURED` events the answers contain no spans.
        """
        background_reader = _BackgroundReader(source)

        def welcome(view: str) -> Welcome | None:
            total = source().total()
            # A log that is too long has no picture, so nothing is read for it either.
            at_once = total <= AT_ONCE or total > MOST_PICTURED
            answer = _read(source()) if at_once else background_reader.read(view, total)
            return None if answer is None else {**answer, "view": view}

        return cls(welcome)

    def reply(self, message: Mapping[str, Any]) -> PictureToBrowser | None:
        """Return the answer to a message of a page. Return None if the message has another type, or while the log is
        still being read.
        """
        match message:
            case {"type": "picture", "view": str(view)}:
                return self._welcome(view)
            case {"type": "bundle", "view": str(view), "name": name}:
                return bundle_of(view, name)
        return None


class _BackgroundReader:
    """Reader of a long log for the timeline and graph beside a replay, on a background thread. All pages share the
    result until the log grows.
    """

    def __init__(self, source: Callable[[], Source]) -> None:
        self._source = source
        self._thread: threading.Thread | None = None
        self._view = ""
        self._result: Welcome | None = None

    def read(self, view: str, total: int) -> Welcome | None:
        """Return the data for the timeline and graph if it was read for this view, or if it is still current. Otherwise
        start to read the log in the background; return None until it has been read.
        """
        # The page that has caused the reading gets its result, also if the log has grown since. For a growing log,
        # "current" would never be true.
        if self._result is not None and (self._view == view or self._result["last"] == total):
            return self._result
        # One thread at a time. The page asks again.
        if self._thread is not None and self._thread.is_alive():
            return None
        self._view = view
        self._result = None
        self._thread = threading.Thread(target=copy_context().run, args=(self._make,), name=THREAD, daemon=True)
        self._thread.start()
        return None

    def _make(self) -> None:
        # Assigned at the end, so that other threads see either nothing or the complete data.
        self._result = _read(self._source())


def _read(source: Source) -> Welcome:
    """Read a log, and return the message with the data of the timeline and graph beside its replay.

    For a log of more than `MOST_PICTURED` events the data contains no spans; the page then shows neither timeline nor
    graph.
    """
    feed = Feed(source)
    is_short = source.total() <= MOST_PICTURED
    # Each frame reads a limited number of events.
    while is_short and feed.has_news:
        feed.frame()
    # The same for every page, whatever feed the page has its other data from.
    return Welcome(**{**feed.welcome("", 0, MOST_SPANS, evenly=True), "feed": ""})


# --- replay of a live or saved log -----------------------------------------------------------------------------------


LONG = 5_000
"""Number of events above which a cell waits until the page has the log (``python -m benchmarks.replaying``)."""
GREETING = 1.0
"""Seconds for which the cell waits for the first request of a page."""
PATIENCE = 10.0
"""Seconds for which the cell then waits until the page has the last events."""


class ExplainedValue(TypedDict):
    """Name of a variable, and the number of the event after which it had the value that a view explains."""

    name: str
    sequence: int


class ReplayView(CleanWidget):
    """Widget that replays one log: it shows the state after each event.

    Parameters
    ----------
    log
        The log, which may grow. It is called on the thread that messages arrive on.
    name
        Name of the log.
    saved
        Returns the data that is shown without a kernel, by type.
    pictures
        Timeline and graph beside the replay; None to show none.
    moves
        Whether a page shows widgets; elsewhere a live view would only show a message that it is missing.
    on_filled
        Called when a page has all events.
    on_position
        Called with the position that a person has chosen in a page.
    explained
        The value whose causes the page shows first, with the replay folded; None for the replay alone.
    """

    explained = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        log: Steppable,
        name: str,
        saved: Callable[[], dict[str, Any]],
        *,
        pictures: ReplayPictures | None = None,
        moves: bool = True,
        on_filled: Callable[[], None] | None = None,
        on_position: Callable[[int], None] | None = None,
        explained: ExplainedValue | None = None,
    ) -> None:
        self._log = log
        self._name = name
        self._saved = saved
        self._pictures = pictures
        self._moves = moves
        self._on_filled = on_filled
        self._on_position = on_position
        self._lock = threading.Lock()
        self._first_request = threading.Event()
        self._filled = threading.Event()
        super().__init__(explained=explained or {})
        # As for `ViewModel`: messages must arrive while a cell runs.
        answer_while_busy(self.comm)
        self.on_msg(self._receive)

    @property
    def _esm(self) -> str:
        return built("replay.js")

    @property
    def _css(self) -> str:
        return built("replay.css")

    def _repr_mimebundle_(self, **options: Any) -> Any:
        # Without a page that shows widgets, the text says how to get one.
        if not self._moves:
            return {"text/plain": repr(self)}, {}
        # The base class returns the data alone or with metadata.
        shown: Any = super()._repr_mimebundle_(**options)
        data, metadata = shown if isinstance(shown, tuple) else (shown, {})
        # The type of the hosted view is added to widget, text and saved form, so that each page finds a form that it
        # can show.
        return {**self.lasting_bundle(), **data, HOSTED_VIEW: {"model_id": self.model_id}}, metadata

    def lasting_bundle(self) -> dict[str, Any]:
        """Return the saved form of the replay by MIME type: the data that pages use when no kernel is running."""
        return {**self._saved(), "text/plain": repr(self)}

    def __repr__(self) -> str:
        text = f"Replay of {self._name}: {self._log.total} events"
        return text if self._moves else f"{text}; run this cell in JupyterLab to replay them"

    def _receive(self, _widget: object, message: Mapping[str, Any], _buffers: object) -> None:
        """Answer a message of a page with a replay. If a person has moved the replay in the page, call `on_position`.
        If the page has now received all events, call `on_filled`.
        """
        wrong = refusal(message, ReplayToKernel)
        if wrong is not None:
            self.send(refused(message, wrong))
            return
        self._first_request.set()
        with self._lock:  # a cell and its page ask at the same time
            reply = reply_of(self._log, message) or (self._pictures and self._pictures.reply(message))
        if reply is not None:
            self.send(reply)
        if message["type"] == "at" and self._on_position is not None:
            # A position beyond the end comes from a page that has seen a longer log, or from a forged message.
            self._on_position(min(max(0, message["sequence"]), self._log.total))
        # Pages read from the beginning to the end, so that the request for the last event means that all others have
        # arrived.
        if message["type"] == "events" and message["stop"] >= self._log.total:
            self._filled.set()
            if self._on_filled is not None:
                self._on_filled()

    def _let_page_first(self) -> None:
        """Wait until a page has received all events of a long log, or until a time limit is reached. The caller then
        saves the log, which would otherwise delay the page.
        """
        if self._log.total > LONG and self._first_request.wait(GREETING):
            self._filled.wait(PATIENCE)
