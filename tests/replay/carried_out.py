"""What an execution that goes on has really carried out, and what it had from its source, as its log says."""

from divebook.engine.operations import ENCLOSING, SCRIPT_EXECUTION, TIMER
from divebook.events import catalog

COMPUTED = ENCLOSING | {SCRIPT_EXECUTION, TIMER}


def live_in(execution, at):
    """Return the operations that were really carried out behind an event: type and step of each, with its id."""
    begun, found = {}, []
    for event in execution.history()[at:]:
        data = event.data
        if isinstance(data, catalog.OperationStarted):
            begun[data.operation_id] = (data.operation_type, event.step)
        is_end = isinstance(data, catalog.OperationCompleted | catalog.OperationFailed)
        if is_end and data.served is None and data.operation_type not in COMPUTED:
            found.append((*begun[data.operation_id], data.operation_id))
    return found


def reused_in(execution, at):
    ends = catalog.OperationCompleted | catalog.OperationFailed | catalog.InterruptResolved
    return sum(
        isinstance(event.data, ends) and (event.sequence <= at or event.data.served is not None)
        for event in execution.history()
    )
