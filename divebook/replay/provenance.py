"""Provenance of a value: all its direct and indirect causes, which are steps, calls, variables, inputs and choices.

`divebook.replay.origins` indexes a log; this module collects the causes of one value from that index, transitively, and
prints them as text, nested HTML or a Mermaid graph. Example of the text for ``why(log, "y")``, where a step ``b`` has
computed ``y`` from ``x``: ``y`` set by step b, from ``x``, and indented below it ``x`` set by step a.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from divebook.engine.forks import ends_in
from divebook.engine.operations import (
    AGENT_RESPONSE,
    AGENT_TURN,
    CHILD_WORKFLOW,
    SCRIPT_EXECUTION,
    TOOL_CALL,
    operation_arguments,
    operation_kind,
)
from divebook.errors import NotFoundError, SetupError
from divebook.events import Event, catalog
from divebook.events.codec import readable
from divebook.events.recorded import opened
from divebook.projections.model_requests import people_messages
from divebook.replay.origins import INPUT, Origins, StepCall, ValueOrigin
from divebook.report.hints import advised
from divebook.report.model import Report, Tree
from divebook.report.shown import Shown
from divebook.stores.history import History
from divebook.text.arguments import describe
from divebook.text.format import branch_name, plural
from divebook.text.redaction import Redactor, one_line, shared

if TYPE_CHECKING:
    import pandas as pd


class ProvenanceText:
    """Formats the parts of a provenance (the causes of a value) as texts, with secrets removed."""

    def __init__(self, why: ProvenanceTree) -> None:
        self.why = why
        # A copy of the shared redactor, since it learns the inputs of this run only.
        self._redactor: Redactor = shared().fresh()
        first = why.event(1).data
        if isinstance(first, catalog.ExecutionStarted):
            self._redactor.learn(first.inputs)
        workflow = first.definition if isinstance(first, catalog.ExecutionStarted) else None
        # {name of a step: its type}; empty if the log has no definition.
        self.types = {step["name"]: step.get("type", "") for step in (workflow or {}).get("steps", ())}

    def head(self, origin: ValueOrigin) -> str:
        """Return one line that describes the origin of a value or a choice. In the formatted provenance, lines about
        its causes follow it.
        """
        name, value, text = self.parts(origin)
        return f"{name} = {value}: {text}" if name else text

    def parts(self, origin: ValueOrigin) -> tuple[str, str, str]:
        """Return the parts of the line about an origin: the name of the variable, its value, and the origin in words.

        Name and value are empty if the words contain the whole line, such as for a choice.
        """
        if origin.kind == "choice":
            return "", "", self._choice(origin)
        if origin.kind == "caught":
            return "", "", self._caught(origin)
        text = self._origin_text(origin)
        has_value = origin.kind not in ("state", "deleted", "kept")
        return (one_line(origin.name, VALUE), self.value(origin), text) if has_value else ("", "", text)

    def _origin_text(self, origin: ValueOrigin) -> str:
        # Kinds that are not listed were set by a step; they share the last form.
        name = one_line(origin.name, VALUE)
        at = f"at event {origin.sequence:,}"
        place = self._place(origin)
        match origin.kind:
            case "input":
                # Event 1 sets the inputs of a run. A later event that sets one is a fork.
                return f"changed by a fork {at}" if origin.sequence > 1 else "passed at the start"
            case "state":
                return f"all variables {at}"
            case "deleted":
                return f"{name} was deleted by {place} {at}"
            case "kept":
                was = "stayed as it was" if origin.reads else "was not set"
                return f"{name} {was} {at}: {place} {'did not change it' if origin.path else 'took another branch'}"
            case "output":
                return f"the text of {place}"
        return f"{place} {at}{self._kind(origin)}"

    def _place(self, origin: ValueOrigin) -> str:
        # Without a step, a variable comes from the start (carried over by the predecessor of a continued execution) or
        # from a fork.
        if not origin.step:
            opening = self.why.event(origin.sequence).data
            if isinstance(opening, catalog.ExecutionStarted):
                return f"carried over from execution {opening.parent}"
            return "changed by a fork"
        item = "" if origin.item is None else f"[{origin.item}]"
        visit = f", visit {origin.visit}" if origin.visit > 1 else ""
        branch = branch_name(origin.path)
        return f"step {one_line(origin.step, VALUE)}{item}{visit}{f', {branch}' if branch else ''}"

    def _kind(self, origin: ValueOrigin) -> str:
        kind = self.types.get(origin.step, "")
        name = {"script": "script", "function": "function", "stage": "stage"}.get(kind, "")
        return f" ({name})" if name else ""

    def _choice(self, origin: ValueOrigin) -> str:
        events = [self.why.event(sequence).data for sequence in origin.events]
        parts = [
            f"{self._clean(data.condition)} was {'true' if data.result else 'false'}"
            for data in events
            if isinstance(data, catalog.ConditionEvaluated)
        ]
        # The conditions of several edges may hold at once: the path then splits.
        ways = [data.target for data in events if isinstance(data, catalog.ConditionEvaluated) and data.result]
        went = f"went to {' and '.join(ways)}" if ways else "took none of these branches"
        return f"because {self._place(origin)} {went} at event {origin.sequence:,}: {', '.join(parts)}"

    def _caught(self, origin: ValueOrigin) -> str:
        data = self.why.event(origin.events[0]).data
        if isinstance(data, catalog.StepCaught):
            error = self._clean(data.error)
            return (
                f"because {self._place(origin)} failed at event {origin.sequence:,} and went to {data.target}: {error}"
            )
        # A step with a `catch` depends on its absence of failure, so that a step without a failure has an origin as
        # well.
        return f"because {self._place(origin)} did not fail (event {origin.sequence:,})"

    def value(self, origin: ValueOrigin) -> str:
        """Return the value to which an origin (an entry of the provenance) belongs, as a short text."""
        return self._shown(origin.name.rpartition(".")[2], self.why.value(origin))

    def clean(self, origin: ValueOrigin) -> Any:
        """Return the recorded value to which an origin belongs, without secrets."""
        return self._redactor.under(origin.name.rpartition(".")[2], self.why.value(origin))

    def calls(self, origin: ValueOrigin) -> Iterator[tuple[str, StepCall | None]]:
        """Yield one line for each of the first calls of the step that set a value, with the call. `origin` is the
        origin of the value. The last lines may be remarks without a call.
        """
        # Scripts are left out: the step itself names its script, and a script has no arguments.
        calls = [call for call in origin.calls if call.type != SCRIPT_EXECUTION]
        for call in calls[:MOST_CALLS]:
            # Calls inside the turn of an agent are indented below it.
            yield f"{'  ' if call.within is not None else ''}{self.call(call)}", call
        if len(calls) > MOST_CALLS:
            yield f"... and {plural(len(calls) - MOST_CALLS, 'call')} more", None
        if self.types.get(origin.step) == "function" and origin.kind == "set":
            yield "what the function did between its calls is not recorded", None

    def call(self, call: StepCall) -> str:
        """Format a call of a step as one line: its kind and name, its arguments, and its result or error."""
        item = "" if call.item is None else f"item {call.item}: "
        data = self.why.event(call.sequence).data
        if isinstance(data, catalog.InterruptRaised):
            question = f"question {self._text(data.question)}"
            return f"{item}{question} -> {self._answer(call)}"
        if not isinstance(data, catalog.OperationStarted):
            return f"{item}{operation_kind(call.type)}"
        arguments = self._arguments(call, data.parameters or {})
        name = f" {one_line(call.name, VALUE)}" if call.name else ""
        return f"{item}{operation_kind(call.type)}{name}{arguments} -> {self._end(call)}"

    def _end_event(self, call: StepCall) -> catalog.Payload | None:
        """Return the data of the event with which a call ended; None if it has not ended."""
        data = None if call.ended is None else self.why.event(call.ended).data
        if not isinstance(data, catalog.ExecutionForked):
            return data
        # The change of a fork has set the end, which has no event of its own.
        began = self.why.event(call.sequence).data
        name = began.interrupt_id if isinstance(began, catalog.InterruptRaised) else getattr(began, "operation_id", "")
        return ends_in(data).get(name)

    def _arguments(self, call: StepCall, parameters: Mapping[str, Any]) -> str:
        arguments = operation_arguments(parameters)
        if arguments is not None and call.type != CHILD_WORKFLOW:
            text = ", ".join(f"{name}={self._shown(name, value)}" for name, value in arguments.items())
            return f"({one_line(text, CALL)})"
        prompt = parameters.get("prompt")
        return f" {self._text(prompt)}" if isinstance(prompt, str) else ""

    def _end(self, call: StepCall) -> str:
        data = self._end_event(call)
        if isinstance(data, catalog.OperationFailed):
            return f"failed: {self._clean(data.error)}"
        if not isinstance(data, catalog.OperationCompleted):
            return "not ended"
        result = data.result
        if call.type == CHILD_WORKFLOW and isinstance(result, Mapping):
            # The causes inside a child execution are in its own log.
            child = result.get("execution_id", "")
            look = advised(f"why NAME {child}", f"divebook.show({child!r}).why(NAME)")
            return f"{self._shown('', result.get('outputs'))} ({look} says where that came from)"
        if isinstance(result, Mapping) and call.type == AGENT_RESPONSE:
            return self._response_text(result)
        if isinstance(result, Mapping):  # of a tool, and of a turn
            result = next((result[name] for name in _ANSWERS.get(call.type, ()) if name in result), result)
        return self._shown("", result)

    def _response_text(self, response: Mapping[str, Any]) -> str:
        """Return the text of a model's response, followed by the names of the tools that it calls."""
        messages = people_messages([response])
        texts = [message.text for message in messages if message.text]
        # A response consists of texts and of requests for tools; only the names of the tools are shown.
        tools = [str(block["tool"]) for message in messages for block in message.content if "tool" in block]
        return ", ".join([*map(self._text, texts), *(f"asks for {one_line(name, VALUE)}" for name in tools)])

    def _answer(self, call: StepCall) -> str:
        data = self._end_event(call)
        if isinstance(data, catalog.InterruptExpired):
            return "no answer in time"
        if not isinstance(data, catalog.InterruptResolved):
            return "not answered"
        # An answer of one part is shown as that part alone: "yes" instead of {text: yes}.
        response = data.response
        answer = {k: v for k, v in response.items() if v is not None} if isinstance(response, Mapping) else response
        value = next(iter(answer.values())) if isinstance(answer, Mapping) and len(answer) == 1 else answer
        return f"{self._shown('', value)}{f', by {one_line(data.answered_by, VALUE)}' if data.answered_by else ''}"

    def _shown(self, name: str, value: Any) -> str:
        # `under` redacts by the name too: the value of `password` is hidden whatever it is.
        clean = self._redactor.under(name, value)
        return self._text(clean) if isinstance(clean, str) else self._clean(readable(clean))

    def _text(self, text: str) -> str:
        return f'"{self._clean(text)}"'

    def _clean(self, text: str) -> str:
        return one_line(self._redactor.text(text), VALUE)


# --- transitive causes of a value -------------------------------------------------------------------------------------


class ProvenanceTree:
    """Provenance of a value: the value of a variable with all its direct and indirect causes, read from the index of
    its log.

    Parameters
    ----------
    root
        The origin of the value.
    known
        Origins of all values and choices of the log, by number.
    log
        The events, from the first on. They are read only when a part of the tree is shown.
    at
        The number of the event after which the variable had the value.
    """

    def __init__(self, root: ValueOrigin, origins: Sequence[ValueOrigin], log: Sequence[Event], at: int) -> None:
        self.root = root
        self.at = at
        self._all_origins = origins
        self._log = log
        self._events: dict[int, Event] = {}
        self.depths = self._reached()
        """Distance of each cause from the value, by number of its origin; the value itself is first, with 0."""

    def _reached(self) -> dict[int, int]:
        root = self.root
        origins = self._all_origins
        # Breadth first, so that `depths` has the shortest distance, and the nearest causes come first.
        depths = {root.number: 0}
        waiting = list(root.causes)
        depth = 0
        while waiting:
            depth += 1
            following: list[int] = []
            for number in waiting:
                # A value may be a cause in several ways, and a loop in a workflow may lead back to the same origin.
                if number not in depths:
                    depths[number] = depth
                    origin = origins[number]
                    following += origin.reads
                    following += origin.because
            waiting = following
        return depths

    @property
    def log(self) -> Sequence[Event]:
        """The events, from the first on."""
        return self._log

    @property
    def name(self) -> str:
        """Name of the variable whose value is explained; ``inputs.NAME`` for an input, ``state`` for all variables
        together.
        """
        return self.root.name

    def origin(self, number: int) -> ValueOrigin:
        """Return the origin of the explained value or of one of its causes, by its number in the index."""
        # The root may be an origin outside of the index: the whole state, or one row of a list.
        return self.root if number == self.root.number else self._all_origins[number]

    @property
    def origins(self) -> list[ValueOrigin]:
        """Origins of the explained value and of all its direct and indirect causes, the nearest first."""
        return [self.origin(number) for number in self.depths]

    @property
    def inputs(self) -> list[str]:
        """Names of the inputs on which the explained value depends."""
        return sorted({origin.name.partition(".")[2] for origin in self.origins if origin.kind == "input"})

    @property
    def variables(self) -> list[str]:
        """Names of the other variables on which the explained value depends."""
        names = {origin.name for origin in self.origins if origin.kind in ("set", "deleted", "kept")}
        return sorted(names - {self.name})

    @property
    def steps(self) -> list[str]:
        """Names of the steps that contributed to the explained value, the latest first."""
        origins = sorted(self.origins, key=lambda origin: -origin.sequence)
        return list(dict.fromkeys(origin.step for origin in origins if origin.step))

    def value(self, origin: ValueOrigin) -> Any:
        """Return the recorded value to which an origin (an entry of the provenance) belongs. Return None if it belongs
        to no value, but for example to a choice.
        """
        # The other kinds (choices, kept and deleted variables) refer to events that hold no value of them.
        data = self.event(origin.sequence).data if origin.kind in ("set", "input", "output") else None
        match data:
            case catalog.StateMutated():
                return next(
                    # The origin of a row is named `x[3]`, and its event sets the variable `x`.
                    (mutation.value for mutation in data.mutations if mutation.key == origin.name.partition("[")[0]),
                    None,
                )
            case catalog.IterationCompleted() | catalog.IterationFailed():
                result = data.result or {}
                value: Any = result.get("value", result.get("text"))
                # A row that was asked for with a column has only the value of this column.
                return value if origin.column is None else value[origin.column]
            case catalog.ExecutionStarted():
                values = data.inputs if origin.kind == "input" else data.state or {}
                return values.get(origin.name.removeprefix(INPUT))
            case catalog.ExecutionForked():
                change = data.change or {}
                part = change.get("inputs" if origin.kind == "input" else "variables", {})
                return part.get(origin.name.removeprefix(INPUT))
            case catalog.ExecutionCompleted():
                return data.outputs.get(origin.name)
        return None

    def event(self, sequence: int) -> Event:
        """Return the event with the given number. Events are read only once, and then cached."""
        # A tree has few events of a long log, so that they are read one by one
        # (test_one_event_of_a_long_log_is_read_alone).
        if sequence not in self._events:
            self._events[sequence] = _event(self._log, sequence)
        return self._events[sequence]


def _event(log: Sequence[Event], sequence: int) -> Event:
    """Return the event with the given number. If the log is in a store, only this event is read, and not the whole page
    that contains it.
    """
    if isinstance(log, History):
        return log.store.read(log.execution_id, sequence - 1, 1)[0]
    return log[sequence - 1]


# --- rows and columns that items of `Each` produced -------------------------------------------------------------------
#
# The result of a step with items is a list with one row per item, in their order; skipped items have no row. If another
# step converts such a list, for example to a DataFrame, the log contains only the values. If a column has, row by row,
# the values that the items returned, the items are the origin of the column. Else the log cannot tell the origin.


def cell_of(tree: ProvenanceTree, origins: Sequence[ValueOrigin], row: int, column: str | None) -> list[ValueOrigin]:
    """Return the origin of one row or cell of a list or table whose rows the items of `Each` produced. Causes that are
    not in `origins` yet come before it in the result.

    Raises
    ------
    NotFoundError
        The row or column does not exist, or the log does not say which item made it.
    """
    origin = tree.root
    # The variable itself is the result of a step with items, so that row and item correspond.
    if origin.items:
        return [_of_item(tree, origins, origin, row, column)]
    # Otherwise the variable was computed from such a result. A column of it is compared with the column of each result
    # of items among its causes: equal values in equal order identify the items.
    values = opened(tree.value(origin), lenient=True)
    # Without a column, the first column that fits decides for the whole row.
    names = _columns(values) if column is None else [column]
    for name in names:
        positions = _values_of_column(values, name)
        for item_origin in _made_of_items(tree, len(positions)):
            # The items may have returned the values themselves (None), or records that have the column.
            for inner in (None, name):
                if positions and positions == _values_of_column(opened(tree.value(item_origin), lenient=True), inner):
                    item = _of_item(tree, origins, item_origin, row, inner)
                    title = _title(origin.name, row, name)
                    return [
                        item,
                        # The item comes first, as `len(origins)`, so that the requested origin after it has the next
                        # number.
                        replace(origin, number=len(origins) + 1, name=title, reads=(item.number,), column=name),
                    ]
    raise NotFoundError(
        "row",
        str(row),
        (),
        f"the log does not record which item produced row {row} of {origin.name}, because no step with items set "
        f"the values in its {'columns' if column is None else f'column {column}'}; ask for {origin.name} as a whole",
    )


def _made_of_items(tree: ProvenanceTree, length: int) -> Iterator[ValueOrigin]:
    return (origin for origin in tree.origins if len(origin.items) == length)


def _of_item(
    tree: ProvenanceTree, origins: Sequence[ValueOrigin], item_origin: ValueOrigin, row: int, column: str | None
) -> ValueOrigin:
    """Return the origin of one row or cell in the result of a step with `Each`, in which each row was produced by one
    item.
    """
    if not 0 <= row < len(item_origin.items):
        raise NotFoundError(
            "row", str(row), (), f"{item_origin.name} has {len(item_origin.items):,} rows, so it has no row {row}"
        )
    index, sequence = item_origin.items[row]
    # The event that ended the item has its value.
    value = tree.value(replace(item_origin, sequence=sequence))
    if column is not None and not (isinstance(value, Mapping) and column in value):
        names = list(value) if isinstance(value, Mapping) else []
        raise NotFoundError("column", column, names, f"row {row} of {item_origin.name} has no column {column}")
    return replace(
        item_origin,
        # The number after the last one of the index; `why` appends the origin there.
        number=len(origins),
        name=_title(item_origin.name, row, column),
        sequence=sequence,
        item=index,
        column=column,
        items=(),
        # Calls and loop variables of the other items did not contribute to this row.
        calls=tuple(call for call in item_origin.calls if call.item == index),
        reads=tuple(cause for cause in item_origin.reads if _is_read_by(origins[cause], item_origin, index)),
    )


def _is_read_by(cause: ValueOrigin, item_origin: ValueOrigin, index: int) -> bool:
    """Return True if an item of `Each` may have read a value (`cause`). It cannot have read the loop variable of
    another item.
    """
    is_of_the_step = (cause.path, cause.step, cause.visit) == (item_origin.path, item_origin.step, item_origin.visit)
    return not is_of_the_step or cause.item in (None, index)


def _title(name: str, row: int, column: str | None) -> str:
    return f"{name}[{row}]" if column is None else f"{name}[{row}][{column!r}]"


def _columns(values: Any) -> list[str]:
    """Return the names of the columns of a table: of a DataFrame, or of the first record in a list of records; an empty
    list for other values.
    """
    names = getattr(values, "columns", None)
    if names is None and isinstance(values, list) and values and isinstance(values[0], Mapping):
        names = values[0]
    return [] if names is None else [str(name) for name in names]


def _values_of_column(values: Any, column: str | None) -> list[Any]:
    """Return the values in a column of a table, or the list itself if `column` is None; an empty list if the table has
    no such column.
    """
    if isinstance(values, list):
        if column is None:
            return values
        return [row.get(column) for row in values] if all(isinstance(row, Mapping) for row in values) else []
    is_table = column is not None and column in _columns(values)
    return list(values[column].tolist()) if is_table else []


# --- text -------------------------------------------------------------------------------------------------------------


VALUE, CALL = 60, 80
"""Maximum number of characters of a value, and of the arguments of a call."""
_ANSWERS: Mapping[str, tuple[str, ...]] = {TOOL_CALL: ("result", "message"), AGENT_TURN: ("text", "output")}
"""Keys of the part of a call's result that is shown, by type of the operation."""
MOST_LINES, MOST_IN_TEXT, MOST_CALLS, DEEPEST = 240, 60, 4, 12
"""Maximum number of lines, of lines in text, of calls shown for one step, and of levels of causes."""


class Entry(NamedTuple):
    """One line of a formatted provenance: a cause, a call of the step that set a value, or a remark."""

    depth: int
    """Indentation: the distance from the explained value."""
    text: str
    """The whole line."""
    origin: ValueOrigin | None = None
    call: StepCall | None = None
    is_repeated: bool = False
    """True if the cause was already shown, and is only named here."""


def lines(why: ProvenanceTree, most: int = MOST_LINES) -> Iterator[tuple[int, str]]:
    """Yield the lines of text that show a provenance (the causes of a value), each with its depth of indentation."""
    return ((entry.depth, entry.text) for entry in entries(why, ProvenanceText(why), most))


def entries(why: ProvenanceTree, texts: ProvenanceText, most: int = MOST_LINES) -> Iterator[Entry]:
    """Yield the lines that show a provenance (the causes of a value), each with its cause or call.

    A value that was already shown is only named again. The last line says that causes were left out.
    """
    # Depth first, in the order of the causes: each cause is followed by its own causes, indented.
    shown = set[int]()
    count = 0
    is_cut = False
    # A stack of (depth, number), whose last entry is shown next. Causes are therefore added in reverse order.
    waiting = [(0, why.root.number)]
    while waiting:
        depth, number = waiting.pop()
        origin = why.origin(number)
        # The remaining entries are still taken from the stack, but nothing is shown any more.
        if count >= most or depth > DEEPEST:
            is_cut = True
        # Choices have no name, and are not repeated.
        elif number in shown:
            if origin.name:
                text = f"{one_line(origin.name, VALUE)}: see above (event {origin.sequence:,})"
                yield Entry(depth, text, origin, is_repeated=True)
                count += 1
        else:
            shown.add(number)
            of_it = [
                Entry(depth, texts.head(origin), origin),
                *(Entry(depth + 1, text, None, call) for text, call in texts.calls(origin)),
            ]
            yield from of_it
            count += len(of_it)
            waiting += [(depth + 1, cause) for cause in reversed(origin.causes)]
    if is_cut:
        yield Entry(0, _rest(why))


def _rest(why: ProvenanceTree) -> str:
    return f"... {len(why.depths):,} values and choices in all; .frame() lists them"


# --- report and flow chart -------------------------------------------------------------------------------------------


OPEN, ALL_OPEN = 2, 30
"""Levels that are unfolded in a long text, and the number of lines up to which all levels are unfolded."""
MOST_NODES = 80
_SHAPES = {"input": ("([", "])"), "choice": ("{{", "}}"), "caught": ("{{", "}}")}


def mermaid(why: ProvenanceTree) -> str:
    """Format a provenance (the causes of a value) as a flow chart in Mermaid's language, with edges from causes to
    effects.

    Edges from choices are dotted. Only the nearest causes are drawn if there are many.
    """
    texts = ProvenanceText(why)
    # The nearest causes come first in `depths`. Edges to causes that are not drawn are left out.
    shown = [*why.depths][:MOST_NODES]
    chart = ["flowchart LR"]
    for number in shown:
        origin = why.origin(number)
        begin, end = _SHAPES.get(origin.kind, ("[", "]"))
        chart.append(f'  n{number}{begin}"{_quoted(texts.head(origin))}"{end}')
    for number in shown:
        origin = why.origin(number)
        chart += [f"  n{cause} --> n{number}" for cause in origin.reads if cause in shown]
        chart += [f"  n{cause} -.-> n{number}" for cause in origin.because if cause in shown]
    if len(why.depths) > len(shown):
        chart.append(f'  more["... {len(why.depths) - len(shown):,} more"]')
    return "\n".join(chart)


def _quoted(text: str) -> str:
    # Mermaid reads entities without an ampersand: `#quot;`. `#` is replaced first, since the others contain it.
    return text.replace("#", "#35;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")


class Provenance(Shown, ProvenanceTree):
    """Provenance of one value: its causes as text, HTML, DataFrame and flow chart.

    `Run.why` returns a provenance. Its `str` explains the value in words;
    notebooks show nested parts that unfold.

    Examples
    --------
    >>> from divebook import Environment, Step, Workflow
    >>> steps = [Step("a", script="inputs.n + 1", store="x"), Step("b", script="state.x * 2", store="y")]
    >>> environment = Environment(store="memory:", workflows=[Workflow("sum", steps, inputs=["n"])])
    >>> why = environment.start("sum", {"n": 1}).wait().why("y")
    >>> print(why)
    y = 4: step b at event 11 (script)
      x = 2: step a at event 6 (script)
        inputs.n = 1: passed at the start
    >>> [origin.name for origin in why.origins], why.inputs
    (['y', 'x', 'inputs.n'], ['n'])
    """

    def frame(self) -> pd.DataFrame:
        """Return a DataFrame with one row per cause of the explained value: `divebook.analysis.lists.why_frame`."""
        from divebook.analysis.lists import frame_of

        return frame_of("why", self)

    @property
    def graph(self) -> str:
        """The provenance as a flow chart in Mermaid's language, which JupyterLab and many web sites draw."""
        return mermaid(self)

    def report(self) -> Report:
        """Return the causes as a tree, in which each cause is below its effect."""
        rows = tuple(lines(self))
        unfolded = OPEN if len(rows) > ALL_OPEN else len(rows)
        return Report(blocks=(Tree(rows, unfolded, MOST_IN_TEXT, _rest(self)),))


# --- look-up in the index of a log, which grows with the log ----------------------------------------------------------


KEPT = 4
"""Number of logs of a store whose index is cached."""
# {store: {id of the execution: index}}, the index used last at the end. A store that is closed and forgotten takes its
# indexes along.
_KNOWN: weakref.WeakKeyDictionary[Any, OrderedDict[str, Origins]] = weakref.WeakKeyDictionary()
STATE = "state"


def why(
    log: Sequence[Event], name: str, at: int | None = None, *, row: int | None = None, column: str | None = None
) -> Provenance:
    """Return the provenance of the value of a variable, input or output.

    Parameters
    ----------
    log
        The events, from the first on.
    name
        A variable (``x``, ``state.x``), an input (``inputs.x``), an output, or ``state`` for all variables.
    at
        Number of the event after which the value is looked up; by default the last event.
    row, column
        For a list or DataFrame that items of `Each` produced: number of the row, from 0, and name of the column.

    Raises
    ------
    NotFoundError
        The variable had no value after that event, and no choice was the cause; or the log does not tell which item
        produced the row.
    """
    present: object = name  # the type hint does not bind callers
    if not isinstance(present, str):
        raise SetupError(f"name must be the name of a variable, an input or an output, not {describe(present)}")
    origins = _origins_of(log)
    position = origins.sequence if at is None else min(at, origins.sequence)
    # `state.x` and `x` are the same variable; `state` alone is all variables, unless a variable has this name.
    key = name.removeprefix(f"{STATE}.")
    origin = origins.of(key, position)
    if origin is None and key == STATE:
        origin = origins.whole(position)
    if origin is None:
        raise _unknown(origins, key, position)
    tree = Provenance(origin, origins.all, log, position)
    if row is None:
        return tree
    # The origins that `cell_of` has added are not put into the cached index, which belongs to the log alone.
    *added, root = cell_of(tree, origins.all, row, column)
    return Provenance(root, [*origins.all, *added], log, position)


def _origins_of(log: Sequence[Event]) -> Origins:
    """Return the index of a log by which the origins (causes) of all values are found. The index of a log in a store is
    cached, and only new events are added to it.
    """
    if not isinstance(log, History):
        return Origins(log)
    indexes = _KNOWN.setdefault(log.store, OrderedDict())
    origins = indexes.setdefault(log.execution_id, Origins())
    indexes.move_to_end(log.execution_id)
    if len(indexes) > KEPT:
        indexes.popitem(last=False)
    # Only the new events are read and added. The first time the log itself is iterated, which reads it page by page.
    if origins.sequence < len(log):
        origins.take(log[origins.sequence :] if origins.sequence else log)
    return origins


def _unknown(origins: Origins, name: str, at: int) -> NotFoundError:
    # The definition shows which steps set the variable, even if none of them has run.
    setters = origins.choices.setters(name)
    names = origins.names(at)
    if f"{INPUT}{name}" in names:
        message = f"{name} is an input, not a variable: ask for {INPUT}{name}"
    elif setters:
        message = (
            f"variable {name} was not set yet at event {at:,}: step {' or '.join(setters)} sets it, but that step "
            "had not ended"
        )
    else:
        message = f"no event up to event {at:,} sets a variable {name}"
    return NotFoundError("variable", name, names, message)
