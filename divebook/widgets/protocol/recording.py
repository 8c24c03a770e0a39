"""What a saved notebook carries of a run."""

from __future__ import annotations

from typing import Any, TypedDict

from divebook.widgets.protocol.conversations import Conversation
from divebook.widgets.protocol.failures import FailureReport
from divebook.widgets.protocol.files import WorkspaceView
from divebook.widgets.protocol.questions import QuestionView
from divebook.widgets.protocol.replay import EventBlock, StateView
from divebook.widgets.protocol.run import Graph, Header
from divebook.widgets.protocol.spans import SpanBlock
from divebook.widgets.protocol.variables import VariableView


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
