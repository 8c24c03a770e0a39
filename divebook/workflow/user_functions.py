"""A person's function, and how it is called: what steps, actions and tools have in common."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from divebook.errors import DefinitionError, Problem, shown_number
from divebook.events.codec import locate_surrogate
from divebook.text.names import normal_name
from divebook.text.ranges import SOME_SECONDS
from divebook.workflow.policies import Retry

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
    """Whether it changes what it is given, so that it must run in this process."""
    makes_calls: ClassVar[bool] = False
    """Whether it is given the step, the name of its workspace, the arguments and the key, and makes calls itself."""

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
        """Whether it may simply be called again when it is not known if a call took effect."""
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
    """Whether it is a coroutine function."""
    key: bool = False
    """Whether it wants a text that is the same whenever its call is repeated."""
    context: bool = False
    """Whether it wants what it may tell the execution: a parameter ``context`` without a default."""
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
