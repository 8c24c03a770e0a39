"""What an agent was asked by the code of a workflow function, as a step of its own that can be tried. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from divebook.engine.operations import AGENT_RESPONSE, AGENT_TURN, CACHED_RESPONSE, STEP_EXECUTION
from divebook.errors import NotFoundError, SetupError
from divebook.events.classes import kind_of, name_of
from divebook.events.readable import readable
from divebook.events.recorded import opened
from divebook.history.read_log import ReadLog
from divebook.history.span import Span
from divebook.replay.trial_entry import Entered, with_only
from divebook.text.shown import plural
from divebook.workflow.definition import Workflow
from divebook.workflow.functions import FUNCTION
from divebook.workflow.step import Step

ASKED = "asked"
"""The variable in which a trial of a call finds the recorded prompt: written as it is, it might be a template."""
ANSWER = "answer"
"""The variable that its answer is stored in."""
_ASKS = frozenset({AGENT_TURN, AGENT_RESPONSE, CACHED_RESPONSE})


class CallOfAgent(NamedTuple):
    """One call of an agent."""

    entry: Entered
    workflow: Workflow
    """With a step that makes this call alone."""
    prompt: str


def is_call(workflow: Workflow, name: str) -> bool:
    """Whether a name can only be that of a call: the workflow is a function, and that is its one step."""
    return workflow.start.type == FUNCTION and name != workflow.start.name


def call_of(log: ReadLog, workflow: Workflow, agent: str, number: int | None = None) -> CallOfAgent:
    """Return a call of an agent that a workflow function has made.

    Parameters
    ----------
    number
        Which of those of this agent, from 1 on; by default the last.

    Raises
    ------
    NotFoundError
        The function has called nothing of that name.
    SetupError
        It is a step function, or there were not so many calls.
    """
    calls = [span for span in log.spans if span.kind == "operation" and span.holder == -1 and span.called]
    own = [span for span in calls if span.called == agent and span.type in _ASKS]
    if not own:
        raise _not_asked(calls, workflow, agent)
    wanted: object = len(own) if number is None else number  # whatever a caller has
    if isinstance(wanted, bool) or not isinstance(wanted, int) or not 1 <= wanted <= len(own):
        told = f"workflow function {workflow.name!r} asked agent {agent!r} {plural(len(own), 'time')}"
        raise SetupError(f"{told}; visit is 1 to {len(own)}, not {wanted!r}")
    call = own[wanted - 1]
    prompt = str((call.parameters or {}).get("prompt", ""))
    step = Step(agent, agent=agent, prompt=f"${{state.{ASKED}}}", output=_class_of(call), store=ANSWER, edges=())
    entry = Entered(agent, call.path, 1, None, call.sequences[0], wanted)
    return CallOfAgent(entry, with_only(workflow, step), prompt)


def _not_asked(calls: Sequence[Span], workflow: Workflow, name: str) -> Exception:
    step = next((span for span in reversed(calls) if (span.called, span.type) == (name, STEP_EXECUTION)), None)
    if step is not None:
        given = ", ".join(f"{key}={readable(value)}" for key, value in (step.parameters or {})["arguments"].items())
        return SetupError(f"{name!r} is a step function, which needs no run to be tried: call it, {name}({given})")
    known = dict.fromkeys(str(span.called) for span in calls if span.type in _ASKS)
    told = f"workflow {workflow.name!r} is a Python function, which asked no agent {name!r} in this run"
    return NotFoundError("agent", name, [workflow.start.name, *known], told)


def _class_of(call: Span) -> str | None:
    """Return the class that an agent answered with, None for text."""
    result = call.result if isinstance(call.result, dict) else {}
    answer: Any = opened(result.get("output", ""), lenient=True)
    if isinstance(answer, str):
        return None
    if kind_of(type(answer)) is None:
        raise SetupError(
            f"agent {call.called!r} answered with data whose form its log does not say; ask it in a workflow of steps"
        )
    return name_of(type(answer))
