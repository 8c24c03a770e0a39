"""Callables that are not plain functions (methods, partials, callable objects) as functions.

Steps, actions and tools set attributes on their function, read its source and signature, and cache by it. A plain
function allows all of that; `as_function` makes one of any callable, so that no other code has to know the difference.
"""

from __future__ import annotations

import functools
import inspect
from types import FunctionType
from typing import Any, cast

from divebook.errors import DefinitionError, Problem
from divebook.workflow.parameter_types import hints_of

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
