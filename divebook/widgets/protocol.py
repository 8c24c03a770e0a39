"""What kernel and browser say to each other: one class for each message, in both directions.

``widgets/src/protocol.ts`` is generated from this file by ``python widgets/generate.py``. Every message is sent with
`model.send`, never through a traitlet: front ends deliver messages while a cell is awaited, and hold traitlets back.

A view says `Hello` until it is welcomed, and names the last event it knows of. `Welcome` brings it up to date; spans
that are older than what fits come by `Range`. From then on `Delta` brings what changed, with the numbers of the events
it was made of: a view that finds a gap says `Hello` again. What a person wants carries an id, is sent again until it
is acknowledged, and is done once. From time to time a view says that it is still `Alive`: tabs close without a word.
What only some runs need of the front end does not travel with every widget: a view asks for it by `BundleQuery`.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, TypedDict

from divebook.questions.kinds import InterruptKind, InterruptStatus

Micros: TypeAlias = int
"""Microseconds since 1970."""
Durability: TypeAlias = Literal["durable", "relaxed", "memory"]
Command: TypeAlias = Literal["pause", "resume", "cancel"]
BundleName: TypeAlias = Literal["graph", "turn"]
"""A part of the front end that only some runs need."""


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


class Gauge(TypedDict):
    """How much of a bound is spent."""

    name: str
    spent: float
    limit: float
    unit: str


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
    durability: Durability
    commands: list[Command]
    """What can be asked for now."""
    waits: str
    """What it waits for: the disk, signals and the commands that send them; questions stand beside it.

    Of a live one also how many requests the providers of models take at once.
    """


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


class Asked(TypedDict):
    """A question and the execution that asks it."""

    execution_id: str
    workflow: str
    question: QuestionView


# --- from the kernel -----------------------------------------------------------------------------------------------


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
    questions: list[QuestionView]
    """Those that are new or changed."""
    streamed: list[Streamed]


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


class Sent(TypedDict):
    """Answer to `SentQuery`."""

    type: Literal["sent"]
    view: str
    id: int
    parts: list[ConversationPart]
    error: str
    """Why there are none."""


class Bundle(TypedDict):
    """Answer to `BundleQuery`."""

    type: Literal["bundle"]
    view: str
    name: BundleName
    script: str
    """An ECMAScript module."""


class Ack(TypedDict):
    """What became of an intent."""

    type: Literal["ack"]
    id: str
    accepted: bool
    text: str
    """Why it was refused, or what comes of it if that is not what one expects."""


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


# --- from the browser ----------------------------------------------------------------------------------------------


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


class Bye(TypedDict):
    """A view is taken off its page."""

    type: Literal["bye"]
    view: str


class Range(TypedDict):
    """A view asks for spans it does not have."""

    type: Literal["range"]
    view: str
    first: int
    stop: int


class DetailRequest(TypedDict):
    """A view asks for the events of a span."""

    type: Literal["detail"]
    view: str
    id: int


class ConversationQuery(TypedDict):
    """A view asks what was said in an agent's turn, or in a single request."""

    type: Literal["conversation"]
    view: str
    id: int
    """The span of either."""
    since: int
    """Sequence number of the last event whose effects it has; 0 for none."""


class SentQuery(TypedDict):
    """A view asks for all messages that were sent with a request."""

    type: Literal["sent"]
    view: str
    id: int


class BundleQuery(TypedDict):
    """A view asks for a part of the front end that it needs by now."""

    type: Literal["bundle"]
    view: str
    name: BundleName


class AnswerGiven(TypedDict):
    """A person answers a question."""

    type: Literal["answer"]
    id: str
    interrupt_id: str
    response: Any


class Steering(TypedDict):
    """A person wants the execution to pause, to go on or to end."""

    type: Literal["control"]
    id: str
    command: Command


ToBrowser: TypeAlias = Welcome | Delta | RangeAnswer | Detail | Conversation | Sent | Bundle | Ack
InboxToBrowser: TypeAlias = Inbox | InboxDelta | Ack
OfferToBrowser: TypeAlias = Offer | Ack
Lookup: TypeAlias = Range | DetailRequest | ConversationQuery | SentQuery | BundleQuery
ToKernel: TypeAlias = Hello | Alive | Bye | Lookup | AnswerGiven | Steering


# --- stepping through a log ----------------------------------------------------------------------------------------


class EventBlock(TypedDict):
    """Events by columns of equal length, without gaps; texts are positions in `names`, which belongs to this block."""

    first: int
    """Sequence number of the first."""
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


class EventsAnswer(TypedDict):
    """Answer to `EventRange`."""

    type: Literal["events"]
    view: str
    total: int
    events: EventBlock


ReplayToBrowser: TypeAlias = StateAnswer | EventAnswer | EventsAnswer
ReplayToKernel: TypeAlias = StateRequest | EventRequest | EventRange


# --- what a saved notebook carries ---------------------------------------------------------------------------------


class Recording(TypedDict):
    """A run to be looked at and stepped through with no kernel and no store; of a very long one, its newest events."""

    header: Header
    questions: list[QuestionView]
    graph: Graph
    total: int
    """Number of spans there are."""
    spans: SpanBlock
    members: list[list[int]]
    """For each span in `spans`, the events it is made of."""
    conversations: list[Conversation]
    """Those of the turns and requests in `spans`, the newest first to stay."""
    events: EventBlock
    data: list[dict[str, Any]]
    """For each event in `events`, what is recorded in it."""
    base: StateView
    """The state after the event before the first of `events`."""
    changes: list[list[list[Any]]]
    """For each event in `events`, what changed: part, name in it (or ""), and the new value; none if it went away."""


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
