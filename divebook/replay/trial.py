"""Trials: one step of a run runs again, several times, with its recorded state, beside the recorded result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from divebook.engine.bounds import NANODOLLARS
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
from divebook.projections.comparison import BADGE, FAINT, RULE, TEXT, piece_of, safe, styled
from divebook.projections.model_requests import messages_of, requests_in
from divebook.projections.spans import Span
from divebook.projections.summary import ReadLog
from divebook.runtime.execution import Execution
from divebook.text.format import AS_TEXT, REMOVED, marked, pieces, plural, price, seconds
from divebook.text.redaction import cut, one_line, shared
from divebook.workflow.definition import Workflow
from divebook.workflow.functions import FUNCTION
from divebook.workflow.reader import require_step_of, workflow_text
from divebook.workflow.step import Step

if TYPE_CHECKING:
    import pandas as pd


# Where a step was entered in a run, and the workflow of a trial: this step alone. Pure.


class StepEntry(NamedTuple):
    """One visit of a run to a step, or one item of it."""

    step: str
    path: str
    visit: int
    """Its number on that path."""
    item: int | None
    began: int
    """The number of the event with which it was entered."""
    call: int | None = None
    """Of a call that a workflow function made: its number among those of this agent."""

    @property
    def only(self) -> dict[str, Any]:
        """What the event says of it with which a trial begins."""
        fields: dict[str, Any] = {"step": self.step, "path": self.path, "visit": self.visit, "item": self.item}
        return {name: value for name, value in fields.items() if value is not None}

    @property
    def label(self) -> str:
        """How people call it."""
        if self.call is not None:
            return f"call {self.call} of agent {self.step}"
        item = "" if self.item is None else f"[{self.item}]"
        return f"step {self.step}{item}" + (f", visit {self.visit}" if self.visit > 1 else "")


def entry_of(
    events: Sequence[Event], workflow: Workflow, step: str, visit: int | None = None, item: int | None = None
) -> StepEntry:
    """Return where a run entered a step.

    Parameters
    ----------
    visit
        Which time, from 1 on, in the order of the log; by default the last.
    item
        Which item of `Each`, from 0 on; by default all of them.

    Raises
    ------
    NotFoundError
        The workflow has no such step.
    SetupError
        The run never entered it, or not so often, or had no such item there.
    """
    require_step_of(workflow, step)
    visits = [event for event in events if isinstance(event.data, catalog.StepStarted)]
    visits_of_step = [event for event in visits if event.step == step]
    name = events[0].execution_id
    if not visits_of_step:
        entered = ", ".join(dict.fromkeys(event.step for event in visits)) or "none"
        raise SetupError(
            f"execution {name} never entered step {step!r}, so there is no state to try it with (it "
            f"entered: {entered}); run the workflow up to it first"
        )
    number: object = len(visits_of_step) if visit is None else visit  # whatever a caller has
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= len(visits_of_step):
        message = f"execution {name} entered step {step!r} {plural(len(visits_of_step), 'time')}"
        raise SetupError(f"{message}; visit is 1 to {len(visits_of_step)}, not {number!r}")
    start = visits_of_step[number - 1]
    assert isinstance(start.data, catalog.StepStarted)  # noqa: S101 - they were chosen so
    if item is not None:
        _require_item(events, workflow, start, visits_of_step[number:], item)
    return StepEntry(step, start.path, start.data.visit, item, start.sequence)


def _require_item(
    events: Sequence[Event], workflow: Workflow, start: Event, later: Sequence[Event], item: object
) -> None:
    """Raise `SetupError` unless a visit to a step had an item."""
    if workflow.step(start.step).each is None:
        raise SetupError(f"step {start.step!r} has no Each, so it has no item {item!r}; leave item out")
    end = next((event.sequence for event in later if event.path == start.path), len(events) + 1)
    items = {
        event.data.iteration_index
        for event in events[start.sequence : end - 1]
        if isinstance(event.data, catalog.IterationStarted) and (event.path, event.step) == (start.path, start.step)
    }
    if isinstance(item, bool) or item not in items:
        there = f"items {min(items)} to {max(items)}" if items else "no item"
        raise SetupError(f"step {start.step!r} began {there} there, and not item {item!r}; items are counted from 0")


def alone(workflow: Workflow, step: str) -> Workflow:
    """Return a workflow that does one step of another and ends: nothing follows it, and no failure is caught."""
    tried = workflow.step(step).like(edges=(), end=False, join=False, catch=())
    return with_only(workflow, tried)


def with_only(workflow: Workflow, step: Step) -> Workflow:
    """Return a workflow that does one step, and is in all else like another."""
    data = {name: value for name, value in workflow.to_dict().items() if name not in ("outputs", "triggers")}
    return Workflow.from_dict({**data, "steps": [step.to_dict()], "source": workflow.source})


def require_known(entry: StepEntry, change: Change, before: ExecutionState) -> None:
    """Raise `NotFoundError` for a variable or input that is to be otherwise and that a step was entered without."""
    kinds = ("variable", change.variables, before.variables), ("input", change.inputs, before.inputs)
    for kind, names, there in kinds:
        for name in names:
            if name not in there:
                text = f"{kind} {name!r} cannot be set: step {entry.step!r} was entered without one of that name"
                raise NotFoundError(kind, name, list(there), text)


# What an agent was asked by the code of a workflow function, as a step of its own that can be tried. Pure.


ASKED = "asked"
"""The variable in which a trial of a call finds the recorded prompt: written as it is, it might be a template."""
ANSWER = "answer"
"""The variable that its answer is stored in."""
_ASKS = frozenset({AGENT_TURN, AGENT_RESPONSE, CACHED_RESPONSE})


class CallOfAgent(NamedTuple):
    """One call of an agent."""

    entry: StepEntry
    workflow: Workflow
    """With a step that makes this call alone."""
    prompt: str


def is_call(workflow: Workflow, name: str) -> bool:
    """Return whether a name can only be that of an agent: the workflow is a function, which is its only step."""
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
    calls_of_agent = [span for span in calls if span.called == agent and span.type in _ASKS]
    if not calls_of_agent:
        raise _not_asked(calls, workflow, agent)
    visit: object = len(calls_of_agent) if number is None else number  # whatever a caller has
    if isinstance(visit, bool) or not isinstance(visit, int) or not 1 <= visit <= len(calls_of_agent):
        message = f"workflow function {workflow.name!r} asked agent {agent!r} {plural(len(calls_of_agent), 'time')}"
        raise SetupError(f"{message}; visit is 1 to {len(calls_of_agent)}, not {visit!r}")
    call = calls_of_agent[visit - 1]
    prompt = str((call.parameters or {}).get("prompt", ""))
    step = Step(agent, agent=agent, prompt=f"${{state.{ASKED}}}", output=_class_of(call), store=ANSWER, edges=())
    entry = StepEntry(agent, call.path, 1, None, call.sequences[0], visit)
    return CallOfAgent(entry, with_only(workflow, step), prompt)


def _not_asked(calls: Sequence[Span], workflow: Workflow, name: str) -> Exception:
    step = next((span for span in reversed(calls) if (span.called, span.type) == (name, STEP_EXECUTION)), None)
    if step is not None:
        arguments = ", ".join(f"{key}={readable(value)}" for key, value in (step.parameters or {})["arguments"].items())
        return SetupError(f"{name!r} is a step function, which needs no run to be tried: call it, {name}({arguments})")
    agents = dict.fromkeys(str(span.called) for span in calls if span.type in _ASKS)
    message = f"workflow {workflow.name!r} is a Python function, which asked no agent {name!r} in this run"
    return NotFoundError("agent", name, [workflow.start.name, *agents], message)


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


# What a step came to once: as its run has it, or as a try of it.


RECORDED_NUMBER = 0
"""The number of what is recorded; tries are counted from 1."""


@dataclass(frozen=True, slots=True)
class TrialResult:
    """Result of one run of a step."""

    number: int
    """0 of what is recorded, 1 of the first try."""
    execution: str
    """Id of the execution that it was done in."""
    status: str
    asked: str
    """What a model was asked, as rendered; of other steps the arguments of what they call."""
    value: Any
    """What the step stores, or gives out; None where it has failed."""
    error: str | None
    model: str | None
    tokens: int | None
    """Read and written; None where no model was asked."""
    cost: float | None
    """US dollars; None where no price is known."""
    seconds: float | None

    @property
    def text(self) -> str:
        """Text of the result: its value, or the reason why there is none."""
        if self.error is not None:
            return self.error
        return "" if self.value is None else aligned_as_text(self.value)

    @property
    def title(self) -> str:
        """How people call it."""
        return "recorded" if self.number == RECORDED_NUMBER else f"try {self.number}"


def tried_in(log: Sequence[Event], entry: StepEntry, number: int, execution: Execution) -> TrialResult:
    """Return the result of a step in a log: of its run, or of a try, in which the step has the same place."""
    read = ReadLog.of(log)
    spans, done = _spans_of_call(read, entry) if number == RECORDED_NUMBER and entry.call else _spans(read, entry)
    state = execution.state
    if done is None:  # it was stopped before it could begin, by a bound for instance
        return TrialResult(number, execution.id, state.status, "", None, state.error, None, None, None, None)
    status = done.status if done.ended_us is not None else state.status
    usage = done.usage or _consumed(spans)
    took = done.duration_us
    return TrialResult(
        number,
        execution.id,
        status,
        _last_prompt(spans),
        None if status != catalog.COMPLETED else opened(_value(read, done), lenient=True),
        done.error or (_waits(execution) if status == catalog.WAITING else None),
        next((span.model for span in spans if span.model), None),
        usage.get("input_tokens", 0) + usage.get("output_tokens", 0) if usage else None,
        usage["cost"] / NANODOLLARS if "cost" in usage else None,
        None if took is None else took / 1e6,
    )


def _spans(log: ReadLog, entry: StepEntry) -> tuple[list[Span], Span | None]:
    """Return all that happened in a visit to a step, or in an item of it, and the span of that itself."""
    spans = [span for span in log.spans if (span.path, span.step, span.visit) == (entry.path, entry.step, entry.visit)]
    if entry.item is not None:
        spans = [span for span in spans if span.iteration == entry.item]
    kind = "step" if entry.item is None else "item"
    return spans, next((span for span in reversed(spans) if span.kind == kind), None)


def _spans_of_call(log: ReadLog, entry: StepEntry) -> tuple[list[Span], Span]:
    """Return all that happened in a call that a workflow function made, and its own span."""
    call = next(span for span in log.spans if span.kind == "operation" and span.sequences[0] == entry.began)
    return [span for span in log.spans if span is call or span.holder == call.index], call


def _consumed(spans: Sequence[Span]) -> dict[str, int]:
    """Return what the calls of a turn have consumed together."""
    total = Counter[str]()
    for span in spans:
        total.update(span.usage)
    return total


def _waits(execution: Execution) -> str | None:
    questions = [question.question for question in execution.interrupts[:1]]
    return f"waits for an answer: {questions[0]}" if questions else None


def _value(log: ReadLog, done: Span) -> Any:
    """Return what a step stored at its end, or an item was done with; else its text."""
    if done.kind == "item":
        result = done.result or {}
        return result.get("value", result.get("text"))
    if done.kind == "operation":
        return done.result["output"] if done.type == AGENT_TURN else messages_of(done)[-1].text
    completed = log[done.sequences[-1] - 1]
    before = log[completed.sequence - 2].data
    stored = getattr(completed.data, "stored_variable", None)
    if stored and isinstance(before, catalog.StateMutated):
        return next((change.value for change in before.mutations if change.key == stored), done.result)
    return done.result


def _last_prompt(spans: Sequence[Span]) -> str:
    """Return what models were asked in a step, or what it called with which arguments."""
    first = [request for request in requests_in(spans) if request.n == 1]
    if first:
        texts = ["\n\n".join(message.text for message in request.added if message.role == "user") for request in first]
        return "\n\n".join(dict.fromkeys(filter(None, texts)))
    called = [span for span in spans if span.kind == "operation" and span.holder == -1 and not span.is_pause]
    return "\n\n".join(dict.fromkeys(_told(span.parameters) for span in called if span.parameters))


def _told(parameters: Mapping[str, Any]) -> str:
    """Return what a call is made with; of a script its text."""
    return str(parameters["script"]) if parameters.keys() == {"script"} else aligned_as_text(parameters)


# A trial as text and as HTML that is saved with a notebook: outcomes beside the recorded one, differences marked.


LONGEST = 4_000
"""Characters of a text that are shown."""
MOST = 24
"""Tries that are shown."""
_GRID = "display:grid;grid-template-columns:repeat(auto-fit,minmax(min(260px,100%),1fr));gap:8px"
_CARD = f"min-width:0;box-sizing:border-box;border:{RULE};border-radius:4px;padding:6px 10px"
_SAME = "= as recorded"


def as_text(title: str, recorded: TrialResult, tries: Sequence[TrialResult]) -> str:
    """Return a trial as lines: what was asked, then each outcome, in one text with the recorded one."""
    lines = [f"{_shown(title)}: {_summary(tries)}"]
    for prompt, titles in _prompts(recorded, tries):
        lines += [f"asked {titles}:", *_indented(marked(_shown(recorded.asked), prompt))]
    if not _differ(recorded, tries) and recorded.asked:
        lines += ["asked, each time as recorded:", *_indented(_shown(recorded.asked))]
    lines += [f"recorded: {_figures(recorded)}", *_indented(_shown(recorded.text))]
    for tried in tries[:MOST]:
        is_same = _is_same(recorded, tried)
        text_lines = [_SAME] if is_same else _shown(_beside(recorded, tried)).split("\n")
        lines += [f"{tried.title}: {_figures(tried)}", *(f"  {line}" for line in text_lines)]
    return "\n".join(filter(None, [*lines, _left(tries)]))


def as_html(title: str, recorded: TrialResult, tries: Sequence[TrialResult]) -> str:
    """Return a trial as a page: cards beside each other as far as they fit, the recorded one first."""
    cards = [_card(recorded, safe(_shown(recorded.text)))]
    cards += [_card(tried, _outcome(recorded, tried)) for tried in tries[:MOST]]
    head = f"<strong>{safe(_shown(title))}</strong> {styled(FAINT, safe(_summary(tries)))}"
    return (
        f'<div class="{AS_TEXT}" style="margin:4px 0"><div style="margin:2px 0 6px;overflow-wrap:anywhere">{head}</div>'
        f"{_asked(recorded, tries)}"
        f'<div style="{_GRID}">{"".join(cards)}</div>{safe(_left(tries))}</div>'
    )


def _left(tries: Sequence[TrialResult]) -> str:
    return f"and {len(tries) - MOST} more; .frame() has all" if len(tries) > MOST else ""


def _summary(tries: Sequence[TrialResult]) -> str:
    done = sum(tried.status == COMPLETED for tried in tries)
    parts = [plural(len(tries), "try").replace("trys", "tries")]
    if done < len(tries):
        parts.append(f"{done} completed")
    tokens, costs = ([getattr(tried, name) for tried in tries] for name in ("tokens", "cost"))
    if any(count is not None for count in tokens):
        parts.append(f"{sum(filter(None, tokens)):,} tokens")
    if any(count is not None for count in costs):
        parts.append(price(sum(filter(None, costs))))
    return " · ".join(parts)


def _figures(tried: TrialResult) -> str:
    parts = [tried.status]
    if tried.model:
        parts.append(tried.model)
    if tried.tokens is not None:
        parts.append(f"{tried.tokens:,} tokens")
    if tried.cost is not None:
        parts.append(price(tried.cost))
    if tried.seconds is not None:
        parts.append(seconds(tried.seconds))
    return " · ".join(parts)


def _shown(text: str) -> str:
    return cut(shared().text(text), LONGEST)


def _indented(text: str) -> list[str]:
    return [f"  {line}" for line in text.split("\n")]


def _is_same(recorded: TrialResult, tried: TrialResult) -> bool:
    return (tried.status, tried.text) == (recorded.status, recorded.text)


def _beside(recorded: TrialResult, tried: TrialResult) -> str:
    """Return an outcome in one text with the recorded one; of an error there is nothing to compare."""
    both = recorded.error is None and tried.error is None
    return marked(_shown(recorded.text), _shown(tried.text)) if both else tried.text


def _differ(recorded: TrialResult, tries: Sequence[TrialResult]) -> bool:
    return any(_is_asked_otherwise(recorded, tried) for tried in tries)


def _is_asked_otherwise(recorded: TrialResult, tried: TrialResult) -> bool:
    """Return whether a try was asked something else; one that was stopped before it could ask was asked nothing."""
    return bool(tried.asked) and tried.asked != recorded.asked


def _prompts(recorded: TrialResult, tries: Sequence[TrialResult]) -> Iterator[tuple[str, str]]:
    """Yield each prompt that differs from the recorded one, once, and its tries."""
    titles: dict[str, list[str]] = {}
    for tried in tries:
        if _is_asked_otherwise(recorded, tried):
            titles.setdefault(_shown(tried.asked), []).append(str(tried.number))
    for prompt, numbers in titles.items():
        yield prompt, "in each try" if len(numbers) == len(tries) else f"in try {', '.join(numbers)}"


# --- HTML ------------------------------------------------------------------------------------------------------------


def _asked(recorded: TrialResult, tries: Sequence[TrialResult]) -> str:
    """Return what was asked, with what differs from the recorded text marked in it."""
    if not recorded.asked and not _differ(recorded, tries):
        return ""
    if not _differ(recorded, tries):
        return _box("Asked", "as recorded", safe(_shown(recorded.asked)))
    before = _shown(recorded.asked)
    return "".join(
        _box("Asked", titles, "".join(piece_of(*piece) for piece in pieces(before, prompt)))
        for prompt, titles in _prompts(recorded, tries)
    )


def _box(title: str, note: str, text: str) -> str:
    return (
        f'<div style="border:{RULE};border-radius:4px;padding:6px 10px;margin:0 0 8px">'
        f'<div>{styled(BADGE, title)}{styled(FAINT, safe(note))}</div><div style="{TEXT}">{text}</div></div>'
    )


def _card(tried: TrialResult, text: str) -> str:
    head = f"{styled(BADGE, safe(tried.title))}{styled(FAINT, safe(_figures(tried)))}"
    return f'<div style="{_CARD}"><div style="margin:0 0 4px">{head}</div><div style="{TEXT}">{text}</div></div>'


def _outcome(recorded: TrialResult, tried: TrialResult) -> str:
    """Return the outcome of a try. Words that the recorded outcome lacks are marked; missing ones are not shown."""
    if _is_same(recorded, tried):
        return styled(FAINT, _SAME)
    if recorded.error is not None or tried.error is not None:
        return safe(_shown(tried.text))
    difference = pieces(_shown(recorded.text), _shown(tried.text))
    return "".join(piece_of(piece.sign, piece.text) for piece in difference if piece.sign != REMOVED)


@dataclass(frozen=True, repr=False)
class StepTrial:
    """One step of a run done again, beside what the run has of it; the run stays as it is.

    `Run.try_step`, `Environment.try_step` and ``%dive try`` make them. As the last value of a cell it shows all
    outcomes beside each other.

    Examples
    --------
    >>> from divebook import Environment, Step, Workflow
    >>> environment = Environment(store="memory:")
    >>> flow = Workflow("w", [Step("add", script="inputs.n + 1", store="sum")], inputs=["n"])
    >>> run = environment.start(flow, {"n": 1}).wait()
    >>> trial = environment.try_step(run.id, "add", {"Script": "inputs.n + 10"})
    >>> trial.recorded.value, [tried.value for tried in trial.tries]
    (2, [11])
    """

    source: str
    """Id of the execution that it was forked from."""
    entry: StepEntry
    recorded: TrialResult
    tries: Sequence[TrialResult]
    workflow: Workflow
    """The whole workflow, in which the step has the changed keys."""
    change: Change = field(default=Change())
    """What else the step found otherwise: variables, inputs, the model."""
    written: str = ""
    """The text that defined the workflow of the run; empty if none did."""
    executions: Sequence[Execution] = field(default=())
    """Those of the tries, of origin ``trial``."""

    @property
    def cost(self) -> float | None:
        """What all tries have spent together, in US dollars; None where no price is known."""
        costs = [tried.cost for tried in self.tries if tried.cost is not None]
        return sum(costs) if costs else None

    def frame(self) -> pd.DataFrame:
        """Return a row for what is recorded and for each try: `divebook.analysis.lists.trial_frame`."""
        from divebook.analysis.lists import frame_of

        return frame_of("trial", self)

    @property
    def definition(self) -> str:
        """The whole workflow, in which the step has the changed keys, as a cell that defines it."""
        return f"%%dive workflow {self.workflow.name}\n{workflow_text(self.workflow, self.written, self.entry.step)}"

    def keep(self, file: str | Path | None = None, *, overwrite: bool = False) -> Path | None:
        """Write the workflow with the changed step into a new cell below this one, or into a file; return its path.

        The cell, once it is run, defines the workflow so; the run and the cell that defined it stay as they are.

        Parameters
        ----------
        file
            A file of definitions, ``draft.yaml``.
        """
        from divebook.notebook.session import keep

        return keep(self, file, overwrite=overwrite)

    @property
    def _title(self) -> str:
        changes: dict[str, Any] = dict(self.change.variables)
        changes |= {f"inputs.{name}": value for name, value in self.change.inputs.items()}
        if self.change.model is not None:
            changes["model"] = self.change.model
        text = ", ".join(f"{name} = {one_line(readable(value), 60)}" for name, value in changes.items())
        return f"{self.entry.label} of {self.source}" + (f" with {text}" if text else "")

    def __str__(self) -> str:
        return as_text(self._title, self.recorded, self.tries)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return as_html(self._title, self.recorded, self.tries)
