"""Executions as a dead process leaves them: begun, not ended, driven by nobody."""

from divebook import Environment, Step, Workflow
from divebook.steps.actions import Action
from divebook.stores import EventStore, MemoryStore

HELLO = Workflow("hello", [Step("one", script="1", store="n"), Step("two", script="state.n + 1", store="m")])
PAID = Workflow("paid", [Step("one", script="1", store="n"), Step("pay", action="pay", store="receipt")])


async def pay():
    return "receipt"


def leave(store: EventStore, workflow: Workflow = HELLO) -> str:
    """Put an execution that got behind its first step into a store; return its id."""
    world = Environment(store=MemoryStore(), actions=[Action("pay", pay)])
    events = world.start(workflow).wait(20).history()
    length = next(event.sequence for event in events if event.event_type == "step_completed")
    store.append(events[0].execution_id, events[:length], 0)
    return events[0].execution_id
