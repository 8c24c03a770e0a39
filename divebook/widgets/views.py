"""What all that follow a publisher have in common: who looks, what is sent, what a person wants.

All thinking is done elsewhere: frames come from `publisher`, what a person wants goes to `intents`. How messages travel
is a class beside it among the bases: a widget's model, or a line of its own (`divebook.widgets.views`).
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeAlias, cast

import anywidget
import traitlets

from divebook.environment.environment import Environment
from divebook.errors import AnswerKeptError, DivebookError, SetupError
from divebook.replay.replayer import Positions
from divebook.text.redaction import shared
from divebook.widgets.checking import refusal, refused
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
)
from divebook.widgets.publisher import Audience, Publisher
from divebook.widgets.runs_and_questions import InboxFeed, RunsFeed, inbox_publisher_of
from divebook.widgets.source import Source
from divebook.widgets.stepping import Steppable, SteppedLog, reply_of

# Messages to the pages that show a kernel's notebook, outside of any cell: what the JupyterLab extension listens to.
#
# The kernel opens a comm; a page that was loaded later finds it by asking the kernel for the comms of its target
# (`widgets/src/lab/lines.ts`). Pages without the extension close their end and hear nothing.


class Comm:
    """A comm of a kernel's own; what is sent on it has no secrets."""

    target: ClassVar[str]
    """By which the extension knows what it is about."""

    def __init__(self) -> None:
        from comm import create_comm

        self.comm = create_comm(target_name=self.target)

    def send(self, content: Mapping[str, Any], buffers: Any = None) -> None:
        """Send a message to all pages, without secrets."""
        self.comm.send(data=shared().value(content), buffers=buffers)

    def on_msg(self, callback: Callable[[object, Any, object], None]) -> None:
        """Call back with each message of a page, as widgets do."""
        self.comm.on_msg(lambda message: callback(self, message["content"]["data"], message.get("buffers")))

    def close(self) -> None:
        """Let the pages go."""
        self.comm.close()


# What a person wants, carried out once: an intent is sent again until it is acknowledged, and may come many times.
#
# The thread on which messages arrive only hands over: a kernel may call back on its main thread, between two lines of a
# cell.


REMEMBERED = 1000
"""Intents whose outcome is still known."""


Intent: TypeAlias = AnswerGiven | Steering | RunsWish | TakingOver


def _refuse() -> NoReturn:
    raise SetupError("this view takes answers only")


def _refuse_wish(wish: RunsWish) -> None:
    raise SetupError(f"this view shows no list of executions, of which it could {wish['command']} some")


def _refuse_files(wish: TakingOver) -> str:
    raise SetupError(f"this view takes no files over: %dive apply does, with {', '.join(wish['paths'])}")


@dataclass(frozen=True, slots=True)
class Handlers:
    """What is called for each intent, on a thread of its own; an error of divebook becomes a refusal."""

    answer: Callable[[str, Any], object]
    """Takes the question's id and the response. `AnswerKeptError`: the answer is stored, but the run is blocked."""
    pause: Callable[[], object] = _refuse
    resume: Callable[[], object] = _refuse
    cancel: Callable[[], object] = _refuse
    plan: Callable[[], str] = field(default=_refuse, kw_only=True)
    """Says what `fix` would do, where a person is to confirm that; makes no call."""
    fix: Callable[[], object] = field(default=_refuse, kw_only=True)
    """Goes on after a failure, with what is defined now."""
    again: Callable[[], object] = field(default=_refuse, kw_only=True)
    """Begins a new run like one that has failed."""
    wish: Callable[[RunsWish], object] = field(default=_refuse_wish, kw_only=True)
    take_over: Callable[[TakingOver], str] = field(default=_refuse_files, kw_only=True)
    """Writes changed files into the folder that they are a copy of; says what became of them."""


class Intents:
    """Carries out intents, one after the other, on a thread of its own, and acknowledges them, from any thread."""

    def __init__(
        self, handlers: Handlers, acknowledge: Callable[[Ack], None], executor: Executor | None = None
    ) -> None:
        self._handlers = handlers
        self._acknowledge = acknowledge
        self._executor = executor or ThreadPoolExecutor(1, "divebook-intents")
        self._outcomes: OrderedDict[str, Ack | None] = OrderedDict()

    def take(self, intent: Intent) -> None:
        """Carry out an intent that is new; acknowledge again one that is done."""
        identity = intent["id"]
        if identity not in self._outcomes:
            self._remember(identity, None)
            context = contextvars.copy_context()
            self._executor.submit(context.run, self._carry_out, intent)
            return
        outcome = self._outcomes[identity]
        if outcome is not None:
            self._acknowledge(outcome)

    def _remember(self, identity: str, outcome: Ack | None) -> None:
        self._outcomes[identity] = outcome
        while len(self._outcomes) > REMEMBERED:
            self._outcomes.popitem(last=False)

    def _carry_out(self, intent: Intent) -> None:
        try:
            said = self._call(intent)
        except AnswerKeptError as kept:
            outcome = Ack(type="ack", id=intent["id"], accepted=True, text=str(kept))
        except Exception as error:  # noqa: BLE001 - whatever went wrong, the person who asked must hear of it
            told = str(error) if isinstance(error, DivebookError) else f"{type(error).__name__}: {error}"
            outcome = Ack(type="ack", id=intent["id"], accepted=False, text=told)
        else:
            outcome = Ack(type="ack", id=intent["id"], accepted=True, text=said)
        self._remember(intent["id"], outcome)
        self._acknowledge(outcome)

    def _call(self, intent: Intent) -> str:
        """Do it; return what is to be said of it."""
        if intent["type"] == "answer":
            self._handlers.answer(intent["interrupt_id"], intent["response"])
        elif intent["type"] == "wish":
            self._handlers.wish(intent)
        elif intent["type"] == "take_over":
            return self._handlers.take_over(intent)
        elif intent["command"] == "plan":
            return self._handlers.plan()
        else:
            getattr(self._handlers, intent["command"])()
        return ""


Told: TypeAlias = ToBrowser | ReplayToBrowser | InboxToBrowser | OfferToBrowser | RunsToBrowser


def answer_while_busy(comm: object) -> None:
    """Have messages delivered while a cell blocks the main thread, where ipykernel 7.4 would hold them back.

    It routes them to the shell that sent last, the busy one; without that memory they go to the front end's subshell.
    """
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = None  # noqa: SLF001 - there is no public way; kernels without it need none


class ViewModel:
    """Sends on what a publisher sends; handlers are called when somebody answers or presses a button."""

    if TYPE_CHECKING:  # what the class beside it brings
        comm: Any

        def send(self, content: Any, buffers: Any = None) -> None: ...  # noqa: D102
        def on_msg(self, callback: Callable[[object, Any, object], None]) -> None: ...  # noqa: D102

    def __init__(
        self, publisher: Publisher[Any], handlers: Handlers, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._publisher = publisher
        self._detach: Callable[[], None] = lambda: None
        self._intents = Intents(handlers, lambda ack: self._reply(lambda: ack, urgent=True))
        self._audience = Audience(clock)
        self._is_retired = False
        self.greeted = threading.Event()
        """Set once a browser shows the view and its messages arrive."""
        self.is_hosted = False
        """Whether a page shows what is saved of the view once its model is gone."""
        self._told_hosted: Callable[[], None] = lambda: None
        super().__init__()
        answer_while_busy(self.comm)
        self.on_msg(self._receive)
        self._attach()

    def when_hosted(self, told: Callable[[], None]) -> None:
        """Call `told` once a page hosts the view, at once if one does already; on the publisher's thread."""
        self._told_hosted = told
        if self.is_hosted:
            self._publisher.post(told, urgent=True)

    def retire(self) -> None:
        """Close as soon as no page shows it: pages that were loaded later do not hear that their output is replaced."""
        self._is_retired = True
        if not self._audience:
            self.close()

    def close(self) -> None:
        """Stop following, and take the view off the page."""
        self._detach()
        super().close()  # type: ignore[misc]  # of the class beside it

    def _attach(self) -> None:
        self._detach = self._publisher.add(self._tell, self._look_round, self.close)

    def follow(self, publisher: Publisher[Any]) -> None:
        """Show what another publisher sends from now on; whoever looks begins anew."""
        self._detach()
        self._publisher = publisher
        self._attach()
        for view in self._audience.views:
            self._greet(view, 0)

    # --- to the browser, on the publisher's thread -------------------------------------------------------------------

    def _tell(self, frame: Any) -> int:
        """Send a frame if anybody looks; return how many messages that took."""
        if not self._audience:
            return 0
        self.send(frame)
        return 1

    def _look_round(self) -> None:
        """Forget views that went without a word; now and then."""
        self._audience.expire()
        if self._is_retired:
            self.retire()

    def _reply(self, make: Callable[[], Told], *, urgent: bool) -> None:
        self._publisher.post(lambda: self.send(make()), urgent=urgent)

    # --- from the browser, on whatever thread the kernel likes -------------------------------------------------------

    def _receive(self, _widget: object, message: Mapping[str, Any], _buffers: object) -> None:
        wrong = refusal(message, ToKernel)
        if wrong is not None:
            self._refuse(message, wrong)
            return
        match message:
            case {"type": "hello", "view": view, "since": since}:
                self._greet(view, since)
            case {"type": "alive", "view": view, "since": since}:
                if self._audience.hear(view):
                    self._greet(view, since)
            case {"type": "hosted"}:
                self.is_hosted, was_hosted = True, self.is_hosted
                if not was_hosted:
                    self._publisher.post(self._told_hosted, urgent=True)
            case {"type": "bye", "view": view}:
                self._audience.leave(view)
                if self._is_retired:
                    self.retire()
            case {"type": "answer" | "control" | "wish" | "take_over"} as intent:
                self._intents.take(cast("Intent", intent))
            case request:
                self._look_up(request)

    def _refuse(self, message: Any, why: str) -> None:
        self._reply(lambda: refused(message, why), urgent=False)  # a flood of them must not hold up what people do

    def _greet(self, view: str, since: int) -> None:
        self._audience.hear(view)
        self.greeted.set()
        self._reply(lambda: self._publisher.feed.welcome(view, since), urgent=True)

    def _look_up(self, request: Mapping[str, Any]) -> None:
        """Answer a question of one view; there are none that all widgets understand."""
        self._refuse(request, f"this view takes no messages of the type {request['type']!r}")


# Widgets that send no secrets, and those of them that follow a publisher.


HOSTED_VIEW = "application/vnd.divebook.view+json"
"""The form of an output with a view that JupyterLab's extension shows: the view, or once its model is gone another form
of the same output (``widgets/src/lab/host.ts``)."""
STATIC = Path(__file__).parent / "static"


def built(name: str) -> str:
    """Return a file of the browser half."""
    path = STATIC / name
    if not path.exists():
        raise SetupError(f"{path} is missing: build the front end with `python widgets/frontend.py build`")
    return path.read_text(encoding="utf-8")


def bundle_of(view: str, name: BundleName) -> Bundle:
    """Return a part of the front end."""
    return Bundle(type="bundle", view=view, name=name, script=built(f"{name}.js"))


class CleanWidget(anywidget.AnyWidget):
    """A widget that sends no secrets: nothing but our own code gets to the browser another way."""

    def send(self, content: Any, buffers: Any = None) -> None:
        """Send a message to the browser, without secrets."""
        is_code = content["type"] == "bundle"  # a secret that is a word of it would break it
        super().send(content if is_code else shared().value(content), buffers)


class FollowingView(ViewModel, CleanWidget):
    """A widget that shows what a publisher sends."""

    bundle: ClassVar[str]
    """What its files are called."""

    @property
    def _esm(self) -> str:
        return built(f"{self.bundle}.js")

    @property
    def _css(self) -> str:
        return built(f"{self.bundle}.css")

    def close(self) -> None:
        """Stop following, and take the view off the page."""
        layout = self.layout  # a widget of its own, with a comm of its own
        super().close()
        layout.close()


# The live view's widget: one model for an execution, however many views a page shows of it.
#
# It carries the bundle, a small snapshot for views that come up while the kernel is busy, and messages in both
# directions (`divebook.widgets.protocol`).


MAX_PENDING = 20
"""Questions that the snapshot holds."""


class LiveView(FollowingView):
    """Shows one execution while it runs, and takes what a person wants of it."""

    bundle = "live"
    snapshot = traitlets.Dict().tag(sync=True)
    """Status and pending questions: what a view shows until it is welcomed."""

    def __init__(
        self, publisher: Publisher[Feed], handlers: Handlers, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._feed = publisher.feed
        self._asked: dict[str, QuestionView] = {}
        self._moved: Callable[[Publisher[Feed]], None] = lambda _: None
        self._stepped: SteppedLog | None = None
        super().__init__(publisher, handlers, clock)

    def follow(self, publisher: Publisher[Feed]) -> None:
        """Show another execution from now on."""
        self._feed = publisher.feed
        self._asked = {}
        super().follow(publisher)
        self._moved(publisher)

    def when_moved(self, told: Callable[[Publisher[Feed]], None]) -> None:
        """Call `told` when it shows another execution."""
        self._moved = told

    def _tell(self, delta: Delta) -> int:
        sent = super()._tell(delta)
        self._asked.update((asked["interrupt_id"], asked) for asked in delta["questions"])
        return sent + self._take_snapshot(delta["header"])

    def _take_snapshot(self, header: Header) -> int:
        pending = [asked for asked in self._asked.values() if asked["status"] == "pending"][:MAX_PENDING]
        snapshot = shared().value({"status": header["status"], "workflow": header["workflow"], "pending": pending})
        if snapshot == self.snapshot:
            return 0
        self.snapshot = snapshot
        return 1

    def _look_up(self, request: Mapping[str, Any]) -> None:
        feed = self._feed
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
            case {"type": "state" | "event" | "events" | "said"}:
                self._reply(lambda: self._step(request), urgent=True)

    def _step(self, request: Mapping[str, Any]) -> ReplayToBrowser:
        """Answer a replay that stands in the view, about the run that it shows now."""
        source = self._feed.source
        name = source.header()["execution_id"]
        if self._stepped is None or self._stepped.positions.execution_id != name:
            self._stepped = SteppedLog(Positions(name, source.read, source.total))
        return cast("ReplayToBrowser", reply_of(self._stepped, request))


# Those who follow the questions of a store; the line by which a page of JupyterLab hears of them in no cell at all.


class InboxFollower(ViewModel):
    """Tells what waits for an answer, and takes answers; while no page shows it, nothing is looked up.

    `told` is called when something has changed, on the publisher's thread.
    """

    def __init__(
        self,
        publisher: Publisher[InboxFeed],
        handlers: Handlers,
        told: Callable[[InboxFeed], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._feed = publisher.feed
        self._told = told
        self._attaching = threading.Lock()
        self._is_attached = False
        super().__init__(publisher, handlers, clock)

    def _tell(self, frame: InboxDelta) -> int:
        sent = super()._tell(frame)
        self._told(self._feed)
        return sent

    def _attach(self) -> None:
        super()._attach()
        self._is_attached = True

    def _greet(self, view: str, since: int) -> None:
        with self._attaching:
            self._audience.hear(view)
            if not self._is_attached:
                self._attach()
        super()._greet(view, since)

    def _look_round(self) -> None:
        super()._look_round()
        with self._attaching:
            if not self._audience and self._is_attached:
                self._is_attached = False
                self._detach()


class InboxComm(InboxFollower, Comm):
    """What JupyterLab is told for its notifications, its status bar and the tabs of notebooks."""

    target = "divebook.inbox"


# The inbox's widget: the questions of all executions over one store as cards.


class InboxView(InboxFollower, FollowingView):
    """Shows what waits for an answer in a cell, and takes answers."""

    bundle = "inbox"


# Those who follow the executions of a store, with the inbox beside them: what a person wants done is done here.
#
# The run browser of a cell is a widget; the side panel of JupyterLab hears the same on a line of its own.


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
        handlers = Handlers(feed.environment.answer, wish=RunCommands(feed, show).carry_out)
        super().__init__(inbox_publisher_of(feed.environment), handlers, clock=clock)

    def _attach(self) -> None:
        super()._attach()
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


class RunsComm(RunsFollower, Comm):
    """What the side panel of JupyterLab is told."""

    target = "divebook.runs"


class RunCommands:
    """Does what a person wants with executions of a list."""

    def __init__(self, feed: RunsFeed, show: Callable[[str | None], None] | None) -> None:
        self._feed = feed
        self._show = show

    @property
    def _environment(self) -> Environment:
        return self._feed.environment

    def carry_out(self, wish: RunsWish) -> None:
        """Do it with each execution; those that refuse do not hold up the others, and the error names them."""
        command = wish["command"]
        names = wish["executions"]
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


# A widget that offers a few things to do, of which a person chooses one.


class OfferFeed:
    """An offer as a publisher tells it: it never changes."""

    has_news = False

    def __init__(self, offer: Offer) -> None:
        self.offer = offer

    def frame(self) -> None:
        """Return None: nothing changes."""

    def look_again(self) -> None:
        """Do nothing."""

    def subscribe(self, _wake: Callable[[], None]) -> Callable[[], None]:
        """Return what ends a subscription to nothing."""
        return self.look_again

    def welcome(self, view: str, _since: int) -> Offer:
        """Return the offer for one view."""
        return Offer(**{**self.offer, "view": view})


class OfferView(FollowingView):
    """Shows an offer as buttons.

    Parameters
    ----------
    offer
        What is offered.
    choose
        Called with the name of what somebody has chosen, on a thread of its own.
    """

    bundle = "offer"

    def __init__(self, offer: Offer, choose: Callable[[str], None]) -> None:
        def take(_offer_id: str, name: object) -> None:
            known = [choice["name"] for choice in offer["choices"]]
            if name not in known:
                raise SetupError(f"{name!r} is not offered; one of {', '.join(known)}")
            choose(str(name))

        super().__init__(Publisher(OfferFeed(offer)), Handlers(take))


# The timeline and the graph beside a replay: what a live view of the same log would be sent.


AT_ONCE = 100_000
"""Events of a log that is read while the page waits, which takes about a second; a longer one is read aside."""
MOST_PICTURED = 1_000_000
"""Events of a log that is pictured at all: reading them takes about 15 s of the processor."""
MOST_SPANS = 100_000
"""Calls and steps that a page is sent; of more, some that are spread over the run."""
THREAD = "divebook-picture"


class Pictured:
    """Answers what the timeline and the graph beside a replay ask.

    Parameters
    ----------
    welcome
        Returns what they show, for a view; called when one asks. None while it is being made: a page asks again.
    """

    def __init__(self, welcome: Callable[[str], Welcome | None]) -> None:
        self._welcome = welcome

    @classmethod
    def of(cls, source: Callable[[], Source]) -> Pictured:
        """Return what answers of a log as far as it goes when somebody looks, unless it is too long."""
        aside = _Aside(source)

        def welcome(view: str) -> Welcome | None:
            total = source().total()
            at_once = total <= AT_ONCE or total > MOST_PICTURED
            found = _read(source()) if at_once else aside.read(view, total)
            return None if found is None else {**found, "view": view}

        return cls(welcome)

    def reply(self, message: Mapping[str, Any]) -> PictureToBrowser | None:
        """Return the answer to a message; None if it is about something else, or if there is none yet."""
        match message:
            case {"type": "picture", "view": str(view)}:
                return self._welcome(view)
            case {"type": "bundle", "view": str(view), "name": name}:
                return bundle_of(view, name)
        return None


class _Aside:
    """Reads a long log while the positions of its replay are answered: once for all pages, unless it has grown."""

    def __init__(self, source: Callable[[], Source]) -> None:
        self._source = source
        self._thread: threading.Thread | None = None
        self._view = ""
        self._made: Welcome | None = None

    def read(self, view: str, total: int) -> Welcome | None:
        """Return what was read for a view, or of all events that there are; None while it is being read."""
        if self._made is not None and (self._view == view or self._made["last"] == total):
            return self._made
        if self._thread is not None and self._thread.is_alive():
            return None
        self._view = view
        self._made = None
        self._thread = threading.Thread(target=copy_context().run, args=(self._make,), name=THREAD, daemon=True)
        self._thread.start()
        return None

    def _make(self) -> None:
        self._made = _read(self._source())


def _read(source: Source) -> Welcome:
    """Return what is shown of a log: of one that is too long not a call, and the page leaves both pictures out."""
    feed = Feed(source)
    is_short = source.total() <= MOST_PICTURED
    while is_short and feed.has_news:
        feed.frame()
    return feed.welcome("", 0, MOST_SPANS, evenly=True)


# The widget that steps through a log, live or saved: it answers what the browser asks, one position at a time.


LONG = 5_000
"""Events from which on a page gets its log before the cell goes on (``python -m benchmarks.replaying``)."""
GREETING, PATIENCE = 1.0, 10.0
"""Seconds in which a page that is there asks for the first events, and has got the last ones."""


class ReplayView(CleanWidget):
    """Steps through one log.

    Parameters
    ----------
    log
        What is asked, on the thread that a question arrives on; it may grow.
    name
        Of what it steps through.
    saved
        Returns what is shown of the log where the view has no kernel any more, by type.
    beside
        Answers what the timeline and the graph beside it ask; without it there are none.
    moves
        Whether there is a page that shows widgets; elsewhere a live view would only leave a message that it is missing.
    """

    def __init__(
        self,
        log: Steppable,
        name: str,
        saved: Callable[[], dict[str, Any]],
        *,
        beside: Pictured | None = None,
        moves: bool = True,
    ) -> None:
        self._log = log
        self._name = name
        self._saved = saved
        self._beside = beside
        self._moves = moves
        self._lock = threading.Lock()
        self._asked = threading.Event()
        self._filled = threading.Event()
        super().__init__()
        answer_while_busy(self.comm)
        self.on_msg(self._receive)

    @property
    def _esm(self) -> str:
        return built("replay.js")

    @property
    def _css(self) -> str:
        return built("replay.css")

    def _repr_mimebundle_(self, **options: Any) -> Any:
        if not self._moves:
            return {"text/plain": repr(self)}, {}
        shown: Any = super()._repr_mimebundle_(**options)
        data, metadata = shown if isinstance(shown, tuple) else (shown, {})
        return {**self.lasting_bundle(), **data, HOSTED_VIEW: {"model_id": self.model_id}}, metadata

    def lasting_bundle(self) -> dict[str, Any]:
        """Return what is shown where the view has no kernel any more, by type."""
        return {**self._saved(), "text/plain": repr(self)}

    def __repr__(self) -> str:
        found = f"Replay of {self._name}: {self._log.total} events"
        return found if self._moves else f"{found}; run this cell in JupyterLab to replay them"

    def _receive(self, _widget: object, message: Mapping[str, Any], _buffers: object) -> None:
        wrong = refusal(message, ReplayToKernel)
        if wrong is not None:
            self.send(refused(message, wrong))
            return
        self._asked.set()
        with self._lock:  # a cell and its page ask at the same time
            reply = reply_of(self._log, message) or (self._beside and self._beside.reply(message))
        if reply is not None:
            self.send(reply)
        if message["type"] == "at":
            self._stand(min(max(0, message["sequence"]), self._log.total))
        if message["type"] == "events" and message["stop"] >= self._log.total:
            self._filled.set()
            self._arrive()

    def _arrive(self) -> None:
        """Be told that a page has all events."""

    def _stand(self, sequence: int) -> None:
        """Be told that somebody has moved it in a page."""

    def _let_page_first(self) -> None:
        """Give a page that asks for a long log its events before the processor is taken for what is saved of it."""
        if self._log.total > LONG and self._asked.wait(GREETING):
            self._filled.wait(PATIENCE)
