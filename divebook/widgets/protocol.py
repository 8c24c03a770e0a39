"""Messages between the kernel and the views in a browser: one class for each message, in both directions.

``widgets/src/protocol.ts`` is generated from this module by ``python widgets/generate.py``. Every message is sent with
`model.send`, never through a traitlet: front ends deliver messages while a cell is awaited, but hold traitlets back
until the cell ends.

A view starts with `Hello`, which contains the last event that the view knows, and repeats it until the kernel replies.
The reply `Welcome` contains all later changes; if there are too many spans, the view requests the older ones with
`Range`. Then the kernel sends each change as a `Delta`, which contains the sequence numbers of the events that caused
the change. If a view finds a gap in these numbers, it missed a message and sends `Hello` again.

A command of a person (`Steering`, `AnswerGiven`, `RunsWish`, `TakingOver`) is called an intent. An intent has an id, is
sent again until the kernel acknowledges it (`Ack`), and is carried out once. A view regularly sends `Alive`, because a
closed browser tab sends no message. Parts of the front end that only some runs need are loaded on request
(`BundleQuery`).
"""

from __future__ import annotations

import json
import types
from collections.abc import Iterator, Mapping
from enum import EnumType
from typing import Any, Literal, TypeAlias, TypedDict, Union, get_args, get_origin, get_type_hints, is_typeddict

from divebook.errors import SavedRunError
from divebook.questions.question import InterruptKind, InterruptStatus
from divebook.text.redaction import one_line

# `python widgets/generate.py` reads only the syntax tree of this module. It translates docstrings, and skips comments
# like this one. Names of fields are those of the JSON messages, so that they need no conversion.
# --- conversations: an agent's turn, or a single request to a model ---


class ConversationPart(TypedDict):
    """One part of a message of a model conversation: a text, a tool call or a tool result."""

    kind: Literal["system", "user", "retry", "thinking", "assistant", "call", "result"]
    text: str
    call: str
    """Id of the call if this part is a tool call, name of the tool if it is a tool result, empty otherwise."""


class ConversationRequest(TypedDict):
    """A request to a model: its new messages and the response. The span with the same id has times and status."""

    id: int
    number: int
    model: str
    """Name of the model that answered; the requested model until there is a response."""
    finish: str
    """The finish reason as the provider of the model reports it."""
    is_cached: bool
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cost: float | None
    instructions: str
    tools: list[str]
    output: str
    """Names of the tools by which the model returns its output; empty if the output is text."""
    sent: list[ConversationPart]
    answer: list[ConversationPart]


class ConversationCall(TypedDict):
    """A tool call that a model requested, and its result."""

    id: int
    """Id of the span of the tool call; -1 until the call starts."""
    call: str
    """Id that the model chose for the call."""
    request: int
    """Number of the request whose response requested the call."""
    tool: str
    server: str
    """Name of the MCP server that has the tool; empty for a function."""
    arguments: Any
    result: str
    """The result as text; only the beginning and the end of a long text."""
    lines: int
    """Number of lines of the complete result."""
    outcome: Literal["", "returned", "failed", "denied", "retry", "unknown"]
    turn: int
    """Id of the span of the agent turn to which the call delegated work; -1 for other calls."""
    questions: list[str]
    """Ids of the questions that may exist about the call: for its approval, or if its outcome is unknown."""


class Conversation(TypedDict):
    """Answer to `ConversationQuery`. Requests and calls without changes since the event in the query are omitted."""

    type: Literal["conversation"]
    view: str
    id: int
    last: int
    """Sequence number of the last event that the conversation includes."""
    agent: str
    thread: str
    requests: list[ConversationRequest]
    calls: list[ConversationCall]
    error: str
    """The reason if there is no conversation; empty otherwise."""


class ConversationQuery(TypedDict):
    """Message by which a view requests the messages of an agent turn or of a single model request."""

    type: Literal["conversation"]
    view: str
    id: int
    """Id of the span of the turn or request."""
    since: int
    """Sequence number of the last event whose effects the view shows; 0 for none."""


class Sent(TypedDict):
    """Answer to `SentQuery`: all messages that a request sent to the model."""

    type: Literal["sent"]
    view: str
    id: int
    parts: list[ConversationPart]
    error: str
    """The reason if there are no messages; empty otherwise."""


class SentQuery(TypedDict):
    """Message by which a view requests all messages that one request sent to the model."""

    type: Literal["sent"]
    view: str
    id: int


# --- changed files ---


# The contents of files are never sent. A view shows the differences, which the kernel has computed.
class FileView(TypedDict):
    """A changed file: the difference between the file at the start of the run and the file now."""

    path: str
    kind: Literal["added", "changed", "deleted", "renamed"]
    was: str
    """Former path of a renamed file; empty for other files."""
    added: int | None
    removed: int | None
    """`added` and `removed` are the numbers of added and removed lines; null for a file that is not text."""
    diff: str | None
    """The difference in git's diff format; null if it is too long."""
    protected: bool
    """True if the change is applied only when a person selects the file: hidden files and version-control metadata."""


class LeftOutView(TypedDict):
    """A file that a snapshot of a workspace does not contain, with the reason why it was not stored."""

    path: str
    reason: str


class FilesPoint(TypedDict):
    """An event that changed the files of a workspace. A person can choose it in a view to see the files as of this
    event.
    """

    sequence: int
    told: str
    """Short text about the changes: ``calc.py and 2 more``."""


class WorkspaceView(TypedDict):
    """The files that a run changed in one workspace."""

    name: str
    kind: str
    """Isolation of the commands of the workspace: ``local``, ``fenced``, ``virtualenv`` or ``docker``."""
    folder: str
    """Path of the folder that the workspace is a copy of; empty if it is not a copy."""
    total: int
    """Number of changed files."""
    added: int
    removed: int
    """`added` and `removed` are the numbers of added and removed lines of the files in `files`."""
    files: list[FileView]
    """The first changed files."""
    left_out: list[LeftOutView]
    """The first files that were not stored."""
    points: list[FilesPoint]
    """The newest events that changed files, and the event that opened the workspace; the latest first. Empty in a saved
    notebook, which contains only the final files.
    """


# A view asks for files and variables again and again while it shows them. The version keeps an unchanged answer small.
class Files(TypedDict):
    """Answer to `FilesQuery`: the changed files of all workspaces of a run."""

    type: Literal["files"]
    view: str
    version: int
    """Version number of the answer, which grows with each change. The view sends it with its next query."""
    at: int
    """Sequence number of the event up to which changes are included; 0 for all changes until now."""
    since: int
    """Sequence number of the event after which changes are included; 0 for all changes from the start."""
    workspaces: list[WorkspaceView] | None
    """Null if nothing has changed since the version that the view has."""


# A command names everything on which its effect depends, since the run may have changed by the time it arrives.
class TakingOver(TypedDict):
    """Command that a person gives in a view: copy the changed files of a workspace to the folder from which it was
    created.

    The workspace is a copy of this folder. Either all files in `paths` are applied, or none.
    """

    type: Literal["take_over"]
    id: str
    workspace: str
    at: int
    """Sequence number of the event up to which changes are included. Only changes that the person saw are applied."""
    paths: list[str]
    """Paths of the files to apply."""


class FilesQuery(TypedDict):
    """Message by which a view requests the changed files of a run."""

    type: Literal["files"]
    view: str
    version: int
    """Version of the `Files` that the view has; 0 for none."""
    at: int
    """Sequence number of the event up to which changes are requested; 0 for all changes until now."""
    since: int
    """Sequence number of the event after which changes are requested; 0 for all changes from the start."""


# --- variables and inputs ---


class VariableView(TypedDict):
    """A variable or input of a run, as short texts for a table."""

    name: str
    source: str
    """Name of the step that sets the variable, or ``input``; empty if no step sets it."""
    type: str
    """Type of the value in one word: ``text``, ``list``, ``DataFrame``; empty if the variable is not set yet."""
    size: str
    """Size of the value: characters of a text, parts of a list or mapping, rows and columns of a table."""
    text: str
    """Beginning of the value; empty if `rows` shows the value."""
    columns: list[str]
    rows: list[list[str]]
    """The first rows of a table, with one cell for each column of `columns`."""
    total: int
    """Number of rows of the table."""


class Variables(TypedDict):
    """Answer to `VariableQuery`: the inputs and variables of a run."""

    type: Literal["variables"]
    view: str
    version: int
    """Version number of the answer, which grows with each change. The view sends it with its next query."""
    variables: list[VariableView] | None
    """Null if nothing has changed since the version that the view has."""


class VariableQuery(TypedDict):
    """Message by which a view requests the current variables of a run."""

    type: Literal["variables"]
    view: str
    version: int
    """Version of the `Variables` that the view has; 0 for none."""


# --- connection of a view with its kernel, and commands of a person ---


# Microseconds since 1970 stay below 2**53, which browsers store exactly, until the year 2255.
Micros: TypeAlias = int
"""Microseconds since 1970."""
Command: TypeAlias = Literal["pause", "resume", "cancel", "plan", "fix", "again"]
"""Commands for a run. ``plan`` changes nothing: its acknowledgement describes the effect of ``fix``, and is empty if
``fix`` needs no confirmation.
"""
BundleName: TypeAlias = Literal["failure", "files", "graph", "spread", "stepping", "timeline", "turn", "variables"]
"""Name of a part of the front end that is loaded only by views that need it."""


# ``hello`` and ``alive`` have the same fields: the kernel treats ``alive`` of an unknown view as ``hello``.
class Hello(TypedDict):
    """Message of a view that starts, or that has missed a message; the answer is a `Welcome`."""

    type: Literal["hello"]
    view: str
    feed: str
    """The feed from which the view has its data; empty if it has none, or if the view does not show one execution."""
    since: int
    """Sequence number of the last event that the view knows; 0 for none."""


class Alive(TypedDict):
    """Heartbeat of an open view. The kernel acknowledges it with an `Ack` that has the id of the view, or sends a
    `Welcome` if it has already removed the view.
    """

    type: Literal["alive"]
    view: str
    feed: str
    """As in `Hello`."""
    since: int


class Hosted(TypedDict):
    """Message of a page that can show the saved form of this view (text and HTML) after the kernel has closed the view.

    The kernel then writes no second output with the saved form.
    """

    type: Literal["hosted"]
    view: str


class Bye(TypedDict):
    """Message of a view that is removed from its page."""

    type: Literal["bye"]
    view: str


class Bundle(TypedDict):
    """Answer to `BundleQuery`: the code of one part of the front end."""

    type: Literal["bundle"]
    view: str
    name: BundleName
    script: str
    """Source text of an ECMAScript module."""


class BundleQuery(TypedDict):
    """Message by which a view requests a part of the front end that it needs now."""

    type: Literal["bundle"]
    view: str
    name: BundleName


# Every command has an id, and every id gets one `Ack`, also if the command is refused.
class Ack(TypedDict):
    """Acknowledgement of a command of a person, such as `AnswerGiven` or `Steering`."""

    type: Literal["ack"]
    id: str
    accepted: bool
    text: str
    """Reason of a refusal. For an accepted intent, its result if the result needs an explanation; empty otherwise."""


class Steering(TypedDict):
    """Command that a person gives in a view: pause, resume, cancel or recover the execution."""

    type: Literal["control"]
    id: str
    command: Command


# --- failures and recovery options ---


class Way(TypedDict):
    """A recovery option that a view offers after a failure, such as running again, with its estimated cost."""

    name: Literal["fix", "again", "replay"]
    """``fix`` and ``again`` are also commands (`Command`); ``replay`` opens the replay at the failure."""
    label: str
    told: str
    """Description of the effect, or the reason why the option is not possible yet. For ``fix``, the command ``plan``
    returns the details.
    """
    reused: str
    """The recorded results that are reused: ``1,401 calls``; empty for none."""
    live: str
    """The calls and items that run again; empty for none."""
    cost: float | None
    """Estimated cost in US dollars; null without an estimate."""
    took_us: int | None
    """Estimated duration in microseconds; null without an estimate."""
    ready: bool
    """True if a person can choose the option now."""


class SourceLine(TypedDict):
    """A line of a user's Python code or workflow definition."""

    number: int
    text: str


class ArgumentView(TypedDict):
    """An argument of a failed function call as Python text; long texts are cut."""

    name: str
    text: str


# Saved notebooks contain failures in this form, as all types inside `Recording`. A new field needs a default value in
# `DEFAULTS` of `divebook.widgets.recording`.
class FailureView(TypedDict):
    """A failed item or step, and the error that caused the failure."""

    id: int
    """Id of the span of the failed call. If no call failed, id of the span of the item or step."""
    sequence: int
    """Sequence number of the event that records the failure."""
    failed_us: Micros
    error_type: str
    message: str
    means: str
    """Explanation of the error in plain words; empty if no explanation is certain."""
    step: str
    path: str
    item: str
    """The item of `Each`, such as ``rows[4321]``; empty for a step without items."""
    attempt: int
    called: str
    """Name of the failed function, action, agent, tool or workflow; empty if the code of the step itself failed."""
    arguments: list[ArgumentView]
    place: str
    """Code location: ``Cell [5], line 4``, ``pipeline.py:12`` or ``survey.yaml:7:11``; empty if it is not known."""
    cell: str
    """Id of the notebook cell that contains `place`; empty without a cell, or if the front end has no ids of cells."""
    line: int
    """Number of the failed line in `source`."""
    source: list[SourceLine]
    traceback: str
    handled: Literal["", "skipped", "kept", "caught"]
    """Error handling by which the run continued after the failure; empty if the run did not continue."""
    same: int
    """Number of failures with the same error at the same code location, including this failure."""


class FailureReport(TypedDict):
    """All failures of an execution: their number, and details of the most informative failures."""

    total: int
    """Number of failed items, and of failed steps without items."""
    kept: str
    """Text about the results that a resumed run reuses: ``1,398 items and 1,401 calls``."""
    shown: list[FailureView]
    """The first failure of each kind of error, then further failures in the order of their time."""


# --- questions to a person: of one execution, of a whole store, and of a cell ---


# Fields with the ending ``_us`` are times or durations in microseconds.
class QuestionView(TypedDict):
    """A question to a person, and its answer if there is an answer."""

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
    """Time at which the question was answered, expired or was withdrawn; null while it is open."""
    became: str
    """Text about the outcome: the answer, or that the question expired or was withdrawn; empty while it is open."""
    fallback: str
    """Text of the answer that applies if the question expires; empty without such an answer."""
    alike: str
    """Key that is equal for open questions to which one answer can be given; empty if the question needs its own
    answer.
    """


class Asked(TypedDict):
    """A question, with the execution that waits for the answer."""

    execution_id: str
    workflow: str
    question: QuestionView
    cell: str
    """Id of the notebook cell that started the execution; empty if no cell started it."""
    trial_of: str
    """``what-if`` or ``trial`` for an execution that examines another one, which continues without an answer; empty
    for any other execution."""


class Inbox(TypedDict):
    """The open questions of all executions of a store, sent to a view that starts or has missed a message."""

    type: Literal["inbox"]
    view: str
    last: int
    """Number of the last `InboxDelta` whose changes are included."""
    now_us: Micros
    hidden: int
    """Number of open questions that are not shown."""
    asked: list[Asked]
    """All open questions, and questions that were answered, expired or were withdrawn a short time ago."""


class InboxDelta(TypedDict):
    """Changes of the open questions since the previous `InboxDelta`, sent to all views."""

    type: Literal["asked"]
    after: int
    """Number of the previous `InboxDelta`. A view that has not received that message sends `Hello`."""
    last: int
    now_us: Micros
    hidden: int
    asked: list[Asked]
    """New and changed questions. A changed question replaces its earlier form."""


class Choice(TypedDict):
    """One of the actions of an `Offer`, shown as a button."""

    name: str
    """Value of `AnswerGiven.response` that chooses this action."""
    label: str
    description: str
    """Text about the effect of the action."""


class Offer(TypedDict):
    """A choice between several actions that a person must make before a cell continues."""

    type: Literal["offer"]
    view: str
    id: str
    """Value of `AnswerGiven.interrupt_id` in the answer to this offer."""
    text: str
    choices: list[Choice]


class AnswerGiven(TypedDict):
    """Command that a person gives in a view: answer a question."""

    type: Literal["answer"]
    id: str
    interrupt_id: str
    response: Any


# --- the list of executions, and commands for them ---


class RunView(TypedDict):
    """One row of the list of executions."""

    execution_id: str
    workflow: str
    badge: str
    """``what-if``, ``trial`` or ``fork`` for such an execution; empty for other executions."""
    tags: list[str]
    status: str
    """Status of the execution. ``paused`` includes executions that no process drives or that a person has paused."""
    about: str
    """The error, the note or the inputs of the execution: the first of these that exists."""
    is_error: bool
    """True if `about` contains an error."""
    stand: str
    """Text about the progress, about reused results, or about the person who cancelled the execution."""
    done: int
    total: int
    """`done` and `total` are the numbers of ended items and of all items of the running step; 0 if it has no items."""
    questions: int
    began_us: Micros
    worked_us: int | None
    """Working time before `since_us`, in microseconds; null until it is known."""
    since_us: Micros
    """Start of the current period of work; 0 if the execution does not work now."""
    commands: list[Command]
    """The commands that are possible now."""
    is_open: bool
    """True if the execution is shown below the list."""
    cells: list[str]
    """Texts of the columns, in their order."""


# A view sends the whole query and not a change of it, so that a lost message cannot leave kernel and view with
# different filters.
class RunsQuery(TypedDict):
    """Filters and order of the list of executions. A view sends this message when a person changes a filter."""

    type: Literal["list"]
    view: str
    text: str
    """Text to find in the name, tags, inputs, note or error."""
    workflow: str
    tag: str
    status: str
    """`workflow`, `tag` and `status` select executions with this value; an empty string selects all."""
    days: int
    """Number of days since the start of an execution; 0 for all executions."""
    by: Literal["cost", "started", "worked"]
    """Sort key, in descending order."""
    limit: int


class StatusCount(TypedDict):
    """Number of executions with one status in a list of executions. The other filters of the list apply, but not its
    filter for the status.
    """

    status: str
    count: int


class RunsColumn(TypedDict):
    """Column of the list of executions."""

    title: str
    by: Literal["", "cost", "started", "worked"]
    """Sort key that its title chooses; empty if there is none."""
    is_number: bool


class RunsPage(TypedDict):
    """The current list of executions. Each new page replaces the previous page."""

    type: Literal["runs"]
    view: str
    """Id of the view that sent `Hello`; empty if the page is for all views."""
    last: int
    """Number of the page, which increases by one with each page."""
    now_us: Micros
    query: RunsQuery
    """The filters and order with which the list was made."""
    total: int
    """Number of executions in the store. While the store is being read, the number read so far."""
    is_whole: bool
    """True if all executions of the store were read."""
    matching: int
    """Number of executions that match the query."""
    running: int
    week_cost: float | None
    """Cost of the last seven days in US dollars; null until all costs are known, or if no model was called."""
    counts: list[StatusCount]
    workflows: list[str]
    tags: list[str]
    columns: list[RunsColumn]
    runs: list[RunView]
    near: str
    """The most similar word that has matches, if no execution matches the text of the query; empty otherwise."""
    frame: str
    """Python code that returns the list as a DataFrame."""


class RunsWish(TypedDict):
    """Command that a person gives in a view: apply a command to selected executions of the list."""

    type: Literal["wish"]
    id: str
    command: Literal["open", "close", "compare", "resume", "cancel", "tag", "untag"]
    executions: list[str]
    tags: list[str]


# --- spans as columns, and the events of one span ---


# Columns repeat no names of fields, and each text stands once in ``names``: most spans of a long run have the same
# step, type and status.
class SpanBlock(TypedDict):
    """Spans (steps, items and calls) as columns of equal length, one for each field. A text is sent as its index in
    `names`, the list of all texts of this message.
    """

    names: list[str]
    """All texts of the block; the first is the empty string."""
    id: list[int]
    """Number of the span: its position in the order in which the spans of the run started, from 0."""
    kind: list[int]
    """``step``, ``item`` or ``operation``."""
    path: list[int]
    step: list[int]
    type: list[int]
    """Type of the step or operation: ``prompt``, ``agent_response``, ..."""
    label: list[int]
    """Short name that distinguishes the span from other spans of the step: the item, model, tool or action."""
    item: list[int]
    """Label of the item of `Each` to which the span belongs, or ``rows[3]`` if the item has no label; empty outside
    `Each`.
    """
    given: list[int]
    """Beginning of the arguments, the script or the prompt of the operation."""
    came: list[int]
    """Beginning of the result of the operation."""
    status: list[int]
    note: list[int]
    """Beginning of the error; empty if there is no error."""
    start: list[int]
    """Start in microseconds since `Welcome.origin_us`."""
    end: list[int]
    """End in microseconds since `Welcome.origin_us`; -1 while the span runs."""
    iteration: list[int]
    """Number of the item of `Each`; -1 outside `Each`."""
    visit: list[int]
    attempts: list[int]
    tokens: list[int]
    sequence: list[int]
    """Sequence number of the event that started the span."""
    within: list[int]
    """Id of the span of the agent turn that contains this span; -1 without a turn."""


SPAN_TEXTS = ("kind", "path", "step", "type", "label", "item", "given", "came", "status", "note")
"""Columns of a `SpanBlock` that contain indexes into its `names`."""
SPAN_NUMBERS = tuple(name for name in SpanBlock.__annotations__ if name not in ("names", *SPAN_TEXTS))
"""All other columns of a `SpanBlock`."""


class Range(TypedDict):
    """Message by which a view requests the spans from `first` up to, but not including, `stop`."""

    type: Literal["range"]
    view: str
    first: int
    stop: int


class RangeAnswer(TypedDict):
    """Answer to `Range`: older spans of the run."""

    type: Literal["history"]
    view: str
    first: int
    """Id of the first span in the answer; all spans from it up to `stop` are included."""
    stop: int
    last: int
    """Sequence number of the last event whose changes are included."""
    spans: SpanBlock


class DetailEvent(TypedDict):
    """An event as recorded in the log; long texts are cut."""

    sequence: int
    event_type: str
    recorded_us: Micros
    data: dict[str, Any]


class Detail(TypedDict):
    """Answer to `DetailRequest`: the recorded events of one span."""

    type: Literal["detail"]
    view: str
    id: int
    events: list[DetailEvent]
    error: str
    """The reason if there are no events; empty otherwise."""


class DetailRequest(TypedDict):
    """Message by which a view requests the recorded events of one span."""

    type: Literal["detail"]
    view: str
    id: int


# --- positions of a log: its events, and the state after each ---


# A sample of a long log has gaps in its sequence numbers, so each event has its number.
class EventBlock(TypedDict):
    """Events as columns of equal length, one for each field. A text is sent as its index in `names`, the list of all
    texts of this message.
    """

    first: int
    """Sequence number from which all later events are included; a sample contains only some of the events."""
    sequence: list[int]
    origin_us: Micros
    """Time in microseconds since 1970 from which `time` counts."""
    names: list[str]
    """All texts of the block; the first is the empty string."""
    time: list[int]
    """Microseconds since `origin_us`."""
    type: list[int]
    path: list[int]
    step: list[int]
    text: list[int]
    """Short text that distinguishes the event from others: the error, the condition, the changed variables."""
    kind: list[int]
    """Type of the operation; ``step``, ``item`` or ``interrupt`` for events about a step, an item or a question."""
    item: list[int]
    """Number of the item of ``Each``, from 0, as text; empty outside of items."""


EVENT_TEXTS = ("type", "path", "step", "text", "kind", "item")
"""Columns of an `EventBlock` that contain indexes into its `names`."""
EVENT_NUMBERS = ("sequence", "time")
"""All other columns of an `EventBlock`."""


class PathView(TypedDict):
    """A path of an execution as it was after one event of the log."""

    id: str
    status: str
    phase: str
    step: str
    visits: int
    """Number of times the path has entered its current step."""
    variables: dict[str, Any] | None
    """The variables that the current step reads; null if they equal the variables of the execution."""
    error: str


class PendingView(TypedDict):
    """A question that was open at the shown event of a replay."""

    interrupt_id: str
    kind: str
    question: str
    path: str
    step: str


# The state at a position is made on request. Sending the state after each event would need far too much space.
class StateView(TypedDict):
    """State of an execution after one event of its log; long texts are cut."""

    sequence: int
    status: str
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    variables: dict[str, Any]
    paths: list[PathView]
    usage: dict[str, int]
    pending: list[PendingView]
    error: str


class WhyQuery(TypedDict):
    """Message by which a replay requests the causes of a variable's value after an event."""

    type: Literal["why"]
    view: str
    sequence: int
    name: str


class WhyLine(TypedDict):
    """One cause in the provenance of a value, or a call of the step that set the value."""

    depth: int
    """Distance from the explained value, which has the depth 0."""
    sequence: int
    """Number of the event that set the value or ended the call; 0 if the line belongs to no event."""
    kind: str
    """Kind of the cause, such as ``input``, ``set`` or ``choice``; ``call``, ``again`` or ``more`` for other lines."""
    operation: str
    """Type of the operation of the call, or of the step that set the value; empty for other lines."""
    name: str
    value: str
    text: str
    """Origin of the value in words."""


class WhyAnswer(TypedDict):
    """Answer to `WhyQuery`: the value and its causes, each followed by its own causes with a greater depth."""

    type: Literal["why"]
    view: str
    sequence: int
    name: str
    lines: list[WhyLine]
    error: str
    """The reason if there are no lines; empty otherwise."""


class StateRequest(TypedDict):
    """Message by which a view requests the state of the execution after an event."""

    type: Literal["state"]
    view: str
    sequence: int


class StateAnswer(TypedDict):
    """Answer to `StateRequest`: the state of the execution after the requested event."""

    type: Literal["state"]
    view: str
    sequence: int
    state: StateView | None
    error: str
    """The reason if there is no state; empty otherwise."""


class EventRequest(TypedDict):
    """Message by which a view requests one recorded event."""

    type: Literal["event"]
    view: str
    sequence: int


class EventAnswer(TypedDict):
    """Answer to `EventRequest`: one recorded event."""

    type: Literal["event"]
    view: str
    sequence: int
    event: DetailEvent | None
    error: str
    """The reason if there is no event; empty otherwise."""


class EventRange(TypedDict):
    """Message by which a view requests the events after sequence number `after`, up to and including `stop`."""

    type: Literal["events"]
    view: str
    after: int
    stop: int


class GoTo(TypedDict):
    """Message to all pages that show a replay: show the state after this event, because code in a cell has moved the
    replay.
    """

    type: Literal["go"]
    sequence: int


class StoodAt(TypedDict):
    """Message of a page in which a person has moved the replay to the state after this event."""

    type: Literal["at"]
    view: str
    sequence: int


class SaidQuery(TypedDict):
    """Message by which a view that replays a log requests the messages of a model request: of the latest request before
    or at the shown event.

    The response is included if the model had answered by then.
    """

    type: Literal["said"]
    view: str
    sequence: int
    """Sequence number of the event."""


class SaidAnswer(TypedDict):
    """Answer to `SaidQuery`: the messages of the latest model request before or at the shown event."""

    type: Literal["said"]
    view: str
    sequence: int
    asked: int
    """Sequence number of the event that started the model request; 0 if there was no request."""
    parts: list[ConversationPart]
    error: str
    """The reason if there are no messages; empty otherwise."""


class PictureQuery(TypedDict):
    """Message by which a view requests the data of the timeline and graph beside a replay (answer: `Welcome`)."""

    type: Literal["picture"]
    view: str


class EventsAnswer(TypedDict):
    """Answer to `EventRange`: a part of the log."""

    type: Literal["events"]
    view: str
    total: int
    events: EventBlock


# All lists in a header are limited in length, because each `Delta` contains the complete header.
# --- the current execution, and its changes ---


Durability: TypeAlias = Literal["durable", "relaxed", "memory"]
Doing: TypeAlias = Literal["worked", "waited", "paused", "asleep", "stopped"]
"""Activity of an execution: calls ran, it waited for a person, was paused, slept, or no process drove it (``stopped``).
"""


class Gauge(TypedDict):
    """A limit of the budget of an execution, and the amount that was spent."""

    name: str
    spent: float
    limit: float
    unit: str


class StretchView(TypedDict):
    """A period of an execution in which no call ran, such as a wait for a person or a pause."""

    doing: Doing
    begin_us: Micros
    end_us: Micros | None
    """Null while it lasts."""


class SpreadPart(TypedDict):
    """One bar of a distribution: a value or a range of numbers, and the number of rows in it."""

    name: str
    count: int


class SpreadView(TypedDict):
    """Distribution of the values in one result column of a step that runs once for each row."""

    name: str
    kind: Literal["values", "numbers"]
    parts: list[SpreadPart]
    """The most frequent values, the most frequent first; for numbers all ranges, in ascending order."""
    others: SpreadPart
    """Number of rows with values that are not in `parts`; its name says how many different values these are."""
    empty: int
    """Number of rows without a value."""
    least: str
    greatest: str
    """`least` and `greatest` are the least and greatest number of a column of numbers, as text."""
    words: str
    """The distribution as a line of text."""


class StepProgress(TypedDict):
    """Progress of a step that runs once for each item."""

    step: str
    done: int
    """Number of items that have ended and will not run again."""
    total: int
    """Number of all items; 0 if the log does not contain it."""
    failed: int
    """Number of items that have failed."""
    failed_open: int
    """Number of the failed items that are not in `done`, because they run again when the run is resumed."""
    running: bool
    left_us: int | None
    """Estimated remaining microseconds, counted from `at_us`; null without an estimate."""
    at_us: Micros
    """End of the item that ended last."""
    spread: list[SpreadView]
    """Distributions of the first result columns. Only the latest steps have them; running steps take precedence."""


class Spender(TypedDict):
    """Requests, tokens and cost of one agent so far."""

    agent: str
    requests: int
    tokens: int
    cost: float | None
    """US dollars; null if prices are unknown."""


class Header(TypedDict):
    """Summary of an execution: status, times, cost, progress and possible commands."""

    execution_id: str
    workflow: str
    badge: str
    """``what-if``, ``trial`` or ``fork`` for such an execution; empty for other executions."""
    status: str
    live: bool
    """True if a process drives the execution."""
    error: str
    started_us: Micros | None
    ended_us: Micros | None
    now_us: Micros
    """Time of the kernel when the message was sent. Bars of running spans end at this time."""
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
    """Activity since `since_us`; ``stopped`` after the end of the execution, or if no process drives it."""
    since_us: Micros | None
    """Start of the current activity; null before the start of the execution."""
    worked_us: int
    """Working time before `since_us`. If the execution works now, a view adds the time since then."""
    waited_us: int
    """Time before `since_us` in which the execution only waited for a person."""
    paused_us: int
    """Time before `since_us` in which the execution was paused."""
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
    """Number of workspaces that the execution has used."""
    waits: str
    """Text about the reason of a wait: an unavailable store, another process, a queue, or signals with the commands
    that send them. Questions are shown separately.

    A live execution also lists the limits of model providers on concurrent requests.
    """
    dashboards: list[str]
    """URLs of the dashboards of clusters that run calls of the execution; only while it is live, and never recorded."""


class GraphStep(TypedDict):
    """A step of the workflow graph."""

    name: str
    type: str
    each: bool


class GraphEdge(TypedDict):
    """An edge between two steps of the workflow graph."""

    source: str
    target: str
    kind: Literal["next", "catch"]
    condition: str


class Graph(TypedDict):
    """The steps and edges of a workflow, in the order of the definition."""

    steps: list[GraphStep]
    edges: list[GraphEdge]


# Pieces may be lost or sent again. The position lets a view put each piece in its place.
class Streamed(TypedDict):
    """A piece of text that a model streams. The piece is shown, and never recorded."""

    id: int
    """Id of the span of the model request."""
    part: str
    """Kind of the text: ``text``, ``thinking``, or ``arguments:TOOL:ID`` with the name of the tool and the id of the
    tool call.
    """
    at: int
    """Number of characters of the same part before this piece."""
    text: str


# `Welcome` and `Delta` have the same parts. A `Welcome` replaces the data of a view, a `Delta` changes it.
class Welcome(TypedDict):
    """Answer to `Hello`: all data that a view needs at its start, or after a missed message."""

    type: Literal["welcome"]
    view: str
    feed: str
    """Id of the feed that sends the data: what one kernel knows of one execution. Sequence numbers, ids of spans and
    versions of answers belong to a feed. A view that gets another feed discards its data."""
    since: int
    """Sequence number after which spans changed; 0 if the view must discard its data."""
    last: int
    """Sequence number of the last event that is included."""
    origin_us: Micros
    """Time in microseconds since 1970 from which the times of spans count."""
    total: int
    """Number of all spans."""
    spans: SpanBlock
    """Spans that changed after `since`. If there are too many, only the newest spans and the running spans."""
    header: Header
    failures: FailureReport
    questions: list[QuestionView]
    graph: Graph
    streamed: list[Streamed]


class Delta(TypedDict):
    """Changes of an execution since the previous `Delta`, sent to all views."""

    type: Literal["delta"]
    feed: str
    """Id of the feed, as in `Welcome`. A view that has its data from another feed sends `Hello`."""
    after: int
    """Sequence number of the last event of the previous `Delta`. A view that does not have this event sends `Hello`."""
    last: int
    origin_us: Micros
    total: int
    spans: SpanBlock
    header: Header
    failures: FailureReport | None
    """The complete report, if it has changed; null otherwise."""
    questions: list[QuestionView]
    """New and changed questions."""
    streamed: list[Streamed]


# --- messages by receiver ---


# Checked by the kernel (`divebook.widgets.protocol.refusal`) for messages from the browser. Messages to the browser
# have types for the sake of TypeScript.
ToBrowser: TypeAlias = Welcome | Delta | RangeAnswer | Detail | Conversation | Sent | Variables | Files | Bundle | Ack
InboxToBrowser: TypeAlias = Inbox | InboxDelta | Ack
OfferToBrowser: TypeAlias = Offer | Ack
RunsToBrowser: TypeAlias = RunsPage | Ack
PictureToBrowser: TypeAlias = Welcome | Bundle
ReplayToBrowser: TypeAlias = StateAnswer | EventAnswer | EventsAnswer | SaidAnswer | WhyAnswer | GoTo | PictureToBrowser
Present: TypeAlias = VariableQuery | FilesQuery
Lookup: TypeAlias = Range | DetailRequest | ConversationQuery | SentQuery | Present | BundleQuery | RunsQuery
ReplayToKernel: TypeAlias = (
    StateRequest | EventRequest | EventRange | SaidQuery | WhyQuery | StoodAt | PictureQuery | BundleQuery
)
ToKernel: TypeAlias = (
    Hello | Alive | Hosted | Bye | Lookup | AnswerGiven | Steering | RunsWish | TakingOver | ReplayToKernel
)


# --- runs in saved notebooks ---


# Everything that a replay needs, as in the messages above, so that a saved run uses the same code in the browser.
class Recording(TypedDict):
    """A run stored in a saved notebook, which a view shows and replays without kernel and store.

    A very long run is stored as a sample of its events.
    """

    header: Header
    failures: FailureReport
    questions: list[QuestionView]
    graph: Graph
    total: int
    """Number of all spans."""
    spans: SpanBlock
    sample: str
    """Description of the sample; empty if all events are stored."""
    members: list[list[int]]
    """The sequence numbers of the events of each span in `spans`."""
    conversations: list[Conversation]
    """Conversations of the agent turns and requests in `spans`; if there is too little room, only the newest."""
    variables: list[VariableView]
    """Variables at the end of the run."""
    workspaces: list[WorkspaceView]
    """Changed files at the end of the run."""
    events: EventBlock
    data: list[dict[str, Any]]
    """The recorded data of each event in `events`."""
    base: StateView
    """State before the first event in `events`."""
    changes: list[list[list[Any]]]
    """For each event in `events`, the changes of the state since the previous event in `events`.

    A change is a list: the part of the state, the name in this part (or an empty string), and the new value. The value
    is omitted if the entry was removed.
    """


# Notebooks are read for years. A new version of this format must read all earlier ones.
class PackedRun(TypedDict):
    """Data of one run in a saved notebook (MIME type ``application/vnd.divebook.run+json``): a summary and the packed
    recording of the run.

    The summary can be read without unpacking the recording.
    """

    format: int
    execution_id: str
    workflow: str
    status: str
    store: str
    """URL or path of the store with the complete log."""
    next: str
    """Command that continues the run; empty if no command is needed."""
    total: int
    """Number of events of the complete log."""
    first: int
    """Sequence number of the first event in the recording; 0 if there is none."""
    texts: int
    """Number of characters to which longer texts were cut."""
    recording: str
    """The `Recording` as JSON, compressed by zlib, as base64; empty if it was too large."""


# --- validation of messages -------------------------------------------------------------------------------------------

# Validation of untrusted JSON data, from browsers and saved notebooks, against the types of
# `divebook.widgets.protocol`.


MAX_WHOLE = 2**53
"""Largest absolute value of an integer; a larger integer is invalid, because browsers do not store it exactly."""
MAX_NUMBER = 1e15
"""Limit of the absolute value of a float; larger numbers are invalid."""


def checked(data: Any, expected: Any) -> Any:
    """Return plain JSON data unchanged if it is valid for the type `expected`, else raise an error.

    `expected` is a TypedDict, a plain type, or a list, dict, union or literal of such types.

    Raises
    ------
    SavedRunError
        The data does not have the type; the text contains the first mismatch.

    >>> checked({"x": [1]}, dict[str, list[int]])
    {'x': [1]}
    """
    misfit = misfit_of(data, expected, "run")
    if misfit is not None:
        raise SavedRunError(misfit)
    return data


def misfit_of(data: Any, expected: Any, name: str) -> str | None:
    """Check JSON data against the type `expected`. Return a text that describes the first invalid value; None if all
    values are valid.

    `name` is the name of the data in the text.

    >>> misfit_of({"n": "x"}, dict[str, int], "message")
    'message[n] is "x", which is not a valid value'
    """
    return next(_misfits(data, expected, name), None)


def refusal(message: Any, union: Any) -> str | None:
    """Check a message from a browser against the message types in `union`. Return the reason why it is invalid; None if
    it is valid for one of the types.

    >>> from divebook.widgets.protocol import ReplayToKernel
    >>> refusal({"type": "stat", "view": "v"}, ReplayToKernel)
    'unknown message type "stat"; known types: state, event, events, said, why, at, picture, bundle'
    """
    # {"state": StateRequest, "event": EventRequest, ...}: the literal of the field ``type`` identifies a message.
    kinds = {get_args(get_type_hints(kind)["type"])[0]: kind for kind in get_args(union)}
    name = message.get("type") if isinstance(message, dict) else None
    # The type may be anything that JSON allows, also a list, which cannot be a key.
    if not isinstance(name, str) or name not in kinds:
        return f"unknown message type {_shown(name)}; known types: {', '.join(kinds)}"
    # Half a surrogate pair is valid JSON, but cannot be encoded as UTF-8 in an answer.
    halved = next((key for key, part in message.items() if isinstance(part, str) and not _is_whole(part)), None)
    if halved is not None:
        return f"message.{halved} contains an unpaired surrogate, which cannot be sent back"
    return misfit_of(message, kinds[name], "message")


def _is_whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def refused(message: Any, why: str) -> Ack:
    """Return the reply to a browser that has sent an invalid message. It states that the kernel ignored the message, so
    that the browser does not send it again.
    """
    # A message without a usable id gets an empty one. The page then has no command to which the reply belongs.
    identity = message.get("id") if isinstance(message, Mapping) else None
    text = f"the kernel ignored an invalid message: {why}. Reload the page"
    return Ack(
        type="ack", id=identity if isinstance(identity, str) and _is_whole(identity) else "", accepted=False, text=text
    )


def _misfits(data: Any, expected: Any, where: str) -> Iterator[str]:
    """Check JSON data against the type `expected`, and yield a text about each invalid value. In these texts the data
    is called `where`, for example ``message``.

    Data is valid for a union if it is valid for one of the union's types. Entries of lists and dicts, and fields of
    TypedDicts, are checked recursively. All other types are plain types or literals.
    """
    origin = get_origin(expected)
    # The types of a union are tried one after the other. A text about each of them would be long, so only the value is
    # shown.
    if origin in (Union, types.UnionType):
        if all(next(_misfits(data, one, where), None) for one in get_args(expected)):
            yield f"{where} is {_mismatch(data)}"
    # JSON has no other collections, and the keys of its objects are strings. So only the values are checked.
    elif origin in (list, dict) and isinstance(data, origin):
        inner = get_args(expected)[-1]
        for key, part in data.items() if isinstance(data, dict) else enumerate(data):
            yield from _misfits(part, inner, f"{where}[{str(key)[:40]}]")
    elif is_typeddict(expected) and isinstance(data, dict):
        yield from _misfits_of_fields(data, expected, where)
    elif not (expected is Any or (origin is Literal and data in get_args(expected)) or _is_plain(data, expected)):
        yield f"{where} is {_mismatch(data)}"


def _misfits_of_fields(data: dict[str, Any], expected: Any, where: str) -> Iterator[str]:
    # Undeclared fields are ignored (`tests/notebook/test_saved.py::test_an_unknown_column_is_ignored`).
    for key, kind in get_type_hints(expected).items():
        if key in data:
            yield from _misfits(data[key], kind, f"{where}.{key}")
        else:
            yield f"{where}.{key} is missing"


def _is_plain(data: Any, expected: Any) -> bool:
    if expected is type(None):
        return data is None
    # `InterruptStatus` and the like are `StrEnum`; plain strings are equal to their members.
    if isinstance(expected, EnumType):
        return data in list(expected)
    # `type` and not `isinstance`: True and False are instances of int.
    if expected is float:
        return type(data) in (int, float) and abs(data) < MAX_NUMBER
    if expected is int:
        return type(data) is int and abs(data) <= MAX_WHOLE
    return expected in (str, bool) and type(data) is expected


def _mismatch(data: Any) -> str:
    return f"{_shown(data)}, which is not a valid value"


def _shown(data: Any) -> str:
    try:
        return one_line(json.dumps(data)[:200], 40)
    except (TypeError, ValueError, RecursionError):  # what no JSON holds
        return f"a {type(data).__name__}"
