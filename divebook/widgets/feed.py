"""Feed of one execution: the data that all live views of the execution show, and the changes of this data.

A frame is a message with all changes since the previous frame. It is made once and sent to all views. Events come from
the engine's thread (`Feed.receive`) and are stored in an inbox. `Feed.frame` applies the events of the inbox and
returns the changed spans. If a sequence number is missing, another process has appended events, or the feed subscribed
late. The feed then reads the missing events from the store. Parameters and results of spans are not kept in memory;
`detail` reads them from the store. Only `receive` and `stream` may be called from other threads than the thread that
makes the frames.

Example: the log has 5,000 events when a page opens a view. The first frame reads 2,000 events (`EVENTS_PER_FRAME`), and
two more frames read the rest. The page sends ``hello`` with ``since: 0`` and gets a ``welcome`` with the newest 1,500
spans (`FIRST_SPANS`) as of the last frame. The page requests older spans with ``range``; each answer contains at most
5,000 spans (`SPANS_PER_PAGE`). Each later frame is a ``delta`` with the sequence numbers ``after`` and ``last``. If
``after`` is not the ``last`` of the previous message, the page has missed a frame. The page then sends ``hello`` with
the last event that it knows.
"""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from divebook.events import Event
from divebook.projections.activity import Activity, Spreads
from divebook.projections.model_requests import requests_in
from divebook.projections.spans import Span, Spans, spans_of
from divebook.runtime.streaming import TextDelta
from divebook.text.redaction import Redactor, shared
from divebook.widgets.parts import CONVERSATIONS, FailureTracker, conversation_of, no_conversation, request_parts
from divebook.widgets.protocol import (
    Conversation,
    Delta,
    Detail,
    DetailEvent,
    FailureReport,
    Files,
    Header,
    QuestionView,
    RangeAnswer,
    Sent,
    Streamed,
    Variables,
    VariableView,
    Way,
    Welcome,
    WorkspaceView,
)
from divebook.widgets.recording import some_of
from divebook.widgets.source import (
    Budget,
    Labels,
    Source,
    SpendingTracker,
    block_of,
    encodable,
    labels_of,
    result_preview,
    shown,
    with_activity,
)
from divebook.widgets.stepping import detail_of
from divebook.widgets.variables_and_files import Setters

# --- streamed text ---------------------------------------------------------------------------------------------------
#
# Pieces of text come from the engine's thread, and frames send them to the browser. A secret may be split over two
# pieces, so the end of a text is held back while it may be the beginning of a secret. If more text comes than frames
# can send, a part in the middle is dropped up to the end of a line, because half a secret may precede it.


MAX_LATER_TEXT = 16_000
"""Characters of a streamed text that are kept: a view that is opened later gets only the end of the text."""
PER_FRAME = 32_000
"""Maximum number of characters of streamed text in one frame."""
MAX_WAITING = 1 << 18
"""Maximum number of characters that wait for the next frame; the oldest pieces are dropped."""


@dataclass(slots=True)
class _Text:
    """The last part of a text that a model streams, with and without secrets. Positions count the characters of the
    text in which secrets are replaced.
    """

    length: int = 0
    """Number of characters of all received pieces, before redaction."""
    raw: str = ""
    base: int = 0
    """Position of the first character of `clean` in the redacted text."""
    clean: str = ""
    sent: int = 0
    is_sent: bool = True
    is_cut: bool = False
    """True if pieces were dropped. The next piece may then be the rest of a dropped line."""

    @property
    def end(self) -> int:
        return self.base + len(self.clean)

    def add(self, at: int, piece: str) -> None:
        end = at + len(piece)
        # Pieces are missing: the feed subscribed in the middle of a call, or the inbox dropped some. `at` counts
        # characters before redaction, so that the larger of both positions is used, and positions never go back.
        if at != self.length:
            self.base = self.sent = max(at, self.end)
            self.raw = self.clean = ""
        self.length = end
        # The rest of a line whose beginning was dropped may be half a secret, which the redactor would not recognize.
        if self.is_cut:
            _, line_end, piece = piece.partition("\n")
            self.is_cut = not line_end
        self.raw += piece

    def settle(self, redactor: Redactor) -> None:
        """Replace secrets in the received text. If the text ends with the possible beginning of a secret, this end is
        held back until the characters after it have arrived.

        If text that was already sent turns out to be part of a secret, the whole text is sent again, starting at 0.
        """
        # `settled` returns the number of characters that cannot be the beginning of a secret.
        clean = redactor.text(self.raw[: redactor.settled(self.raw)])
        if not clean.startswith(self.clean):
            self.base = self.sent = 0  # at 0 a page begins anew
        self.is_sent &= clean == self.clean
        self.clean = clean
        # Cutting at twice the limit means that a long text is cut once in 16,000 characters and not with each piece.
        if len(self.raw) > 2 * MAX_LATER_TEXT:
            self._forget_beginning(redactor)

    def _forget_beginning(self, redactor: Redactor) -> None:
        """Remove the beginning of a long text, so that about `MAX_LATER_TEXT` characters remain.

        The text is divided at the end of a line if possible, and never inside a secret.
        """
        whole = redactor.text(self.raw)
        most = len(self.raw) - MAX_LATER_TEXT
        # Tried in this order, and only accepted if both parts together are redacted like the whole.
        for place in (self.raw.rfind("\n", 0, most) + 1, most):
            beginning = redactor.text(self.raw[:place])
            rest = redactor.text(self.raw[place:])
            if place and beginning + rest == whole:
                self.raw = self.raw[place:]
                self.clean = self.clean[len(beginning) :]
                # `base` counts redacted characters, so it grows by the redacted length of the removed part.
                self.base += len(beginning)
                return

    def since(self, place: int, limit: int) -> tuple[int, str]:
        """Return the text after the character position `place`, preceded by the position at which the returned text
        starts. If it is longer than `limit`, only its last `limit` characters are returned.
        """
        length = min(self.end - place, len(self.clean), limit)
        return self.end - length, self.clean[len(self.clean) - length :]


class Streams:
    """The texts that models are streaming in calls that have not ended yet."""

    def __init__(self, builder: Spans) -> None:
        self._builder = builder
        self._inbox: deque[TextDelta] = deque()
        self._waiting = 0
        """Number of characters in the inbox."""
        self._dropped: set[tuple[str, str]] = set()
        """Operation id and part of each text of which pieces were dropped from the inbox."""
        self._lock = threading.Lock()
        self._texts: dict[tuple[str, str], _Text] = {}
        """The texts by operation id and part (`Streamed.part`)."""

    def put(self, delta: TextDelta) -> None:
        """Add a piece of streamed text to the inbox, whose content is sent to the views with the next frame (message
        with changes). Can be called from any thread.
        """
        # The engine's thread must not wait for slow frames, so the oldest pieces are dropped instead. The latest one
        # stays, however long it is.
        with self._lock:
            self._inbox.append(delta)
            self._waiting += len(delta.text)
            while self._waiting > MAX_WAITING and len(self._inbox) > 1:
                dropped = self._inbox.popleft()
                self._waiting -= len(dropped.text)
                self._dropped.add((dropped.operation_id, encodable(dropped.part)))

    @property
    def has_news(self) -> bool:
        """True if the inbox contains pieces of streamed text for the next frame."""
        return bool(self._inbox)

    def pieces(self) -> list[Streamed]:
        """Return the streamed text that arrived since the previous frame, at most `PER_FRAME` characters."""
        # The lock is held only for the exchange: redaction takes long, and the engine's thread would wait for it.
        with self._lock:
            inbox = self._inbox
            self._inbox = deque()
            self._waiting = 0
            dropped = self._dropped
            self._dropped = set()
        for name in dropped:
            self._texts.setdefault(name, _Text()).is_cut = True
        # The pieces of the inbox are appended to their texts.
        grown: set[tuple[str, str]] = set()
        for delta in inbox:
            name = delta.operation_id, encodable(delta.part)
            # A text that starts at 0 again belongs to a repeated call. Its earlier text is obsolete.
            if delta.at == 0 or name not in self._texts:
                self._texts[name] = _Text()
            self._texts[name].add(delta.at, encodable(delta.text))
            grown.add(name)
        # Each text is redacted once per frame, however many pieces it got.
        for name in grown:
            self._texts[name].settle(shared())
        # The parts that were not sent yet are returned, as far as one frame may contain them.
        streamed = []
        room = PER_FRAME
        for (operation_id, part), text in list(self._texts.items()):
            # Text may arrive before the event that starts its call. It stays until the call is known to have ended.
            span = self._builder.running_operation(operation_id)
            if span is None:
                self._forget_if_over(operation_id, part)
            elif not text.is_sent and room:
                at, piece = text.since(text.sent, room)
                # All of it counts as sent, even if `since` has left out the beginning: a view that falls behind gets
                # the end.
                text.sent = text.end
                text.is_sent = True
                room = room - len(piece)
                streamed.append(Streamed(id=span.index, part=part, at=at, text=piece))
        return streamed

    def so_far(self) -> list[Streamed]:
        """Return the texts that models are streaming at the moment, for a view that has just started. Each text ends
        with the last character that the other views have received. Of a long text only the last part is returned.
        """
        streamed = []
        for (operation_id, part), text in self._texts.items():
            # Text that was not sent yet follows in the next frame, which goes to this view too.
            span = self._builder.running_operation(operation_id)
            if span is not None and text.is_sent:
                at, tail = text.since(0, MAX_LATER_TEXT)
                streamed.append(Streamed(id=span.index, part=part, at=at, text=tail))
        return streamed

    def _forget_if_over(self, operation_id: str, part: str) -> None:
        # An unknown operation has not started for this feed yet. Only the text of a known, ended one is removed.
        if self._builder.knows_operation(operation_id):
            del self._texts[operation_id, part]


EVENTS_PER_FRAME = 2000
"""Maximum number of events that one frame applies. Without it, a long log would delay the first frame."""
ROWS_PER_FRAME = 5_000
"""Maximum number of rows whose results are added to distributions in one frame; later frames add the remaining rows."""
FIRST_SPANS = 1500


class Feed:
    """The spans (steps, items and calls), questions and summary of one execution for its live views, and the changes
    since the last frame.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.id = secrets.token_hex(8)
        """Id of the feed. A view whose data come from another feed gets all data again."""
        # `append` and `popleft` of a deque are atomic, so that two threads need no lock.
        self._inbox: deque[Event] = deque()
        self._reader = Spans(for_people=True)
        self._labelled: list[tuple[Span, Labels]] = []
        """All spans with their labels; the index is the id of the span."""
        self._streams = Streams(self._reader)
        self._last = self._framed = 0
        """Sequence numbers: `_last` of the last applied event, `_framed` of the last event that a frame included."""
        self._origin: int | None = None
        # The first frame reads the log from the store. Events of the subscription alone would lack the beginning.
        self._behind = True
        self._header: Header | None = None
        self._questions: dict[str, QuestionView] = {}
        self._spending = SpendingTracker()
        self._activity = Activity()
        self._failing = FailureTracker(source.names)
        self._spreads = Spreads()
        self._ways: list[Way] = []
        # True if the recovery options must be computed again. They depend on definitions, so each heartbeat asks for
        # them.
        self._asks_ways = True
        self._setters = Setters()
        self._variables: tuple[int, list[VariableView]] = 0, []
        self._files: tuple[int, list[WorkspaceView]] = 0, []
        """`_variables` and `_files` contain the last data, preceded by a version number that grows with each change."""

    # --- from the engine -------------------------------------------------------------------------------------------

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Subscribe to the events and the streamed text of the execution, and call `wake` for each change.

        Return a function that ends the subscription.
        """

        def take(events: Sequence[Event]) -> None:
            self.receive(events)
            if not events:  # another process may have appended
                self.request_refresh()
            wake()

        def write(delta: TextDelta) -> None:
            self.stream(delta)
            wake()

        subscriptions = self.source.subscribe(take), self.source.subscribe_text(write)

        def stop() -> None:
            for unsubscribe in subscriptions:
                unsubscribe()

        return stop

    def receive(self, events: Sequence[Event]) -> None:
        """Add new events of the execution to the inbox, whose content is sent to the views with the next frame (message
        with changes). Can be called from any thread.
        """
        self._inbox.extend(events)

    def stream(self, delta: TextDelta) -> None:
        """Add a piece of text that a model streams, for the next frame; can be called from any thread."""
        self._streams.put(delta)

    def request_refresh(self) -> None:
        """Request that the next frame reads the store, because another process may have appended events to the log."""
        self._behind = True

    # --- frames ----------------------------------------------------------------------------------------------------

    @property
    def has_news(self) -> bool:
        """True if the next frame (message with changes) is likely to contain changes."""
        return bool(self._inbox) or self._behind or self._streams.has_news or self._spreads.is_behind

    def frame(self) -> Delta | None:
        """Apply the events in the inbox, and return a message with all changes since the last frame; None if nothing
        changed.
        """
        # Events first: the spans that the following lines use must be up to date.
        self._apply_new_events()
        changed = self._changed_spans()
        questions = self._changed_questions()
        header = self._present_header()
        # Text after spans: a piece names the span of its call, which this frame or an earlier one contains.
        streamed = self._streams.pieces()
        failures = self._report() if self._failing.has_changed else None
        news = changed or questions or streamed or failures
        if not (news or self._last > self._framed or _differ(header, self._header)):
            return None
        # `after` connects the frames. A view whose last event differs has missed one, and sends ``hello``.
        after = self._framed
        self._framed = self._last
        self._header = header
        return Delta(
            type="delta",
            feed=self.id,
            after=after,
            last=self._last,
            origin_us=self._origin or 0,
            total=len(self._labelled),
            spans=block_of(changed, self._origin or 0),
            header=header,
            failures=failures,
            questions=questions,
            streamed=streamed,
        )

    def _apply_new_events(self) -> None:
        for _ in range(min(len(self._inbox), EVENTS_PER_FRAME)):
            event = self._inbox.popleft()
            if event.sequence == self._last + 1:
                self._apply(event)
            elif event.sequence > self._last:
                self._behind = True  # what is missing lies in the store, and so does this one
        if self._behind:
            self._asks_ways = True
            # Events in the inbox that the store returns as well are skipped later by their number.
            events = self.source.read(self._last, EVENTS_PER_FRAME)
            for event in events:
                self._apply(event)
            # A full page means that the log may have more events.
            self._behind = len(events) == EVENTS_PER_FRAME
        self._spreads.count(ROWS_PER_FRAME)

    def _apply(self, event: Event) -> None:
        self._last = event.sequence
        if self._origin is None:
            self._origin = event.recorded_at
        self._reader.take(event)
        self._activity.take(event)
        self._spreads.take(event)
        self._setters.take(event)
        self._spending.on_event(event)

    def _changed_spans(self) -> list[tuple[Span, Labels]]:
        # Spans get their indexes when they start. In ascending order, each new span is therefore the next entry of the
        # list.
        changed = sorted(self._reader.changed.items())
        self._reader.changed = {}
        for index, span in changed:
            self._spending.take(span)
            self._failing.take(span)
            # A span that is in the list already keeps its label and its position.
            if index == len(self._labelled):
                self._labelled.append((span, labels_of(span, self.source.names.place_of)))
            # The value of a completed operation is present only in the frame in which it ends.
            if span.kind == "operation" and span.result is not None and span.result is not _KEPT_IN_STORE:
                self._labelled[index] = (
                    span,
                    self._labelled[index][1]._replace(result=result_preview(span.type, span.result)),
                )
            # Labels and previews are all that views need. The values are dropped, since the feed of a long run would
            # keep them all in memory; details are read from the store.
            span.parameters = span.setting = None
            if span.kind != "item" or span.ended_us is not None:
                span.item = None  # of an item that runs it names the calls that are still to begin in it
            span.result = None if span.result is None else _KEPT_IN_STORE
        return [self._labelled[index] for index, _ in changed]

    def _report(self) -> FailureReport:
        return self._failing.report([span for span, _ in self._labelled], self.source.read)

    def _present_header(self) -> Header:
        # Each tracker adds its part to the header: consumption, failures, activity.
        header = with_activity(self._failing.of(self._spending.of(self.source.header())), self._activity, self._spreads)
        if self._asks_ways:
            self._asks_ways = False
            self._ways = self.source.ways(header, self._failing.reused_results)
        return {**header, "ways": self._ways}

    def _changed_questions(self) -> list[QuestionView]:
        present = {question["interrupt_id"]: question for question in self.source.questions()}
        changed = [question for name, question in present.items() if self._questions.get(name) != question]
        self._questions = present
        return changed

    # --- answers to one view ---------------------------------------------------------------------------------------

    def welcome(self, view: str, since: int, most: int = FIRST_SPANS, *, evenly: bool = False) -> Welcome:
        """Return the first message to a view: all data that it needs. If the view already knows the events up to number
        `since`, the message contains only the later data.

        The data contains at most `most` spans: the newest spans, or with `evenly` a selection that is spread over the
        whole run. If more than `most` spans have changed, the view must discard its data and start again from 0.
        """
        # A view can know more than this feed, for example after a restart of the kernel. It then starts again.
        base = 0 if since > self._framed else since
        labelled = self._labelled
        even = [labelled[place] for place in some_of([span for span, _ in labelled], most)] if evenly else None
        spans = self._spans_since(base, most) if even is None else even
        # More spans changed than one message may contain. The view then starts again with the newest ones, and requests
        # older ones page by page (`history`).
        if base and len(spans) > most:
            base = 0
            spans = self._spans_since(0, most)
        return Welcome(
            type="welcome",
            view=view,
            feed=self.id,
            since=base,
            last=self._framed,
            origin_us=self._origin or 0,
            total=len(self._labelled),
            spans=block_of(spans, self._origin or 0),
            header=self._present_header(),
            failures=self._report(),
            questions=list(self._questions.values())[-MAX_QUESTIONS:],
            graph=self.source.graph,
            streamed=self._streams.so_far(),
        )

    def _spans_since(self, sequence: int, most: int) -> list[tuple[Span, Labels]]:
        """Return the spans (steps, items and calls) that changed after the event `sequence`. Each is returned with its
        labels, the short texts that views show for it.

        For 0, return the newest `most` spans and the older spans that still run.
        """
        labelled = self._labelled
        if sequence:
            return [(span, label) for span, label in labelled if span.sequences[-1] > sequence]
        first = max(0, len(labelled) - most)
        # Running spans are included however old they are, because the view draws them up to the present time.
        running = [(span, label) for span, label in labelled[:first] if span.ended_us is None][:most]
        return [*running, *labelled[first:]]

    def history(self, view: str, first: int, stop: int) -> RangeAnswer:
        """Return the reply to a view that requests older spans (steps, items and calls): the spans with ids from
        `first` up to, but not including, `stop`.

        Of more than `SPANS_PER_PAGE` spans, only the newest are returned.
        """
        stop = max(0, min(stop, len(self._labelled)))
        first = min(max(0, first, stop - SPANS_PER_PAGE), stop)
        block = block_of(self._labelled[first:stop], self._origin or 0)
        return RangeAnswer(type="history", view=view, first=first, stop=stop, last=self._framed, spans=block)

    def detail(self, view: str, index: int) -> Detail:
        """Return the reply to a view that requests the recorded events of one span (step, item or call). `index` is the
        id of the span. Long texts in the events are cut.
        """
        if not 0 <= index < len(self._labelled):
            return Detail(type="detail", view=view, id=index, events=[], error=f"there is no call {index}")
        sequences = self._labelled[index][0].sequences
        # A call that was retried often has many events. The first one has the parameters, the last ones the outcome.
        shown = [*sequences[:1], *sequences[1:][-(MAX_DETAIL_EVENTS - 1) :]]
        budget = Budget(MAX_DETAIL, MAX_TEXT)
        # The events of one span are not adjacent in the log, so each is read separately.
        events = [event for sequence in shown for event in self.source.read(sequence - 1, 1)]
        return Detail(
            type="detail", view=view, id=index, events=[_detail_event(event, budget) for event in events], error=""
        )

    def conversation(self, view: str, index: int, since: int) -> Conversation:
        """Return the reply to a view that requests the messages of an agent turn or of a single model request. `index`
        is the id of its span (its entry in the timeline).

        Requests and tool calls without changes after the event `since` are omitted.
        """
        # `or (None,)` gives `turn` a value if the index does not belong to an operation.
        turn, *inside = self._with_data(index) or (None,)
        if turn is None or turn.type not in CONVERSATIONS:
            return no_conversation(view, index, self._framed, f"call {index} has no conversation")
        places = {str(span.operation_id): span.index for span, _ in self._labelled if span.operation_id is not None}
        conversation = conversation_of(turn, inside, places, self.source.question_id, since=since)
        return {**conversation, "view": view, "last": self._framed}

    def sent(self, view: str, index: int) -> Sent:
        """Return the reply to a view that requests everything that one model request sent to the model. `index` is the
        id of the request's span (its entry in the timeline).
        """
        # The log records only the differences between the requests of a turn. So all spans of the turn are needed to
        # rebuild one request.
        holder = self._labelled[index][0].holder if 0 <= index < len(self._labelled) else -1
        spans = self._with_data(index if holder < 0 else holder)
        operation_id = self._labelled[index][0].operation_id if spans else None
        request = next((one for one in requests_in(spans) if one.span.operation_id == operation_id), None)
        if request is None:
            return Sent(type="sent", view=view, id=index, parts=[], error=f"call {index} is not a request")
        return Sent(type="sent", view=view, id=index, parts=request_parts(request), error="")

    def variables(self, view: str, version: int) -> Variables:
        """Return the reply to a view that requests the current variables. If they have not changed since the `version`
        that the view already has, the reply does not contain them.
        """
        present = self.source.variables(self._setters)
        # Plain data are compared, since no event reports which variables a view would show differently.
        if present != self._variables[1]:
            self._variables = self._variables[0] + 1, present
        number, variables = self._variables
        return Variables(
            type="variables", view=view, version=number, variables=None if number == version else variables
        )

    def files(self, view: str, version: int, at: int = 0, since: int = 0) -> Files:
        """Return the reply to a view that requests the changed files of the execution, as they were after the event
        `at` (0: as they are now).

        The files are omitted if the view already has the current version. With `since`, return the differences between
        the files at the event `since` and the files at `at`. `since` may be later than `at`.
        """
        # Files of the past never change, so these answers need no version.
        if at or since:
            workspaces = self.source.files(at, since)
            return Files(type="files", view=view, version=version, at=at, since=since, workspaces=workspaces)
        present = self.source.files(0, 0)
        if present != self._files[1]:
            self._files = self._files[0] + 1, present
        number, workspaces = self._files
        news = None if number == version else workspaces
        return Files(type="files", view=view, version=number, at=0, since=0, workspaces=news)

    def _with_data(self, index: int) -> list[Span]:
        """Read an operation, such as an agent turn, and the calls in it from the store again, because the feed does not
        keep their parameters and results in memory. Return their spans, the operation first. `index` is the id of the
        operation's span; the result is empty if this span is not an operation.
        """
        if not 0 <= index < len(self._labelled) or self._labelled[index][0].kind != "operation":
            return []
        turn = self._labelled[index][0]
        # The calls of a turn start after the turn, so that they have higher indexes.
        group = [turn, *(span for span, _ in self._labelled[index + 1 :] if span.holder == index)]
        # The first event has the parameters, the last ones the result.
        sequences = sorted({number for span in group for number in (*span.sequences[:1], *span.sequences[-2:])})
        return spans_of(event for number in sequences for event in self.source.read(number - 1, 1))


"""Number of spans in a `Welcome`, the newest spans; a view requests older spans separately."""
SPANS_PER_PAGE = 5000
MAX_QUESTIONS = 200
MAX_TEXT = 100_000
"""Maximum number of characters of one text in a `Detail`."""
MAX_DETAIL = 400_000
"""Maximum number of characters of all texts in a `Detail`."""
MAX_DETAIL_EVENTS = 20
_KEPT_IN_STORE = ""


def _differ(header: Header, before: Header | None) -> bool:
    # The time of the header changes with each frame, and must not count as a change.
    return before is None or header != {**before, "now_us": header["now_us"]}


def _detail_event(event: Event, budget: Budget) -> DetailEvent:
    return detail_of(event, budget.shortened(shown(event.data.to_data())))
