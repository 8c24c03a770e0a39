"""Workflows and steps written as Python functions: the decorators ``@workflow`` and ``@step``, and `lint`.

``@workflow`` converts an async function to a `WorkflowFunction`, a `Workflow` with one step of type ``function``, whose
definition contains the source. ``@step`` marks functions whose calls are recorded when a workflow function makes them.
Elsewhere they are ordinary functions. `divebook.steps.function` executes workflow functions and the calls of steps.

`UserFunction` is the common base of steps, actions and tools. `as_function` converts any callable to a plain function.
`bind_inputs` checks the inputs of an execution.
"""

from __future__ import annotations

import functools
import inspect
import re
import textwrap
import warnings
from collections import OrderedDict
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from types import FunctionType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Concatenate,
    Generic,
    Literal,
    NamedTuple,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    overload,
)

from divebook.definitions.answer_types import (
    BOOLEAN_WORDS,
    ParameterType,
    allow_answers,
    combine,
    hints_of,
    parsed_word,
)
from divebook.definitions.code import LABEL, Doubt, doubts_of, shown_place, source_of, warn_of
from divebook.definitions.definition import InputDefinition, Workflow
from divebook.definitions.step import Retry, Step
from divebook.definitions.table import INPUT_TYPES
from divebook.errors import (
    DefinitionError,
    InputError,
    NotFoundError,
    Problem,
    SetupError,
    StepError,
    UnrecordableWarning,
    did_you_mean,
    position_in,
    shown_number,
)
from divebook.events.codec import canonical_hash, json_form, locate_surrogate, storable
from divebook.events.recorded import opened
from divebook.events.values import is_recordable_type, recorded_base
from divebook.questions.question import example_in_words, example_of
from divebook.text.arguments import (
    DurationLike,
    expected_seconds,
    normal_name,
    plain_seconds,
    require,
    same_name,
    suggest_arguments,
)
from divebook.text.passwords import REDACTED, looks_secret
from divebook.text.protocols import is_async, without_partials
from divebook.text.ranges import SOME_SECONDS

# --- users' functions: common properties of steps, actions and tools --------------------------------------------------


IDEMPOTENCY_KEY = "idempotency_key"
"""Name of the parameter that receives the idempotency key of a call: a string that stays the same if the call is
repeated.
"""
CONTEXT = "context"
"""Name of the parameter of an action that receives a `divebook.runtime.calls.ToolContext` also without an annotation.
"""


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A Python function of a user (step, action or tool) with the options for its calls. Calls are made by
    `divebook.runtime.calls`.
    """

    name: str
    function: Callable[..., Any]
    description: str = ""
    """Description for people."""
    idempotent: bool = False
    """True if two calls have the same effect as one (also for functions that only read)."""
    approval: bool = False
    """True if a person must approve every call first, and may change its arguments."""
    retry: Retry | None = None
    """Policy for repeating failed calls."""
    timeout: float | None = None
    """Time limit of a call in seconds; None for no limit."""
    executor: Any = None
    """Name of an executor, or a `concurrent.futures.Executor`. None means the default of the environment."""
    workspace: str | None = None
    """Name of the workspace in which the function works. ``""`` means the workspace of the workflow or step, None no
    workspace.
    """
    kind: ClassVar[str] = "function"
    stays_here: ClassVar[bool] = False
    """True if the function changes its arguments, so that it must run in this process."""
    makes_calls: ClassVar[bool] = False
    """True if the function makes recorded calls itself.

    Such a function gets the step, the name of its workspace, the arguments and the idempotency key.
    """

    def __post_init__(self) -> None:
        # `object.__setattr__` sets a field of a frozen class. Names are stored in their normal form.
        object.__setattr__(self, "name", normal_name(self.name))
        require_one_result(self.function, self.kind_and_name)
        for key in ("name", "description"):
            if locate_surrogate(getattr(self, key), key):
                message = f"{key} of {self.name!a} contains a lone surrogate (half a character), which cannot be stored"
                raise DefinitionError([Problem(message, key=key, hint="write the whole character")])
        object.__setattr__(self, "timeout", plain_seconds(self.timeout))
        if self.timeout is not None and not SOME_SECONDS.fits(self.timeout):
            expected = expected_seconds(SOME_SECONDS, self.timeout)
            message = f"the timeout of {self.name} must be {expected}, not {shown_number(self.timeout)}"
            raise DefinitionError([Problem(message, key="timeout", hint="omit the timeout for no limit")])
        if self.kind == "step" and self.takes.is_context_annotated:
            parameter = self.takes.context
            message = (
                f"{self.kind_and_name} has the parameter {parameter} of type ToolContext, which only actions and "
                "tools receive"
            )
            hint = (
                "read the value in the workflow function, which has a Context, and pass it to the step as an argument"
            )
            raise DefinitionError([Problem(message, key=parameter, hint=hint)])
        if self.executor is not None:
            self._require_fit()

    def _require_fit(self) -> None:
        """Raise `DefinitionError` if the option `executor` of this function is not an executor, or names an executor
        that cannot run this function.
        """
        # A `concurrent.futures.Executor` has ``submit``, an executor of divebook ``run``. A callable makes an executor.
        is_executor = any(hasattr(self.executor, name) for name in ("submit", "run", "__call__"))
        if not is_executor and not isinstance(self.executor, str):
            message = (
                f"the executor of {self.name} must be a name, a concurrent.futures.Executor or a function that "
                "returns an executor"
            )
            hint = 'write executor="process", or pass a pool'
            raise DefinitionError([Problem(f"{message}, not {self.executor!r}", key="executor", hint=hint)])
        # A coroutine runs on the engine's loop, not in an executor.
        if inspect.iscoroutinefunction(self.function):
            message = f"{self.kind_and_name} is async, so it runs on the engine's loop and cannot use an executor"
            raise DefinitionError([Problem(message, key="executor", hint="write `def`, or remove the executor")])
        # A context holds the recorder and other objects of this process, which cannot be pickled.
        if self.executor == "process" and self.context_parameter:
            message = f"{self.kind_and_name} takes a {CONTEXT}, which cannot be passed to another process"
            hint = f"remove the parameter {self.context_parameter}, or the executor"
            raise DefinitionError([Problem(message, key="executor", hint=hint)])

    @property
    def is_repeatable(self) -> bool:
        """True if a call with an unknown outcome may be repeated, for example after the process died during the
        call.
        """
        return self.idempotent or self.takes.key

    @property
    def takes(self) -> Takes:
        """Properties of the function and its parameters that each call needs, cached per function."""
        return takes_of(self.function)

    @property
    def context_parameter(self) -> str:
        """Name of the parameter of an action or tool that receives a `divebook.runtime.calls.ToolContext`; empty if it
        has none. For a tool, only a parameter with this annotation counts, because a parameter that is called
        ``context`` is an argument of the model.
        """
        takes = self.takes
        is_supplied = self.kind == "action" or (self.kind == "tool" and takes.is_context_annotated)
        return takes.context if is_supplied else ""

    @property
    def kind_and_name(self) -> str:
        """Kind and name of the function for error messages, such as ``step "parse"``."""
        return f'{self.kind} "{self.name}"'

    def bound(self, arguments: Mapping[str, Any]) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Convert arguments by name to the positional and keyword arguments of a call: ``args, kwargs``.

        Raises
        ------
        TypeError
            The function does not accept these arguments.
        """
        # The check is cached by the names of the arguments, since calls of a step mostly have the same names.
        misfit = _misfit(self.function, tuple(arguments))
        if misfit is None:
            return (), arguments
        signature = signature_of(self.function)
        kinds = {parameter.kind for parameter in signature.parameters.values()}
        # Such parameters, of functions in C for instance, have names for definitions only.
        if inspect.Parameter.POSITIONAL_ONLY not in kinds or _misfit_by_position(self.function, tuple(arguments)):
            raise TypeError(misfit)
        bound = inspect.BoundArguments(signature, OrderedDict(arguments))
        return bound.args, bound.kwargs


@functools.lru_cache(maxsize=1024)
def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a Python function, cached."""
    return inspect.signature(function)


class Takes(NamedTuple):
    """Properties of a function and its parameters that every call of the function needs.

    They are cached, because the inspection of a signature takes longer than a call.
    """

    is_async: bool
    """True if the function is a coroutine function."""
    key: bool = False
    """True if the function has the parameter `IDEMPOTENCY_KEY`."""
    context: str = ""
    """Name of the parameter with the annotation ``ToolContext``, else `CONTEXT` if that is a parameter without a
    default.
    """
    is_context_annotated: bool = False
    by_name: frozenset[str] = frozenset()
    """Names of all parameters, if each can be passed by name; otherwise empty."""
    by_place: tuple[str, ...] = ()
    """Names of all parameters, if each can be passed by position and divebook adds none; otherwise empty."""
    least: int = 0
    """Number of parameters without a default."""


@functools.lru_cache(maxsize=1024)
def takes_of(function: Callable[..., Any]) -> Takes:
    """Return the properties of a function and its parameters that every call needs, cached."""
    parameters = signature_of(function).parameters
    kinds = {parameter.kind for parameter in parameters.values()}
    annotated = [name for name, parameter in parameters.items() if _is_tool_context(parameter.annotation, function)]
    # A parameter ``context`` with a default is an argument of the user.
    is_required = CONTEXT in parameters and parameters[CONTEXT].default is inspect.Parameter.empty
    return Takes(
        inspect.iscoroutinefunction(function),
        IDEMPOTENCY_KEY in parameters,
        annotated[0] if annotated else (CONTEXT if is_required else ""),
        bool(annotated),
        frozenset(parameters) if kinds <= {_BOTH, inspect.Parameter.KEYWORD_ONLY} else frozenset(),
        # The idempotency key is added by name at each call, so that such a function has no fast path by position.
        tuple(parameters) if kinds <= {_BOTH} and IDEMPOTENCY_KEY not in parameters else (),
        sum(parameter.default is parameter.empty for parameter in parameters.values()),
    )


def _is_tool_context(annotation: Any, function: Callable[..., Any]) -> bool:
    """Return whether the annotation of a parameter is ``ToolContext``, or that or None."""
    # In modules with postponed annotations, an annotation is a string.
    if isinstance(annotation, str):
        match = _TOOL_CONTEXT.fullmatch(annotation)
        if match is None:
            return False
        first, *attributes = match["name"].split(".")
        value = getattr(inspect.unwrap(function), "__globals__", {}).get(first)
        for name in attributes:
            value = getattr(value, name, None)
        # A class that is imported for type checkers only is not among the globals.
        return value is None or _is_tool_context(value, function)
    # The class is defined in a higher layer. Other libraries have classes of the same name.
    names = {(part.__module__, part.__name__) for part in (annotation, *get_args(annotation)) if isinstance(part, type)}
    return ("divebook.runtime.calls", "ToolContext") in names


_TOOL_CONTEXT = re.compile(r"(?:(?:\w+\.)*Optional\[)?(?P<name>(?:\w+\.)*ToolContext)(?:\]| \| None)?")


_BOTH = inspect.Parameter.POSITIONAL_OR_KEYWORD


@functools.lru_cache(maxsize=1024)
def _parameter_types(function: Callable[..., Any]) -> Mapping[str, ParameterType]:
    """Return the annotated types of a function's parameters by name, cached. A parameter that accepts every value has
    none.
    """
    return {
        name: ParameterType(annotation, function)
        for name, annotation in hints_of(function).items()
        if annotation not in (inspect.Parameter.empty, Any, object)
    }


def typed_arguments(function: UserFunction, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the arguments of a call that a definition describes to the annotated types of the parameters, by the
    rules of inputs: a definition has a string for a date, and an object for an instance. A string from a template may
    also be the JSON form of a value, such as ``"8"`` for an integer.

    An argument that does not fit its annotation stays as it is. A function may accept more than its annotation says,
    and a rollback must not fail because of an annotation.
    """
    converted = dict(arguments)
    types = _parameter_types(function.function)
    annotated = arguments.keys() & types.keys()
    if not annotated:
        return converted
    parameters = signature_of(function.function).parameters
    for name in annotated & parameters.keys():
        value = arguments[name]
        # The annotation of ``**options: int`` is about the values, which have names of their own.
        if parameters[name].kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            continue
        # A string that fits as it is, such as one for ``int | str``, is not parsed.
        for is_text in (False, True) if isinstance(value, str) else (False,):
            with suppress(ValueError):
                converted[name] = types[name].convert(value, is_text=is_text)
                break
    return converted


def _misfit_by_position(function: Callable[..., Any], names: tuple[str, ...]) -> bool:
    """Return True if arguments of these names are too few or too many for the parameters of a function, also if those
    that can be passed by position only are passed so.
    """
    parameters = signature_of(function).parameters
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    fixed = {name: parameter for name, parameter in parameters.items() if parameter.kind not in variable}
    required = {name for name, parameter in fixed.items() if parameter.default is parameter.empty}
    return not required <= {*names} <= fixed.keys()


@functools.lru_cache(maxsize=1024)
def _misfit(function: Callable[..., Any], names: tuple[str, ...]) -> str | None:
    """Return an error message if a function cannot be called with keyword arguments of these names; None if it can."""
    signature = signature_of(function)
    try:
        signature.bind(**dict.fromkeys(names))
    except TypeError as error:
        return f"{error} (it takes: {', '.join(signature.parameters) or 'nothing'})"
    return None


# --- rollback functions of ``@step(rollback=...)`` --------------------------------------------------------------------
#
# A log contains the name of the function that undoes a call. The process that rolls back looks it up by module and
# qualified name, because two modules may each have a function `cancel`. If the file of a function is loaded under
# another name, or an older log has the plain name, the name must identify exactly one function
# (`tests/runtime/test_rollback_functions.py`).


ROLLBACK_FUNCTIONS: dict[str, UserFunction] = {}
"""Rollback functions of this process, by module and qualified name. A later function of the same name replaces an
earlier one.
"""
_LAMBDA = "<lambda>"


def place_of(step: UserFunction) -> str:
    """Return the key under which a rollback function is registered in `ROLLBACK_FUNCTIONS`: its module and qualified
    name, such as ``trips:cancel_room``.

    The key is the same in every process that imports the function.
    """
    return f"{_module(step)}:{step.function.__qualname__}"


def _module(step: UserFunction) -> str:
    return getattr(step.function, "__module__", None) or ""


def require_nameable(function: Any) -> None:
    """Raise `DefinitionError` if a rollback function has no name, because a later process finds the function by its
    name.
    """
    if not callable(function):
        message = f"rollback must be a function, not {function!r}"
        hint = "write @step(rollback=cancel_room), without quotes"
    # A partial and a callable object have no qualified name.
    elif getattr(function, "__name__", _LAMBDA) == _LAMBDA or not hasattr(function, "__qualname__"):
        message = f"{function!r} cannot be a rollback function: it has no name by which a later process could find it"
        hint = "write def cancel_room(result): ..., and pass the function: @step(rollback=cancel_room)"
    else:
        return
    raise DefinitionError([Problem(message, key="rollback", hint=hint)])


def require_unambiguous_name(step: UserFunction) -> None:
    """Raise an error if the name of a rollback function is ambiguous: it now refers to another function that the same
    `def` statement created with other values in its closure.

    A function that is defined again, for example by running a cell again, replaces the earlier one without an error.

    Raises
    ------
    StepError
        The registered function is another one, with other values in its closure.
    """
    registered = ROLLBACK_FUNCTIONS.get(place_of(step))
    if registered is None or not _are_variants(registered.function, step.function):
        return
    raise StepError(
        f"two functions have the same name and place, {place_of(step)}, because the same nested def created both. "
        "The rollback of this call is therefore ambiguous. Define the function at the top level, and pass the values "
        "that differ as arguments"
    )


def _are_variants(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Return True if two functions come from the same `def` statement, but have other values in their closures or are
    bound to other objects.
    """
    codes = getattr(one, "__code__", None), getattr(other, "__code__", None)
    # One `def` statement makes one code object, and a new function each time it runs.
    return codes[0] is not None and codes[0] is codes[1] and _closure_ids(one) != _closure_ids(other)


def _closure_ids(function: Callable[..., Any]) -> list[object]:
    cells = getattr(function, "__closure__", None) or ()
    inside = [id(cell.cell_contents) for cell in cells if _is_filled(cell)]
    # Methods of two objects have the same code and no closure, but another ``__self__``.
    return [*inside, id(getattr(function, "__self__", None))]


def _is_filled(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    # A variable of an enclosing function that has no value yet.
    except ValueError:
        return False
    return True


def find_rollback(place: str) -> UserFunction:
    """Return the rollback function that this process has registered under a name which a log has recorded.

    Parameters
    ----------
    place
        Module and qualified name (`place_of`), or the plain name in older logs.

    Raises
    ------
    NotFoundError
        No such function is defined here, or the name fits several.
    """
    registered = ROLLBACK_FUNCTIONS.get(place)
    if registered is not None:
        return registered
    # "trips:cancel_room" -> "cancel_room". Older logs have the plain name.
    _, _, name = place.rpartition(":")
    has_module = ":" in place
    # The function may be loaded under another module name, such as ``__main__``. The name must then be unique.
    matches = [step for step in ROLLBACK_FUNCTIONS.values() if name == (_qualified(step) if has_module else step.name)]
    if len(matches) == 1:
        return matches[0]
    shown = name.rpartition(".")[2]
    message = f"function {shown} is not defined in this process; run the cell that contains @step(rollback={shown})"
    if matches:
        message = f"rollback function {place} is ambiguous: it can be {' or '.join(sorted(map(place_of, matches)))}; "
        message += "give these functions different names"
    raise NotFoundError("function", shown, [step.name for step in ROLLBACK_FUNCTIONS.values()], message)


def _qualified(step: UserFunction) -> str:
    return step.function.__qualname__


# --- conversion of callables to plain functions -----------------------------------------------------------------------
#
# Steps, actions and tools set attributes on their function, read its source and signature, and use it as a key of
# caches. A plain function supports all of this. `as_function` converts methods, partials and callable objects to plain
# functions, so that no other code has to distinguish them.


LAMBDA = "<lambda>"


def as_function(target: Any, kind: str, name: str | None = None) -> FunctionType:
    """Convert any callable to a plain function with the same name, signature and docstring. A plain function stays
    unchanged.

    Parameters
    ----------
    kind
        Kind of the result, for errors: ``step``, ``action``, ``tool``.
    name
        Explicit name, which is required for a target without a name.

    Raises
    ------
    DefinitionError
        The target cannot be called, has no signature, or has no name and none is passed.
    """
    # A decorator inside a class gets the static method before Python binds it.
    if isinstance(target, staticmethod):
        target = target.__func__
    if isinstance(target, classmethod):
        message = f"@{kind} cannot be written above @classmethod"
        raise DefinitionError([Problem(message, hint=f"write @classmethod above @{kind}")])
    if not callable(target):
        hint = f"write @{kind} above `def`, or pass a function"
        raise DefinitionError([Problem(f"@{kind} expects a function, not {target!r:.60}", hint=hint)])
    _require_name(target, kind, name)
    require_one_result(_called(target), f'{kind} "{name or name_of(target)}"')
    return target if isinstance(target, FunctionType) and not _is_dispatching(target) else _function(target, kind)


def require_one_result(function: Any, kind_and_name: str) -> None:
    """Raise `DefinitionError` for a generator function, since a log contains one result of a call."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        message = f"{kind_and_name} is a generator, but a call must return a single result"
        raise DefinitionError([Problem(message, hint="return a list of the values instead of yielding them")])


def _called(target: Any) -> Any:
    """Return the function that runs first when a callable is called: a decorator may turn what a generator yields into
    a list.
    """
    target = without_partials(target)
    if not isinstance(target, FunctionType | type) and not inspect.ismethod(target) and not inspect.isbuiltin(target):
        target = type(target).__call__
    return getattr(target, "__func__", target)


def _is_dispatching(target: Any) -> bool:
    """Return True for a function of `functools.singledispatch`, whose first argument must be passed by position."""
    return hasattr(target, "registry") and hasattr(target, "dispatch")


def is_callable(name: Any, kind: str) -> bool:
    """Return True if a decorator was written without parentheses (``@step``), so that its first argument `name` is the
    decorated function. Return False for ``@step("name")`` and ``@step()``.

    Decorators are written ``@step``, ``@step("name")`` or ``@step(name="name")``. Other arguments raise
    `DefinitionError`.
    """
    if callable(name) or isinstance(name, staticmethod | classmethod):
        return True
    if name is None or isinstance(name, str):
        return False
    hint = f'write @{kind}("name"), or @{kind} without parentheses'
    raise DefinitionError(
        [Problem(f"the name in @{kind}(...) must be a string, not {name!r:.60}", key="name", hint=hint)]
    )


def name_of(target: Any) -> str:
    """Return the name of a callable: for a partial, the name of the function inside it; for a lambda, the empty
    string.
    """
    target = without_partials(target)
    name = getattr(target, "__name__", None) or type(target).__name__
    return "" if name == LAMBDA else str(name)


def _require_name(target: Any, kind: str, name: str | None) -> None:
    if name is None and not name_of(target):
        hint = f'write {kind}(name="...")(...), or use `def`'
        raise DefinitionError([Problem(f"@{kind} needs a name: {target!r:.60} has none", key="name", hint=hint)])


def _function(target: Any, kind: str) -> FunctionType:
    """Create a plain function that calls a callable, with the signature and names of the callable."""
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError) as error:
        hint = "wrap it in a function whose parameters have names"
        raise DefinitionError([Problem(f"@{kind} cannot use {target!r:.60}: {error}", hint=hint)]) from error

    async def call_async(*args: Any, **kwargs: Any) -> Any:
        return await target(*args, **kwargs)

    def call(*args: Any, **kwargs: Any) -> Any:
        if not _is_dispatching(target):
            return target(*args, **kwargs)
        bound = signature.bind(*args, **kwargs)
        return target(*bound.args, **bound.kwargs)

    # Signature and names are those of the innermost function, so that errors and schemas show the user's code.
    inner = _inner(target)
    hints = hints_of(inner)
    if isinstance(inner, type):
        hints |= hints_of(inspect.getattr_static(inner, "__init__"))
        # A model gets no schema of instances that cannot be recorded.
        hints["return"] = inner if is_recordable_type(inner) else Any
    # Annotations may be strings, which only the scope of the inner function can resolve.
    parameters = [
        each.replace(annotation=hints.get(name, each.annotation)) for name, each in signature.parameters.items()
    ]
    function: Any = call_async if is_async(target) else call
    function.__signature__ = signature.replace(
        parameters=parameters, return_annotation=hints.get("return", signature.return_annotation)
    )
    function.__annotations__ = {name: hint for name, hint in hints.items() if name in {*signature.parameters, "return"}}
    function.__name__ = name_of(target)
    function.__doc__ = _doc(target, inner)
    # The qualified name and the module identify the function in digests and rollbacks.
    function.__qualname__ = getattr(inner, "__qualname__", function.__name__)
    function.__module__ = getattr(inner, "__module__", None) or type(target).__module__
    if isinstance(inner, FunctionType):
        function.__wrapped__ = inner  # `inspect.getsource` then finds the source of the callable
    return cast("FunctionType", function)


def _inner(target: Any) -> Any:
    """Return the innermost function that runs when a callable is called, without partials, wrappers and bound methods
    around it.
    """
    # Partials are removed first, then wrappers of `functools.wraps`, then the binding to an object.
    target = inspect.unwrap(without_partials(target))
    if inspect.ismethod(target):
        return inspect.unwrap(target.__func__)
    if isinstance(target, FunctionType | type) or inspect.isbuiltin(target):
        return target
    # An object with ``__call__``: Python looks the method up on the class.
    return inspect.unwrap(type(target).__call__)


def _doc(target: Any, inner: Any) -> str | None:
    """Return the docstring of a callable. For an object with a method ``__call__``, this is the docstring of the
    method; if the method has none, that of the object's class.
    """
    is_object = not hasattr(target, "__name__") and not isinstance(target, functools.partial)
    inner_doc = inspect.getdoc(inner) if getattr(inner, "__doc__", None) and not _is_slot(inner) else None
    return inner_doc or (inspect.getdoc(type(target)) if is_object else None)


def _is_slot(inner: Any) -> bool:
    """Return True if `inner`, the implementation of an object's ``__call__``, is C code. In this case its docstring is
    that of CPython and does not describe the object.
    """
    return not isinstance(inner, FunctionType | type) and not inspect.isbuiltin(inner)


# --- the decorators ``@workflow`` and ``@step`` -----------------------------------------------------------------------


P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultedTypeVar

    C = DefaultedTypeVar("C", default=Any)
else:
    C = TypeVar("C")  # `typing` has no defaults before Python 3.13, and `typing_extensions` takes time to import
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")

FUNCTION = "function"
RESULT = "result"
"""Name of the variable, and of the output, that holds the return value of a workflow function."""
_STEP_FUNCTION = "__divebook_step__"
"""Name of the attribute of a function decorated with ``@step`` that holds its `RecordedFunction`."""
_TYPES = {str: "string", int: "int", float: "float", bool: "bool", list: "list", dict: "map"}

WORKFLOW_FUNCTIONS: dict[str, WorkflowFunction[..., Any]] = {}
"""Workflow functions of this process, by name. A later function of the same name replaces an earlier one."""


@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class WorkflowFunction(Workflow, Generic[P, R, C]):
    """A workflow written as an async Python function: the result of ``@workflow``.

    Inside another workflow function, a call runs the workflow as a child execution: ``await total(words=words)``
    returns its result. Elsewhere, ``divebook.run(total, ...)`` starts it, and `fn` calls the Python function.

    The type parameters are the parameters of the function after its context, the type of its result, and the type of
    its context parameter, usually `divebook.Context`.

    Parameters
    ----------
    function
        The async function.
    name, steps, options
        The arguments of `Workflow`.
    """

    function: Callable[Concatenate[C, P], Coroutine[Any, Any, R]] = field(
        kw_only=True, compare=False, metadata={"transient": True}
    )

    if not TYPE_CHECKING:

        def __class_getitem__(cls, arguments: tuple[Any, ...]) -> Any:
            # Without the third argument, the context has the default of `C`.
            complete = (*arguments, Any) if len(arguments) == 2 else arguments
            # The class is named, because a dataclass with slots is created twice, and `super()` means the first one.
            return super(WorkflowFunction, cls).__class_getitem__(complete)

    def __init__(
        self,
        name: str,
        steps: Sequence[Step] = (),
        *,
        function: Callable[Concatenate[C, P], Coroutine[Any, Any, R]],
        **options: Any,
    ) -> None:
        Workflow.__init__(self, name, steps, **options)
        self._put(function=function)

    @classmethod
    def from_definition(
        cls, function: Callable[Concatenate[C, P], Coroutine[Any, Any, R]], definition: Workflow
    ) -> WorkflowFunction[P, R, C]:
        """Return the workflow with this definition whose code is the function."""
        values = {each.name: getattr(definition, each.name) for each in fields(Workflow) if each.init}
        return cls(function=function, **values)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R]:
        """Run the workflow as a child execution of the workflow function that is running.

        Raises
        ------
        SetupError
            No workflow function is running here.
        """
        calls = CURRENT.get()
        if calls is None:
            raise SetupError(
                f"workflow {self.name} can be called inside a workflow function only; start a run with "
                f"divebook.run({self.name}, ...), or call the Python function with {self.name}.fn(ctx, ...)"
            )
        return cast("Awaitable[R]", calls._start_child(self, args, kwargs))  # noqa: SLF001 - see `Calls`

    @property
    def fn(self) -> Callable[Concatenate[C, P], Coroutine[Any, Any, R]]:
        """The plain Python function, for unit tests: ``await total.fn(divebook.testing.Context(), words=words)``.

        Nothing is recorded. Calls of steps go to the context that is passed.
        """

        async def call(ctx: C, /, *args: P.args, **kwargs: P.kwargs) -> R:
            token = CURRENT.set(cast("Calls", ctx))  # `divebook.Context`, or another class with these methods
            try:
                return await self.function(ctx, *args, **kwargs)
            finally:
                CURRENT.reset(token)

        return functools.update_wrapper(call, self.function)

    def arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call, without the context, as inputs by name. Raise TypeError if the function does
        not accept them.
        """
        _, *names = signature_of(self.function).parameters
        arguments = signature_of(self.function).bind(None, *args, **kwargs).arguments
        return {name: arguments[name] for name in names if name in arguments}

    def __eq__(self, other: object) -> bool:
        # A definition from a log is a plain `Workflow`, and may be equal to that of a function.
        if not isinstance(other, Workflow):
            return NotImplemented
        names = [each.name for each in fields(Workflow) if each.compare]
        return all(getattr(self, name) == getattr(other, name) for name in names)

    __hash__ = Workflow.__hash__

    @property
    def __divebook_label__(self) -> str:
        """Label by which `divebook.definitions.code` knows that a call of this object is recorded."""
        return f"workflow {self.name}"


ROLLED_BACK = "result"
"""Name of the parameter of a rollback function that receives the result of the call to be undone."""


@dataclass(frozen=True, slots=True)
class RecordedFunction(UserFunction):
    """A function decorated with ``@step``: its calls from a workflow function are recorded."""

    rollback: RecordedFunction | None = None
    """Function that undoes a call of this function; None if a call cannot be undone."""
    kind: ClassVar[str] = "step"

    def undoing(self, arguments: Mapping[str, Any], result: Any) -> dict[str, Any]:
        """Return the arguments for the rollback function of one call of this step. For each parameter of the rollback
        function it is the argument of the call with the same name, or the result of the call.
        """
        assert self.rollback is not None  # noqa: S101 - callers check this
        # The result has priority over an argument that is called ``result``.
        available = {**self.with_defaults(arguments), ROLLED_BACK: result}
        parameters = signature_of(self.rollback.function).parameters
        # A parameter that nothing fills keeps its default. `_require_rollback` has refused one without a default.
        return {name: available[name] for name in parameters if name in available}

    def named(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the positional and keyword arguments of a call as one dict by parameter name. Raise TypeError if the
        function does not accept the arguments.
        """
        takes = self.takes
        # Fast path: positional arguments alone need no `Signature.bind`.
        if not kwargs and takes.least <= len(args) <= len(takes.by_place):
            return dict(zip(takes.by_place, args, strict=False))
        signature = signature_of(self.function)
        if not takes.key or IDEMPOTENCY_KEY in kwargs:
            return signature.bind(*args, **kwargs).arguments
        # `Signature.bind` requires the key if it has no default. None stands for it, and is removed again.
        arguments = signature.bind(*args, **kwargs, **{IDEMPOTENCY_KEY: None}).arguments  # added at each call
        del arguments[IDEMPOTENCY_KEY]
        return arguments

    def with_defaults(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return a call's arguments by parameter name, with the function's defaults for parameters that are omitted."""
        bound = inspect.BoundArguments(signature_of(self.function), OrderedDict(arguments))
        bound.apply_defaults()
        return bound.arguments

    def bound(self, arguments: Mapping[str, Any]) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Convert arguments by name to the positional and keyword arguments of a call: ``args, kwargs``. Raise
        TypeError for an unknown name.
        """
        if self.takes.by_name.issuperset(arguments):
            return (), arguments
        signature = signature_of(self.function)
        for name in arguments.keys() - signature.parameters.keys():
            takes = ", ".join(signature.parameters) or "nothing"
            raise TypeError(f"has no parameter {name!r} (it takes: {takes})")
        # Missing arguments are not checked here: the call itself raises the error.
        bound = inspect.BoundArguments(signature, OrderedDict(arguments))
        return bound.args, bound.kwargs


class Calls(Protocol):
    """Interface of a running workflow function for its step functions: executes and records their calls.

    `divebook.Context` implements it. The methods are private there, because users see the context.
    """

    def _start_child(
        self, workflow: WorkflowFunction[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Awaitable[Any]:
        """Start a workflow as a child execution. Return an awaitable of its result."""

    def _start_step(self, step: RecordedFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Awaitable[Any]:
        """Start a recorded call of a step function. Return an awaitable of its result.

        The place of the call (its number in the execution) is assigned before this method returns, so that concurrent
        calls have the same places on replay.
        """


CURRENT: ContextVar[Calls | None] = ContextVar("divebook_workflow", default=None)
"""Recorder of the calls of the running workflow function; None outside of a workflow function."""


class StepFunction(Protocol[P, R_co]):
    """A function decorated with ``@step``.

    Inside a workflow function, a call returns an awaitable of the result. Elsewhere, a call runs the plain function
    `fn`.

    The type parameters are the parameters of the function, and the type of its result.
    """

    @property
    def __name__(self) -> str:
        """Name of the function."""

    @property
    def fn(self) -> Callable[P, R_co]:
        """The plain function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R_co]:
        """Make a recorded call of the function."""

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(
        self: StepFunction[Concatenate[Any, Q], T], instance: object, owner: type
    ) -> Callable[Q, Awaitable[T]]: ...


class AsyncStepFunction(Protocol[P, R_co]):
    """An async function decorated with ``@step``. It differs from `StepFunction` in `fn`, which is async."""

    @property
    def __name__(self) -> str:
        """Name of the function."""

    @property
    def fn(self) -> Callable[P, Coroutine[Any, Any, R_co]]:
        """The plain async function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R_co]:
        """Make a recorded call of the function."""

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(
        self: AsyncStepFunction[Concatenate[Any, Q], T], instance: object, owner: type
    ) -> Callable[Q, Awaitable[T]]: ...


class StepDecorator(Protocol):
    """Result of ``@step(...)`` with options: a decorator for functions and async functions."""

    # An async function is also a function that returns a coroutine, so the first overload that fits counts.
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncStepFunction[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> StepFunction[P, R]: ...


class WorkflowDecorator(Protocol):
    """Result of ``@workflow(...)`` with options: a decorator for async functions."""

    def __call__(self, function: Callable[Concatenate[C, P], Coroutine[Any, Any, R]], /) -> WorkflowFunction[P, R, C]:
        """Convert an async function to a workflow."""


@overload
def workflow(name: Callable[Concatenate[C, P], Coroutine[Any, Any, R]], /) -> WorkflowFunction[P, R, C]: ...
@overload
def workflow(name: str | None = None, *, workspace: str | None = None) -> WorkflowDecorator: ...
@suggest_arguments
def workflow(name: Any = None, *, workspace: str | None = None) -> Any:
    """Convert an async function ``async def f(ctx, ...)`` to a `WorkflowFunction`.

    The parameters after the first one are the inputs. Before anything is started, they are converted to the types of
    their annotations. An error is raised if this is not possible. The return value is the output ``result``. On resume
    the function runs again from its beginning, and its calls of step functions and of `ctx` are answered from the log.
    The code between these calls must therefore be deterministic.

    Parameters
    ----------
    name
        Name of the workflow; by default that of the function.
    workspace
        Workspace of `ctx.workspace()`, and of those agents and steps of the workflow that do not name a workspace.

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


def _make_workflow(target: Any, name: str | None, workspace: str | None) -> WorkflowFunction[..., Any]:
    # Anything else that is not a function gets the error of `as_function`.
    if callable(target) and not is_async(target):
        label = name or name_of(target) or repr(target)
        raise DefinitionError([Problem(f"workflow {label!r} must be an async function", hint="write `async def`")])
    function = as_function(target, "workflow", name)
    name = name or function.__name__
    source = _source(function)
    definition = Workflow(
        name,
        # The source is a part of the definition, so that the fingerprint changes with the code.
        [Step(name, type=FUNCTION, script=source, store=RESULT)],
        description=inspect.getdoc(function) or "",
        inputs=_inputs(function, name),
        outputs=[RESULT],
        source=source,
        workspace=workspace,
    )
    workflow_function: WorkflowFunction[..., Any] = WorkflowFunction.from_definition(function, definition)
    # Removed first, so that the order is that of the latest definitions.
    WORKFLOW_FUNCTIONS.pop(definition.name, None)
    WORKFLOW_FUNCTIONS[definition.name] = workflow_function
    warn_of(function)
    return workflow_function


def _source(function: Callable[..., Any]) -> str:
    try:
        return textwrap.dedent(inspect.getsource(function))
    # Code that was typed into an interpreter, or made by ``exec``, has no source.
    except (OSError, TypeError):
        return f"# the source of {function.__qualname__} is not available"


def _inputs(function: Callable[..., Any], name: str) -> list[InputDefinition]:
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters:
        hint = "write `async def " + name + "(ctx, ...)`"
        raise DefinitionError([Problem(f"workflow {name!r} has no context parameter", hint=hint)])
    if not _takes_context(parameters[0]):
        parameter_list = ", ".join(["ctx", *(str(parameter) for parameter in parameters)])
        message = f"the first parameter of workflow {name!r} must be its context, not the input {parameters[0].name!r}"
        raise DefinitionError([Problem(message, hint=f"write `async def {function.__name__}({parameter_list})`")])
    hints = hints_of(function)
    return [
        _input(parameter, hints.get(parameter.name, parameter.empty), function, name) for parameter in parameters[1:]
    ]


def _takes_context(parameter: inspect.Parameter) -> bool:
    """Return True if the first parameter of a workflow function can be the workflow context (`ctx`): it has no default
    and is not annotated with a simple type.
    """
    # Kinds are ordered integers: after POSITIONAL_OR_KEYWORD come ``*args``, keyword-only and ``**kwargs``.
    if parameter.default is not parameter.empty or parameter.kind > parameter.POSITIONAL_OR_KEYWORD:
        return False
    return not (_simple_type(parameter.annotation) or _TYPES_BY_NAME.get(str(parameter.annotation)))


def _input(parameter: inspect.Parameter, annotation: Any, function: Callable[..., Any], name: str) -> InputDefinition:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
        message = f"parameter {parameter.name!r} of workflow {name!r} cannot be an input"
        raise DefinitionError([Problem(message, hint="every input needs a named parameter")])
    has_default = parameter.default is not parameter.empty
    default = parameter.default if has_default else None
    declared = _simple_type(annotation)
    annotated = None
    # `Any` and `object` accept every value, so that nothing is converted.
    if declared is None and annotation not in (parameter.empty, Any, object):
        _require_exact(annotation, parameter.name, name)
        annotated = ParameterType(annotation, function)
        allow_answers(annotation)  # instances of the classes in the annotation may be recorded
    allow_answers(type(default))
    definition = InputDefinition(parameter.name, declared, default=default, has_default=has_default)
    # The annotation is not an argument of the constructor, because a log cannot hold it.
    return definition.like(annotated=annotated)


def _require_exact(annotation: Any, parameter: str, workflow_name: str) -> None:
    """Raise `DefinitionError` if an annotated type has a class whose instances a log contains as instances of a
    built-in class. The function would get another type than it declares.
    """
    cls = _converted_class(annotation)
    if cls is not None:
        base = recorded_base(cls)
        shown = getattr(base, "__name__", "")
        message = f"input {parameter!r} of workflow {workflow_name!r} is annotated with {cls.__qualname__}, a subclass "
        message += f"of {shown}, but a log stores its instances as plain {shown}"
        hint = f'annotate it with {shown}, or with NewType("{cls.__name__}", {shown})'
        raise DefinitionError([Problem(message, key=parameter, hint=hint)])


def _converted_class(annotation: Any) -> type | None:
    """Return the first class in an annotation for which `recorded_base` returns another class; None without one."""
    if isinstance(annotation, type) and not get_args(annotation):
        return None if recorded_base(annotation) is None else annotation
    if get_origin(annotation) is Literal:
        return None
    parts = get_args(annotation)[:1] if get_origin(annotation) is Annotated else get_args(annotation)
    return next((cls for part in parts if (cls := _converted_class(part)) is not None), None)


def _simple_type(annotation: Any) -> str | None:
    """Return the name that definitions use for a simple Python type, such as ``string`` for `str`; None for any other
    annotation.
    """
    try:
        return _TYPES.get(annotation)
    except TypeError:  # an annotation that contains a list is not hashable
        return None


def declared_type(workflow: Workflow, definition: InputDefinition) -> ParameterType | None:
    """Return the Python type with which a workflow function annotates an input; None if the input has no annotation.

    The function of a workflow from a log is looked up in this process. If it is not defined here, the result is None.
    """
    if definition.annotated is not None or workflow.first_step.type != FUNCTION:
        return definition.annotated
    # A definition from a log has no annotations. The function with its name in this process has.
    registered = WORKFLOW_FUNCTIONS.get(workflow.name)
    inputs = () if registered is None else registered.inputs
    return next((entry.annotated for entry in inputs if entry.name == definition.name), None)


_TYPES_BY_NAME = {cls.__name__: text for cls, text in _TYPES.items()}
"""Names of simple types in definitions, by the name of the Python type. A module with postponed annotations has strings
as annotations.
"""


@overload
def step(name: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncStepFunction[P, R]: ...  # type: ignore[overload-overlap]
@overload
def step(name: Callable[P, R], /) -> StepFunction[P, R]: ...
@overload
def step(
    name: str | None = None,
    *,
    retry: Retry | int | None = None,
    timeout: DurationLike | None = None,
    idempotent: bool = False,
    approval: bool = False,
    executor: Any = None,
    workspace: str | None = None,
    rollback: Callable[..., Any] | None = None,
) -> StepDecorator: ...
@suggest_arguments
def step(
    name: Any = None,
    *,
    retry: Retry | int | None = None,
    timeout: DurationLike | None = None,
    idempotent: bool = False,
    approval: bool = False,
    executor: Any = None,
    workspace: str | None = None,
    rollback: Callable[..., Any] | None = None,
) -> Any:
    """Mark a function as a step. Inside a workflow function, each call is made once, and its result is recorded.

    Inside a workflow function the call must be awaited, even if the function is not async: it then runs in a thread or
    in the `executor`. Elsewhere, a call runs the plain function, which is also available as the attribute ``fn``.

    Arguments and results may have any type that can be stored in a log: plain data, tuples, sets, dates, bytes, frames
    and arrays, and instances of classes given to `divebook.allow`. The workflow gets a copy of the result, of the same
    type. Methods, partials and objects with ``__call__`` can be steps, too.

    Parameters
    ----------
    name
        Name of the step; by default that of the function.
    retry
        Policy for repeating failed calls.
    timeout
        Time limit of a call. If the limit is exceeded and the function is declared ``idempotent=True``, the call fails
        with a TimeoutError. For any other function, the outcome of the call is then unknown, and the run waits until a
        person is asked. A thread cannot be stopped: the run stops waiting for it, but closing the environment waits
        until the thread has ended.
    idempotent
        True if two calls have the same effect as one. If the process dies during a call, an idempotent call is
        repeated; for other functions a person is asked. An idempotent call may begin before its start is in the log. At
        most 16 calls can be ahead of the log, and for at most 10 ms. If the process dies during this time, up to 16
        completed idempotent calls are made again. For any function, ``await`` may return a result shortly before it is
        in the log.
    approval
        A person must approve every call first, and may change its arguments. A denied call raises ApprovalDeniedError.
    executor
        Executor of an ordinary function: ``"thread"``; ``"process"``, for work that keeps a processor busy; a name from
        the environment; a `concurrent.futures.Executor`, or a function that creates one. The default is that of the
        environment. Arguments and results are sent to another process by cloudpickle, so that functions of notebook
        cells work. A process is killed if its call takes too long or its execution is cancelled. If a process dies, it
        is unknown whether the call took effect: the call is repeated if it is idempotent; otherwise a person is asked.
    workspace
        Workspace of the calls; ``""`` is the one of the workflow. The function gets its workspace
        from `divebook.workspaces.present_workspace`. The log contains the files that each call has changed.
    rollback
        Function that undoes a call. If the execution fails later or is cancelled, the rollbacks of all completed calls
        run, the latest first. The parameters of the rollback function are arguments of this function with the same
        names, and ``result`` for the result of the call. If the rollback function is decorated with ``@step``, it has
        its own retry policy, time limit and other options.
    """
    options = {
        "retry": retry,
        "timeout": timeout,
        "idempotent": idempotent,
        "approval": approval,
        "executor": executor,
        "workspace": workspace,
        "rollback": None if rollback is None else _undoing(rollback),
    }
    return decorated(name, _make_step, RecordedFunction, options)


def _undoing(function: Callable[..., Any]) -> RecordedFunction:
    """Register the rollback function of a step (option ``rollback=``) in this process under its module and name, by
    which a log refers to it. Return it as a step function.
    """
    # A function that is already a step keeps its own retry, timeout and approval.
    decorated_step: RecordedFunction | None = getattr(function, _STEP_FUNCTION, None)
    require_nameable(decorated_step.function if decorated_step is not None else function)
    if decorated_step is None:
        plain_function = as_function(function, "step")
        decorated_step = RecordedFunction(function.__name__, plain_function, inspect.getdoc(function) or "")
    # The log of a call has only this name (`place_of`).
    ROLLBACK_FUNCTIONS[place_of(decorated_step)] = decorated_step
    return decorated_step


def step_of(function: Any) -> RecordedFunction | None:
    """Return the `RecordedFunction` of a function that is decorated with ``@step``; None for other objects."""
    return getattr(function, _STEP_FUNCTION, None)


U = TypeVar("U", bound=UserFunction)


def decorated(name: Any, finish: Callable[[U], Any], kind: type[U], options: Mapping[str, Any]) -> Any:
    """Apply one of the decorators ``@step``, ``@action`` or ``@tool``, written with or without arguments.

    The decorator creates an instance of `kind` from a function and the options, and passes it to `finish`, whose result
    replaces the function. If `name` is a name, the decorator is returned; if `name` is the function, the result.
    """
    retry = options["retry"]
    options = {**options, "retry": None if retry is None else Retry.of(retry)}

    def decorate(target: Any) -> Any:
        # ``@step`` without parentheses gets the function as its first argument.
        explicit_name = None if name is target else name
        function = as_function(target, kind.kind, explicit_name)
        description = inspect.getdoc(function) or ""
        user_function = kind(explicit_name or function.__name__, function, description, **options)
        # The result of a tool is text for a model, if a log cannot contain it.
        if kind.kind != "tool":
            _warn_unrecordable(user_function)
        return finish(user_function)

    return decorate(name) if is_callable(name, kind.kind) else decorate


def _warn_unrecordable(user_function: UserFunction) -> None:
    """Warn (`UnrecordableWarning`) if the function declares a result that a log can never contain, or contains as an
    instance of another class. The call would be made, and its result or type lost.
    """
    function = inspect.unwrap(user_function.function)
    declared = hints_of(function).get("return")
    if declared is None or not hasattr(function, "__code__"):
        return
    message = f"{user_function.kind_and_name} returns {inspect.formatannotation(declared)}, "
    if _is_unrecordable(declared):
        message += "which a log cannot store"
        hint = "return plain data, or an instance of a dataclass, pydantic model, named tuple or enum"
    elif (cls := _converted_class(declared)) is not None:
        base = getattr(recorded_base(cls), "__name__", "")
        message += f"but a log stores instances of {cls.__qualname__} as plain {base}"
        hint = f"return {base}, or an instance of a dataclass, pydantic model, named tuple or enum"
    else:
        return
    place, line = shown_place(function, function.__code__.co_firstlineno)
    warnings.warn_explicit(f"{message}; {hint}", UnrecordableWarning, place, line)


_ABSTRACT = frozenset({Iterator, Generator, AsyncIterator, AsyncGenerator, Awaitable, Coroutine, Callable})
"""Abstract types whose values cannot be recorded, because reading them changes them, or they are code."""


def _is_unrecordable(annotation: Any) -> bool:
    """Return True if no value of an annotated type, except an empty container, can be recorded."""
    origin = get_origin(annotation)
    parts = [part for part in get_args(annotation) if part is not Ellipsis]
    if origin is Annotated:
        return _is_unrecordable(parts[0])
    # One recordable alternative is enough.
    if origin in (Union, UnionType):
        return all(_is_unrecordable(part) for part in parts)
    if origin in (list, tuple, set, frozenset, dict):
        return any(_is_unrecordable(part) for part in parts)
    cls = origin or annotation
    return isinstance(cls, type) and cls is not Any and (cls in _ABSTRACT or not is_recordable_type(cls))


def _make_step(step_function: RecordedFunction) -> Callable[..., Any]:
    function = step_function.function

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        # The recorder of the workflow function that is running in this context. A step function that is called
        # elsewhere, such as in a test, is an ordinary function.
        calls = CURRENT.get()
        if calls is None:
            return function(*args, **kwargs)
        return calls._start_step(step_function, args, kwargs)  # noqa: SLF001 - see `Calls`

    setattr(call, LABEL, f"step {step_function.name}")
    setattr(call, _STEP_FUNCTION, step_function)
    call.fn = function  # type: ignore[attr-defined]
    # The source is read at the definition, because the file may change after it was imported.
    source_of(function)
    _require_rollback(step_function)
    return call


def _require_rollback(step_function: RecordedFunction) -> None:
    """Raise `DefinitionError` if the rollback function of a step has a required parameter for which a call of the step
    provides no value.
    """
    if step_function.rollback is None:
        return
    parameters = signature_of(step_function.rollback.function).parameters.values()
    # A rollback may ask for the idempotency key as well, which the call provides.
    available = {*signature_of(step_function.function).parameters, ROLLED_BACK, IDEMPOTENCY_KEY}
    for parameter in parameters:
        is_required = parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        )
        if is_required and parameter.name not in available:
            message = (
                f"{step_function.rollback.name}, the rollback function of step {step_function.name}, has the parameter "
                f"{parameter.name!r}, for which there is no value"
            )
            hint = (
                f"a rollback function can have the parameters of its step, and {ROLLED_BACK}, the result of the step: "
                f"{', '.join(sorted(available))}"
            )
            raise DefinitionError([Problem(message, key="rollback", hint=hint)])


# --- functions that a workflow calls ----------------------------------------------------------------------------------


def roots_of(workflow: Workflow, actions: Mapping[str, UserFunction]) -> dict[str, Callable[..., Any]]:
    """Return the Python functions that a workflow refers to directly, by label: its workflow function, or the actions
    of its steps. Built-in actions of divebook are left out.
    """
    # A workflow that is a function is its only root. The functions that it calls are found in its code.
    if workflow.first_step.type == FUNCTION:
        registered = WORKFLOW_FUNCTIONS.get(workflow.name)
        return {} if registered is None else {f"workflow {workflow.name}": registered.function}
    called = {step.action for step in workflow.steps if step.action}
    functions = {f"action {name}": actions[name].function for name in sorted(called & actions.keys())}
    return {label: function for label, function in functions.items() if not _is_of_divebook(function)}


def _is_of_divebook(function: Callable[..., Any]) -> bool:
    return str(getattr(function, "__module__", "")).partition(".")[0] == __name__.partition(".")[0]


# --- inputs of executions ---------------------------------------------------------------------------------------------


def bind_inputs(workflow: Workflow, values: Mapping[str, Any], *, coerce_text: bool = False) -> dict[str, Any]:
    """Check and convert the inputs with which an execution starts. Return them by name, in the order in which the
    workflow declares them.

    Parameters
    ----------
    values
        Values by name. An explicit None is a value, which fits a declared type only if the input is optional.
    coerce_text
        Convert strings, as a command line passes them, to the declared types.

    Notes
    -----
    An input of a workflow function with an annotation, such as a date, an enum or a list of models, is converted to
    this type from its JSON form. A value that does not fit is refused.

    Raises
    ------
    InputError
        The values are not a mapping, or an input is missing, not declared, or of another type.
    """
    if not isinstance(values, Mapping):
        raise InputError(f"inputs must be a mapping of names to values, not {values!r:.60}; write {{'name': value}}")
    # Two spellings of a name are equal after normalization. The declared one is used from here on.
    values = _by_declared_name(workflow, values)
    declared = _declared(workflow, values)
    return {
        name: _bound(workflow, definition, values, coerce_text=coerce_text) for name, definition in declared.items()
    }


class BoundInputs(dict[str, Any]):
    """Inputs of a workflow, checked and converted by `bind_inputs`, in the form in which a log stores them."""

    _workflow: Workflow

    @classmethod
    def of(cls, workflow: Workflow, values: Mapping[str, Any], *, coerce_text: bool = False) -> BoundInputs:
        """Check and convert inputs, which the caller passes by name; see `bind_inputs`. Inputs that are bound to this
        workflow already are returned as they are.
        """
        if isinstance(values, cls) and values._workflow is workflow:  # noqa: SLF001 - another object of this class
            return values
        bound = cls(storable(bind_inputs(workflow, values, coerce_text=coerce_text), "inputs"))
        bound._workflow = workflow
        return bound

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of the inputs, in hexadecimal."""
        return canonical_hash(dict(self), "inputs")


def changed_names(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the names of the values that differ between two mappings of inputs, or are in one of them only. Each
    mapping has values of this process or recorded ones.
    """
    return [
        name
        for name in dict.fromkeys((*before, *now))
        # Hashes are of the recorded form, whichever form a value has.
        if (name in before) != (name in now) or canonical_hash(before[name], name) != canonical_hash(now[name], name)
    ]


def bind_changed(workflow: Workflow, changed: Mapping[str, Any], *, coerce_text: bool = False) -> dict[str, Any]:
    """Check and convert new values for some inputs of an existing execution, as `bind_inputs` does for all inputs.
    Inputs that are omitted are not required here.
    """
    changed = _by_declared_name(workflow, changed)
    declared = _declared(workflow, changed)
    return {name: _bound(workflow, declared[name], changed, coerce_text=coerce_text) for name in changed}


def _by_declared_name(workflow: Workflow, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the input values under the names that the workflow declares. A caller may use another spelling of a name
    with the same Unicode normalization form.

    Raise `InputError` if two spellings of one name are present.
    """
    declared = {definition.name: definition for definition in workflow.inputs}
    result: dict[str, Any] = {}
    for name, value in values.items():
        declared_name = same_name(name, declared)
        if declared_name in result:
            message = f'input "{declared_name}" is given twice, in two spellings; give it once'
            raise InputError(message, declared_name)
        result[name if declared_name is None else declared_name] = value
    return result


def _declared(workflow: Workflow, values: Mapping[str, Any]) -> dict[str, InputDefinition]:
    """Return the definitions of a workflow's inputs by name. Raise `InputError` if `values` has an input that the
    workflow does not declare.
    """
    declared = {definition.name: definition for definition in workflow.inputs}
    for name in values:
        if name not in declared:
            suggestion = did_you_mean(name, declared) or f"declared: {', '.join(declared) or 'none'}"
            raise InputError(f'unknown input "{name}" for workflow "{workflow.name}" ({suggestion})', name)
    return declared


def _bound(workflow: Workflow, definition: InputDefinition, values: Mapping[str, Any], *, coerce_text: bool) -> Any:
    """Return the checked and converted value of one input; its default if `values` does not contain the input. Raise
    `InputError` if a required input is missing.

    An annotation of a workflow function has priority over the type name of a definition.
    """
    if definition.name not in values:
        if definition.has_default or definition.required is False:
            # A recorded default is opened anew for each execution.
            return opened(definition.default)
        raise InputError(
            f'input "{definition.name}" is required by workflow "{workflow.name}"'
            f"{f' ({definition.description})' if definition.description else ''}; add this required input: "
            f"{definition.name}=... (in a shell: -v {definition.name}=...)",
            definition.name,
        )
    value = values[definition.name]
    # The legacy dialect passes strings as they are.
    if isinstance(value, str) and not workflow.manner.converts_inputs:
        return value
    annotated = declared_type(workflow, definition)
    # An optional input accepts None, although its annotation may not.
    if annotated is not None and not (value is None and _accepts_none(definition)):
        try:
            return annotated.convert(value, is_text=coerce_text and isinstance(value, str))
        except ValueError as error:
            raise _type_error(definition, annotated, value, str(error)) from None
    if coerce_text and isinstance(value, str):
        value = _from_text(definition, value)
    if value is None and (_accepts_none(definition) or not workflow.manner.converts_inputs):
        return value
    return _checked(definition, value)


def _type_error(definition: InputDefinition, annotated: ParameterType, value: Any, reason: str) -> InputError:
    message = f'input "{definition.name}" must be of type {annotated.name}, got {_shown(definition, value)}'
    # The reason may repeat the value, since classes have validators of their own.
    if not looks_secret(definition.name):
        message += f": {reason}"
    schema = annotated.schema()
    # There is no example for some types, such as a string with a pattern.
    if annotated.takes(example_of(schema)):
        message += f"; write {definition.name}={example_in_words(schema)}"
    return InputError(message, definition.name)


def _accepts_none(definition: InputDefinition) -> bool:
    return definition.required is False or (definition.has_default and definition.default is None)


def _checked(definition: InputDefinition, value: Any) -> Any:
    """Return the value of an input in the form that its type name demands: a list for a tuple, a float for an integer.

    Raises `InputError` for a value of another type.
    """
    type_name = (definition.type or "").lower()
    types = INPUT_TYPES.get(type_name)
    if types is None:
        return value
    # A boolean is an integer in Python, but not an input of type ``int``.
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise InputError(
            f'input "{definition.name}" must be of type {definition.type}, got {type(value).__name__}: '
            f"{_shown(definition, value)}; write {definition.name}={_EXAMPLES[types[0]]}",
            definition.name,
        )
    if type_name == "float" and isinstance(value, int):
        return _float(definition, value)
    # A log has lists only.
    return list(value) if isinstance(value, tuple) else value


_EXAMPLES: Mapping[type, str] = {str: "TEXT", int: "5", bool: "true", list: "[1, 2]", dict: "{key: value}"}
"""Examples of inputs as a person types them, by the first Python type of their type name."""


def _float(definition: InputDefinition, value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        message = (
            f'input "{definition.name}" must be of type float, but {_shown(definition, value)} is too large for a float'
        )
        raise InputError(message, definition.name) from None


def _from_text(definition: InputDefinition, text: str) -> Any:
    """Parse the value of an input from a command line as its type name demands. A string for an input of type string
    stays as it is. Others are parsed as YAML; a string that has another form is returned unchanged.
    """
    types = INPUT_TYPES.get((definition.type or "").lower(), ())
    if str in types:
        return text
    if bool in types:
        return BOOLEAN_WORDS.get(text.strip().lower(), text)
    parsed = parsed_word(text)
    if float in types and isinstance(parsed, str):
        with suppress(ValueError):
            return float(text)  # "inf" and "nan", which YAML writes as .inf and .nan
    return parsed


# --- JSON schema of the inputs of a workflow, for MCP clients and forms -----------------------------------------------


_JSON_TYPES: Mapping[type, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    list: "array",
    dict: "object",
}


def inputs_schema(workflow: Workflow) -> dict[str, Any]:
    """Return the JSON schema of the inputs of a workflow: an object with a property for each input, its type,
    description and default.

    A description that a definition lacks is taken from the docstring of the workflow function.
    """
    registered = WORKFLOW_FUNCTIONS.get(workflow.name)
    is_function = registered is not None and workflow.first_step.type == FUNCTION
    texts = parameter_texts(inspect.getdoc(registered.function) or "") if registered and is_function else {}
    return {
        **combine({entry.name: _input_schema(workflow, entry, texts) for entry in workflow.inputs}),
        "required": [entry.name for entry in workflow.inputs if not entry.has_default and entry.required is not False],
        "additionalProperties": False,
    }


def _input_schema(workflow: Workflow, entry: InputDefinition, texts: Mapping[str, str]) -> dict[str, Any]:
    types = INPUT_TYPES.get((entry.type or "").lower(), ())
    annotated = declared_type(workflow, entry)
    # A number input accepts integers too, and JSON has the type `number` for both.
    schema: dict[str, Any] = {"type": _JSON_TYPES[float if float in types else types[0]]} if types else {}
    if annotated is not None:
        schema = annotated.schema()
    if _accepts_none(entry) and schema and not (annotated is not None and annotated.takes(None)):
        definitions = {"$defs": schema.pop("$defs")} if "$defs" in schema else {}
        schema = {"anyOf": [schema, {"type": "null"}], **definitions}
    description = entry.description or texts.get(entry.name)
    if description:
        schema["description"] = description
    if entry.has_default:
        default = opened(entry.default)
        form = json_form(default) if annotated is None else annotated.json_form(default)
        # A client may send the default back. So a default that the schema refuses is not published, and neither is one
        # that would arrive as another value.
        if default is None or (form == default if annotated is None else annotated.takes(form, default)):
            schema["default"] = form
    return schema


_NUMPY_SECTION = re.compile(
    # Up to the title of the next section, which is underlined as well.
    r"^Parameters\n-{3,}\n(?P<body>(?:(?!\w[^\n]*\n-{3,}$)[^\n]*\n?)*)",
    re.MULTILINE,
)
_NUMPY_PARAMETER = re.compile(r"^(?P<name>\w+)(?: *:[^\n]*)?\n(?P<text>(?:[ \t]+[^\n]+\n?)+)", re.MULTILINE)
_GOOGLE_SECTION = re.compile(r"^(?:Args|Arguments|Parameters):\n(?P<body>(?:[ \t]+[^\n]*\n?)+)", re.MULTILINE)
_GOOGLE_PARAMETER = re.compile(
    r"^(?P<indent>[ \t]+)(?P<name>\w+)(?: *\([^)\n]*\))?: *(?P<text>[^\n]*(?:\n(?P=indent)[ \t]+[^\n]+)*)", re.MULTILINE
)
_FIELD_PARAMETER = re.compile(r"^:param (?:[^:\n]+ )?(?P<name>\w+): *(?P<text>[^\n]*(?:\n[ \t]+[^\n]+)*)", re.MULTILINE)


def parameter_texts(docstring: str) -> dict[str, str]:
    r"""Return the descriptions of parameters in a docstring, by name. The styles of numpydoc, Google and Sphinx
    (``:param name:``) are read.

    >>> parameter_texts("Plan a day.\n\nArgs:\n    day: The day to plan.\n    size (int): How much.")
    {'day': 'The day to plan.', 'size': 'How much.'}
    """
    texts = {match["name"]: match["text"] for match in _FIELD_PARAMETER.finditer(docstring)}
    for section, parameter in ((_NUMPY_SECTION, _NUMPY_PARAMETER), (_GOOGLE_SECTION, _GOOGLE_PARAMETER)):
        match = section.search(docstring)
        if match is not None:
            texts |= {each["name"]: each["text"] for each in parameter.finditer(match["body"])}
    # Lines of a paragraph are joined.
    return {name: " ".join(text.split()) for name, text in texts.items()}


def _shown(definition: InputDefinition, value: Any) -> str:
    """Return the value of an input in short form for an error, without secrets: the value of an input whose name looks
    secret is hidden, and such parts of other values.
    """
    if looks_secret(definition.name) and value is not None:
        return REDACTED
    text = repr(_without_secrets(value))
    return text if len(text) <= 60 else f"{text[:57]}..."


def _without_secrets(value: Any) -> Any:
    """Return plain data with the values hidden whose keys look secret. The shared redactor of the process, which knows
    more secrets, reads the environment, which definitions may not.
    """
    if isinstance(value, list):
        return [_without_secrets(item) for item in value]
    if isinstance(value, dict):
        return {key: REDACTED if looks_secret(str(key)) else _without_secrets(item) for key, item in value.items()}
    return value


# --- lint ------------------------------------------------------------------------------------------------------------
#
# The public function `lint`: find code in a workflow function that may give a different result on replay.


class Doubts(list[Problem]):
    """List of the problems that `lint` finds in a workflow function, in the order of their lines. A notebook displays
    one problem per line.
    """

    def __init__(self, doubts: Iterable[Doubt]) -> None:
        doubts = list(doubts)
        super().__init__(doubt.problem for doubt in doubts)
        self._places = [shown_place(doubt.function, doubt.problem.line) for doubt in doubts]

    def __str__(self) -> str:
        lines = []
        for (place, line), problem in zip(self._places, self, strict=True):
            lines.append(f"{position_in(place, line, problem.column)}: {problem.message}; {problem.hint}")
        return "\n".join(lines) or "no code found that may return a different result when it runs again"

    def __repr__(self) -> str:
        return str(self)


def lint(workflow: Any) -> Doubts:
    """Return a problem for each expression of a workflow function that may give a different result on replay, in the
    order of the lines.

    Parameters
    ----------
    workflow
        Result of ``@workflow``, or an async function. For a workflow without a function the result is empty.

    Examples
    --------
    >>> import random
    >>> async def draw(ctx):
    ...     return random.choice("ab")
    >>> [doubt.message for doubt in lint(draw)]
    ['random.choice() returns a different value each time the function runs']
    """
    registered = WORKFLOW_FUNCTIONS.get(getattr(workflow, "name", ""))
    # A workflow of the same name may come from a log or a file. Only the registered object belongs to the function.
    if registered is not None and registered == workflow:
        workflow = registered.function
    expected = "a function with @workflow, an async function, or a Workflow"
    require(workflow, "what to lint", expected, fits=isinstance(workflow, Workflow) or callable(workflow))
    return Doubts(doubts_of(workflow) if inspect.isfunction(workflow) else ())
