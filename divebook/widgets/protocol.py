"""Messages between kernel and browser: one class for each message, in both directions.

``widgets/src/protocol.ts`` is generated from this module by ``python widgets/generate.py``. Every message is sent with
`model.send`, never through a traitlet: front ends deliver messages while a cell is awaited, and hold traitlets back.

A view sends `Hello` until it is welcomed, with the last event that it knows. `Welcome` contains what it lacks; older
spans that do not fit come with `Range`. Then each `Delta` contains the changes, with the numbers of the events that
they were made of. A view that finds a gap sends `Hello` again. An intent of a person has an id, is sent again until it
is acknowledged, and is carried out once. A view regularly sends `Alive`, because tabs close without a message. Parts
of the front end that only some runs need are not part of each widget: a view requests them with `BundleQuery`.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, TypedDict

from divebook.questions.question import InterruptKind, InterruptStatus

# --- conversations: an agent's turn, or a single request to a model ---


class ConversationPart(TypedDict):
    """A part of a message."""

    kind: Literal["system", "user", "retry", "thinking", "assistant", "call", "result"]
    text: str
    call: str
    """Of a call: its id; of a result: the tool; empty for other parts."""


class ConversationRequest(TypedDict):
    """A request to a model: its new messages and the response. Its span has the times and the status."""

    id: int
    number: int
    model: str
    """The model that answered; until then the requested one."""
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
    """The tools by which the model returns its output; empty if the output is text."""
    sent: list[ConversationPart]
    answer: list[ConversationPart]


class ConversationCall(TypedDict):
    """A tool call that a model requested."""

    id: int
    """Its span; -1 until it starts."""
    call: str
    """Id that the model chose."""
    request: int
    """Number of the request whose response requested the call."""
    tool: str
    server: str
    """The MCP server that has the tool; empty for a function."""
    arguments: Any
    result: str
    """Of a long result the beginning and the end."""
    lines: int
    """Number of lines of the complete result."""
    outcome: Literal["", "returned", "failed", "denied", "retry", "unknown"]
    turn: int
    """The span of the agent's turn to which the call delegated work; -1 for other calls."""
    questions: list[str]
    """Ids that questions about the call have, if there are any: its approval, its unknown outcome, ..."""


class Conversation(TypedDict):
    """Answer to `ConversationQuery`; requests and calls that have not changed since the event in the query are
    omitted.
    """

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
    """Why there is no conversation."""


class ConversationQuery(TypedDict):
    """A view requests the messages of an agent's turn, or of a single request."""

    type: Literal["conversation"]
    view: str
    id: int
    """The span of the turn or request."""
    since: int
    """Sequence number of the last event whose effects it has; 0 for none."""


class Sent(TypedDict):
    """Answer to `SentQuery`."""

    type: Literal["sent"]
    view: str
    id: int
    parts: list[ConversationPart]
    error: str
    """Why there are no messages."""


class SentQuery(TypedDict):
    """A view requests all messages of a request."""

    type: Literal["sent"]
    view: str
    id: int


# --- changed files ---


class FileView(TypedDict):
    """Difference between a file now and at the time when the run began to use it."""

    path: str
    kind: Literal["added", "changed", "deleted", "renamed"]
    was: str
    """The former path of a renamed file; else empty."""
    added: int | None
    removed: int | None
    """Added and removed lines; null for a file that is not text."""
    diff: str | None
    """The difference in git's format; null if it is too long."""
    protected: bool
    """True if it is applied only if a person selects it: a hidden name, or version-control metadata."""


class LeftOutView(TypedDict):
    """A file that was not stored."""

    path: str
    reason: str


class FilesPoint(TypedDict):
    """An event that changed the files of a workspace."""

    sequence: int
    told: str
    """The changes in short: ``calc.py and 2 more``."""


class WorkspaceView(TypedDict):
    """Changes in one workspace since the run began to use it."""

    name: str
    kind: str
    """Where its commands run: ``local``, ``fenced``, ``virtualenv``, ``docker``."""
    folder: str
    """The folder that it is a copy of; else empty."""
    total: int
    """Number of changed files."""
    added: int
    removed: int
    """Added and removed lines of the shown files."""
    files: list[FileView]
    """The first changed files."""
    left_out: list[LeftOutView]
    """The first files that were not stored."""
    points: list[FilesPoint]
    """The newest events that changed files, and the event that opened the workspace; the latest first. Empty in a
    saved run, which has only the final files.
    """


class Files(TypedDict):
    """Answer to `FilesQuery`."""

    type: Literal["files"]
    view: str
    version: int
    """Grows with each change."""
    at: int
    """The event up to which changes are included; 0 for now."""
    since: int
    """The event from which changes are included; 0 for all changes."""
    workspaces: list[WorkspaceView] | None
    """Null if nothing has changed since the version that the view has."""


class TakingOver(TypedDict):
    """A person wants changes to be applied to the folder that a workspace is a copy of: all of these files, or none."""

    type: Literal["take_over"]
    id: str
    workspace: str
    at: int
    """The event up to which changes are included, so that only changes are applied that were shown."""
    paths: list[str]
    """The files to apply."""


class FilesQuery(TypedDict):
    """A view requests the changed files."""

    type: Literal["files"]
    view: str
    version: int
    """The version that it has; 0 for none."""
    at: int
    """The event up to which changes are requested; 0 for now."""
    since: int
    """The event from which changes are requested; 0 for all changes."""


# --- variables and inputs ---


class VariableView(TypedDict):
    """A variable or input; short texts only."""

    name: str
    source: str
    """The step that sets it, or ``input``; empty if no step stores it."""
    type: str
    """In a word: ``text``, ``list``, ``DataFrame``; empty if it is not set yet."""
    size: str
    """Characters of a text, parts of a list or mapping, rows and columns of a table."""
    text: str
    """The beginning of its value; empty if rows are shown."""
    columns: list[str]
    rows: list[list[str]]
    """The first rows of a table, with a cell for each of `columns`."""
    total: int
    """Number of rows of the table."""


class Variables(TypedDict):
    """Answer to `VariableQuery`."""

    type: Literal["variables"]
    view: str
    version: int
    """Grows with each change."""
    variables: list[VariableView] | None
    """Null if nothing has changed since the version that the view has."""


class VariableQuery(TypedDict):
    """A view requests the current variables."""

    type: Literal["variables"]
    view: str
    version: int
    """The version that it has; 0 for none."""


# --- connection of a view with its kernel, and commands of a person ---


Micros: TypeAlias = int
"""Microseconds since 1970."""
Command: TypeAlias = Literal["pause", "resume", "cancel", "plan", "fix", "again"]
"""``plan`` changes nothing: its acknowledgement describes what ``fix`` would do, and is empty if no consent is
needed.
"""
BundleName: TypeAlias = Literal["failure", "files", "graph", "spread", "stepping", "timeline", "turn", "variables"]
"""A part of the front end that only some runs need."""


class Hello(TypedDict):
    """A view starts, or has missed a message."""

    type: Literal["hello"]
    view: str
    since: int
    """Sequence number of the last event that it knows; 0 for none."""


class Alive(TypedDict):
    """A view is still open; a view that was removed meanwhile is welcomed again."""

    type: Literal["alive"]
    view: str
    since: int


class Hosted(TypedDict):
    """The page of a view shows its saved form after its model is gone, so that no second output is needed for that."""

    type: Literal["hosted"]
    view: str


class Bye(TypedDict):
    """A view is removed from its page."""

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
    """A view requests a part of the front end that it needs now."""

    type: Literal["bundle"]
    view: str
    name: BundleName


class Ack(TypedDict):
    """Acknowledgement of an intent."""

    type: Literal["ack"]
    id: str
    accepted: bool
    text: str
    """Why it was refused, or its result if that is not the expected one."""


class Steering(TypedDict):
    """A person wants the execution to pause, to continue or to end."""

    type: Literal["control"]
    id: str
    command: Command


# --- failures and recovery options ---


class Way(TypedDict):
    """One of the recovery options after a failure, and its cost."""

    name: Literal["fix", "again", "replay"]
    """``fix`` and ``again`` are commands as well; ``replay`` opens the replay at the failure."""
    label: str
    told: str
    """What it does, or why it is not possible yet; for a fix, ``plan`` has the details."""
    reused: str
    """What is taken from the log: ``1,401 calls``; empty for nothing."""
    live: str
    """What is executed again; empty for nothing."""
    cost: float | None
    """Estimated cost in US dollars; null without an estimate."""
    took_us: int | None
    """Estimated duration; null without an estimate."""
    ready: bool
    """True if it can be chosen now."""


class SourceLine(TypedDict):
    """A line of a user's code or definition."""

    number: int
    text: str


class ArgumentView(TypedDict):
    """An argument of a call as Python text; long ones are cut."""

    name: str
    text: str


class FailureView(TypedDict):
    """A failed item or step and its cause."""

    id: int
    """The span of the failed call; of the item or step if no call failed."""
    sequence: int
    """The event that records the failure."""
    failed_us: Micros
    error_type: str
    message: str
    means: str
    """The error in plain words; empty if the explanation is not certain."""
    step: str
    path: str
    item: str
    """The item of `Each`, such as ``rows[4321]``; empty for a step without items."""
    attempt: int
    called: str
    """The failed function, action, agent, tool or workflow; empty if the code of the step itself failed."""
    arguments: list[ArgumentView]
    place: str
    """``Cell [5], line 4``, ``pipeline.py:12`` or ``survey.yaml:7:11``; empty if it is not known."""
    cell: str
    """Id of the cell that contains the place; empty without one, or if the front end has no ids."""
    line: int
    """Its number in `source`."""
    source: list[SourceLine]
    traceback: str
    handled: Literal["", "skipped", "kept", "caught"]
    """How the run continued after the failure; empty if it did not."""
    same: int
    """Number of failures with this error at this place, including this one."""


class FailureReport(TypedDict):
    """The failures of an execution."""

    total: int
    """Number of failed items, and of failed steps without items."""
    kept: str
    """The results that a resumed run reuses, in words: ``1,398 items and 1,401 calls``."""
    shown: list[FailureView]
    """The first failure of each error, then others, in the order in which they failed."""


# --- questions to a person: of one execution, of a whole store, and of a cell ---


class QuestionView(TypedDict):
    """A question and its answer, if there is one."""

    interrupt_id: str
    kind: InterruptKind
    question: str
    message: str
    path: str
    step: str
    data: dict[str, Any]
    schema: dict[str, Any] | None
    """JSON schema of the answer; null if any text is valid."""
    raised_us: Micros
    expires_us: Micros | None
    required: bool
    status: InterruptStatus
    response: Any
    answered_by: str | None
    answered_us: Micros | None
    """When it was settled, by an answer or without one."""
    became: str
    """The outcome in words: the answer, or that it expired or was withdrawn; empty while it is open."""
    fallback: str
    """The answer that applies after it has expired, in words; empty without one."""


class Asked(TypedDict):
    """A question and the execution that asks it."""

    execution_id: str
    workflow: str
    question: QuestionView
    cell: str
    """Id of the notebook's cell that started the execution; empty without one."""


class Inbox(TypedDict):
    """The questions of all executions of a store, for a view that starts or has missed a message."""

    type: Literal["inbox"]
    view: str
    last: int
    """Number of the last `InboxDelta` that it contains."""
    now_us: Micros
    hidden: int
    """Number of open questions that are not shown."""
    asked: list[Asked]
    """All open questions, and those that were settled lately."""


class InboxDelta(TypedDict):
    """Changes since the previous delta, for all views."""

    type: Literal["asked"]
    after: int
    """Number of the previous delta; a view that has an older one has missed a message."""
    last: int
    now_us: Micros
    hidden: int
    asked: list[Asked]
    """New and changed questions."""


class Choice(TypedDict):
    """One of the offered actions."""

    name: str
    """The response of an `AnswerGiven` that chooses it."""
    label: str
    told: str
    """Its effect."""


class Offer(TypedDict):
    """A choice that a person must make before a cell continues."""

    type: Literal["offer"]
    view: str
    id: str
    """The `interrupt_id` of an `AnswerGiven` to it."""
    text: str
    choices: list[Choice]


class AnswerGiven(TypedDict):
    """A person answers a question."""

    type: Literal["answer"]
    id: str
    interrupt_id: str
    response: Any


# --- the list of executions, and commands for them ---


class RunView(TypedDict):
    """An execution in one line."""

    execution_id: str
    workflow: str
    badge: str
    """``what-if``, ``trial`` or ``fork``; empty for other executions."""
    tags: list[str]
    status: str
    """``paused`` also if no process drives it or a person has paused it."""
    about: str
    """Its error, its note or its inputs."""
    is_error: bool
    """True if `about` is its error."""
    stand: str
    """Progress, reused results, or the person who cancelled it."""
    done: int
    total: int
    """Items of the running step; 0 if it has none."""
    questions: int
    began_us: Micros
    worked_us: int | None
    """Working time up to `since_us`; null until it is known."""
    since_us: Micros
    """Since when it works; 0 if it does not work now."""
    cost: float | None
    """US dollars; null if no model was called."""
    commands: list[Command]
    """The commands that are possible now."""
    is_open: bool
    """True if it is shown below the list."""


class RunsQuery(TypedDict):
    """Filter and order of the list of executions; a view sends it when a person changes them."""

    type: Literal["list"]
    view: str
    text: str
    """Text in name, tags, inputs, note or error."""
    workflow: str
    tag: str
    status: str
    """Of workflow, tag and status, an empty text stands for all."""
    days: int
    """Number of days back; 0 for all."""
    by: Literal["began", "cost", "worked"]
    """Sort key, in descending order."""
    limit: int


class StatusCount(TypedDict):
    """Number of executions of one status that match the other filters."""

    status: str
    count: int


class RunsPage(TypedDict):
    """The current list of executions, which replaces the previous one."""

    type: Literal["runs"]
    view: str
    """The welcomed view; empty if it is for all."""
    last: int
    """Number of the page."""
    now_us: Micros
    query: RunsQuery
    """The query that it answers."""
    total: int
    """Executions in the store, as far as it has been read."""
    is_whole: bool
    """True if all of them were read."""
    matching: int
    """Number of executions that match the query."""
    running: int
    week_cost: float | None
    """Cost of the last seven days in US dollars; null until all costs are known, or if no model was called."""
    counts: list[StatusCount]
    workflows: list[str]
    tags: list[str]
    runs: list[RunView]
    near: str
    """If no execution matches the text: the most similar word that matches one."""
    frame: str
    """The code that returns the list as a frame."""


class RunsWish(TypedDict):
    """A command of a person for executions of a list."""

    type: Literal["wish"]
    id: str
    command: Literal["open", "close", "resume", "cancel", "tag", "untag"]
    executions: list[str]
    tags: list[str]


# --- spans as columns, and the events of one span ---


class SpanBlock(TypedDict):
    """Spans as columns of equal length; texts are indexes into `names`, which belongs to this block alone."""

    names: list[str]
    """The first is the empty text."""
    id: list[int]
    """Position in the order in which the spans started, from 0; it identifies the span."""
    kind: list[int]
    """``step``, ``item`` or ``operation``."""
    path: list[int]
    step: list[int]
    type: list[int]
    """Type of the step or operation: ``prompt``, ``agent_response``, ..."""
    label: list[int]
    """What distinguishes it from others: the item, the model, the tool, the action."""
    item: list[int]
    """Label of the item of `Each` that it belongs to, else its place: ``rows[3]``; empty outside `Each`."""
    given: list[int]
    """Beginning of the arguments, the script or the prompt of an operation."""
    came: list[int]
    """Beginning of the result of an operation."""
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
    """The event that started it."""
    within: list[int]
    """Id of the agent's turn that contains it; -1 without one."""


class Range(TypedDict):
    """A view requests spans that it does not have."""

    type: Literal["range"]
    view: str
    first: int
    stop: int


class RangeAnswer(TypedDict):
    """Answer to `Range`."""

    type: Literal["history"]
    view: str
    first: int
    """The first span; all spans from there up to `stop` are included."""
    stop: int
    last: int
    """The event up to which changes are included."""
    spans: SpanBlock


class DetailEvent(TypedDict):
    """An event as it is recorded; long texts are cut."""

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
    """A view requests the events of a span."""

    type: Literal["detail"]
    view: str
    id: int


# --- positions of a log: its events, and the state after each ---


class EventBlock(TypedDict):
    """Events as columns of equal length; texts are indexes into `names`, which belongs to this block."""

    first: int
    """All events from this sequence number on are included; of a sample only some."""
    sequence: list[int]
    origin_us: Micros
    """Origin of the times."""
    names: list[str]
    """The first is the empty text."""
    time: list[int]
    """Microseconds since the origin."""
    type: list[int]
    path: list[int]
    step: list[int]
    text: list[int]
    """What distinguishes it from others: the error, the condition, the changed variables."""


class PathView(TypedDict):
    """A path at a position of the log."""

    id: str
    status: str
    phase: str
    step: str
    visits: int
    """Number of times it had entered its current step."""
    variables: dict[str, Any] | None
    """The variables that its step reads, if they differ from the execution's."""
    error: str


class PendingView(TypedDict):
    """A question that was open."""

    interrupt_id: str
    kind: str
    question: str
    path: str
    step: str


class StateView(TypedDict):
    """State of an execution after an event; long texts are cut."""

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
    """A view requests the state after an event."""

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
    """Why there is no state."""


class EventRequest(TypedDict):
    """A view requests one event."""

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
    """Why there is no event."""


class EventRange(TypedDict):
    """A view requests the events after one sequence number, up to another."""

    type: Literal["events"]
    view: str
    after: int
    stop: int


class GoTo(TypedDict):
    """A cell has moved the replay: each page that shows it goes to the position after an event."""

    type: Literal["go"]
    sequence: int


class StoodAt(TypedDict):
    """A person has moved the replay in a page to the position after this event."""

    type: Literal["at"]
    view: str
    sequence: int


class SaidQuery(TypedDict):
    """A view requests the messages of the latest request to a model, and the response by then."""

    type: Literal["said"]
    view: str
    sequence: int
    """The position."""


class SaidAnswer(TypedDict):
    """Answer to `SaidQuery`."""

    type: Literal["said"]
    view: str
    sequence: int
    asked: int
    """The event that started the request; 0 without a request."""
    parts: list[ConversationPart]
    error: str
    """Why there are no messages."""


class PictureQuery(TypedDict):
    """A view requests the data of the timeline and the graph beside a replay; the answer is a `Welcome`."""

    type: Literal["picture"]
    view: str


class EventsAnswer(TypedDict):
    """Answer to `EventRange`."""

    type: Literal["events"]
    view: str
    total: int
    events: EventBlock


# --- the current execution, and its changes ---


Durability: TypeAlias = Literal["durable", "relaxed", "memory"]
Doing: TypeAlias = Literal["worked", "waited", "paused", "asleep", "stopped"]
"""Activity of an execution: calls ran, it waited for a person, was paused, slept, or no process drove it."""


class Gauge(TypedDict):
    """The spent part of a bound."""

    name: str
    spent: float
    limit: float
    unit: str


class StretchView(TypedDict):
    """A period in which no call ran."""

    doing: Doing
    begin_us: Micros
    end_us: Micros | None
    """Null while it lasts."""


class SpreadPart(TypedDict):
    """A value, or a bin of numbers, and the number of its rows."""

    name: str
    count: int


class SpreadView(TypedDict):
    """Distribution of one column of the results of a step's rows."""

    name: str
    kind: Literal["values", "numbers"]
    parts: list[SpreadPart]
    """The most frequent values, the most frequent first; or all bins, ascending."""
    others: SpreadPart
    """Rows with other values, and the number of these values in words."""
    empty: int
    """Rows without a value."""
    least: str
    greatest: str
    """Least and greatest number of a column of numbers."""
    words: str
    """The distribution as a line of text."""


class StepProgress(TypedDict):
    """Progress of a step with items."""

    step: str
    done: int
    """Items that ended and will not run again."""
    total: int
    """0 if the log does not contain it."""
    failed: int
    running: bool
    left_us: int | None
    """Estimated remaining time, from the end of the latest item; null without an estimate."""
    at_us: Micros
    """When the latest item ended."""
    spread: list[SpreadView]
    """Distributions of the first columns; only for the latest steps, running ones before others."""


class Spender(TypedDict):
    """Consumption of an agent so far."""

    agent: str
    requests: int
    tokens: int
    cost: float | None
    """US dollars; null if prices are unknown."""


class Header(TypedDict):
    """Summary of the execution."""

    execution_id: str
    workflow: str
    status: str
    live: bool
    """True if a process drives it."""
    error: str
    started_us: Micros | None
    ended_us: Micros | None
    now_us: Micros
    """The kernel's time when this was sent: running bars end there."""
    model_calls: int
    input_tokens: int
    output_tokens: int
    cost: float | None
    """US dollars; null if prices are unknown."""
    tool_calls: int
    spenders: list[Spender]
    """Consumption by agent, in the order of their first requests."""
    gauges: list[Gauge]
    doing: Doing
    """Activity since `since_us`; ``stopped`` after the end, or if no process drives it."""
    since_us: Micros | None
    """When that activity started; null before the start."""
    worked_us: int
    """Working time until then; if it works now, the time since then must be added."""
    waited_us: int
    """Time until then in which it only waited for a person."""
    paused_us: int
    """Time until then in which it was paused."""
    stretches: list[StretchView]
    """The longest periods in which no call ran, oldest first, including the current one."""
    progress: list[StepProgress]
    """The steps with items, in the order in which they started."""
    durability: Durability
    commands: list[Command]
    """The commands that are possible now."""
    failed: int
    """Number of failed items, and of failed steps without items."""
    ways: list[Way]
    """Recovery options of a failed execution."""
    workspaces: int
    """Number of workspaces that it has used."""
    waits: str
    """Why it waits: the disk, signals and the commands that send them; questions are shown separately.

    Of a live execution also the limits of model providers on concurrent requests.
    """
    dashboards: list[str]
    """Addresses of the dashboards of clusters that run its calls; only of a live execution, and never recorded."""


class GraphStep(TypedDict):
    """A step as defined in the workflow."""

    name: str
    type: str
    each: bool


class GraphEdge(TypedDict):
    """An edge between two steps."""

    source: str
    target: str
    kind: Literal["next", "catch"]
    condition: str


class Graph(TypedDict):
    """The workflow's steps and edges, in the order of the definition."""

    steps: list[GraphStep]
    edges: list[GraphEdge]


class Streamed(TypedDict):
    """A piece of streamed text of a model; shown, never recorded."""

    id: int
    """The span of the model call."""
    part: str
    """Kind of the text: ``text``, ``thinking``, or ``arguments:``, the tool and the id of a call, with ``:`` between
    them.
    """
    at: int
    """Number of characters of that part before it."""
    text: str


class Welcome(TypedDict):
    """Everything that a view needs at its start, or after a gap."""

    type: Literal["welcome"]
    view: str
    since: int
    """The event after which the spans changed; 0 if a view must discard its data."""
    last: int
    """Sequence number of the last event that it contains."""
    origin_us: Micros
    """Origin of the times of spans."""
    total: int
    """Number of all spans."""
    spans: SpanBlock
    """Spans that changed since then; of very many only the newest, and those that run."""
    header: Header
    failures: FailureReport
    questions: list[QuestionView]
    graph: Graph
    streamed: list[Streamed]


class Delta(TypedDict):
    """Changes since the previous delta, for all views."""

    type: Literal["delta"]
    after: int
    """The last event of the previous delta; a view that has an older one has missed a message."""
    last: int
    origin_us: Micros
    total: int
    spans: SpanBlock
    header: Header
    failures: FailureReport | None
    """The complete report, if it has changed."""
    questions: list[QuestionView]
    """New and changed questions."""
    streamed: list[Streamed]


# --- messages by receiver ---


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


# --- runs in saved notebooks ---


class Recording(TypedDict):
    """A run that can be viewed and stepped through without kernel and store; of a very long run a sample."""

    header: Header
    failures: FailureReport
    questions: list[QuestionView]
    graph: Graph
    total: int
    """Number of all spans."""
    spans: SpanBlock
    sample: str
    """Description of the sample; empty if the recording is complete."""
    members: list[list[int]]
    """For each span in `spans`, its events."""
    conversations: list[Conversation]
    """Conversations of the turns and requests in `spans`; the newest are kept first."""
    variables: list[VariableView]
    """Variables at the end."""
    workspaces: list[WorkspaceView]
    """Changed files at the end."""
    events: EventBlock
    data: list[dict[str, Any]]
    """For each event in `events`, its recorded data."""
    base: StateView
    """The state before the first of `events`."""
    changes: list[list[list[Any]]]
    """For each event in `events`, the changes since the previous one there.

    A change has the part, the name in it (or ""), and the new value; no value if the entry was removed.
    """


class PackedRun(TypedDict):
    """``application/vnd.divebook.run+json``: the recording of a run in a saved notebook, and facts that do not
    need it.
    """

    format: int
    execution_id: str
    workflow: str
    status: str
    store: str
    """Location of the complete log."""
    next: str
    """Command that continues the run; empty if there is nothing to do."""
    total: int
    """Number of events of the complete log."""
    first: int
    """Sequence number of the first event in the recording; 0 if there is none."""
    texts: int
    """Longer texts are cut."""
    recording: str
    """The recording as JSON, zlib, base64; empty if it did not fit."""
