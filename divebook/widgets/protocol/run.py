"""An execution as it stands, and what changed since."""

from __future__ import annotations

from typing import Literal, TypeAlias, TypedDict

from divebook.widgets.protocol.failures import FailureReport, Way
from divebook.widgets.protocol.questions import QuestionView
from divebook.widgets.protocol.spans import SpanBlock
from divebook.widgets.protocol.views import Command, Micros

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
