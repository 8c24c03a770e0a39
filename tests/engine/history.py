"""Short logs for tests of the rules."""

from divebook.engine.checkpoint import dump_state, load_state
from divebook.engine.evolve import fold
from divebook.events import Event, catalog

STARTED = catalog.ExecutionStarted("w", {"x": 1})


def events(*facts):
    """Return a log; each fact is a payload or ``(payload, path[, step])``."""
    log = []
    for sequence, fact in enumerate(facts, start=1):
        data, path, step = (*fact, "", "")[:3] if isinstance(fact, tuple) else (fact, "", "")
        log.append(Event(f"event_{sequence}", "exec_1", sequence, sequence * 1_000_000, data, path, step))
    return log


def state_after(*facts):
    """Return the fold of such a log."""
    return fold("exec_1", events(*facts))


def reloaded(state, history):
    """Return what comes back of the checkpoint of a state whose log is at hand."""
    facts = {event.sequence: event.data for event in history}
    return load_state(dump_state(state), lambda sequences: {number: facts[number] for number in sequences})


def step(name, *inside, path="main", visit=1, output=""):
    """Return the facts of a step that completes."""
    return (
        (catalog.StepStarted("script", None, visit), path, name),
        *((fact, path, name) for fact in inside),
        (catalog.StepCompleted(output), path, name),
    )


def begun(start="a"):
    """Return the facts with which every log begins."""
    return STARTED, (catalog.PathStarted(start), "main")
