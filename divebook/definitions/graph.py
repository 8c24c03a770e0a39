"""Checks of the steps of a workflow: single steps, the graph of their edges, and names.

The checks work on steps alone. The same rules therefore apply to a definition text and to a `Workflow` in Python.
Functions return problems (errors and warnings) instead of raising them, so that one pass reports all.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from divebook import plugins
from divebook.definitions.dialect import DialectRules
from divebook.definitions.json_schemas import FITTING, check_defined_schema
from divebook.definitions.step import (
    CONTINUE,
    NEEDED,
    ON_ITEM_ERROR,
    STAGE,
    STEP_TYPES,
    USED,
    Ask,
    Each,
    Rollback,
    Step,
)
from divebook.definitions.table import number_problems
from divebook.errors import DefinitionError, InterruptError, Place, Problem, Severity, did_you_mean
from divebook.questions import Question, checked_answer
from divebook.questions.question import KINDS
from divebook.text.arguments import DURATION_FORMS
from divebook.text.syntax import is_expression, texts_in

# --- single steps: the type exists, has its required keys, and uses all keys that are set -----------------------------


# {field: key} of all fields that matter to one type only.
SETTINGS = {field: key for used in USED.values() for field, key in used.items()}
UNLIMITED = {
    "wait": "write Seconds",
    "interrupt": "write ExpiresIn under Ask",
    "workflow": "write MaxSeconds under Bounds of the workflow that the step starts",
    CONTINUE: "remove Timeout: a step of this type ends at once",
    "function": "write @step(timeout=...)",
    "stage": "write timeout_seconds in the stage",
}
"""Advice in the error for a `Timeout` of a step, by step type, for types that have another limit."""
# ``${name}``, but not the escape ``$${name}``.
BARE_NAME = re.compile(r"(?<!\$)\$\{\s*([A-Za-z_]\w*)\s*\}")
_ESCAPED_REFERENCE = re.compile(r"\$\$\{\s*((?:state|inputs)\b[^}]*)\}")


class _Unused(NamedTuple):
    """The settings that have no effect for one step type: their names, their default values, and a function that reads
    their values from a step.

    Nearly all steps leave these settings at their defaults. One comparison of all values with the defaults shows this.
    """

    fields: tuple[str, ...]
    values: Callable[[Step], tuple[Any, ...]]
    nothing: tuple[Any, ...]
    """Default values of the fields."""


def _unused_by(used: Mapping[str, str]) -> _Unused:
    fields = tuple(field for field in SETTINGS if field not in used)
    values = attrgetter(*fields)
    # The defaults are those of a step without any setting.
    return _Unused(fields, values, values(Step("nothing")))


_UNUSED = {step_type: _unused_by(used) for step_type, used in USED.items()}


def step_problems(step: Step, rules: DialectRules) -> list[Problem]:
    """Check one step without the rest of its workflow. Return the problems. The path of each problem begins at the
    step, for example ``Each``, ``Items``. The strict dialect has more checks.
    """
    # Each group of checks is called only if the step has the keys that the group checks, because a workflow may have
    # thousands of simple steps.
    problems = [] if step.name.strip() else [Problem("step name cannot be empty", key="Name", place=("Name",))]
    # The full checks of type and keys are needed only if this quick test fails.
    if rules.is_strict and not _has_required_key(step):
        problems += [*_type(step), *_missing(step)]
    # A loop has either rows or items.
    if step.each:
        listed = _rows(step, step.each) if step.each.rows is not None else _items(step.each)
        problems += [*(listed if rules.is_strict else ()), *_each(step.each)]
    if step.timeout is not None:
        problems += _timeout(step.type)
    if step.rollback is not None:
        problems += _rollback(step, step.rollback)
    if step.seconds is not None:
        problems += _seconds(step.seconds, rules)
    problems += number_problems(step)
    # Without a schema and a default there is nothing to check.
    if step.ask is not None and (step.ask.schema is not None or step.ask.has_default):
        problems += _ask(step.ask)
    if isinstance(step.output, Mapping) and (warning := check_defined_schema(step.output, "Output")) is not None:
        problems.append(warning)
    # Most keys have no effect on the step that ends the execution.
    if step.type == CONTINUE:
        problems += _without_effect(step)
    if step.end or _has_unused_keys(step):
        problems += _ignored(step, "error" if rules.is_strict else "warning")
    return problems


def _ask(ask: Ask) -> Iterator[Problem]:
    """Check the question in a step's definition before a person is asked: yield the problems in its schema and its
    default.

    The default is checked like an answer to a question with this schema.
    """
    try:
        warning = None if ask.schema is None else check_defined_schema(ask.schema)
    except DefinitionError as error:
        yield from (problem.below("Ask") for problem in error.problems)
        return
    # A schema that refers to another document cannot check the default.
    if warning is not None:
        yield warning.below("Ask")
        return
    if not ask.has_default:
        return
    # The question's own setting, or that of its kind.
    optional = KINDS[ask.kind].optional if ask.optional is None else ask.optional
    try:
        # The default is checked as the answer to a question that is open and never expires: any time will do.
        checked_answer(
            Question("default", ask.kind, ask.question, schema=ask.schema, optional=optional), ask.default, FITTING, 0
        )
    except InterruptError as error:
        # The ending belongs to answers of people. Here no question is open.
        message = f"Default is not a valid answer: {error.reason.removesuffix('. The question is still open')}"
        yield Problem(message, key="Default", place=("Ask", "Default"), hint="write a value that matches the Schema")


def _has_required_key(step: Step) -> bool:
    """Return True if a step has the first key that its type requires. For nearly every step this quick test is
    sufficient; if it fails, all required keys are checked.
    """
    needed = NEEDED.get(step.type)
    return needed is not None and bool(getattr(step, needed[0][0]))


def _has_unused_keys(step: Step) -> bool:
    unused = _UNUSED.get(step.type)
    return unused is not None and unused.values(step) != unused.nothing


def _type(step: Step) -> Iterator[Problem]:
    message = f'unsupported step type "{step.type}" in step "{step.name}"'
    if step.type in STEP_TYPES or (step.type and step.type in plugins.names(plugins.STEP_TYPES)):
        return
    # Stages are made from pipelines only, and are not offered.
    written = (name for name in STEP_TYPES if name != STAGE)
    hint = did_you_mean(step.type, STEP_TYPES) or f"use one of {', '.join(written)}"
    if not step.type:
        hint = "add Prompt, Script, Action, Ask or Seconds"
    yield Problem(message, key="Type", hint=hint, place=("Type",))


def _missing(step: Step) -> Iterator[Problem]:
    fields, what, hint = NEEDED.get(step.type, ((), "", ""))
    present = [field for field in fields if getattr(step, field) not in (None, "", ())]
    if fields and not present:
        message = f'no {what} specified for {step.type} step "{step.name}"'
        yield Problem(message, key=USED[step.type][fields[0]], hint=hint)
    if step.type == STAGE and "part" not in step.parameters:
        yield Problem(
            f'step "{step.name}" cannot be of type stage',
            key="Type",
            hint="write the stage under Pipelines, or write a Pipeline in Python",
        )


def _items(each: Each) -> Iterator[Problem]:
    items = each.items
    if isinstance(items, list) or (isinstance(items, str) and is_expression(items)):
        return
    got = "nothing" if items is None else repr(items)
    yield Problem(
        f"unsupported value for 'each' block: Items is {got}",
        key="Items",
        hint="write a list, or an expression such as $(state.names)",
        place=("Each", "Items"),
    )


def _rows(step: Step, each: Each) -> Iterator[Problem]:
    """Check a step whose loop has the key ``Rows``, which calls an action or asks an agent for each row of a frame.
    Yield the problems.

    The step must be an action or a prompt. Its calls are made in batches, so that keys about single items and single
    prompts have no effect.
    """
    if not isinstance(each.rows, str) or not is_expression(each.rows):
        message = f"Rows must be an expression that evaluates to a DataFrame, not {each.rows!r}"
        yield Problem(message, key="Rows", hint="write $(inputs.frame)", place=("Each", "Rows"))
    if step.type not in ("action", "prompt"):
        kind = f"is of type {step.type}" if step.type else "has no type"
        message = f"Rows needs a step with an Action or a Prompt, which runs for each row; step {step.name!r} {kind}"
        yield Problem(message, key="Rows", hint="add Action or Prompt, or write Items", place=("Each", "Rows"))
    for key, value in {"Content": step.content, "Thread": step.thread}.items():
        if value:
            message = f"{key} has no effect together with Rows, because the prompts of all rows are sent as a batch"
            yield Problem(message, key=key, hint=f"remove {key}, or write Items", place=(key,))
    if step.timeout is not None:
        message = "Timeout has no effect on a step with Rows, because each of its calls has a separate timeout"
        yield Problem(message, key="Timeout", hint="write @action(timeout=...)", place=("Timeout",))
    settings = {"Items": each.items, "As": each.as_, "OnItemError": each.on_item_error}
    for key, value in settings.items():
        if value is not None:
            message = (
                f"{key} has no effect together with Rows: the columns of the DataFrame are the arguments, and errors "
                "are stored in a column"
            )
            yield Problem(message, key=key, hint=f"remove {key} or Rows", place=("Each", key))


def _rollback(step: Step, rollback: Rollback) -> Iterator[Problem]:
    if not rollback.action.strip():
        yield Problem("Rollback has no Action", key="Action", hint="add Action", place=("Rollback", "Action"))
    if step.type in (CONTINUE, "function", STAGE):
        message = f"Rollback has no effect on a step of type {step.type}"
        hint = "write @step(rollback=...) on the functions that it calls" if step.type == "function" else "remove it"
        yield Problem(message, key="Rollback", hint=hint, place=("Rollback",))
    if step.each is not None and step.each.rows is not None:
        hint = "write Items, or undo the calls of the rows in a later step"
        yield Problem("Rollback has no effect on a step with Rows", key="Rollback", hint=hint, place=("Rollback",))


def _each(each: Each) -> Iterator[Problem]:
    for problem in number_problems(each):
        yield problem.below("Each")
    if each.on_item_error not in (None, *ON_ITEM_ERROR):
        message = f"OnItemError must be one of {', '.join(ON_ITEM_ERROR)}, not {each.on_item_error!r}"
        yield Problem(message, key="OnItemError", place=("Each", "OnItemError"))


def _seconds(seconds: float | str, rules: DialectRules) -> Iterator[Problem]:
    # A template may result in a number when the step runs.
    if isinstance(seconds, str) and "${" not in seconds:
        hint = "write 2.5 or ${state.delay}"
        expected = f"{DURATION_FORMS}, or a template" if rules.is_strict else "a number or a template"
        yield Problem(f"Seconds must be {expected}, not {seconds!r}", hint=hint, place=("Seconds",))


def _timeout(step_type: str) -> Iterator[Problem]:
    if step_type in UNLIMITED:
        message = f"Timeout has no effect on a step of type {step_type}"
        yield Problem(message, key="Timeout", hint=UNLIMITED[step_type], place=("Timeout",))


def _ignored(step: Step, severity: Severity) -> Iterator[Problem]:
    unused = _UNUSED.get(step.type)
    for field in unused.fields if unused else ():
        if getattr(step, field) not in (None, "", {}, ()):
            key = SETTINGS[field]
            message = f"{key} has no effect on a step of type {step.type}"
            yield Problem(message, key=key, severity=severity, hint=f"remove {key}, or change Type", place=(key,))
    if step.end and step.edges:
        message = "End has no effect together with Next"
        yield Problem(message, key="End", severity=severity, hint="keep one of the two", place=("End",))


def _without_effect(step: Step) -> Iterator[Problem]:
    for key, value in (("Each", step.each), ("Next", step.edges), ("Store", step.store)):
        if value:
            message = f"{key} has no effect on a step of type {CONTINUE}"
            hint = f"remove {key}: the execution ends with this step, and its successor starts at the first step"
            yield Problem(message, key=key, hint=hint, place=(key,))


def bare_names(steps: Sequence[Step], inputs: Collection[str]) -> Iterator[Problem]:
    """Warn about ``${price}`` in a step's template if `price` is the name of a variable or input. Only the full form
    ``${state.price}`` is replaced by the value.

    A former syntax of Dive allowed the short form.
    """
    # A variable has priority over an input of the same name in the hint.
    owners = {**dict.fromkeys(inputs, "inputs"), **{step.store: "state" for step in steps if step.store}}
    for index, step in enumerate(steps):
        texts = {"Prompt": step.prompt, **{f"Parameters.{key}": value for key, value in step.parameters.items()}}
        for key, text in texts.items():
            for name in BARE_NAME.findall(text) if isinstance(text, str) else ():
                # In a loop the item has a name of its own: ``${row}`` is right.
                if name in owners and not (step.each and step.each.as_ == name):
                    hint = f"write ${{{owners[name]}.{name}}}"
                    place: Place = ("Steps", index, *key.split(".", 1))
                    yield Problem(
                        f"${{{name}}} does not name a variable", key=key, severity="warning", hint=hint, place=place
                    )


def escaped_references(steps: Sequence[Step]) -> Iterator[Problem]:
    """Warn about ``$${state.price}`` in a step's template: ``$$`` is an escape, so that the text ``${state.price}`` is
    shown instead of the value.

    People may expect a dollar sign before the value.
    """
    for index, step in enumerate(steps):
        ask = step.ask
        question = {} if ask is None else {"Question": ask.question, "Message": ask.message, "Data": ask.data}
        written = {"Prompt": step.prompt, "Parameters": step.parameters, "Inputs": step.inputs, "Ask": question}
        for place, text in texts_in(written):
            for reference in _ESCAPED_REFERENCE.findall(text):
                hint = f'write ${{"$"}}${{{reference}}} for a dollar sign and the value'
                message = f"$${{{reference}}} is an escape for the text ${{{reference}}}, not a value"
                key = str(next(part for part in reversed(place) if isinstance(part, str)))
                yield Problem(message, key=key, severity="warning", hint=hint, place=("Steps", index, *place))


# --- the graph of all steps -----------------------------------------------------------------------------------------


MOST_NAMES = 10
"""Largest number of steps that an error lists."""
NAME_HINT = "use letters, digits and _, starting with a letter, and not a Python keyword"


def reachable_from(steps: Mapping[str, Step], name: str) -> frozenset[str]:
    """Return the names of the steps that can follow a step, directly or later. A step follows itself only in a
    cycle.
    """
    reached: set[str] = set()
    waiting = [name]
    while waiting:
        step = steps.get(waiting.pop())
        for target in step.targets if step else ():
            if target not in reached:
                reached.add(target)
                waiting.append(target)
    return frozenset(reached)


def check_workflow(
    name: str,
    steps: Sequence[Step],
    linked: Sequence[Step],
    rules: DialectRules,
    *,
    inputs: Iterable[str] = (),
    outputs: Iterable[str] = (),
) -> list[Problem]:
    """Check how the parts of a workflow (steps, edges, inputs) fit together, and check each step alone. Return all
    problems.

    Parameters
    ----------
    steps
        The steps as written.
    linked
        The same steps with the edges that follow from their order (`divebook.definitions.step.chained`).
    """
    problems = [] if name.strip() else [Problem("workflow name required", key="Name", place=("Name",))]
    input_names = tuple(inputs)
    problems += duplicate_names("input", input_names, ("Inputs",), rules=rules)
    problems += duplicate_names("output", outputs, ("Outputs",), rules=rules)
    if rules.is_strict:
        problems += [*_no_names("input", input_names, ("Inputs",)), *_stores(steps)]
    if not steps:
        # Without a step there is nothing else to check.
        return [*problems, Problem("no steps found", key="Steps", place=("Steps",), hint="add at least one step")]
    problems += duplicate_names("step", (step.name for step in steps), ("Steps",), rules=rules)
    for index, step in enumerate(steps):
        problems += [problem.below("Steps", index) for problem in step_problems(step, rules)]
    # Doubts are warnings. They look at the linked steps, in which every edge is explicit.
    doubts = (*_unreachable(linked), *_falling_through(steps, linked), *bare_names(steps, input_names))
    if rules.is_strict:
        doubts = (*doubts, *escaped_references(steps))
    return [*problems, *_dangling(linked, rules), *doubts]


def _no_names(kind: str, names: Iterable[str], place: Place) -> Iterable[Problem]:
    for index, name in enumerate(names):
        if not is_name(name):
            yield Problem(
                f"{kind} {name!r} is not a valid name", key="Name", hint=NAME_HINT, place=(*place, index, "Name")
            )


def _stores(steps: Sequence[Step]) -> Iterable[Problem]:
    """Yield a problem for each name of a variable or loop item in the steps that expressions cannot use, such as
    ``my-name``.
    """
    for index, step in enumerate(steps):
        variables: list[tuple[str | None, Place]] = [(step.store, ("Store",))]
        variables += [(step.each.as_, ("Each", "As"))] if step.each else []
        variables += [(policy.store, ("Catch", number, "Store")) for number, policy in enumerate(step.catch)]
        for name, place in variables:
            if name and not is_name(name):
                key = str(place[-1])
                yield Problem(
                    f"{key} {name!r} is not a valid name", key=key, hint=NAME_HINT, place=("Steps", index, *place)
                )


def is_name(text: str) -> bool:
    """Return True if a text can be the name of a variable in expressions, as in ``state.text``: a Python identifier
    that is not a keyword.
    """
    return text.isidentifier() and not keyword.iskeyword(text)


def duplicate_names(
    kind: str, names: Iterable[str], place: Place = (), severity: Severity = "error", *, rules: DialectRules
) -> list[Problem]:
    """Yield a problem for each name that two definitions in a list have."""
    first: dict[str, int] = {}
    problems = []
    for index, name in enumerate(names):
        # An empty name is reported as missing.
        if name and name in first:
            message = f"two {kind}s are called {name!r}" if rules.is_strict else f"{kind} already registered: {name}"
            # The first of two equal names, which the error shows as well.
            twin = (*place, first[name], "Name") if rules.is_strict else ()
            where = (*place, index, "Name")
            problems.append(Problem(message, key="Name", severity=severity, place=where, twin=twin))
        first.setdefault(name, index)
    return problems


def _dangling(steps: Sequence[Step], rules: DialectRules) -> Iterable[Problem]:
    names = dict.fromkeys(step.name for step in steps)
    for index, step in enumerate(steps):
        targets = [("Next", number, edge.step) for number, edge in enumerate(step.edges)]
        targets += [("Catch", number, policy.step) for number, policy in enumerate(step.catch)]
        for key, number, target in targets:
            if target not in names:
                choices = f"steps: {', '.join(names)}" if len(names) <= MOST_NAMES else None
                message = f"{key}: there is no step {target!r}"
                if not rules.is_strict and key == "Next":
                    message = f'edge to step "{target}" not found'
                place: Place = ("Steps", index, key, number, "Step")
                yield Problem(message, key="Step", place=place, hint=did_you_mean(target, names) or choices)


def _unreachable(steps: Sequence[Step]) -> Iterable[Problem]:
    start = steps[0].name
    # The start is reached without an edge.
    reached: Container[str] = reachable_from({step.name: step for step in steps}, start) | {start}
    for index, step in enumerate(steps):
        if step.name not in reached:
            yield Problem(
                f"no path leads to step {step.name!r}", key="Name", severity="warning", place=("Steps", index, "Name")
            )


def _falling_through(written: Sequence[Step], linked: Sequence[Step]) -> Iterable[Problem]:
    """Find branches whose targets run one after the other by mistake. Yield a warning for each target without ``Next``
    that therefore continues to another target of the same branch.

    In ``choose -> [yes, no]`` with the list ``choose, yes, no`` the step ``yes`` without ``Next`` continues to ``no``,
    which is rarely intended.
    """
    # For equal names, which are an error of their own, the last one counts.
    position = {step.name: index for index, step in enumerate(written)}
    warned: set[str] = set()
    for step in linked:
        # A step with one edge does not branch.
        if len(step.edges) < 2:
            continue
        targets = {edge.step for edge in step.edges}
        for name in sorted(targets - warned, key=lambda name: position.get(name, -1)):
            index = position.get(name, -1)
            # Only a step without ``Next`` leads to the step below it by its order.
            if index < 0 or not written[index].is_open or not linked[index].edges:
                continue
            sibling = linked[index].edges[0].step
            # A join below is where branches meet again, so that this edge is intended. The sibling is the step right
            # below.
            if sibling in targets and sibling != name and not linked[index + 1].join:
                warned.add(name)
                yield _fall_through(name, sibling, step.name, index)


def _fall_through(name: str, sibling: str, branching: str, index: int) -> Problem:
    return Problem(
        f"step {name!r} continues with {sibling!r}, the next step in the list, but both are branches of {branching!r}",
        key="Name",
        severity="warning",
        hint=f"add End: true or Next to step {name!r}",
        place=("Steps", index, "Name"),
    )
