"""Workflows and steps written as Python functions.

``@workflow`` makes a `Workflow` of an async function: one step of type ``function``, whose source text stands in the
definition. ``@step`` marks the functions whose calls are recorded when such a workflow makes them; anywhere else they
are ordinary functions. What runs them is `divebook.steps.function`.
"""

from __future__ import annotations

import functools
import inspect
import textwrap
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar, overload

from divebook.errors import DefinitionError, Problem
from divebook.workflow.answer_types import allow_answers
from divebook.workflow.callables import as_function, is_async, is_callable, name_of
from divebook.workflow.code import LABEL, source_of
from divebook.workflow.definition import InputDefinition, Workflow
from divebook.workflow.determinism import warn_of
from divebook.workflow.parameter_types import ParameterType, hints_of
from divebook.workflow.policies import Retry
from divebook.workflow.step import Step
from divebook.workflow.undoing import ROLLBACK_FUNCTIONS, place_of, require_nameable
from divebook.workflow.user_functions import IDEMPOTENCY_KEY, UserFunction, signature_of

F = TypeVar("F", bound=Callable[..., Any])

FUNCTION = "function"
RESULT = "result"
"""Name of the variable and output that hold what a workflow function returned."""
_MADE = "__divebook_step__"
"""Attribute of what ``@step`` returns that has what it made."""
_TYPES = {str: "string", int: "int", float: "float", bool: "bool", list: "list", dict: "map"}

WORKFLOW_FUNCTIONS: dict[str, WorkflowFunction] = {}
"""Workflow functions of this process, by name; a later one of the same name replaces an earlier."""


@dataclass(frozen=True, slots=True)
class WorkflowFunction:
    """A function and the workflow made of it."""

    function: Callable[..., Awaitable[Any]]
    workflow: Workflow


ROLLED_BACK = "result"
"""Parameter of such a function that receives what the call has given that it undoes."""


@dataclass(frozen=True, slots=True)
class StepFunction(UserFunction):
    """A function whose calls from a workflow function are recorded."""

    rollback: StepFunction | None = None
    """What undoes a call of it."""
    kind: ClassVar[str] = "step"

    def undoing(self, arguments: Mapping[str, Any], result: Any) -> dict[str, Any]:
        """Return what its rollback is given, by name: of a call's arguments, and its result, what that takes."""
        assert self.rollback is not None  # noqa: S101 - who asks has looked
        given = {**self.with_defaults(arguments), ROLLED_BACK: result}
        return {name: given[name] for name in signature_of(self.rollback.function).parameters if name in given}

    def named(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by the names of the parameters; raises TypeError if they do not fit."""
        takes = self.takes
        if not kwargs and takes.least <= len(args) <= len(takes.by_place):
            return dict(zip(takes.by_place, args, strict=False))
        signature = signature_of(self.function)
        if not takes.key or IDEMPOTENCY_KEY in kwargs:
            return signature.bind(*args, **kwargs).arguments
        found = signature.bind(*args, **kwargs, **{IDEMPOTENCY_KEY: None}).arguments  # comes with the call
        del found[IDEMPOTENCY_KEY]
        return found

    def with_defaults(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments together with those that the function takes by default."""
        found = inspect.BoundArguments(signature_of(self.function), OrderedDict(arguments))
        found.apply_defaults()
        return found.arguments

    def bound(self, arguments: Mapping[str, Any]) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Return what to call the function with; positional parameters stay so."""
        if self.takes.by_name.issuperset(arguments):
            return (), arguments
        signature = signature_of(self.function)
        for name in arguments.keys() - signature.parameters.keys():
            takes = ", ".join(signature.parameters) or "nothing"
            raise TypeError(f"has no parameter {name!r} (it takes: {takes})")
        found = inspect.BoundArguments(signature, OrderedDict(arguments))
        return found.args, found.kwargs


class Calls(Protocol):
    """Carries out calls of step functions inside a running workflow function."""

    def call(self, step: StepFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Awaitable[Any]:
        """Give the call its place at once and return what awaits its result."""


CURRENT: ContextVar[Calls | None] = ContextVar("divebook_workflow", default=None)
"""The running workflow function, where there is one."""


@overload
def workflow(name: Callable[..., Awaitable[Any]]) -> Workflow: ...
@overload
def workflow(
    name: str | None = None, *, workspace: str | None = None
) -> Callable[[Callable[..., Awaitable[Any]]], Workflow]: ...
def workflow(name: Any = None, *, workspace: str | None = None) -> Any:
    """Make a workflow of an async function ``async def f(ctx, ...)``.

    Its parameters after the first are the inputs, which are made into the types of their annotations or refused before
    anything is started; what it returns is the output ``result``. On resume the function runs
    again from its beginning, and everything it asked for (step functions, `ctx`) is answered from the log; what lies
    between must therefore be deterministic.

    Parameters
    ----------
    name
        By default the function's.
    workspace
        The workspace of `ctx.workspace()`, and of its agents and steps that name none.

    Examples
    --------
    >>> @step
    ... def double(n: int) -> int:
    ...     return 2 * n
    >>> @workflow
    ... async def chain(ctx, n: int):
    ...     return await double(await double(n))
    >>> [definition.name for definition in chain.inputs]
    ['n']
    """
    if is_callable(name, "workflow"):
        return _make_workflow(name, None, workspace)
    return lambda function: _make_workflow(function, name, workspace)


def _make_workflow(given: Callable[..., Awaitable[Any]], name: str | None, workspace: str | None) -> Workflow:
    target: Any = given  # whatever a caller passes
    if callable(target) and not is_async(target):
        called = name or name_of(target) or repr(target)
        raise DefinitionError([Problem(f"workflow {called!r} must be an async function", hint="write `async def`")])
    function = as_function(given, "workflow", name)
    name = name or function.__name__
    source = _source(function)
    made = Workflow(
        name,
        [Step(name, type=FUNCTION, script=source, store=RESULT)],
        description=inspect.getdoc(function) or "",
        inputs=_inputs(function, name),
        outputs=[RESULT],
        source=source,
        workspace=workspace,
    )
    WORKFLOW_FUNCTIONS[made.name] = WorkflowFunction(function, made)
    warn_of(function)
    return made


def _source(function: Callable[..., Any]) -> str:
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return f"# the source of {function.__qualname__} is not available"


def _inputs(function: Callable[..., Any], name: str) -> list[InputDefinition]:
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters:
        hint = "write `async def " + name + "(ctx, ...)`"
        raise DefinitionError([Problem(f"workflow {name!r} takes no context", hint=hint)])
    if not _takes_context(parameters[0]):
        given = ", ".join(["ctx", *(str(parameter) for parameter in parameters)])
        message = f"the first parameter of workflow {name!r} is its context, and {parameters[0].name!r} is an input"
        raise DefinitionError([Problem(message, hint=f"write `async def {function.__name__}({given})`")])
    hints = hints_of(function)
    return [
        _input(parameter, hints.get(parameter.name, parameter.empty), function, name) for parameter in parameters[1:]
    ]


def _takes_context(parameter: inspect.Parameter) -> bool:
    """Return whether a parameter can be meant for the context: it has no default and no type of inputs."""
    if parameter.default is not parameter.empty or parameter.kind > parameter.POSITIONAL_OR_KEYWORD:
        return False
    return not (_simple_type(parameter.annotation) or _TYPES_BY_NAME.get(str(parameter.annotation)))


def _input(parameter: inspect.Parameter, annotation: Any, function: Callable[..., Any], name: str) -> InputDefinition:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
        message = f"parameter {parameter.name!r} of workflow {name!r} cannot be an input"
        raise DefinitionError([Problem(message, hint="inputs are parameters with a name of their own")])
    has_default = parameter.default is not parameter.empty
    default = parameter.default if has_default else None
    declared = _simple_type(annotation)
    annotated = None
    if declared is None and annotation not in (parameter.empty, Any, object):
        annotated = ParameterType(annotation, function)
        allow_answers(annotation)  # values of the classes that a function declares may be recorded
    made = InputDefinition(parameter.name, declared, default=default, has_default=has_default)
    return made.like(annotated=annotated)


def _simple_type(annotation: Any) -> str | None:
    """Return the name of a type that definitions have, too; None for any other annotation."""
    try:
        return _TYPES.get(annotation)
    except TypeError:  # an annotation with a list in it has no hash
        return None


def declared_type(workflow: Workflow, definition: InputDefinition) -> ParameterType | None:
    """Return the annotated type of an input; None where it has none, or where its function is not defined here."""
    if definition.annotated is not None or workflow.start.type != FUNCTION:
        return definition.annotated
    # A definition that was read from a log has no annotations; the function of its name in this process has.
    known = WORKFLOW_FUNCTIONS.get(workflow.name)
    inputs = () if known is None else known.workflow.inputs
    return next((own.annotated for own in inputs if own.name == definition.name), None)


_TYPES_BY_NAME = {cls.__name__: text for cls, text in _TYPES.items()}
"""For modules whose annotations are texts."""


@overload
def step(name: F) -> F: ...
@overload
def step(
    name: str | None = None,
    *,
    retry: Retry | int | None = None,
    timeout: float | None = None,
    idempotent: bool = False,
    approval: bool = False,
    executor: Any = None,
    workspace: str | None = None,
    rollback: Callable[..., Any] | None = None,
) -> Callable[[F], F]: ...
def step(
    name: Any = None,
    *,
    retry: Retry | int | None = None,
    timeout: float | None = None,
    idempotent: bool = False,
    approval: bool = False,
    executor: Any = None,
    workspace: str | None = None,
    rollback: Callable[..., Any] | None = None,
) -> Any:
    """Have the calls that a workflow makes of a function recorded: each is made once, its result kept.

    Inside a workflow function the call is awaited, also that of an ordinary function, which runs in a thread, or where
    `executor` says. Anywhere
    else the function is what it was. Arguments and results may be of any kind that a log can hold: plain data, tuples,
    sets, dates, bytes, frames and arrays, and instances of classes given to `divebook.allow`. The workflow gets a copy
    of the result, of the same type. Methods, partials and objects with ``__call__`` can be steps, too.

    Parameters
    ----------
    name
        By default the function's.
    retry
        Try a call that failed again.
    timeout
        Seconds that a call may take; then it fails with a TimeoutError. A thread cannot be stopped; it is no
        longer waited for.
    idempotent
        Calling it twice does no more than calling it once: it is then simply called again where a process died during
        the call. For any other a person is asked.
    approval
        A person must approve every call first, and may change its arguments; else ApprovalDeniedError is raised.
    executor
        Where the calls of an ordinary function run: ``"thread"``; ``"process"``, for work that keeps a processor busy;
        a name that the environment knows; a `concurrent.futures.Executor` or a function that makes one. By default
        where the environment says. Arguments and results go to another process by cloudpickle, so functions of a
        notebook's cell work. A process whose call takes too long, or whose execution is cancelled, is killed; one that
        dies leaves it unknown whether the call took effect: it is called again if it is idempotent, else a person is
        asked.
    workspace
        The workspace in which the calls work; ``""`` is the one of the workflow. `divebook.present_workspace` gives it
        to the function, and the log has what a call has changed there.
    rollback
        A function that undoes a call: if the execution fails later, or is cancelled, those of all calls that have
        returned are called, the latest first. Its parameters are arguments of this function, by name, and ``result``
        for what the call has returned; with ``@step`` it has a retry, a timeout and so on of its own.
    """
    said = {
        "retry": retry,
        "timeout": timeout,
        "idempotent": idempotent,
        "approval": approval,
        "executor": executor,
        "workspace": workspace,
        "rollback": None if rollback is None else _undoing(rollback),
    }
    return decorated(name, _make_step, StepFunction, said)


def _undoing(function: Callable[..., Any]) -> StepFunction:
    """Return a function that undoes calls, known by its place from now on."""
    known: StepFunction | None = getattr(function, _MADE, None)
    require_nameable(known.function if known is not None else function)
    made = known or StepFunction(function.__name__, as_function(function, "step"), inspect.getdoc(function) or "")
    ROLLBACK_FUNCTIONS[place_of(made)] = made
    return made


def step_of(function: Any) -> StepFunction | None:
    """Return what ``@step`` made, of what it returned."""
    return getattr(function, _MADE, None)


U = TypeVar("U", bound=UserFunction)


def decorated(name: Any, made: Callable[[U], Any], kind: type[U], said: Mapping[str, Any]) -> Any:
    """Return a decorator that hands a function on as one of a kind; or what it returns for `name`, if that is one."""
    retry = said["retry"]
    options = {**said, "retry": None if retry is None else Retry.of(retry)}

    def decorate(given: Any) -> Any:
        own = None if name is given else name
        function = as_function(given, kind.kind, own)
        return made(kind(own or function.__name__, function, inspect.getdoc(function) or "", **options))

    return decorate(name) if is_callable(name, kind.kind) else decorate


def _make_step(made: StepFunction) -> Callable[..., Any]:
    function = made.function

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        calls = CURRENT.get()
        return function(*args, **kwargs) if calls is None else calls.call(made, args, kwargs)

    setattr(call, LABEL, f"step {made.name}")
    setattr(call, _MADE, made)
    source_of(function)
    _require_rollback(made)
    return call


def _require_rollback(made: StepFunction) -> None:
    """Raise unless a call has all that its rollback takes."""
    if made.rollback is None:
        return
    takes = signature_of(made.rollback.function).parameters.values()
    given = {*signature_of(made.function).parameters, ROLLED_BACK, IDEMPOTENCY_KEY}
    for parameter in takes:
        is_asked = parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        )
        if is_asked and parameter.name not in given:
            message = f"{made.rollback.name}, which rolls back step {made.name}, takes {parameter.name!r}"
            hint = f"its parameters are those of {made.name}, and {ROLLED_BACK}: {', '.join(sorted(given))}"
            raise DefinitionError([Problem(message, key="rollback", hint=hint)])
