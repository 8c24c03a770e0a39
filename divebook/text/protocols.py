"""Check of the objects that users pass: whether an object implements a protocol, before anything uses it.

A protocol is a `typing.Protocol`, a base class, or a type ``Callable[[A, B], R]``. The check reads the names and the
signatures of its members, so that a new protocol needs no check of its own. An example::

    class Clock(Protocol):
        def now(self) -> int: ...
        async def sleep(self, seconds: float) -> None: ...

    class Wrong:
        now = 5
        def sleep(self): ...

`require_protocol` refuses a ``Wrong``, since ``now`` is not a method, and ``sleep`` takes no argument and is not a
coroutine function. It calls no method of the object. What a method returns can only be checked when it is called.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from types import FunctionType, MethodType, ModuleType
from typing import Any, Generic, Protocol, get_args, get_origin

from divebook.errors import SetupError
from divebook.text.arguments import describe

PAGE = "extending"
"""Name of the page of the reference about objects of users."""
_CALL = "__call__"
_NO_NAME = "divebook_asks_for_a_name_that_no_object_has"
_AWAITABLE = ("Awaitable", "Coroutine", "Future", "Task")
_ITERABLE = ("Iterable", "Iterator", "Generator")


def require_protocol(value: object, protocol: Any, name: str, *, or_else: str = "", page: str = PAGE) -> None:
    """Raise `SetupError` if an object does not implement a protocol.

    The error names the argument, the object, what is wrong with each member, the protocol, and a page of the reference.

    Parameters
    ----------
    protocol
        A protocol class, a base class, or ``Callable[[A], R]``.
    name
        Name of the argument, as callers write it.
    or_else
        What the argument may be instead, as a noun phrase.
    page
        Name of the page of the reference that describes the protocol.
    """
    problems = protocol_problems(value, protocol)
    if problems:
        expected = f"{or_else}, or {_in_words(protocol)}" if or_else else _in_words(protocol)
        raise SetupError(
            f"{name} must be {expected}, not {_described(value)}: {'; '.join(problems)}. "
            f"The page {page!r} of the reference describes it"
        )


def protocol_problems(value: object, protocol: Any) -> list[str]:
    """Return why an object does not implement a protocol, one text for each reason; an empty list if it does."""
    if get_origin(protocol) is Callable or protocol is Callable:  # `Callable` is `collections.abc.Callable`
        return _problems_of_callable(value, protocol)
    # A class has the methods as attributes too, but a call on it would lack the instance.
    if isinstance(value, type):
        return [f"it is a class; write {value.__name__}() to pass an instance"]
    if _answers_to_every_name(value):
        return ["it returns an attribute for every name, so it cannot be checked; with Mock, write Mock(spec=...)"]
    if not _is_protocol(protocol) and not isinstance(value, protocol):
        return [f"its class is not derived from {protocol.__qualname__}"]
    absent = [name for name in _members(protocol) if not _has(value, name)]
    problems = [f"it has no method {', '.join(absent)}"] if absent else []
    for name, member in _members(protocol).items():
        if name not in absent:
            problems += _problems_of_member(value, name, member, protocol)
    missing = [key for key in _attributes(protocol) if not hasattr(value, key)]
    if missing:
        # The constructor of a base class sets its attributes.
        advice = "" if _is_protocol(protocol) else f"; let {type(value).__qualname__}.__init__ call super().__init__()"
        problems.append(f"it has no attribute {', '.join(missing)}{advice}")
    return problems


def is_async(target: Any) -> bool:
    """Return True if a callable returns a coroutine: an async function, or an object with an async ``__call__``."""
    target = without_partials(target)
    if inspect.iscoroutinefunction(target):
        # The code of a function that `create_autospec` made is a mock, for which every question is answered by yes.
        return isinstance(target.__code__.co_flags, int)
    # A call of a class returns an instance, whatever its ``__call__`` is.
    if isinstance(target, FunctionType | type):
        return False
    # A callable object is async if its method ``__call__`` is.
    return inspect.iscoroutinefunction(getattr(target, "__call__", None))  # noqa: B004


def without_partials(target: Any) -> Any:
    """Return the callable inside of `functools.partial` objects; any other object unchanged."""
    while isinstance(target, functools.partial):
        target = target.func
    return target


def _is_protocol(protocol: type) -> bool:
    return bool(getattr(protocol, "_is_protocol", False))


def _classes(protocol: type) -> Iterator[type]:
    """Yield a protocol or base class and the classes from which it is derived, general ones first."""
    for cls in reversed(protocol.__mro__):
        if cls not in (object, Protocol, Generic) and cls.__module__ != "abc":
            yield cls


def _members(protocol: type) -> dict[str, Callable[..., Any]]:
    """Return the methods of a protocol by name. Of a base class, these are the public and the abstract methods."""
    abstract: frozenset[str] = getattr(protocol, "__abstractmethods__", frozenset())
    return {
        name: member
        for cls in _classes(protocol)
        for name, member in vars(cls).items()
        if isinstance(member, FunctionType) and (not name.startswith("_") or name == _CALL or name in abstract)
    }


def _attributes(protocol: type) -> list[str]:
    """Return the names of the attributes that a protocol or base class declares, by annotations or as properties."""
    names: list[str] = []
    for cls in _classes(protocol):
        names += inspect.get_annotations(cls)
        names += [name for name, member in vars(cls).items() if isinstance(member, property) and _is_protocol(cls)]
    return names


def _has(value: object, name: str) -> bool:
    """Return True if an object has an attribute, also if it cannot be read."""
    if inspect.getattr_static(value, name, None) is not None:
        return True
    try:
        return hasattr(value, name)
    except Exception:  # noqa: BLE001 - the user's `__getattr__` may raise anything; `_problems_of_member` reports it
        return True


def _problems_of_member(value: object, name: str, member: Callable[..., Any], protocol: Any) -> Iterator[str]:
    """Yield why a method of an object cannot be called in place of `member`, the method of a protocol."""
    static = inspect.getattr_static(value, name, None)
    # What a base class provides, and the object does not override, is right.
    if not _is_protocol(protocol) and static is inspect.getattr_static(protocol, name):
        return
    if isinstance(static, property):
        yield f"{name} is a property, not a method"
        return
    try:
        method = value if name == _CALL and callable(value) else getattr(value, name)
    except Exception as error:  # noqa: BLE001 - the attribute is the user's code, which may raise anything
        yield f"{name} cannot be read: {type(error).__name__}: {error}"
        return
    if not callable(method):
        yield f"{name} is {describe(method)}, not a method"
        return
    signature = inspect.signature(member)
    parameters = [*signature.parameters.values()][1:]  # without self
    yield from _problems_of_call(
        name if name != _CALL else "it",
        method,
        parameters,
        is_coroutine=inspect.iscoroutinefunction(member),
        annotation=str(signature.return_annotation),
    )


def _problems_of_callable(value: object, protocol: Any) -> list[str]:
    if not callable(value):
        return ["it cannot be called"]
    if isinstance(value, type) and isinstance(inspect.getattr_static(value, _CALL, None), FunctionType):
        return [f"it is a class whose instances can be called; write {value.__name__}() to pass an instance"]
    arguments, annotation = get_args(protocol)
    # The type has no names for the arguments.
    parameters = [
        inspect.Parameter(f"argument{number}", inspect.Parameter.POSITIONAL_ONLY)
        for number, _ in enumerate(arguments, 1)
    ]
    text = str(annotation)
    is_coroutine = any(word in text for word in _AWAITABLE)
    return [*_problems_of_call("it", value, parameters, is_coroutine=is_coroutine, annotation=text)]


def _problems_of_call(
    name: str, method: Any, parameters: list[inspect.Parameter], *, is_coroutine: bool, annotation: str
) -> Iterator[str]:
    """Yield why a method cannot be called as the protocol states.

    Parameters
    ----------
    parameters
        Parameters of the protocol's method. Those without a name for callers are passed by position, and so are all
        others that may be.
    annotation
        Return annotation of the protocol's method as text.
    """
    problem = _problem_of_signature(name, method, parameters)
    if problem:
        yield problem
    inner = _python_function(method)
    is_function = type(inner) is FunctionType  # `isinstance` is also True for a mock of a function
    is_generator = is_function and (inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner))
    if is_generator and not any(word in annotation for word in _ITERABLE):
        yield f"{name} is a generator function, whose body does not run when it is called; remove `yield`"
    elif is_coroutine and not is_async(method) and _is_certainly_sync(inner):
        yield f"{name} is not a coroutine function; write `async def`"
    elif not is_coroutine and (is_async(method) or (is_function and inspect.isasyncgenfunction(inner))):
        yield f"{name} is a coroutine function, but it is called without `await`; write `def`"


def _python_function(method: Any) -> Any:
    """Return the function that runs when a method, a partial or an object with a method ``__call__`` is called."""
    inner = without_partials(method)
    if not isinstance(inner, FunctionType | MethodType | type):
        inner = getattr(type(inner), _CALL, inner)
    return inner.__func__ if isinstance(inner, MethodType) else inner


def _is_certainly_sync(function: Any) -> bool:
    """Return True for a Python function that does not return something to await, as far as its annotation tells."""
    if not isinstance(function, FunctionType):
        return False  # C code and objects that create methods on access
    annotation = str(function.__annotations__.get("return", ""))
    return not any(word in annotation for word in _AWAITABLE)


def _problem_of_signature(name: str, method: Any, parameters: list[inspect.Parameter]) -> str | None:
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):
        # A method of a class whose function has no parameter for the instance.
        if isinstance(method, MethodType) and isinstance(method.__func__, FunctionType):
            return f"{name} has no parameter `self`"
        return None  # C code without a signature
    by_name = [each for each in parameters if each.kind is each.KEYWORD_ONLY]
    by_position = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    # Callers pass all arguments, or leave out those with defaults.
    calls = (
        (by_position, by_name),
        ([each for each in by_position if each.default is each.empty], [e for e in by_name if e.default is e.empty]),
    )
    for positional, keywords in calls:
        try:
            signature.bind(*positional, **{each.name: each for each in keywords})
        except TypeError:
            call = ", ".join([*(each.name for each in positional), *(f"{each.name}=..." for each in keywords)])
            parameters_of_user = ", ".join(_shown(each) for each in signature.parameters.values())
            return f"{name} takes ({parameters_of_user}), but is called with ({call})"
    return None


def _shown(parameter: inspect.Parameter) -> str:
    """Return a parameter as its author wrote it, without its annotation and its default."""
    prefixes: dict[object, str] = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}
    prefix = prefixes.get(parameter.kind, "")
    return f"{prefix}{parameter.name}{'' if parameter.default is parameter.empty else '=...'}"


def _answers_to_every_name(value: object) -> bool:
    try:
        return hasattr(value, _NO_NAME)
    except Exception:  # noqa: BLE001 - the user's `__getattr__` may raise anything; the members then name the error
        return False


def _described(value: object) -> str:
    return f"the module {value.__name__}" if isinstance(value, ModuleType) else describe(value)


def _in_words(protocol: Any) -> str:
    """Return a noun phrase for a protocol: its dotted name and the calls that it needs."""
    if get_origin(protocol) is Callable:
        arguments, annotation = get_args(protocol)
        kind = "an async function" if any(word in str(annotation) for word in _AWAITABLE) else "a function"
        return f"{kind} that is called with {len(arguments)} argument{'' if len(arguments) == 1 else 's'}"
    path = f"{protocol.__module__}.{protocol.__qualname__}"
    if not _is_protocol(protocol):
        return f"an instance of {path} or of a subclass"
    methods = [f"{name}{_parameters_in_words(member)}" for name, member in _members(protocol).items()]
    return f"an object that implements {path} ({', '.join(methods)})"


def _parameters_in_words(member: Callable[..., Any]) -> str:
    parameters = [*inspect.signature(member).parameters.values()][1:]
    return f"({', '.join(_shown(each) for each in parameters)})"
