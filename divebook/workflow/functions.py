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
from types import FunctionType
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar, cast, overload

from divebook.errors import DefinitionError, InputError, NotFoundError, Problem, StepError, did_you_mean, shown_number
from divebook.events.codec import locate_surrogate
from divebook.events.recorded import opened
from divebook.text.names import normal_name, same_name
from divebook.text.ranges import SOME_SECONDS
from divebook.workflow.answer_types import ParameterType, allow_answers, hints_of
from divebook.workflow.code import LABEL, source_of, warn_of
from divebook.workflow.definition import InputDefinition, Workflow
from divebook.workflow.step import Retry, Step
from divebook.workflow.table import INPUT_TYPES

# A person's function, and how it is called: what steps, actions and tools have in common.


IDEMPOTENCY_KEY = "idempotency_key"
"""Parameter that receives a text which is the same whenever a call is repeated."""
CONTEXT = "context"
"""Parameter of an action that receives a `divebook.steps.call.CallContext`."""


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A person's function, and how it is called; what calls it is `divebook.steps.call`."""

    name: str
    function: Callable[..., Any]
    description: str = ""
    """What it does, for people."""
    idempotent: bool = False
    """Calling it twice does no more than calling it once (reading included)."""
    approval: bool = False
    """A person must approve every call first, and may change its arguments."""
    retry: Retry | None = None
    """How often a call that failed is made again."""
    timeout: float | None = None
    """Seconds that a call may take."""
    executor: Any = None
    """Where it runs: a name, or a `concurrent.futures.Executor`; None leaves it to the environment."""
    workspace: str | None = None
    """The workspace that it works in; empty for the one of the workflow or step, None for none."""
    kind: ClassVar[str] = "function"
    stays_here: ClassVar[bool] = False
    """True if it changes what it is given, so that it must run in this process."""
    makes_calls: ClassVar[bool] = False
    """True if it is given the step, the name of its workspace, the arguments and the key, and makes calls itself."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", normal_name(self.name))
        for key in ("name", "description"):
            if locate_surrogate(getattr(self, key), key):
                message = f"{key} of {self.name!a} holds half a character (a lone surrogate), which cannot be stored"
                raise DefinitionError([Problem(message, key=key, hint="write the whole character")])
        if self.timeout is not None and not SOME_SECONDS.fits(self.timeout):
            message = f"the timeout of {self.name} must be {SOME_SECONDS}, not {shown_number(self.timeout)}"
            raise DefinitionError([Problem(message, key="timeout", hint="leave it out for no limit")])
        if self.executor is not None:
            self._require_fit()

    def _require_fit(self) -> None:
        """Raise unless it can run in the executor that it names."""
        is_one = any(hasattr(self.executor, name) for name in ("submit", "run", "__call__"))
        if not is_one and not isinstance(self.executor, str):
            message = f"the executor of {self.name} must be a name, a concurrent.futures.Executor or what makes one"
            hint = 'write executor="process", or pass a pool'
            raise DefinitionError([Problem(f"{message}, not {self.executor!r}", key="executor", hint=hint)])
        if inspect.iscoroutinefunction(self.function):
            message = f"{self.label} is async, so it runs on the engine's loop and in no executor"
            raise DefinitionError([Problem(message, key="executor", hint="write `def`, or leave the executor out")])
        if self.executor == "process" and self.kind == "action" and self.takes.context:
            message = f"{self.label} takes a {CONTEXT}, which lives in this process only"
            hint = f"leave out the parameter {CONTEXT}, or the executor"
            raise DefinitionError([Problem(message, key="executor", hint=hint)])

    @property
    def is_repeatable(self) -> bool:
        """True if it may simply be called again when it is not known if a call took effect."""
        return self.idempotent or self.takes.key

    @property
    def takes(self) -> Takes:
        """What it takes, as far as every call of it asks."""
        return _takes(self.function)

    @property
    def label(self) -> str:
        """What it is and its name, for messages."""
        return f'{self.kind} "{self.name}"'

    def bound(self, arguments: Mapping[str, Any]) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Return what to call the function with, from arguments by name.

        Raises
        ------
        TypeError
            It does not take these arguments.
        """
        misfit = _misfit(self.function, tuple(arguments))
        if misfit:
            raise TypeError(misfit)
        return (), arguments


@functools.lru_cache(maxsize=1024)
def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a function."""
    return inspect.signature(function)


class Takes(NamedTuple):
    """What a function takes, as far as every call of it asks; to look at its signature takes longer than a call."""

    is_async: bool
    """True if it is a coroutine function."""
    key: bool = False
    """True if it wants a text that is the same whenever its call is repeated."""
    context: bool = False
    """True if it wants what it may tell the execution: a parameter ``context`` without a default."""
    by_name: frozenset[str] = frozenset()
    """Its parameters, if all of them may be given by name; else empty."""
    by_place: tuple[str, ...] = ()
    """Its parameters, if all of them may be given by place, and none comes with the call; else empty."""
    least: int = 0
    """How many of these have no default."""


@functools.lru_cache(maxsize=1024)
def _takes(function: Callable[..., Any]) -> Takes:
    found = signature_of(function).parameters
    kinds = {parameter.kind for parameter in found.values()}
    own = found.get(CONTEXT)
    return Takes(
        inspect.iscoroutinefunction(function),
        IDEMPOTENCY_KEY in found,
        own is not None and own.default is own.empty,
        frozenset(found) if kinds <= {_BOTH, inspect.Parameter.KEYWORD_ONLY} else frozenset(),
        tuple(found) if kinds <= {_BOTH} and IDEMPOTENCY_KEY not in found else (),
        sum(parameter.default is parameter.empty for parameter in found.values()),
    )


_BOTH = inspect.Parameter.POSITIONAL_OR_KEYWORD


@functools.lru_cache(maxsize=1024)
def _misfit(function: Callable[..., Any], names: tuple[str, ...]) -> str | None:
    """Return why a function does not take keywords of these names, or None if it does."""
    signature = signature_of(function)
    try:
        signature.bind(**dict.fromkeys(names))
    except TypeError as error:
        return f"{error} (it takes: {', '.join(signature.parameters) or 'nothing'})"
    return None


# Functions given to ``@step(rollback=...)``: known by the place of their `def`, and found again by it.
#
# A log names what is to undo a call, and whichever process undoes it looks that up: by module and qualified name, since
# two modules may each have a `cancel`. Where a function's file is loaded under another name, or the log is older and
# has the plain name, the one function that this can mean is taken, and no other
# (`tests/execution/test_rollback_functions.py`).


ROLLBACK_FUNCTIONS: dict[str, UserFunction] = {}
"""Functions of this process that undo what others have done, by their place; a later one replaces an earlier."""
_LAMBDA = "<lambda>"


def place_of(made: UserFunction) -> str:
    """Return module and qualified name of a function, the same in every process that has it from there."""
    return f"{_module(made)}:{made.function.__qualname__}"


def _module(made: UserFunction) -> str:
    return getattr(made.function, "__module__", None) or ""


def require_nameable(function: Any) -> None:
    """Raise `DefinitionError` unless a log can name a function so that it is found again."""
    if not callable(function):
        told = f"rollback is a function, not {function!r}"
        hint = "write @step(rollback=cancel_room), without quotes"
    elif getattr(function, "__name__", _LAMBDA) == _LAMBDA or not hasattr(function, "__qualname__"):
        told = f"{function!r} cannot undo calls: it has no name by which a later process would find it"
        hint = "write def cancel_room(result): ..., and give that to @step(rollback=cancel_room)"
    else:
        return
    raise DefinitionError([Problem(told, key="rollback", hint=hint)])


def require_itself(made: UserFunction) -> None:
    """Raise unless a function would be found again, and no other one that the same `def` has made since.

    One that was defined anew, as by a cell that is run again, takes the place of the earlier one.

    Raises
    ------
    StepError
        It would be another one, which undoes other things.
    """
    known = ROLLBACK_FUNCTIONS.get(place_of(made))
    if known is None or not _are_variants(known.function, made.function):
        return
    raise StepError(
        f"two functions are {place_of(made)}, made by one def with other values around it, and what undoes this call "
        "could be either; define it outside the function that makes it, and let it take what differs as an argument"
    )


def _are_variants(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Return whether two functions are of one `def`, and may do different things."""
    codes = getattr(one, "__code__", None), getattr(other, "__code__", None)
    return codes[0] is not None and codes[0] is codes[1] and _around(one) != _around(other)


def _around(function: Callable[..., Any]) -> list[object]:
    cells = getattr(function, "__closure__", None) or ()
    inside = [id(cell.cell_contents) for cell in cells if _is_filled(cell)]
    return [*inside, id(getattr(function, "__self__", None))]


def _is_filled(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def find_rollback(place: str) -> UserFunction:
    """Return the function of this process that was given to ``@step(rollback=...)`` last at a place.

    Parameters
    ----------
    place
        As `place_of` has it; the plain name in older logs.

    Raises
    ------
    NotFoundError
        There is none, or several could be meant.
    """
    found = ROLLBACK_FUNCTIONS.get(place)
    if found is not None:
        return found
    _, _, name = place.rpartition(":")
    is_placed = ":" in place
    alike = [made for made in ROLLBACK_FUNCTIONS.values() if name == (_qualified(made) if is_placed else made.name)]
    if len(alike) == 1:
        return alike[0]
    shown = name.rpartition(".")[2]
    told = f"function {shown} is not defined here; run the cell that gives it to @step(rollback={shown})"
    if alike:
        told = f"{place} may be {' or '.join(sorted(map(place_of, alike)))}; give them names of their own"
    raise NotFoundError("function", shown, [made.name for made in ROLLBACK_FUNCTIONS.values()], told)


def _qualified(made: UserFunction) -> str:
    return made.function.__qualname__


# Callables that are not plain functions (methods, partials, callable objects) as functions.
#
# Steps, actions and tools set attributes on their function, read its source and signature, and cache by it. A plain
# function allows all of that; `as_function` makes one of any callable, so that no other code has to know the
# difference.


LAMBDA = "<lambda>"


def as_function(target: Any, kind: str, name: str | None = None) -> FunctionType:
    """Return a plain function that calls `target`, with its name, signature and docstring; a function as it is.

    Parameters
    ----------
    kind
        The kind of thing that is made of it, for errors: ``step``, ``action``, ``tool``.
    name
        The name that a person gave it, which stands for one that it does not have.

    Raises
    ------
    DefinitionError
        It cannot be called, has no signature, or has no name and none is target.
    """
    if isinstance(target, staticmethod):
        target = target.__func__
    if isinstance(target, classmethod):
        message = f"@{kind} cannot be written above @classmethod"
        raise DefinitionError([Problem(message, hint=f"write @classmethod above @{kind}")])
    if not callable(target):
        hint = f"write @{kind} above `def`, or pass a function"
        raise DefinitionError([Problem(f"@{kind} expects a function, not {target!r:.60}", hint=hint)])
    _require_name(target, kind, name)
    return target if isinstance(target, FunctionType) else _function(target, kind)


def is_callable(name: Any, kind: str) -> bool:
    """Return whether the first argument of a decorator is what it decorates; `DefinitionError` if it is no name either.

    Decorators are written ``@step``, ``@step("name")`` and ``@step(name="name")``.
    """
    if callable(name) or isinstance(name, staticmethod | classmethod):
        return True
    if name is None or isinstance(name, str):
        return False
    hint = f'write @{kind}("name"), or @{kind} alone'
    raise DefinitionError(
        [Problem(f"the name in @{kind}(...) must be a string, not {name!r:.60}", key="name", hint=hint)]
    )


def name_of(target: Any) -> str:
    """Return the name of a callable; empty if it has none, as a lambda or a partial of one."""
    target = _without_partials(target)
    name = getattr(target, "__name__", None) or type(target).__name__
    return "" if name == LAMBDA else str(name)


def is_async(target: Any) -> bool:
    """Return whether a callable returns a coroutine: an async function, or an object whose ``__call__`` is one."""
    target = _without_partials(target)
    return inspect.iscoroutinefunction(target) or (
        not isinstance(target, FunctionType | type) and inspect.iscoroutinefunction(getattr(target, "__call__", None))  # noqa: B004
    )


def _require_name(target: Any, kind: str, name: str | None) -> None:
    if name is None and not name_of(target):
        hint = f'write {kind}(name="...")(...), or use `def`'
        raise DefinitionError([Problem(f"@{kind} needs a name: {target!r:.60} has none", key="name", hint=hint)])


def _without_partials(target: Any) -> Any:
    while isinstance(target, functools.partial):
        target = target.func
    return target


def _function(target: Any, kind: str) -> FunctionType:
    """Return a function that calls a callable and looks like it to `inspect`."""
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError) as error:
        hint = "call it in a function of yours, whose parameters have names"
        raise DefinitionError([Problem(f"@{kind} cannot use {target!r:.60}: {error}", hint=hint)]) from error

    async def call_async(*args: Any, **kwargs: Any) -> Any:
        return await target(*args, **kwargs)

    def call(*args: Any, **kwargs: Any) -> Any:
        return target(*args, **kwargs)

    inner = _inner(target)
    hints = hints_of(inner)
    parameters = [
        each.replace(annotation=hints.get(name, each.annotation)) for name, each in signature.parameters.items()
    ]
    function: Any = call_async if is_async(target) else call
    function.__signature__ = signature.replace(
        parameters=parameters, return_annotation=hints.get("return", signature.return_annotation)
    )
    function.__annotations__ = {name: hint for name, hint in hints.items() if name in {*signature.parameters, "return"}}
    function.__name__, function.__doc__ = name_of(target), _doc(target, inner)
    function.__qualname__ = getattr(inner, "__qualname__", function.__name__)
    function.__module__ = getattr(inner, "__module__", None) or type(target).__module__
    if isinstance(inner, FunctionType):
        function.__wrapped__ = inner  # its source is that of the callable
    return cast("FunctionType", function)


def _inner(target: Any) -> Any:
    """Return the function that a callable runs in the end, as far as there is one."""
    target = inspect.unwrap(_without_partials(target))
    if inspect.ismethod(target):
        return inspect.unwrap(target.__func__)
    if isinstance(target, FunctionType | type) or inspect.isbuiltin(target):
        return target
    return inspect.unwrap(type(target).__call__)


def _doc(target: Any, inner: Any) -> str | None:
    """Return the docstring of a callable; of an object that of its ``__call__``, and else that of its class."""
    is_object = not hasattr(target, "__name__") and not isinstance(target, functools.partial)
    own = inspect.getdoc(inner) if getattr(inner, "__doc__", None) and not _is_slot(inner) else None
    return own or (inspect.getdoc(type(target)) if is_object else None)


def _is_slot(inner: Any) -> bool:
    """Return whether it is a ``__call__`` of C code, whose docstring says nothing of what it calls."""
    return not isinstance(inner, FunctionType | type) and not inspect.isbuiltin(inner)


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


# The inputs of an execution: checked against what its workflow declares.


_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})


def bind_inputs(workflow: Workflow, given: Mapping[str, Any], *, coerce_text: bool = False) -> dict[str, Any]:
    """Return the inputs an execution starts with, in the order in which they are declared.

    Parameters
    ----------
    given
        Values by name; an explicit None counts as given, and fits no declared type unless that says so.
    coerce_text
        Turn texts, as a command line gives them, into what the declaration says.

    Notes
    -----
    An input of a workflow function with an annotation, such as a date, an enum or a list of models, is made into that
    from its JSON form; a value that cannot be one is refused.

    Raises
    ------
    InputError
        They are no mapping, or one is missing, not declared, or of another type.
    """
    if not isinstance(given, Mapping):
        raise InputError(f"inputs are a mapping of names to values, not {given!r:.60}; write {{'name': value}}")
    given = _by_declared_name(workflow, given)
    declared = _declared(workflow, given)
    return {name: _bound(workflow, definition, given, coerce_text=coerce_text) for name, definition in declared.items()}


def bind_changed(workflow: Workflow, changed: Mapping[str, Any], *, coerce_text: bool = False) -> dict[str, Any]:
    """Return new values of some inputs; raises `InputError` as `bind_inputs` does, but none for those not given."""
    changed = _by_declared_name(workflow, changed)
    declared = _declared(workflow, changed)
    return {name: _bound(workflow, declared[name], changed, coerce_text=coerce_text) for name in changed}


def _by_declared_name(workflow: Workflow, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by the names that the workflow declares; raises `InputError` for two spellings of one name."""
    declared = {definition.name: definition for definition in workflow.inputs}
    named: dict[str, Any] = {}
    for name, value in given.items():
        known = same_name(name, declared)
        if known in named:
            raise InputError(f'input "{known}" is given twice, in two spellings of one name; give it once', known)
        named[name if known is None else known] = value
    return named


def _declared(workflow: Workflow, given: Mapping[str, Any]) -> dict[str, InputDefinition]:
    """Return what a workflow declares, by name, if all that is given is among it."""
    declared = {definition.name: definition for definition in workflow.inputs}
    for name in given:
        if name not in declared:
            known = did_you_mean(name, declared) or f"declared: {', '.join(declared) or 'none'}"
            raise InputError(f'unknown input "{name}" for workflow "{workflow.name}" ({known})', name)
    return declared


def _bound(workflow: Workflow, definition: InputDefinition, given: Mapping[str, Any], *, coerce_text: bool) -> Any:
    if definition.name not in given:
        if definition.has_default or definition.required is False:
            return opened(definition.default)
        raise InputError(
            f'input "{definition.name}" is required (a required input of workflow "{workflow.name}"'
            f"{f': {definition.description}' if definition.description else ''}); give it a value: "
            f"{definition.name}=... (in a shell: -v {definition.name}=...)",
            definition.name,
        )
    value = given[definition.name]
    if isinstance(value, str) and not workflow.manner.converts_inputs:
        return value
    annotated = declared_type(workflow, definition)
    if annotated is not None and not (value is None and _accepts_none(definition)):
        try:
            return annotated.convert(value, is_text=coerce_text and isinstance(value, str))
        except ValueError as error:
            message = f'input "{definition.name}" must be of type {annotated.name}, got {_short(value)}: {error}'
            raise InputError(message, definition.name) from None
    if coerce_text and isinstance(value, str):
        value = _from_text(definition, value)
    if value is None and (_accepts_none(definition) or not workflow.manner.converts_inputs):
        return value
    return _checked(definition, value)


def _accepts_none(definition: InputDefinition) -> bool:
    return definition.required is False or (definition.has_default and definition.default is None)


def _checked(definition: InputDefinition, value: Any) -> Any:
    types = INPUT_TYPES.get((definition.type or "").lower())
    if types is None:
        return value
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise InputError(
            f'input "{definition.name}" must be of type {definition.type}, got {type(value).__name__}: {_short(value)}',
            definition.name,
        )
    return list(value) if isinstance(value, tuple) else value


def _from_text(definition: InputDefinition, text: str) -> Any:
    """Return what a text means for a number or a truth value; other types keep it."""
    types = INPUT_TYPES.get((definition.type or "").lower(), (str,))
    try:
        if bool in types:
            return {**dict.fromkeys(_TRUE, True), **dict.fromkeys(_FALSE, False)}[text.strip().lower()]
        if float in types:
            return float(text)
        return int(text) if int in types else text
    except (ValueError, KeyError):
        raise InputError(
            f'input "{definition.name}" must be of type {definition.type}, got the text {_short(text)}', definition.name
        ) from None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
