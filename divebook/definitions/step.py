"""Definition of a step of a workflow, with the definitions that it contains: edges, loop, retry, rollback, question,
content.

`Step` is the class of steps read from a file and of steps written in Python. A step without `next` leads to the step
listed after it, unless `end` is set. A workflow adds these edges with `chained` when it receives the list of steps.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Annotated, Any, Self

from divebook.definitions import table
from divebook.definitions.answer_types import declared_answer
from divebook.definitions.stored_form import Definition, as_definition, json_value, require_text, restored
from divebook.definitions.table import Key, require_numbers
from divebook.errors import DefinitionError, Problem, ScriptError, SetupError, did_you_mean, shown_number
from divebook.events.payload import compile_init
from divebook.questions.question import DEFINABLE
from divebook.text import ranges
from divebook.text.arguments import (
    DurationLike,
    describe,
    expected_seconds,
    normal_name,
    plain_seconds,
    suggest_arguments,
)
from divebook.text.ranges import COUNT, SECONDS, SOME_SECONDS

# --- reactions to failure: retry, catch and rollback ------------------------------------------------------------------


_SECONDS = table.Number(ranges.SECONDS)


@suggest_arguments
@dataclass(frozen=True, slots=True)
class Retry(Definition):
    """Retry policy of a step: number of attempts, and growing pauses between the attempts.

    ``divebook keys Retry`` describes each field.

    Examples
    --------
    >>> Retry(attempts=4, seconds=0.5, factor=3).delay(2)
    1.5
    """

    short = (int,)
    attempts: Annotated[
        int,
        Key(
            "Maximum number of attempts, including the first one.",
            kind=table.Number(ranges.COUNT),
            example="5",
        ),
    ] = 3
    seconds: Annotated[float, Key("Pause before the second attempt.", kind=_SECONDS, example="0.5")] = 1.0
    factor: Annotated[
        float, Key("Factor by which each further pause grows.", kind=table.Number(ranges.FACTOR), example="3")
    ] = 2.0
    max_seconds: Annotated[float, Key("Maximum length of a pause.", kind=_SECONDS, example="30")] = 60.0
    jitter: Annotated[
        float,
        Key(
            "Maximum random extension of a pause, as a fraction of the pause. It prevents many retries at the same "
            "moment.",
            kind=table.Number(ranges.FACTOR),
            example="0.2",
        ),
    ] = 0.1
    errors: Annotated[
        tuple[str, ...],
        Key(
            "Names of exceptions, or parts of error messages, after which the call is retried. Default: all errors. "
            "After a lost connection or a timeout, the call may have taken effect. It is then retried only if its "
            "function is marked `idempotent=True`. Otherwise you are asked.",
            example="[TimeoutError, overloaded]",
        ),
    ] = ()

    if TYPE_CHECKING:  # more types than those of the fields: they are converted

        def __init__(
            self,
            attempts: int = 3,
            seconds: DurationLike = 1.0,
            factor: float = 2.0,
            max_seconds: DurationLike = 60.0,
            jitter: float = 0.1,
            *,
            errors: list[str] | tuple[str, ...] = (),
        ) -> None: ...

    def __post_init__(self) -> None:
        self._put(errors=_sequence(self.errors, "errors", 'errors=["TimeoutError"]'))
        require_numbers(self)

    def delay(self, failures: int) -> float:
        """Return the pause in seconds before the next attempt, after `failures` failed attempts. Random jitter is not
        included.
        """
        try:
            pause = self.seconds * self.factor ** max(0, failures - 1)
        except OverflowError:  # the pause grows exponentially; `max_seconds` limits the result
            # 0 seconds stay 0, whatever the factor.
            pause = math.inf if self.seconds else 0.0
        return min(self.max_seconds, pause)


@suggest_arguments
@dataclass(frozen=True, slots=True)
class Catch(Definition):
    """Error handler of a step. It names the step with which the workflow continues if the last attempt of this step has
    failed.

    ``divebook keys Catch`` describes each field.
    """

    names = ("step", "store")
    short = (str,)
    step: Annotated[str, Key("Step to continue with.", required="Catch needs a Step to go to", example="clean-up")]
    errors: Annotated[
        tuple[str, ...],
        Key("Names of exceptions, or parts of error messages, to catch. Default: all errors.", example="[ToolError]"),
    ] = ()
    store: Annotated[
        str | None,
        Key(
            "Variable for the error. It contains the type and the message of the error, the step, and the number of "
            "attempts.",
            example="failure",
        ),
    ] = None

    if TYPE_CHECKING:  # more types than those of the fields: they are converted

        def __init__(
            self,
            step: str,
            errors: list[str] | tuple[str, ...] = (),
            store: str | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        Definition.__post_init__(self)
        self._put(errors=_sequence(self.errors, "errors", 'errors=["TimeoutError"]'))


@suggest_arguments
@dataclass(frozen=True, slots=True)
class Rollback(Definition):
    """Rollback of a step: the action that undoes the completed step if the execution fails later or is cancelled.

    ``divebook keys Rollback`` describes each field.

    Examples
    --------
    >>> Rollback.of("Hotel.Cancel").action
    'Hotel.Cancel'
    """

    names = ("action",)
    short = (str,)
    action: Annotated[
        str, Key("Function to call.", required="Rollback needs an Action to call", example="Hotel.Cancel")
    ]
    parameters: Annotated[
        Mapping[str, Any],
        Key(
            "Parameters of the function. They are evaluated when the step has completed; `result` is the result of "
            "the step.",
            example="{Booking: $(result.id)}",
        ),
    ] = field(default_factory=dict)
    retry: Annotated[Retry | None, Key("Retry policy after a failure.")] = None

    def __post_init__(self) -> None:
        Definition.__post_init__(self)
        self._put(parameters=json_value(self.parameters, "parameters"))


def catches(value: Catch | str | Sequence[Catch | str]) -> tuple[Catch, ...]:
    """Convert the argument `catch` of `Step`, a single error handler or a sequence of them, to a tuple of error
    handlers.
    """
    listed = [value] if isinstance(value, Catch | str | Mapping) else _sequence(value, "catch", "catch=['other step']")
    return tuple(Catch.of(entry) for entry in listed)


def _sequence(value: Any, name: str, hint: str) -> Sequence[Any]:
    """Return an argument that must be a list or another sequence; raise `DefinitionError` for other objects."""
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise DefinitionError([Problem(f"{name} must be a list, not {describe(value)}", hint=f"write {hint}")])
    return tuple(value)


# --- questions of steps of type ``interrupt`` -------------------------------------------------------------------------


@suggest_arguments
@dataclass(frozen=True, slots=True)
class Ask(Definition):
    """Question of a step to a person. Its texts are templates. ``divebook keys Ask`` describes each field.

    Examples
    --------
    >>> Ask("Deploy ${state.version}?", kind="confirmation", expires_in="2h", default=False).expires_in
    7200.0
    """

    short = (str,)
    question: Annotated[
        str,
        Key("Text of the question; a template.", required="Ask needs a Question", example="Publish ${state.title}?"),
    ]
    kind: Annotated[
        str,
        Key(
            "Kind of the question, such as `clarification` (the answer is a string) or `confirmation` (yes or no).",
            example="confirmation",
        ),
    ] = "clarification"
    """Kind of the question, such as ``"confirmation"`` or ``"choice"``: one of the names in
    `divebook.questions.question.DEFINABLE`."""
    message: Annotated[
        str | None, Key("Explanation of the question; a template.", example="It goes to ${inputs.list}.")
    ] = None
    data: Annotated[
        Mapping[str, Any],
        Key(
            "Data that the person sees. Strings at any depth are templates. A string `$(...)` is replaced by a value.",
            example="{draft: $(state.draft)}",
        ),
    ] = field(default_factory=dict)
    schema: Annotated[
        Mapping[str, Any] | None,
        Key("JSON schema that the answer must match.", example="{type: object, properties: {score: {type: integer}}}"),
    ] = None
    expires_in: Annotated[
        float | None,
        Key(
            "Time after which the question expires. It is then answered with the `Default`; without a `Default` the "
            "step fails. Without a terminal, `divebook run` waits until a question with a `Default` expires.",
            kind=table.Seconds(SOME_SECONDS),
            example="2h",
        ),
    ] = None
    """Seconds until the question expires, also written as ``30s`` or ``2h``. None means that the question never
    expires.
    """
    default: Annotated[Any, Key("Answer when the question expires.", example="false")] = None
    has_default: bool = False
    optional: Annotated[bool | None, Key("Allow the person to leave the question unanswered.")] = None

    if TYPE_CHECKING:  # more types than those of the fields: they are converted

        def __init__(
            self,
            question: str,
            kind: str = "clarification",
            message: str | None = None,
            *,
            data: Mapping[str, Any] = ...,
            schema: Mapping[str, Any] | None = None,
            expires_in: DurationLike | None = None,
            default: Any = None,
            has_default: bool = False,
            optional: bool | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        # Copies as plain JSON: a definition must not change with the caller's objects.
        self._put(**{name: json_value(getattr(self, name), name) for name in ("data", "schema", "default")})
        self._put(has_default=self.has_default or self.default is not None)
        if self.kind not in DEFINABLE:
            hint = did_you_mean(self.kind, DEFINABLE) or f"use one of {', '.join(DEFINABLE)}"
            raise DefinitionError([Problem(f"unknown kind of question: {self.kind!r}", key="Kind", hint=hint)])
        require_text(self.question, "the question", 'write Ask("Publish it?")')
        if not self.question.strip():
            raise DefinitionError([Problem("the question has no text", key="Question", hint="add Question")])
        self._put(expires_in=_seconds(self.expires_in))
        if self.has_default and self.expires_in is None:
            hint = "add ExpiresIn, or remove Default"
            raise DefinitionError([Problem("Default has no effect without ExpiresIn", key="Default", hint=hint)])


def _seconds(value: DurationLike | None) -> float | None:
    if value is None:
        return None
    seconds = plain_seconds(value)
    if SOME_SECONDS.fits(seconds):
        return float(seconds)
    message = f"ExpiresIn must be {expected_seconds(SOME_SECONDS, seconds)}, not {shown_number(value)}"
    raise DefinitionError([Problem(message, key="ExpiresIn", hint="write 30s or 2h")])


# --- content of an agent's context or a prompt step: references to sources --------------------------------------------


SOURCES = {
    "text": "Text",
    "path": "Path",
    "url": "URL",
    "document": "Document",
    "dynamic": "Dynamic",
    "dynamic_from": "DynamicFrom",
}
EXACTLY_ONE = f"context entry must specify exactly one of {', '.join(SOURCES.values())}"


@dataclass(frozen=True, slots=True)
class ContentEntry(Definition):
    """Reference to content for a prompt step or for the context of an agent. It has exactly one source, such as a path
    or a URL.

    Examples
    --------
    >>> ContentEntry(path="notes/*.md").source
    'path'
    """

    short = (str,)
    text: Annotated[str | None, Key("Literal text.", example="Answer in French.")] = None
    path: Annotated[
        str | None,
        Key(
            "Path of a file, or a pattern such as `**/*.md`, below the folder of the definition.", example="notes/*.md"
        ),
    ] = None
    url: Annotated[
        str | None,
        Key(
            "Address of a web page. The page is fetched when the definition is read.",
            example="https://example.org/guide.html",
        ),
    ] = None
    document: Annotated[str | None, Key("Name of a document.", example="style-guide")] = None
    dynamic: Annotated[
        str | None,
        Key(
            "Script that returns the content. It runs when the step runs.",
            example="f'There are {len(state.rows)} rows'",
        ),
    ] = None
    dynamic_from: Annotated[
        str | None,
        Key(
            "Program that prints the content as a JSON list of blocks. It runs when the step runs.",
            example="tools/context.sh",
        ),
    ] = None
    blocks: tuple[Mapping[str, Any], ...] | None = None
    """Content blocks that were read from the source when the definitions were loaded; None if the source has not been
    read.
    """
    fingerprints: tuple[Mapping[str, Any], ...] | None = field(default=None, compare=False)
    """``hash``, ``source``, ``size`` and ``modtime`` of each file, page or document that the blocks were read from.

    Fingerprints are not compared: two entries with the same blocks are equal, and workflows with these entries have the
    same fingerprint.
    """

    @classmethod
    def of(cls, value: Any) -> Self:
        """Create a content entry from a value in a definition, such as a path or a mapping of fields.

        Raise `DefinitionError` unless the entry has exactly one source.
        """
        entry = as_definition(cls, value)
        if not entry.is_complete:
            raise DefinitionError([Problem(EXACTLY_ONE)])
        return entry

    @staticmethod
    def without_fingerprints(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return content entries, as stored in a log, without the key `fingerprints`. It has the fingerprints of the
        files and pages that were read for the entry.
        """
        return [{key: value for key, value in entry.items() if key != "fingerprints"} for entry in entries]

    @property
    def present_sources(self) -> tuple[str, ...]:
        """Names of those source fields that are set in this entry, such as ``path``."""
        return tuple(name for name in SOURCES if getattr(self, name) is not None)

    @property
    def is_complete(self) -> bool:
        """True if the content entry has exactly one source."""
        return len(self.present_sources) == 1

    @property
    def source(self) -> str:
        """Name of the field that states the entry's source: ``text``, ``path``, ``url``, ``document``, ``dynamic`` or
        ``dynamic_from``.
        """
        return self.present_sources[0]


# --- types of steps, edges and loops ----------------------------------------------------------------------------------


STAGE = "stage"
"""Step type of the stages of a pipeline. Only `divebook.pipeline.Pipeline` creates such steps."""
WORKFLOW = "workflow"
CONTINUE = "continue_as_new"
ROLLBACK = "rollback of"
"""Prefix of the type of steps that undo other steps. Such steps cannot be defined."""
USED: dict[str, dict[str, str]] = {
    "prompt": {"agent": "Agent", "prompt": "Prompt", "content": "Content", "output": "Output", "thread": "Thread"},
    "action": {"action": "Action", "parameters": "Parameters", "executor": "Executor", "workspace": "Workspace"},
    "script": {"script": "Script"},
    "wait": {"seconds": "Seconds", "signal": "Signal"},
    "interrupt": {"ask": "Ask"},
    WORKFLOW: {"workflow": "Workflow", "inputs": "Inputs"},
    CONTINUE: {"inputs": "Inputs"},
    "function": {"script": "Script"},
    STAGE: {"script": "Script", "parameters": "Parameters"},
}
"""Fields that have an effect for steps of one type only, with their keys, by step type."""
NEEDED: dict[str, tuple[tuple[str, ...], str, str]] = {
    "prompt": (("prompt", "content"), "prompt", "add Prompt or Content"),
    "action": (("action",), "action", "add Action"),
    "script": (("script",), "script", "add Script"),
    "wait": (("seconds", "signal"), "seconds", "add Seconds or Signal"),
    "interrupt": (("ask",), "question", "add Ask"),
    WORKFLOW: (("workflow",), "workflow", "add Workflow"),
}
"""Required fields by step type: fields of which at least one must be set, a name for the requirement, and advice."""
STEP_TYPES = tuple(USED)
INFERRED_TYPES = ("action", "prompt", "script")
"""Fields from which the type of a step is inferred if it is not set, in order of priority."""

FAIL = "fail"
KEEP = "keep"
SKIP = "skip"
ON_ITEM_ERROR = (FAIL, KEEP, SKIP)
"""Options for an item of `Each` that has failed after all attempts."""
_REFERRED = re.compile(r"^\s*\$\(\s*(?:\w+\.)*(\w+)\s*\)\s*$")
"""Pattern of an expression that only refers to a value. The group is the last name of the reference."""


@suggest_arguments
@dataclass(frozen=True, slots=True)
class Edge(Definition):
    """Edge to another step. A path follows the edge if the edge has no condition, or if its condition is true."""

    names = ("step",)
    short = (str,)
    step: Annotated[str, Key("Step to continue with.", required="Next entry without a step", example="publish")]
    condition: Annotated[
        str | None, Key("Python expression. Without it, the edge is always followed.", example="state.score >= 5")
    ] = None

    def __post_init__(self) -> None:
        Definition.__post_init__(self)
        # An empty condition is none. Equal edges are stored alike.
        if self.condition is not None and not self.condition:
            self._put(condition=None)

    @classmethod
    def of(cls, value: Any) -> Self:
        """Create an edge from a value in a definition: a step name, a mapping of fields, or a pair of step name and
        condition.

        An example of a pair is ``("b", "$(state.ok)")``.
        """
        return cls(*value) if isinstance(value, tuple | list) else as_definition(cls, value)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Create an edge from the output of `to_dict`, without checking it again."""
        return restored(cls, data)


@suggest_arguments
@dataclass(frozen=True, slots=True)
class Each(Definition):
    """Loop of a step over items: the step is executed once for each item.

    ``divebook keys Each`` describes each field.

    Examples
    --------
    >>> Each("$(state.files)", as_="file", parallel=4).items
    '$(state.files)'
    """

    short = (str, int, float, list)
    items: Annotated[Any, Key("List of items, or an expression such as `$(state.rows)`.", example="$(state.files)")] = (
        None
    )
    as_: Annotated[
        str | None, Key("Variable for the current item. Expressions use it as `state.NAME`.", example="file")
    ] = None
    parallel: Annotated[
        int,
        Key(
            "Maximum number of items that run at the same time.",
            kind=table.Number(COUNT),
            extension=True,
            example="4",
        ),
    ] = 1
    rows: Annotated[
        str | None,
        Key(
            "DataFrame in place of `Items`. An action is called once for each row. An agent is asked about the rows "
            "through the batch API of its provider, at half the price; its `Prompt` uses `state.row.NAME`. The "
            "results are stored together, with errors in a column.",
            extension=True,
            example="$(inputs.frame)",
        ),
    ] = None
    on_item_error: Annotated[
        str | None,
        Key(
            "Reaction to a failed item. `fail` (default): the step fails. `keep`: the error is stored as data. `skip`: "
            "the item is left out.",
            kind=table.Text(choices=ON_ITEM_ERROR, complaint="invalid OnItemError: {}"),
            extension=True,
            example="keep",
        ),
    ] = None

    def __post_init__(self) -> None:
        if self.on_item_error == FAIL and self.rows is None:  # the default: equal steps must be stored alike
            self._put(on_item_error=None)
        items = list(self.items) if isinstance(self.items, range) else self.items
        self._put(as_=normal_name(self.as_ or None), items=json_value(items, "items"))

    @classmethod
    def of(cls, value: Any) -> Self:
        """Create a loop from a value in a definition: a list of items, an expression, or a mapping of fields."""
        # A string is an expression and a number an error of a later check. Other iterables, such as sets and
        # generators, become lists.
        return as_definition(cls, value if isinstance(value, Each | Mapping | str | int | float) else _items(value))

    def item_name(self, index: int, key: str | None = None, step: str = "item ") -> str:
        """Return a name of one item of the loop for people, such as ``rows[3]``. It consists of the name of the list
        (or of the step, if the list has no name) and the index or key of the item.

        >>> Each("$(state.rows)", as_="row").item_name(3), Each([1, 2]).item_name(0, step="try")
        ('rows[3]', 'try[0]')
        """
        # "$(state.rows)" -> "rows". Other expressions have no name that people would recognize.
        match = _REFERRED.search(self.items) if isinstance(self.items, str) else None
        return f"{match[1] if match else step}[{index if key is None else repr(key)}]"


PROMPT = table.Text(hint="write the text directly after Prompt: (in place of {Text, Output}; Output is now Store)")


class _Undecided(tuple[Edge, ...]):
    """Type of the constant `UNDECIDED`, the edges of a step without the key ``Next``. It is an empty tuple, but not the
    same as ``()``, the edges of a step at which a path ends.
    """

    __slots__ = ()


UNDECIDED: tuple[Edge, ...] = _Undecided()


@suggest_arguments
@dataclass(frozen=True, slots=True, init=False)
class Step(Definition):
    """One step of a workflow: a prompt, action, script, wait, question or child workflow. Its type is inferred from its
    fields.

    ``divebook keys Step`` describes each field.

    Examples
    --------
    >>> step = Step("plan", prompt="Plan ${inputs.topic}", store="plan", next=["draft", ("stop", "$(state.done)")])
    >>> step.type, step.edges[1].condition
    ('prompt', '$(state.done)')
    """

    name: Annotated[str, Key("Name of the step, unique in the workflow.", example="summarise")]
    type: Annotated[str, Key("Type of the step. By default it follows from the other keys.", example="prompt")] = ""
    agent: Annotated[str | None, Key("Agent that answers the prompt.", example="editor")] = None
    prompt: Annotated[
        str | None, Key("Prompt for the agent; a template.", kind=PROMPT, example="Summarise ${state.text}")
    ] = None
    script: Annotated[
        str | None,
        Key(
            "Python code that runs in a sandbox. Its last expression is the result.",
            example="sum(row.price for row in state.rows)",
        ),
    ] = None
    action: Annotated[str | None, Key("Name of the function to call.", example="Document.Read")] = None
    parameters: Annotated[
        Mapping[str, Any],
        Key(
            "Parameters of the action. Strings at any depth are templates. A string `$(...)` is replaced by a value.",
            example="{Path: 'report-${inputs.day}.md'}",
        ),
    ] = field(default_factory=dict)
    store: Annotated[
        str | None, Key("Variable for the result. Expressions use it as `state.NAME`.", example="summary")
    ] = None
    each: Annotated[Each | None, Key("Loop: the step runs once for each item.")] = None
    edges: Annotated[
        tuple[Edge, ...],
        Key(
            "Edges to the next steps. Every edge whose condition is true is followed; several edges are followed in "
            "parallel.",
            name="Next",
        ),
    ] = field(default=UNDECIDED, metadata={"always": True})
    end: Annotated[bool, Key("End the path after this step.")] = False
    seconds: Annotated[float | str | None, Key("Time to wait.", kind=table.Seconds(), example="30")] = None
    content: Annotated[tuple[ContentEntry, ...], Key("Texts, files and images that precede the prompt.")] = ()
    output: Annotated[
        Any,
        Key(
            "Type of the answer, in place of text: a JSON schema, or the name of an allowed class.",
            extension=True,
            example="{type: object, properties: {score: {type: integer}}}",
        ),
    ] = None
    thread: Annotated[
        str | None,
        Key(
            "Name of the conversation that the prompt continues. Several runs can share a conversation.",
            extension=True,
            example="support-${inputs.customer}",
        ),
    ] = None
    join: Annotated[bool, Key("Wait for all paths that can still reach this step.", extension=True)] = False
    retry: Annotated[Retry | None, Key("Retry policy after a failure.", extension=True)] = None
    catch: Annotated[
        tuple[Catch, ...], Key("Steps with which the workflow continues after a failure.", extension=True)
    ] = ()
    rollback: Annotated[
        Rollback | None,
        Key(
            "Call that undoes the effects of the step. It runs if the run fails later or is cancelled.",
            extension=True,
        ),
    ] = None
    ask: Annotated[Ask | None, Key("Question to a person. The step waits for the answer.", extension=True)] = None
    signal: Annotated[
        str | None,
        Key("Name of the signal, a message from outside, that the step waits for.", extension=True, example="approved"),
    ] = None
    timeout: Annotated[
        float | None,
        Key(
            "Time limit of one attempt at the step, or at one item of `Each`, including all calls.",
            kind=table.Number(SOME_SECONDS),
            extension=True,
            example="60",
        ),
    ] = None
    executor: Annotated[
        str | None,
        Key(
            "Executor that runs the function of the action: `thread`, `process`, or the name of an executor of the "
            "environment.",
            extension=True,
            example="process",
        ),
    ] = None
    workspace: Annotated[
        str | None,
        Key("Workspace of the action, in place of the workspace of the workflow.", extension=True, example="app"),
    ] = None
    workflow: Annotated[
        str | None, Key("Name of another workflow. It runs as a child execution.", extension=True, example="audit")
    ] = None
    inputs: Annotated[
        Mapping[str, Any],
        Key(
            "Inputs of the other workflow. With `Type: continue_as_new`, inputs of the next execution.",
            extension=True,
            example="{topic: $(state.topic)}",
        ),
    ] = field(default_factory=dict)

    def __init__(
        self,
        name: str,
        type: str | None = None,
        *,
        agent: str | None = None,
        prompt: str | None = None,
        script: str | None = None,
        action: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        store: str | None = None,
        each: Each | str | Iterable[Any] | None = None,
        next: str | Sequence[Edge | str | tuple[str, str | None]] | None = None,
        edges: Sequence[Edge] | None = None,
        end: bool = False,
        seconds: DurationLike | None = None,
        content: Sequence[ContentEntry | str] = (),
        output: Mapping[str, Any] | str | None = None,
        thread: str | None = None,
        join: bool = False,
        retry: Retry | int | Mapping[str, Any] | None = None,
        catch: Catch | str | Sequence[Catch | str] = (),
        rollback: Rollback | str | Mapping[str, Any] | None = None,
        ask: Ask | str | Mapping[str, Any] | None = None,
        signal: str | None = None,
        timeout: DurationLike | None = None,
        executor: str | None = None,
        workspace: str | None = None,
        workflow: str | None = None,
        inputs: Mapping[str, Any] | None = None,
    ) -> None:
        require_text(name, "the name of a step", 'write Step("name", ...)')
        # Short forms of nested definitions (`retry=3`, `each=[...]`) are converted, and names get their normal form.
        # Most steps have few of the fields, so that a conversion is called only for a value that is not None.
        _fill_step(
            self,
            name=normal_name(name),
            type=type or "",
            agent=_plain_name(agent or None, "agent", name),
            prompt=prompt,
            script=script,
            action=_plain_name(action, "action", name),
            parameters=_mapping(parameters, "parameters"),
            store=normal_name(store),
            each=None if each is None else Each.of(each),
            edges=_edges(next if next is not None else edges),
            end=end,
            # Whole numbers become floats, so that equal steps are stored alike. Templates stay strings, and numbers out
            # of range stay for the check.
            seconds=float(wait) if (wait := plain_seconds(seconds)) is not None and SECONDS.fits(wait) else wait,
            content=tuple(map(ContentEntry.of, _sequence(content, "content", "content=[...]"))) if content else (),
            output=declared_answer(output) if output is not None else None,
            thread=thread,
            join=join,
            retry=None if retry is None else Retry.of(retry),
            catch=catches(catch) if catch else (),
            rollback=None if rollback is None else Rollback.of(rollback),
            ask=None if ask is None else Ask.of(ask),
            signal=signal,
            timeout=plain_seconds(timeout),
            executor=executor,
            workspace=workspace,
            workflow=_plain_name(workflow, "workflow", name),
            inputs={normal_name(key): value for key, value in _mapping(inputs, "inputs").items()},
        )
        # An explicit type stays, also an empty one, which a later check reports.
        if type is None:
            object.__setattr__(self, "type", inferred_type(self))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Create a step from the output of `to_dict`. Only the name of the step is checked again."""
        require_text(data.get("name"), "the name of a step", "the log was not written by divebook")
        return restored(cls, data)

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the steps that can follow this step: the targets of its edges and of its error handlers."""
        return tuple([edge.step for edge in self.edges] + [policy.step for policy in self.catch])

    def undoing(self, kind: str, action: str, parameters: Mapping[str, Any]) -> Self:
        """Return a step that undoes the effects of this step. The new step calls the function `action` with the given
        parameters.

        `kind` is the kind of the function, such as ``action`` or ``step``.
        """
        # The step that undoes has the retry policy of the rollback, and nothing of the step that would run it again,
        # store a result or continue.
        retry = self.rollback and self.rollback.retry
        called = {"type": f"{ROLLBACK} {kind}", "action": action, "parameters": parameters, "retry": retry}
        nothing = {"each": None, "store": None, "catch": (), "timeout": None, "executor": None, "rollback": None}
        return self.like(**called, **nothing, edges=(), join=False)

    @property
    def is_open(self) -> bool:
        """True if the step has no key ``Next``, so that the workflow continues with the step that is listed after
        it.
        """
        return isinstance(self.edges, _Undecided)


_fill_step = compile_init(Step)


def _plain_name(value: Any, key: str, step: object) -> Any:
    """Return the normal form of a name that a step refers to. Raise `SetupError` if the value is the object itself,
    such as a function, which a log cannot hold. Other values that are not names stay for the check of the definition.
    """
    own_name = None if isinstance(value, str) else getattr(value, "name", getattr(value, "__name__", None))
    if isinstance(own_name, str):
        article = "an" if key[0] in "ae" else "a"
        raise SetupError(
            f"{key} of step {step!r} must be the name of {article} {key}, not the object; write {key}={own_name!r}, or "
            f"the name under which the {key} was added"
        )
    return normal_name(value)


def _mapping(value: Any, name: str) -> Any:
    if value is not None and not isinstance(value, Mapping):
        hint = f"write {name}={{'name': 'value'}}"
        raise DefinitionError([Problem(f"{name} must be a mapping, not {describe(value)}", key=name, hint=hint)])
    return json_value(value or {}, name)


def _items(value: Any) -> list[Any]:
    if isinstance(value, bytes | type) or not isinstance(value, Iterable):
        hint = "write each=['a', 'b'], or each='$(state.rows)'"
        raise DefinitionError([Problem(f"each must be a list or an expression, not {describe(value)}", hint=hint)])
    return list(value)


def _edges(value: str | Sequence[Edge | str | tuple[str, str | None]] | None) -> tuple[Edge, ...]:
    # Copies of a step pass its edges on, including those that are not decided.
    if value is None or isinstance(value, _Undecided):
        return UNDECIDED
    listed = [value] if isinstance(value, str) else _sequence(value, "edges", 'edges=["next step"]')
    return tuple(Edge.of(edge) for edge in listed)


def inferred_type(step: Step) -> str:
    """Return the step type that the fields of a step imply, such as ``prompt`` for a step with a prompt. Return an
    empty string if no field determines the type.

    A step with an action and a prompt is an action: `INFERRED_TYPES` are tried first, in their order.
    """
    for name in INFERRED_TYPES:
        if getattr(step, name):
            return name
    if step.content:
        return "prompt"
    if step.workflow:
        return WORKFLOW
    if step.ask is not None:
        return "interrupt"
    return "wait" if step.seconds is not None or step.signal is not None else ""


def chained(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Return copies of the steps in which a step without ``Next`` has an edge to the next step in the list.

    A step with `end` set gets no edge.
    """
    listed = tuple(steps)
    following = [step.name for step in listed[1:]]
    # The last step has None as its successor.
    return tuple([_decided(step, after) for step, after in zip_longest(listed, following)])


def _decided(step: Step, after: str | None) -> Step:
    if not step.is_open:
        return step
    # A step that continues as a new execution ends this one.
    return step.like(edges=() if step.end or step.type == CONTINUE or after is None else (Edge(after),))


def require_step(value: Any) -> Step:
    """Return `value` if it is a `Step`; raise `DefinitionError` for any other object."""
    if not isinstance(value, Step):
        raise DefinitionError(
            [Problem(f"each step of a workflow must be a Step, got {value!r}", hint='write Step("name", ...)')]
        )
    return value


# --- content blocks: additional content of a prompt, as plain data ----------------------------------------------------
#
# A block is ``{"type": "text", "text": ...}`` or ``{"type": "image" | "document", "source": {...}}``, with a source of
# ``{"type": "base64", "media_type": ..., "data": ...}`` or ``{"type": "url", "url": ...}``. A block of type ``dynamic``
# has a script or program that creates blocks when the step runs.


Block = dict[str, Any]

BLOCK_TYPES = ("text", "image", "document")


def text_block(text: str) -> Block:
    """Return a content block for some text."""
    return {"type": "text", "text": text}


def base64_block(kind: str, media_type: str, data: str) -> Block:
    """Return a content block for an image or document, whose data is encoded in base64."""
    return {"type": kind, "source": {"type": "base64", "media_type": media_type, "data": data}}


def blocks_from_script_result(result: Any) -> list[Block]:
    """Convert the result of a ``Dynamic`` script (a string, a block, or a list of blocks) to a list of content blocks.

    Raises
    ------
    ScriptError
        The result has another form.
    """
    if isinstance(result, str):
        return [text_block(result)]
    # A single block needs no list.
    items = result if isinstance(result, list | tuple) else [result]
    return [_checked(item) for item in items]


def blocks_from_program_output(output: str) -> list[Block]:
    """Parse the output of a ``DynamicFrom`` program: content blocks as a JSON list. Raise `ScriptError` for other
    output.
    """
    try:
        # Deeply nested output of a program raises RecursionError.
        items = json.loads(output)
    except (ValueError, RecursionError) as error:
        raise ScriptError(f"failed to parse script JSON output: {error}") from error
    if not isinstance(items, list):
        shown = output.strip()[:40]
        raise ScriptError(f"failed to parse script JSON output: a list of blocks was expected, not {shown!r}")
    return [_checked(item) for item in items]


def _checked(item: Any) -> Block:
    if not isinstance(item, Mapping):
        advice = "return a string, a block or a list of blocks"
        raise ScriptError(f"unsupported script result type: {type(item).__name__}; {advice}")
    is_complete = isinstance(item.get("text"), str) if item.get("type") == "text" else _has_source(item)
    if item.get("type") not in BLOCK_TYPES or not is_complete:
        expected = '{"type": "text", "text": ...} or {"type": "image" | "document", "source": {...}}'
        raise ScriptError(f"unsupported script result type: {str(item)[:60]} is not a block; write {expected}")
    return dict(item)


def _has_source(item: Mapping[str, Any]) -> bool:
    source = item.get("source")
    fields = {"base64": ("media_type", "data"), "url": ("url",)}
    if not isinstance(source, Mapping):
        return False
    # A source of an unknown type needs nothing that could be checked, and is refused by the empty tuple.
    needed = fields.get(str(source.get("type")), ())
    return bool(needed) and all(isinstance(source.get(name), str) for name in needed)


@dataclass(frozen=True, slots=True)
class ContentFingerprint:
    """Fingerprint of a piece of content, which identifies it without containing it: hash, source, size and time of the
    last change.
    """

    hash: str
    """SHA-256 of the content in hex, independent of the time."""
    source: str
    """Kind of a block, path of a file, or URL of a page."""
    size: int
    """Size in bytes."""
    modtime: str = ""
    """Time of the last change of a file, ISO 8601 in UTC; empty for other sources."""


def fingerprint_block(block: Mapping[str, Any]) -> ContentFingerprint:
    """Return the fingerprint of one content block."""
    kind = str(block.get("type", ""))
    if kind == "text":
        return _fingerprint(str(block.get("text", "")), "text")
    if kind == "dynamic":
        # Blocks of a script or program are identified by their text.
        return _fingerprint("".join(str(part.get("text", "")) for part in block.get("content", ())), "dynamic")
    if kind not in BLOCK_TYPES:
        return _fingerprint(kind, "unknown")
    source = block.get("source") or {}
    if source.get("type") == "base64":
        return _fingerprint(str(source.get("data", "")), f"{kind}-base64")
    # A page is not fetched for its fingerprint: its address stands for it, and its size is unknown.
    if source.get("url"):
        return ContentFingerprint(_sha256(source["url"]), f"{kind}-url:{source['url']}", 0)
    return ContentFingerprint(_sha256(""), f"empty-{kind}", 0)


def fingerprint_blocks(blocks: Iterable[Mapping[str, Any]]) -> ContentFingerprint:
    """Return a single fingerprint for a list of content blocks. It depends on the order of the blocks."""
    parts = [fingerprint_block(block) for block in blocks]
    return _fingerprint("".join(f"{part.hash}:{part.source}:" for part in parts), "combined")


def _fingerprint(text: str, source: str) -> ContentFingerprint:
    return ContentFingerprint(_sha256(text), source, len(text.encode("utf-8", "surrogatepass")))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
