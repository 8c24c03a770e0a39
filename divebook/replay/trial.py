"""Trials: one step of a run is run again, once or several times, and the new results are compared with the recorded
one.

The step gets the recorded state from before the step. The original run does not change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from divebook.definitions.definition import Workflow
from divebook.definitions.functions import FUNCTION
from divebook.definitions.reader import require_step_of, workflow_text
from divebook.definitions.step import Step
from divebook.engine.forks import Change
from divebook.engine.operations import AGENT_RESPONSE, AGENT_TURN, CACHED_RESPONSE, STEP_EXECUTION
from divebook.engine.state import ExecutionState
from divebook.errors import NotFoundError, SetupError
from divebook.events import catalog
from divebook.events.catalog import COMPLETED
from divebook.events.classes import kind_of, name_of
from divebook.events.codec import readable
from divebook.events.event import Event
from divebook.events.recorded import opened
from divebook.projections.compare import as_text as aligned_as_text
from divebook.projections.model_requests import messages_of, requests_in
from divebook.projections.spans import Span
from divebook.projections.summary import ReadLog
from divebook.questions.bounds import dollars
from divebook.report.model import Block, Card, Cards, ChangedText, Paragraph, Report, Text
from divebook.report.shown import Shown
from divebook.runtime.run import Run
from divebook.text.format import plural, price, seconds
from divebook.text.redaction import cut, one_line, shared

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class StepTrial(Shown):
    """Recorded result of one step of a run, and the results of running the step again (tries). The original run does
    not change.

    `Run.try_step` and ``%dive try`` return trials. As the last value of a cell, a trial shows
    all results side by side.

    Examples
    --------
    >>> from divebook import Environment, Step, Workflow
    >>> environment = Environment(store="memory:")
    >>> flow = Workflow("w", [Step("add", script="inputs.n + 1", store="sum")], inputs=["n"])
    >>> run = environment.start(flow, {"n": 1}).wait()
    >>> trial = run.try_step("add", {"Script": "inputs.n + 10"})
    >>> trial.recorded.value, [tried.value for tried in trial.tries]
    (2, [11])
    """

    source: str
    """Id of the execution that contains the recorded result."""
    entry: StepEntry
    recorded: TrialResult
    tries: Sequence[TrialResult]
    workflow: Workflow
    """The whole workflow, with the changed keys of the step."""
    change: Change = field(default=Change())
    """Other changes for the tries: variables, inputs, the model."""
    written: str = ""
    """Source text of the workflow of the run; empty if there is none."""
    runs: Sequence[Run] = field(default=())
    """Executions of the tries, with the origin ``trial``."""

    @property
    def cost(self) -> float | None:
        """Total cost of all new tries in US dollars; None if no price is known."""
        costs = [result.cost for result in self.tries if result.cost is not None]
        return sum(costs) if costs else None

    def frame(self) -> pd.DataFrame:
        """Return a DataFrame with one row for the recorded result and one row per new try:
        `divebook.analysis.lists.trial_frame`.
        """
        # The analysis is a higher layer and imports pandas, so that it is loaded when it is first used.
        from divebook.analysis.lists import frame_of

        return frame_of("trial", self)

    @property
    def definition(self) -> str:
        """Whole workflow with the changed step, as the text of a notebook cell that defines it."""
        return f"%%dive workflow {self.workflow.name}\n{workflow_text(self.workflow, self.written, self.entry.step)}"

    def keep(self, file: str | Path | None = None, *, overwrite: bool = False) -> Path | None:
        """Write the whole workflow with the changed step into a new notebook cell below the current one, or into a
        file. Return the path of the file; None for a cell.

        The new cell changes the workflow only when it is run. The run and the cell with the old definition stay
        unchanged.

        Parameters
        ----------
        file
            Path of a YAML file with definitions, such as ``draft.yaml``.
        """
        # The cell is written by the notebook, which is a higher layer.
        from divebook.notebook.session import keep

        return keep(self, file, overwrite=overwrite)

    @property
    def _title(self) -> str:
        changes: dict[str, Any] = dict(self.change.variables)
        changes |= {f"inputs.{name}": value for name, value in self.change.inputs.items()}
        if self.change.model is not None:
            changes["model"] = self.change.model
        text = ", ".join(f"{name} = {one_line(readable(value), 60)}" for name, value in changes.items())
        return f"{self.entry.display_name} of {self.source}" + (f" with {text}" if text else "")

    def report(self) -> Report:
        """Return the prompts, the recorded result, and each new result with its differences marked."""
        title = (Text(_shown(self._title), "strong"), ": ", Text(_summary(self.tries), "faint"))
        omitted = len(self.tries) - MOST
        note = (Paragraph((f"and {omitted} more; .frame() lists all",)),) if omitted > 0 else ()
        text = _shown(self.recorded.text)
        # Equal texts have no marks, and the same font as the marked ones beside them.
        cards = (_card(self.recorded, ChangedText(text, text)), *self._cards())
        return Report(title, blocks=(*_prompt_cards(self.recorded, self.tries), Cards(tuple(cards)), *note))

    def _cards(self) -> Iterator[Card]:
        """Yield a card about the result of each new try."""
        for result in self.tries[:MOST]:
            yield _card(result, _outcome(self.recorded, result))


# --- the visit to a step, and the workflow of a trial -----------------------------------------------------------------


class StepEntry(NamedTuple):
    """Start of a trial in a run: a visit to a step, or one item of the visit."""

    step: str
    path: str
    visit: int
    """Number of the visit to the step on its path, from 1 on."""
    item: int | None
    began: int
    """Number of the event that started the visit."""
    call: int | None = None
    """For a call that a workflow function made: the number of the call among all calls of the agent."""

    @property
    def only(self) -> dict[str, Any]:
        """Fields `step`, `path`, `visit` and `item` of the place, for the event with which the trial begins. Fields
        that are None are left out.
        """
        fields: dict[str, Any] = {"step": self.step, "path": self.path, "visit": self.visit, "item": self.item}
        return {name: value for name, value in fields.items() if value is not None}

    @property
    def display_name(self) -> str:
        """Name of the place for people, with step, item and visit."""
        if self.call is not None:
            return f"call {self.call} of agent {self.step}"
        item = "" if self.item is None else f"[{self.item}]"
        return f"step {self.step}{item}" + (f", visit {self.visit}" if self.visit > 1 else "")


def entry_of(
    events: Sequence[Event], workflow: Workflow, step: str, visit: int | None = None, item: int | None = None
) -> StepEntry:
    """Find the visit to a step, or the item of the visit, in the log of a run that a trial runs again.

    Parameters
    ----------
    visit
        Number of the visit in the order of the log, from 1 on; by default the last visit.
    item
        Index of the item of `Each`, from 0 on; by default all items.

    Raises
    ------
    NotFoundError
        The workflow does not have the step.
    SetupError
        The run did not enter the step, or not so often, or the visit did not have the item.
    """
    require_step_of(workflow, step)
    # Visits are counted over all paths in the order of the log, unlike `StepStarted.visit`, which counts those of one
    # path.
    visits = [event for event in events if isinstance(event.data, catalog.StepStarted)]
    visits_of_step = [event for event in visits if event.step == step]
    name = events[0].execution_id
    if not visits_of_step:
        entered = ", ".join(dict.fromkeys(event.step for event in visits)) or "none"
        raise SetupError(
            f"execution {name} never entered step {step!r}, so there is no state for a trial (it entered: {entered}); "
            "run the workflow up to that step first"
        )
    number: object = len(visits_of_step) if visit is None else visit  # whatever a caller has
    # `True` is an integer in Python, but no number of a visit.
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= len(visits_of_step):
        message = f"execution {name} entered step {step!r} {plural(len(visits_of_step), 'time')}"
        raise SetupError(f"{message}; visit must be from 1 to {len(visits_of_step)}, not {number!r}")
    start = visits_of_step[number - 1]
    assert isinstance(start.data, catalog.StepStarted)  # noqa: S101 - they were chosen so
    if item is not None:
        _require_item(events, workflow, start, visits_of_step[number:], item)
    return StepEntry(step, start.path, start.data.visit, item, start.sequence)


def _require_item(
    events: Sequence[Event], workflow: Workflow, start: Event, later: Sequence[Event], item: object
) -> None:
    """Raise `SetupError` if an item has not started in a visit to a step. `start` is the event with which the visit
    began.
    """
    if workflow.step(start.step).each is None:
        raise SetupError(f"step {start.step!r} has no Each, so it has no item {item!r}; remove item")
    # The visit ends where its path enters the step again. Visits of other paths in between do not end it.
    end = next((event.sequence for event in later if event.path == start.path), len(events) + 1)
    items = {
        event.data.iteration_index
        for event in events[start.sequence : end - 1]
        if isinstance(event.data, catalog.IterationStarted) and (event.path, event.step) == (start.path, start.step)
    }
    if isinstance(item, bool) or item not in items:
        there = f"items {min(items)} to {max(items)}" if items else "no item"
        raise SetupError(f"step {start.step!r} started {there}, not item {item!r}; items are counted from 0")


def alone(workflow: Workflow, step: str) -> Workflow:
    """Return a workflow that runs only one step of `workflow`, after which it ends. Failures of the step are not
    caught.
    """
    # Edges, joins and catches refer to steps that the trial does not have. A failure is the result of a try, and must
    # not be caught (test_a_failure_is_what_a_try_came_to_whatever_would_catch_it).
    single_step = workflow.step(step).like(edges=(), end=False, join=False, catch=())
    return with_only(workflow, single_step)


def with_only(workflow: Workflow, step: Step) -> Workflow:
    """Return a copy of a workflow that consists of the single step `step` and has no outputs and triggers."""
    # Outputs are computed from variables of steps that do not run.
    data = {name: value for name, value in workflow.to_dict().items() if name not in ("outputs", "triggers")}
    return Workflow.from_dict({**data, "steps": [step.to_dict()], "source": workflow.source})


def require_known(entry: StepEntry, change: Change, before: ExecutionState) -> None:
    """Raise `NotFoundError` if the change of a trial sets a variable or input that did not exist when the step
    started.
    """
    kinds = ("variable", change.variables, before.variables), ("input", change.inputs, before.inputs)
    for kind, names, there in kinds:
        for name in names:
            if name not in there:
                reason = f"no {kind} of that name existed when step {entry.step!r} was entered"
                text = f"{kind} {name!r} cannot be set, because {reason}"
                raise NotFoundError(kind, name, list(there), text)


# --- a call of an agent in a workflow function, as a step that can be tried -------------------------------------------


ASKED = "asked"
"""Name of the variable with the recorded prompt. A prompt in the definition itself would be read as a template."""
ANSWER = "answer"
"""Name of the variable in which the answer of the agent is stored."""
# A turn (with tools) and single requests, live or cached, are calls of an agent.
_ASKS = frozenset({AGENT_TURN, AGENT_RESPONSE, CACHED_RESPONSE})


class CallOfAgent(NamedTuple):
    """Recorded call of an agent by a workflow function, converted to a workflow with a single step. A trial runs this
    workflow.
    """

    entry: StepEntry
    workflow: Workflow
    """Workflow with a single step, which makes only this call."""
    prompt: str


def is_call(workflow: Workflow, name: str) -> bool:
    """Return True if `name` is an agent that a workflow function calls, so that the trial repeats one call of the
    agent. In a workflow function, each name other than that of its only step is the name of an agent.
    """
    return workflow.first_step.type == FUNCTION and name != workflow.first_step.name


def call_of(log: ReadLog, workflow: Workflow, agent: str, number: int | None = None) -> CallOfAgent:
    """Find the recorded call of an agent by a workflow function. Return it as a workflow with one step, which a trial
    can run.

    Parameters
    ----------
    number
        Number of the call among the calls of this agent, from 1 on; by default the last.

    Raises
    ------
    NotFoundError
        The function did not call an agent with this name.
    SetupError
        The name is the name of a step function, or there were fewer calls.
    """
    # `holder == -1`: the call was made by the function itself, and not inside the turn of another agent.
    calls = [span for span in log.spans if span.kind == "operation" and span.holder == -1 and span.called]
    calls_of_agent = [span for span in calls if span.called == agent and span.type in _ASKS]
    if not calls_of_agent:
        raise _not_asked(calls, workflow, agent)
    visit: object = len(calls_of_agent) if number is None else number  # whatever a caller has
    if isinstance(visit, bool) or not isinstance(visit, int) or not 1 <= visit <= len(calls_of_agent):
        message = f"workflow function {workflow.name!r} called agent {agent!r} {plural(len(calls_of_agent), 'time')}"
        raise SetupError(f"{message}; visit must be from 1 to {len(calls_of_agent)}, not {visit!r}")
    call = calls_of_agent[visit - 1]
    prompt = str((call.parameters or {}).get("prompt", ""))
    step = Step(agent, agent=agent, prompt=f"${{state.{ASKED}}}", output=_class_of(call), store=ANSWER, edges=())
    entry = StepEntry(agent, call.path, 1, None, call.sequences[0], visit)
    return CallOfAgent(entry, with_only(workflow, step), prompt)


def _not_asked(calls: Sequence[Span], workflow: Workflow, name: str) -> Exception:
    step = next((span for span in reversed(calls) if (span.called, span.type) == (name, STEP_EXECUTION)), None)
    if step is not None:
        arguments = ", ".join(f"{key}={readable(value)}" for key, value in (step.parameters or {})["arguments"].items())
        return SetupError(f"{name!r} is a step function; call it directly, without a run: {name}({arguments})")
    agents = dict.fromkeys(str(span.called) for span in calls if span.type in _ASKS)
    message = f"workflow {workflow.name!r} is a Python function that called no agent {name!r} in this run"
    return NotFoundError("agent", name, [workflow.first_step.name, *agents], message)


def _class_of(call: Span) -> str | None:
    """Return the name of the class of the structured answer that an agent returned; None if the answer is a text."""
    result = call.result if isinstance(call.result, dict) else {}
    answer: Any = opened(result.get("output", ""), lenient=True)
    if isinstance(answer, str):
        return None
    if kind_of(type(answer)) is None:
        raise SetupError(
            f"agent {call.called!r} answered with data, but the schema of the data is not in the log; run the trial "
            "with a workflow that consists of steps"
        )
    return name_of(type(answer))


# --- the result of a step, recorded or tried --------------------------------------------------------------------------


RECORDED_NUMBER = 0
"""Value of `TrialResult.number` for the recorded result. Tries are counted from 1."""


@dataclass(frozen=True, slots=True)
class TrialResult:
    """Result of one run of a step: the recorded result, or the result of one new try."""

    number: int
    """0 for the recorded result, 1 for the first try."""
    run_id: str
    """Id of the run in which the step ran."""
    status: str
    asked: str
    """Rendered prompt for the model; for steps without a model, the arguments of their calls."""
    value: Any
    """Value that the step stored or returned; None if it failed."""
    error: str | None
    model: str | None
    tokens: int | None
    """Number of input and output tokens; None if no model was called."""
    cost: float | None
    """Cost in US dollars; None if no price is known."""
    duration: timedelta | None
    """Duration of the step; None if it never ended."""

    @property
    def text(self) -> str:
        """Result as text: the value, or the error if the step failed."""
        if self.error is not None:
            return self.error
        return "" if self.value is None else aligned_as_text(self.value)

    @property
    def title(self) -> str:
        """Name of the result for people: ``recorded``, or ``try`` with its number."""
        return "recorded" if self.number == RECORDED_NUMBER else f"try {self.number}"


def tried_in(log: Sequence[Event], entry: StepEntry, number: int, execution: Run) -> TrialResult:
    """Return the result of a step that a log contains: the recorded result (`number` 0), or the result of a new try."""
    read_log = ReadLog.of(log)
    # A recorded call of a workflow function is a span of its own. Everything else, and every try, is a visit to a step.
    spans, span = (
        _spans_of_call(read_log, entry) if number == RECORDED_NUMBER and entry.call else _spans(read_log, entry)
    )
    state = execution.state
    if span is None:  # it was stopped before it could begin, by a bound for instance
        return TrialResult(number, execution.id, state.status, "", None, state.error, None, None, None, None)
    # A span without an end runs, waits, or was interrupted: the state of its execution is then more precise.
    status = span.status if span.ended_us is not None else state.status
    # A step or item has no usage of its own: that of its calls is added up.
    usage = span.usage or _consumed(spans)
    return TrialResult(
        number,
        execution.id,
        status,
        _last_prompt(spans),
        None if status != catalog.COMPLETED else opened(_value(read_log, span), lenient=True),
        span.error or (_waits(execution) if status == catalog.WAITING else None),
        next((span.model for span in spans if span.model), None),
        usage.get("input_tokens", 0) + usage.get("output_tokens", 0) if usage else None,
        dollars(usage.get("cost")),
        None if span.duration_us is None else timedelta(microseconds=span.duration_us),
    )


def _spans(log: ReadLog, entry: StepEntry) -> tuple[list[Span], Span | None]:
    """Return the spans inside a visit to a step or inside one item (`entry`), and the span of the visit or item itself.
    The latter is None if the visit or item never started.
    """
    spans = [span for span in log.spans if (span.path, span.step, span.visit) == (entry.path, entry.step, entry.visit)]
    # Spans of the item only: the step itself and the calls that computed the list of items do not belong to it.
    if entry.item is not None:
        spans = [span for span in spans if span.iteration == entry.item]
    kind = "step" if entry.item is None else "item"
    return spans, next((span for span in reversed(spans) if span.kind == kind), None)


def _spans_of_call(log: ReadLog, entry: StepEntry) -> tuple[list[Span], Span]:
    """Return the spans that belong to a call of a workflow function (`entry`), and the span of the call itself."""
    call = next(span for span in log.spans if span.kind == "operation" and span.sequences[0] == entry.began)
    return [span for span in log.spans if span is call or span.holder == call.index], call


def _consumed(spans: Sequence[Span]) -> dict[str, int]:
    """Return the tokens and cost that several calls consumed together."""
    total = Counter[str]()
    for span in spans:
        total.update(span.usage)
    return total


def _waits(execution: Run) -> str | None:
    questions = [question.question for question in execution.open_questions[:1]]
    return f"waits for an answer: {questions[0]}" if questions else None


def _value(log: ReadLog, span: Span) -> Any:
    """Return the value that a step has stored, or that an item or call has returned. If there is none, return the text
    of its result.
    """
    if span.kind == "item":
        result = span.result or {}
        return result.get("value", result.get("text"))
    if span.kind == "operation":
        return span.result["output"] if span.type == AGENT_TURN else messages_of(span)[-1].text
    # The event that ended the step, and the one directly before it. Both are recorded together: the change of the
    # variable first, then the end of the step.
    completed = log[span.sequences[-1] - 1]
    before = log[completed.sequence - 2].data
    stored = getattr(completed.data, "stored_variable", None)
    if stored and isinstance(before, catalog.StateMutated):
        # `span.result` is the text of the result; the variable has the value itself.
        return next((change.value for change in before.mutations if change.key == stored), span.result)
    return span.result


def _last_prompt(spans: Sequence[Span]) -> str:
    """Return the prompts that a step sent to models, as one text. For a step that calls no model, return the arguments
    of its calls.
    """
    # The first request of each turn has the prompt. Later requests only add results of tools.
    first = [request for request in requests_in(spans) if request.n == 1]
    if first:
        texts = ["\n\n".join(message.text for message in request.added if message.role == "user") for request in first]
        # Several items may have the same prompt; `dict.fromkeys` removes the repetitions and keeps the order.
        return "\n\n".join(dict.fromkeys(filter(None, texts)))
    called = [span for span in spans if span.kind == "operation" and span.holder == -1 and not span.is_pause]
    return "\n\n".join(dict.fromkeys(_arguments_text(span.parameters) for span in called if span.parameters))


def _arguments_text(parameters: Mapping[str, Any]) -> str:
    """Return the arguments of a call as text; for a script, return its code."""
    # A script is shown as code, and not as `script: ...`.
    return str(parameters["script"]) if parameters.keys() == {"script"} else aligned_as_text(parameters)


# --- report of a trial: results beside the recorded result, with marked differences -----------------------------------


LONGEST = 4_000
"""Maximum number of characters shown of a text."""
MOST = 24
"""Maximum number of tries shown."""
_SAME = "= as recorded"


def _summary(tries: Sequence[TrialResult]) -> str:
    completed = sum(result.status == COMPLETED for result in tries)
    parts = [plural(len(tries), "try").replace("trys", "tries")]
    if completed < len(tries):
        parts.append(f"{completed} completed")
    tokens, costs = ([getattr(result, name) for result in tries] for name in ("tokens", "cost"))
    # A try that was stopped by a bound has no tokens, and counts as 0.
    if any(count is not None for count in tokens):
        parts.append(f"{sum(filter(None, tokens)):,} tokens")
    if any(count is not None for count in costs):
        parts.append(price(sum(filter(None, costs))))
    return " · ".join(parts)


def _figures(result: TrialResult) -> str:
    parts = [result.status]
    if result.model:
        parts.append(result.model)
    if result.tokens is not None:
        parts.append(f"{result.tokens:,} tokens")
    if result.cost is not None:
        parts.append(price(result.cost))
    if result.duration is not None:
        parts.append(seconds(result.duration.total_seconds()))
    return " · ".join(parts)


def _shown(text: str) -> str:
    return cut(shared().text(text), LONGEST)


def _differ(recorded: TrialResult, tries: Sequence[TrialResult]) -> bool:
    return any(_has_other_prompt(recorded, result) for result in tries)


def _has_other_prompt(recorded: TrialResult, result: TrialResult) -> bool:
    """Return True if a new try sent another prompt to the model than the recorded run.

    A try that was stopped before its first prompt does not count.
    """
    return bool(result.asked) and result.asked != recorded.asked


def _prompts(recorded: TrialResult, tries: Sequence[TrialResult]) -> Iterator[tuple[str, str]]:
    """Yield the prompts of new tries that differ from the recorded prompt, each with the numbers of the tries that sent
    it.
    """
    # {prompt: numbers of the tries that sent it}.
    titles: dict[str, list[str]] = {}
    for result in tries:
        if _has_other_prompt(recorded, result):
            titles.setdefault(_shown(result.asked), []).append(str(result.number))
    for prompt, numbers in titles.items():
        yield prompt, "in each try" if len(numbers) == len(tries) else f"in try {', '.join(numbers)}"


def _prompt_cards(recorded: TrialResult, tries: Sequence[TrialResult]) -> Iterator[Card]:
    """Yield cards about prompts: one with the recorded prompt if all tries used it, else one for each other prompt with
    its differences marked.
    """
    before = _shown(recorded.asked)
    if _differ(recorded, tries):
        for prompt, titles in _prompts(recorded, tries):
            yield Card(Text("asked", "badge"), (ChangedText(before, prompt),), note=titles)
    elif recorded.asked:
        yield Card(Text("asked", "badge"), (ChangedText(before, before),), note="each time as recorded")


def _card(result: TrialResult, content: Block) -> Card:
    return Card(Text(result.title, "badge"), (content,), note=_figures(result))


def _outcome(recorded: TrialResult, result: TrialResult) -> Block:
    """Return the result of a new try, with its differences from the recorded result marked."""
    if (result.status, result.text) == (recorded.status, recorded.text):
        return Paragraph((Text(_SAME, "faint"),))
    # An error is not compared word by word with a value: all of it is new.
    if recorded.error is not None or result.error is not None:
        text = _shown(result.text)
        return ChangedText(text, text)
    return ChangedText(_shown(recorded.text), _shown(result.text))
