"""Feeds over a list of events, without store, engine or clock."""

from divebook.engine.state import ExecutionState
from divebook.events import Event, catalog
from divebook.projections.failures import ItemNames
from divebook.widgets.feed import Feed
from divebook.widgets.source import Source
from tests.engine.history import begun, events, step

HEADER = {"execution_id": "exec_1", "status": "running", "live": True, "workflow": "w", "now_us": 1}
GRAPH = {"steps": [], "edges": []}


class Log:
    """A log that grows, and the feed that follows it."""

    def __init__(self):
        self.events: list[Event] = []
        self.header, self.questions, self.reads, self.listeners = dict(HEADER), [], [], []
        self.source = Source(
            header=lambda: dict(self.header),
            questions=lambda: list(self.questions),
            graph=GRAPH,
            read=self.read,
            total=lambda: len(self.events),
            subscribe=self.subscribe,
            subscribe_text=lambda _: lambda: None,
            variables=list,
            files=lambda _at, _since: [],
            question_id=ExecutionState("exec_1").question_id,
            names=ItemNames(lambda span: span.name, {}),
        )
        self.feed = Feed(self.source)

    def read(self, after, limit):
        self.reads.append(after)
        return self.events[after : after + limit]

    def subscribe(self, listener):
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def write(self, *facts):
        """Append facts without telling anybody; return the new events."""
        known = len(self.events)
        self.events = events(*(event_fact(event) for event in self.events), *facts)
        return self.events[known:]


def event_fact(event):
    return event.data, event.path, event.step


def steps(count):
    """Return the facts of a log with so many steps."""
    return [*begun(), *(fact for number in range(count) for fact in step(f"s{number}"))]


OPERATION = (catalog.OperationStarted("op_1", "agent_response", {"agent": "critic"}), "main", "s")
OPERATION_DONE = (catalog.OperationCompleted("op_1", "agent_response", 5, "text", {"input_tokens": 3}), "main", "s")
STEP = (catalog.StepStarted("prompt"), "main", "s")
