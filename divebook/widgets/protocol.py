"""What kernel and browser say to each other: one class for each message, in both directions.

``widgets/src/protocol.ts`` is generated from this package by ``python widgets/generate.py``. Every message is sent with
`model.send`, never through a traitlet: front ends deliver messages while a cell is awaited, and hold traitlets back.

A view says `Hello` until it is welcomed, and names the last event it knows of. `Welcome` brings it up to date; spans
that are older than what fits come by `Range`. From then on `Delta` brings what changed, with the numbers of the events
it was made of: a view that finds a gap says `Hello` again. What a person wants carries an id, is sent again until it
is acknowledged, and is done once. From time to time a view says that it is still `Alive`: tabs close without a word.
What only some runs need of the front end does not travel with every widget: a view asks for it by `BundleQuery`.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, TypedDict

from divebook.questions.question import InterruptKind, InterruptStatus

# What was said in an agent's turn, or in a single request to a model.


class ConversationPart(TypedDict):
    """A part of what was said."""

    kind: Literal["system", "user", "retry", "thinking", "assistant", "call", "result"]
    text: str
    call: str
    """Of a call: which; of a result: the tool; empty for all else."""


class ConversationRequest(TypedDict):
    """A request to a model: what was new in it, and what came back; its span has the times and the status."""

    id: int
    number: int
    model: str
    """The model that answered; until then the one that was asked."""
    finish: str
    """Why the model stopped, in its provider's words."""
    is_cached: bool
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cost: float | None
    instructions: str
    tools: list[str]
    output: str
    """What it has to answer with; empty if text will do."""
    sent: list[ConversationPart]
    answer: list[ConversationPart]


class ConversationCall(TypedDict):
    """A tool call that a model asked for."""

    id: int
    """Its span; -1 as long as it has not begun."""
    call: str
    """As the model named it."""
    request: int
    """Number of the request whose answer asked for it."""
    tool: str
    server: str
    """The MCP server that has the tool; empty for a function."""
    arguments: Any
    result: str
    """Of a long one the beginning and the end."""
    lines: int
    """How many lines the whole result has."""
    outcome: Literal["", "returned", "failed", "denied", "retry", "unknown"]
    turn: int
    """The span of the turn of the agent that was given the work; -1 if it is no such call."""
    questions: list[str]
    """Ids that questions about it have, if there are any: whether it may be made, what became of it ..."""


class Conversation(TypedDict):
    """Answer to `ConversationQuery`; what has not changed since the event that it named is left out."""

    type: Literal["conversation"]
    view: str
    id: int
    last: int
    """The event up to which it is complete."""
    agent: str
    thread: str
    requests: list[ConversationRequest]
    calls: list[ConversationCall]
    error: str
    """Why there is none."""


class ConversationQuery(TypedDict):
    """A view asks what was said in an agent's turn, or in a single request."""

    type: Literal["conversation"]
    view: str
    id: int
    """The span of either."""
    since: int
    """Sequence number of the last event whose effects it has; 0 for none."""


class Sent(TypedDict):
    """Answer to `SentQuery`."""

    type: Literal["sent"]
    view: str
    id: int
    parts: list[ConversationPart]
    error: str
    """Why there are none."""


class SentQuery(TypedDict):
    """A view asks for all messages that were sent with a request."""

    type: Literal["sent"]
    view: str
    id: int


# Files that a run has changed, as they are now.


class FileView(TypedDict):
    """How one file differs from what it was when the run began to use it."""

    path: str
    kind: Literal["added", "changed", "deleted", "renamed"]
    was: str
    """The former path of what was renamed; else empty."""
    added: int | None
    removed: int | None
    """Lines that came and went; null for what is no text."""
    diff: str | None
    """The difference, as git writes it; null where it would be too long."""
    protected: bool
    """Whether it is taken over only if a person selects it: a hidden name, or version-control metadata."""


class LeftOutView(TypedDict):
    """A file of which nothing is kept."""

    path: str
    reason: str


class FilesPoint(TypedDict):
    """An event from which on a workspace has other files."""

    sequence: int
    told: str
    """What has changed with it: ``calc.py and 2 more``."""


class WorkspaceView(TypedDict):
    """What has changed in one workspace, from when the run began to use it."""

    name: str
    kind: str
    """Where its commands run: ``local``, ``fenced``, ``virtualenv``, ``docker``."""
    folder: str
    """The folder that it is a copy of; empty if it is none."""
    total: int
    """How many files have changed."""
    added: int
    removed: int
    """Lines that came and went, of the files that are shown."""
    files: list[FileView]
    """The first of them."""
    left_out: list[LeftOutView]
    """The first of those that are not kept."""
    points: list[FilesPoint]
    """The newest events at which files changed, and the one with which they began; the latest first. None in what is
    saved, where only the files of the end are."""


class Files(TypedDict):
    """Answer to `FilesQuery`."""

    type: Literal["files"]
    view: str
    version: int
    """Grows with each change."""
    at: int
    """The event up to which the changes are; 0 for now."""
    since: int
    """The event from which on they are; 0 for all of them."""
    workspaces: list[WorkspaceView] | None
    """Null if nothing has changed since the version that the view has."""


class TakingOver(TypedDict):
    """A person wants changes to be taken over into the folder that a workspace is a copy of: all of them, or none."""

    type: Literal["take_over"]
    id: str
    workspace: str
    at: int
    """The event up to which the changes are, so that no others are taken over than were shown."""
    paths: list[str]
    """Of these files."""


class FilesQuery(TypedDict):
    """A view asks for the changed files."""

    type: Literal["files"]
    view: str
    version: int
    """Of those that it has; 0 for none."""
    at: int
    """The event up to which the changes are wanted; 0 for now."""
    since: int
    """The event from which on they are wanted; 0 for all of them."""


# Variables and inputs as they are now.


class VariableView(TypedDict):
    """A variable or input as it is: short texts only."""

    name: str
    source: str
    """The step that sets it, or ``input``; empty if no step names it."""
    type: str
    """In a word: ``text``, ``list``, ``DataFrame``; empty if it is not set yet."""
    size: str
    """Characters of a text, parts of a list or mapping, rows and columns of a table."""
    text: str
    """Its beginning; empty where rows are shown."""
    columns: list[str]
    rows: list[list[str]]
    """The first rows of a table, a cell for each of `columns`."""
    total: int
    """How many rows the table has."""


class Variables(TypedDict):
    """Answer to `VariableQuery`."""

    type: Literal["variables"]
    view: str
    version: int
    """Grows with each change."""
    variables: list[VariableView] | None
    """Null if nothing has changed since the version that the view has."""


class VariableQuery(TypedDict):
    """A view asks for the variables as they are now."""

    type: Literal["variables"]
    view: str
    version: int
    """Of those that it has; 0 for none."""


# A view and its kernel: what every view says to be told, and what became of what a person wanted.


Micros: TypeAlias = int
"""Microseconds since 1970."""
Command: TypeAlias = Literal["pause", "resume", "cancel", "plan", "fix", "again"]
"""``plan`` does nothing: its acknowledgement says what ``fix`` would do, or nothing where that needs no consent."""
BundleName: TypeAlias = Literal["failure", "files", "graph", "spread", "stepping", "timeline", "turn", "variables"]
"""A part of the front end that only some runs need."""


class Hello(TypedDict):
    """A view begins, or has missed something."""

    type: Literal["hello"]
    view: str
    since: int
    """Sequence number of the last event it knows of; 0 for none."""


class Alive(TypedDict):
    """A view is still there; one that was forgotten meanwhile is welcomed anew."""

    type: Literal["alive"]
    view: str
    since: int


class Hosted(TypedDict):
    """The page of a view shows what is saved of it once its model is gone: no second output need do that."""

    type: Literal["hosted"]
    view: str


class Bye(TypedDict):
    """A view is taken off its page."""

    type: Literal["bye"]
    view: str


class Bundle(TypedDict):
    """Answer to `BundleQuery`."""

    type: Literal["bundle"]
    view: str
    name: BundleName
    script: str
    """An ECMAScript module."""


class BundleQuery(TypedDict):
    """A view asks for a part of the front end that it needs by now."""

    type: Literal["bundle"]
    view: str
    name: BundleName


class Ack(TypedDict):
    """What became of an intent."""

    type: Literal["ack"]
    id: str
    accepted: bool
    text: str
    """Why it was refused, or what comes of it if that is not what one expects."""


class Steering(TypedDict):
    """A person wants the execution to pause, to go on or to end."""

    type: Literal["control"]
    id: str
    command: Command


# What has failed in an execution, and the ways on from there.


class Way(TypedDict):
    """One of the ways on from a failure, and what it costs."""

    name: Literal["fix", "again", "replay"]
    """``fix`` and ``again`` are commands as well; ``replay`` opens the replay at the failure."""
    label: str
    told: str
    """What it does, or why it cannot do that yet; of a fix, ``plan`` says what exactly."""
    reused: str
    """What is taken from the log: ``1,401 calls``; empty for nothing."""
    live: str
    """What is made again or begun; empty for nothing."""
    cost: float | None
    """US dollars that this is likely to cost; null where nothing can be said."""
    took_us: int | None
    """How long that is likely to take; null likewise."""
    ready: bool
    """Whether it can be chosen now."""


class SourceLine(TypedDict):
    """A line of a person's code or definition."""

    number: int
    text: str


class ArgumentView(TypedDict):
    """What a call was given under a name, as Python text; long ones are cut."""

    name: str
    text: str


class FailureView(TypedDict):
    """An item or a step that has failed, and why."""

    id: int
    """The span of the call that failed; of the item or step, if no call did."""
    sequence: int
    """The event that says that it failed."""
    failed_us: Micros
    error_type: str
    message: str
    means: str
    """What that says in plain words; empty where it is not known for sure."""
    step: str
    path: str
    item: str
    """Which item of `Each` it was, such as ``rows[4321]``; empty for a step without items."""
    attempt: int
    called: str
    """The function, action, agent, tool or workflow that failed; empty if the step itself did."""
    arguments: list[ArgumentView]
    place: str
    """``Cell [5], line 4``, ``pipeline.py:12`` or ``survey.yaml:7:11``; empty if it is not known."""
    cell: str
    """The id of the cell that the place is in; empty if it is in none, or the front end has no ids."""
    line: int
    """Its number among those of `source`."""
    source: list[SourceLine]
    traceback: str
    handled: Literal["", "skipped", "kept", "caught"]
    """What became of it, if the run went on."""
    same: int
    """How many failures have this error at this place, itself included."""


class FailureReport(TypedDict):
    """What has failed in an execution."""

    total: int
    """How many items, and steps without items, have failed."""
    kept: str
    """What is safe in the log, in words: ``1,398 items and 1,401 calls``."""
    shown: list[FailureView]
    """The first of each error, then others, in the order in which they failed."""


# Questions to a person: of one execution, of a whole store, and of a cell that must know how to go on.


class QuestionView(TypedDict):
    """A question and, once there is one, its answer."""

    interrupt_id: str
    kind: InterruptKind
    question: str
    message: str
    path: str
    step: str
    data: dict[str, Any]
    schema: dict[str, Any] | None
    """JSON schema of the answer; null if any text will do."""
    raised_us: Micros
    expires_us: Micros | None
    required: bool
    status: InterruptStatus
    response: Any
    answered_by: str | None
    answered_us: Micros | None
    """When it was settled, by an answer or without one."""
    became: str
    """What became of it in words: the answer, that it expired or was withdrawn; empty while it is open."""
    fallback: str
    """The answer that holds once it has expired, in words; empty if there is none."""


class Asked(TypedDict):
    """A question and the execution that asks it."""

    execution_id: str
    workflow: str
    question: QuestionView
    cell: str
    """The notebook's cell that began the execution, by its id; empty if none did."""


class Inbox(TypedDict):
    """What waits for an answer in all executions of a store, for a view that begins or has missed something."""

    type: Literal["inbox"]
    view: str
    last: int
    """Number of the last `InboxDelta` that is in it."""
    now_us: Micros
    hidden: int
    """Open questions that are too many to be shown."""
    asked: list[Asked]
    """All open questions, and those that were settled lately."""


class InboxDelta(TypedDict):
    """What changed since the last one, for all views."""

    type: Literal["asked"]
    after: int
    """The one it continues; a view that knows less has missed something."""
    last: int
    now_us: Micros
    hidden: int
    asked: list[Asked]
    """Those that are new or changed."""


class Choice(TypedDict):
    """One of the things that can be done."""

    name: str
    """What an `AnswerGiven` that chooses it responds."""
    label: str
    told: str
    """What comes of it."""


class Offer(TypedDict):
    """What a person must choose before a cell can go on."""

    type: Literal["offer"]
    view: str
    id: str
    """What an `AnswerGiven` to it names."""
    text: str
    choices: list[Choice]


class AnswerGiven(TypedDict):
    """A person answers a question."""

    type: Literal["answer"]
    id: str
    interrupt_id: str
    response: Any


# A list of executions, and what a person wants done with them.


class RunView(TypedDict):
    """An execution in one line."""

    execution_id: str
    workflow: str
    badge: str
    """``what-if``, ``trial`` or ``fork``; empty for a run of its own."""
    tags: list[str]
    status: str
    """``paused`` as well, where nothing drives it or somebody has paused it."""
    about: str
    """What it is about: its error, its note, its inputs."""
    is_error: bool
    """Whether that is its error."""
    stand: str
    """How far it has come, what is kept, or who cancelled it."""
    done: int
    total: int
    """Items of the step that runs; 0 where it has none."""
    questions: int
    began_us: Micros
    worked_us: int | None
    """How long it has worked up to `since_us`; null while that is not known."""
    since_us: Micros
    """Since when it works; 0 if it does not now."""
    cost: float | None
    """US dollars; null where no model was asked."""
    commands: list[Command]
    """What can be asked for now."""
    is_open: bool
    """Whether it is shown below the list."""


class RunsQuery(TypedDict):
    """Which executions a list shows, and how; a view that changes it says so."""

    type: Literal["list"]
    view: str
    text: str
    """What is found in name, tags, inputs, note or error."""
    workflow: str
    tag: str
    status: str
    """Of these three the empty text stands for all."""
    days: int
    """How many days back; 0 for ever."""
    by: Literal["began", "cost", "worked"]
    """What the list is sorted by, the highest first."""
    limit: int


class StatusCount(TypedDict):
    """How many executions of one status there are that fit all else that is asked for."""

    status: str
    count: int


class RunsPage(TypedDict):
    """A list of executions as it stands; each takes the place of the one before."""

    type: Literal["runs"]
    view: str
    """The view that it welcomes; empty where it is for all."""
    last: int
    """Number of the page."""
    now_us: Micros
    query: RunsQuery
    """What it answers."""
    total: int
    """Executions in the store, as far as it has been looked through."""
    is_whole: bool
    """Whether all of them were looked at."""
    matching: int
    """How many fit the query."""
    running: int
    week_cost: float | None
    """US dollars that those of the last seven days cost; null until all are known, or where no model was asked."""
    counts: list[StatusCount]
    workflows: list[str]
    tags: list[str]
    runs: list[RunView]
    near: str
    """Where nothing fits the text: the word most like it that something fits."""
    frame: str
    """The code that returns the list as a frame."""


class RunsWish(TypedDict):
    """A person wants something done with executions of a list."""

    type: Literal["wish"]
    id: str
    command: Literal["open", "close", "resume", "cancel", "tag", "untag"]
    executions: list[str]
    tags: list[str]


# What ran when: spans by columns, and the events behind one of them.


class SpanBlock(TypedDict):
    """Spans by columns of equal length; texts are positions in `names`, which belongs to this block alone."""

    names: list[str]
    """The first is the empty text."""
    id: list[int]
    """Place in the order in which the spans began, from 0; the span's name for good."""
    kind: list[int]
    """``step``, ``item`` or ``operation``."""
    path: list[int]
    step: list[int]
    type: list[int]
    """Type of the step or operation: ``prompt``, ``agent_response``, ..."""
    label: list[int]
    """What tells it from its neighbours: the item, the model, the tool, the action."""
    item: list[int]
    """What tells the item of `Each` that it belongs to from the others, else its place: ``rows[3]``; empty outside."""
    given: list[int]
    """Beginning of what an operation was given: its arguments, the script, the prompt."""
    came: list[int]
    """Beginning of what came of an operation."""
    status: list[int]
    note: list[int]
    """Beginning of the error, if there is one."""
    start: list[int]
    """Microseconds since the origin of the welcome."""
    end: list[int]
    """The same; -1 while it runs."""
    iteration: list[int]
    """Number of the item; -1 if it belongs to none."""
    visit: list[int]
    attempts: list[int]
    tokens: list[int]
    sequence: list[int]
    """The event it began with."""
    within: list[int]
    """The agent's turn that holds it, by its id; -1 if none does."""


class Range(TypedDict):
    """A view asks for spans it does not have."""

    type: Literal["range"]
    view: str
    first: int
    stop: int


class RangeAnswer(TypedDict):
    """Answer to `Range`."""

    type: Literal["history"]
    view: str
    first: int
    """The span it begins with; it has all from there up to `stop`."""
    stop: int
    last: int
    """The event up to which changes are in it."""
    spans: SpanBlock


class DetailEvent(TypedDict):
    """An event as it is recorded; texts beyond a limit are cut."""

    sequence: int
    event_type: str
    recorded_us: Micros
    data: dict[str, Any]


class Detail(TypedDict):
    """Answer to `DetailRequest`."""

    type: Literal["detail"]
    view: str
    id: int
    events: list[DetailEvent]
    error: str
    """Why there are none."""


class DetailRequest(TypedDict):
    """A view asks for the events of a span."""

    type: Literal["detail"]
    view: str
    id: int


# Stepping through a log: its events, and how the execution stood after each.


class EventBlock(TypedDict):
    """Events by columns of equal length; texts are positions in `names`, which belongs to this block."""

    first: int
    """The sequence number from which on it has all events that there are; of a sample some are not."""
    sequence: list[int]
    origin_us: Micros
    """What the times are counted from."""
    names: list[str]
    """The first is the empty text."""
    time: list[int]
    """Microseconds since the origin."""
    type: list[int]
    path: list[int]
    step: list[int]
    text: list[int]
    """What tells it from its neighbours: the error, the condition, the variables that changed."""


class PathView(TypedDict):
    """A line of progress as it stood."""

    id: str
    status: str
    phase: str
    step: str
    visits: int
    """How often it had entered its present step."""
    variables: dict[str, Any] | None
    """Those that its step reads, where they are others than the execution's."""
    error: str


class PendingView(TypedDict):
    """A question that was open."""

    interrupt_id: str
    kind: str
    question: str
    path: str
    step: str


class StateView(TypedDict):
    """An execution as it stood after an event; long texts are cut."""

    sequence: int
    status: str
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    variables: dict[str, Any]
    paths: list[PathView]
    usage: dict[str, int]
    pending: list[PendingView]
    error: str


class StateRequest(TypedDict):
    """A view asks how the execution stood after an event."""

    type: Literal["state"]
    view: str
    sequence: int


class StateAnswer(TypedDict):
    """Answer to `StateRequest`."""

    type: Literal["state"]
    view: str
    sequence: int
    state: StateView | None
    error: str
    """Why there is none."""


class EventRequest(TypedDict):
    """A view asks for the whole of one event."""

    type: Literal["event"]
    view: str
    sequence: int


class EventAnswer(TypedDict):
    """Answer to `EventRequest`."""

    type: Literal["event"]
    view: str
    sequence: int
    event: DetailEvent | None
    error: str
    """Why there is none."""


class EventRange(TypedDict):
    """A view asks for events after one sequence number, up to another."""

    type: Literal["events"]
    view: str
    after: int
    stop: int


class GoTo(TypedDict):
    """A cell has moved the replay: every page that shows it goes to the position after an event."""

    type: Literal["go"]
    sequence: int


class StoodAt(TypedDict):
    """Somebody has moved the replay in a page: it stands after this event."""

    type: Literal["at"]
    view: str
    sequence: int


class SaidQuery(TypedDict):
    """A view asks what the model that was asked last was sent, and what it had answered by then."""

    type: Literal["said"]
    view: str
    sequence: int
    """The position that is meant."""


class SaidAnswer(TypedDict):
    """Answer to `SaidQuery`."""

    type: Literal["said"]
    view: str
    sequence: int
    asked: int
    """The event with which that request began; 0 where no model had been asked."""
    parts: list[ConversationPart]
    error: str
    """Why there are none."""


class PictureQuery(TypedDict):
    """A view asks for what the timeline and the graph beside a replay show; a `Welcome` is the answer."""

    type: Literal["picture"]
    view: str


class EventsAnswer(TypedDict):
    """Answer to `EventRange`."""

    type: Literal["events"]
    view: str
    total: int
    events: EventBlock


# An execution as it stands, and what changed since.


Durability: TypeAlias = Literal["durable", "relaxed", "memory"]
Doing: TypeAlias = Literal["worked", "waited", "paused", "asleep", "stopped"]
"""What an execution did: calls ran, a person was waited for, it was paused, it let time pass, nothing drove it."""


class Gauge(TypedDict):
    """How much of a bound is spent."""

    name: str
    spent: float
    limit: float
    unit: str


class StretchView(TypedDict):
    """A time in which no call ran."""

    doing: Doing
    begin_us: Micros
    end_us: Micros | None
    """Null while it lasts."""


class SpreadPart(TypedDict):
    """A value, or a bin of numbers, and how many rows gave it."""

    name: str
    count: int


class SpreadView(TypedDict):
    """What the rows of a step gave in one column."""

    name: str
    kind: Literal["values", "numbers"]
    parts: list[SpreadPart]
    """The most frequent values, the most frequent first; or all bins, ascending."""
    others: SpreadPart
    """Rows with other values, and how many those are in words."""
    empty: int
    """Rows that gave nothing here."""
    least: str
    greatest: str
    """Of numbers."""
    words: str
    """All of it as a line of text."""


class StepProgress(TypedDict):
    """How far a step with items has come."""

    step: str
    done: int
    """Items that have ended and are not made again."""
    total: int
    """0 where the log does not say."""
    failed: int
    running: bool
    left_us: int | None
    """How long the others will take, counted from the end of the latest one; null where nothing can be said."""
    at_us: Micros
    """When that one ended."""
    spread: list[SpreadView]
    """What they gave, of the first columns that can be told so; of the latest steps, those that run before others."""


class Spender(TypedDict):
    """What an agent has consumed so far."""

    agent: str
    requests: int
    tokens: int
    cost: float | None
    """US dollars; null where prices are unknown."""


class Header(TypedDict):
    """What is shown of the execution as a whole."""

    execution_id: str
    workflow: str
    status: str
    live: bool
    """Whether a process drives it."""
    error: str
    started_us: Micros | None
    ended_us: Micros | None
    now_us: Micros
    """The kernel's clock when this was sent: running bars end there."""
    model_calls: int
    input_tokens: int
    output_tokens: int
    cost: float | None
    """US dollars; null where prices are unknown."""
    tool_calls: int
    spenders: list[Spender]
    """Who spent that: the agents, in the order in which they were first asked."""
    gauges: list[Gauge]
    doing: Doing
    """What it does since `since_us`; ``stopped`` once it has ended, or no process drives it."""
    since_us: Micros | None
    """When that began; null before it began at all."""
    worked_us: int
    """How long calls ran until then: what it does now is to be added to its own."""
    waited_us: int
    """How long nothing but a person could have let it go on, until then."""
    paused_us: int
    """How long it was paused, until then."""
    stretches: list[StretchView]
    """The longest times in which no call ran, oldest first, with the one that lasts."""
    progress: list[StepProgress]
    """The steps with items, in the order in which they began."""
    durability: Durability
    commands: list[Command]
    """What can be asked for now."""
    failed: int
    """How many items, and steps without items, have failed."""
    ways: list[Way]
    """Of one that has failed: what can be done."""
    workspaces: int
    """How many workspaces it has used."""
    waits: str
    """What it waits for: the disk, signals and the commands that send them; questions stand beside it.

    Of a live one also how many requests the providers of models take at once.
    """
    dashboards: list[str]
    """Addresses of the dashboards of the clusters that its calls go to; of a live one, and never recorded."""


class GraphStep(TypedDict):
    """A step as the workflow defines it."""

    name: str
    type: str
    each: bool


class GraphEdge(TypedDict):
    """A way from step to step."""

    source: str
    target: str
    kind: Literal["next", "catch"]
    condition: str


class Graph(TypedDict):
    """The workflow's steps and edges, in the order in which they are written."""

    steps: list[GraphStep]
    edges: list[GraphEdge]


class Streamed(TypedDict):
    """A piece of text that a model is writing; shown, never recorded."""

    id: int
    """The span of the model call."""
    part: str
    """Of what: ``text``, ``thinking``, or ``arguments:``, the tool and the id of a call, with ``:`` between them."""
    at: int
    """How many characters of that part came before it."""
    text: str


class Welcome(TypedDict):
    """Everything a view needs to begin, or to go on after a gap."""

    type: Literal["welcome"]
    view: str
    since: int
    """The event after which the spans changed; 0 if a view must forget what it has."""
    last: int
    """Sequence number of the last event that is in it."""
    origin_us: Micros
    """What the times of spans are counted from."""
    total: int
    """Number of spans there are."""
    spans: SpanBlock
    """Those that changed since; of very many only the newest, and those that run."""
    header: Header
    failures: FailureReport
    questions: list[QuestionView]
    graph: Graph
    streamed: list[Streamed]


class Delta(TypedDict):
    """What changed since the last delta, for all views."""

    type: Literal["delta"]
    after: int
    """The event it continues; a view that knows less has missed something."""
    last: int
    origin_us: Micros
    total: int
    spans: SpanBlock
    header: Header
    failures: FailureReport | None
    """All of it, if it has changed."""
    questions: list[QuestionView]
    """Those that are new or changed."""
    streamed: list[Streamed]


# Which messages a view of each kind may be sent, and which a kernel may be sent.


ToBrowser: TypeAlias = Welcome | Delta | RangeAnswer | Detail | Conversation | Sent | Variables | Files | Bundle | Ack
InboxToBrowser: TypeAlias = Inbox | InboxDelta | Ack
OfferToBrowser: TypeAlias = Offer | Ack
RunsToBrowser: TypeAlias = RunsPage | Ack
PictureToBrowser: TypeAlias = Welcome | Bundle
ReplayToBrowser: TypeAlias = StateAnswer | EventAnswer | EventsAnswer | SaidAnswer | GoTo | PictureToBrowser
Present: TypeAlias = VariableQuery | FilesQuery
Lookup: TypeAlias = Range | DetailRequest | ConversationQuery | SentQuery | Present | BundleQuery | RunsQuery
ReplayToKernel: TypeAlias = StateRequest | EventRequest | EventRange | SaidQuery | StoodAt | PictureQuery | BundleQuery
ToKernel: TypeAlias = (
    Hello | Alive | Hosted | Bye | Lookup | AnswerGiven | Steering | RunsWish | TakingOver | ReplayToKernel
)


# What a saved notebook carries of a run.


class Recording(TypedDict):
    """A run to be looked at and stepped through with no kernel and no store; of a very long one, a sample of it."""

    header: Header
    failures: FailureReport
    questions: list[QuestionView]
    graph: Graph
    total: int
    """Number of spans there are."""
    spans: SpanBlock
    sample: str
    """What is not in it, as a sentence; empty if all is."""
    members: list[list[int]]
    """For each span in `spans`, the events it is made of."""
    conversations: list[Conversation]
    """Those of the turns and requests in `spans`, the newest first to stay."""
    variables: list[VariableView]
    """As they were in the end."""
    workspaces: list[WorkspaceView]
    """The files that were changed, as they were in the end."""
    events: EventBlock
    data: list[dict[str, Any]]
    """For each event in `events`, what is recorded in it."""
    base: StateView
    """The state after the event before the first of `events`."""
    changes: list[list[list[Any]]]
    """For each event in `events`, what changed since the one before it there: part, name in it (or ""), and the new
    value; none if it went away.
    """


class PackedRun(TypedDict):
    """``application/vnd.divebook.run+json``: a recording as a saved notebook holds it, and what is known without it."""

    format: int
    execution_id: str
    workflow: str
    status: str
    store: str
    """Where the whole log is."""
    next: str
    """What to type in order to go on; empty if there is nothing to do."""
    total: int
    """Number of events of the whole log."""
    first: int
    """Sequence number of the first event in the recording; 0 if there is none."""
    texts: int
    """Longer texts are cut."""
    recording: str
    """The recording as JSON, zlib, base64; empty if it did not fit."""
